"""Nodes that Slurm starts when jobs ask for them and stops when they stand idle: lines of slurm.conf, and programs.

Semantics: Slurm 26.11, doc/man/man5/slurm.conf.5 (node state CLOUD, SuspendTime of a partition, ResumeTimeout),
doc/html/power_save.shtml (the programs get a hostlist) and doc/html/gres.shtml ("MIG Management": a type is part of the
profile's name, AutoDetect=nvml, layouts are made before slurmd starts).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from trimtab.emit.manifests.emission import ApplyStage, ManifestFile
from trimtab.emit.manifests.facts import EmitFacts
from trimtab.emit.manifests.karpenter import node_limit
from trimtab.emit.manifests.objects import node_name
from trimtab.emit.manifests.placed import PlacedWorkload
from trimtab.emit.manifests.pool_specs import PoolSpec

CLOUDS = frozenset({"aws", "azure", "gcp"})
"""Providers whose machines the programs start and stop."""
_RESUME_TIMEOUT_S = 900
"""From the request for a node to slurmd's answer: a GPU machine boots and installs for longer than the default of 60 s."""
_SUSPEND_TIMEOUT_S = 120


def slurm_files(
    specs: Sequence[PoolSpec], placed: Sequence[PlacedWorkload], facts: EmitFacts, present: Mapping[str, Sequence[str]]
) -> Iterator[ManifestFile]:
    """Yield a file of lines for each need, and the programs that start and stop its nodes where a cloud has them.

    `present` are the nodes that a need goes on with, by its name.
    """
    for spec in specs:
        members = [workload for workload in placed if workload.name in spec.workloads]
        text = slurm_lines(spec, members, facts, present.get(spec.name, ()))
        yield _file(f"slurm/{_stem(spec)}.conf", text, "lines of slurm.conf", [spec])
    clouds = [spec for spec in specs if spec.pool.provider in CLOUDS]
    if clouds:
        yield _file("slurm/trimtab-resume.sh", resume_program(clouds), "Slurm's ResumeProgram", clouds)
        yield _file("slurm/trimtab-suspend.sh", suspend_program(clouds), "Slurm's SuspendProgram", clouds)


def _file(path: str, text: str, kind: str, specs: Sequence[PoolSpec]) -> ManifestFile:
    actions = tuple(dict.fromkeys(action.id for spec in specs for action in spec.actions))
    return ManifestFile(path=path, text=text, kind=kind, actions=actions, stage=ApplyStage.NODES)


def _stem(spec: PoolSpec) -> str:
    return node_name(spec.name.removeprefix("trimtab-"))


def slurm_lines(
    spec: PoolSpec, members: Sequence[PlacedWorkload], facts: EmitFacts, present: Sequence[str] = ()
) -> str:
    """Return the lines of one need: its nodes, its partition, and what its jobs then ask for."""
    name, most, kept_s = _stem(spec), node_limit(spec, facts), round(spec.kept_s)
    owned = spec.pool.provider not in CLOUDS
    nodes = ",".join(sorted(present)) or (f"{name}-[1-{most}]" if most > 1 else f"{name}-1")
    gres = ",".join(f"gpu:{kind}{count}" for kind, count in _gres(spec, members))
    jobs = "\n".join(_job_lines(spec, workload, name) for workload in members)
    held = "spot" if spec.spot else "on-demand"
    fill = f"# FILL IN: CPUs and RealMemory as `slurmd -C` prints them on a {spec.pool.instance_type}"
    line = f"Gres={gres} Feature={spec.pool.instance_type},{held} CPUs=1 RealMemory=1000"
    if owned:
        there = f"# These nodes have their NodeName lines already; what they must say is Gres={gres}."
        defined = there if present else f"{fill}, and the names of the hosts\nNodeName={nodes} {line}"
        power, programs = "", ""
    else:
        defined = f"{fill}\nNodeName={nodes} State=CLOUD {line}"
        power = f" SuspendTime={kept_s} SuspendTimeout={_SUSPEND_TIMEOUT_S} ResumeTimeout={_RESUME_TIMEOUT_S}"
        programs = (
            _PROGRAMS
            + f"# A node ends after {kept_s} s without a job, as replayed; one in several partitions after the longest.\n"
        )
    return f"""# Made by trimtab for {", ".join(action.id for action in spec.actions)}: nodes of {", ".join(spec.workloads)}.
# Take these lines into slurm.conf (`include`), restart slurmctld for new nodes, then look: scontrol show partition {name}
{programs}GresTypes=gpu

{defined}
{_WHOLE if spec.cut is None else _CUT}
PartitionName={name} Nodes={nodes} State=UP MaxTime=INFINITE{power}

# In the scripts of its jobs:
{jobs}"""


_PROGRAMS = """\
# The programs run as SlurmUser on the controller. Once for the cluster; where they are set, add these cases to yours.
SuspendProgram=/etc/slurm/trimtab-suspend.sh
ResumeProgram=/etc/slurm/trimtab-resume.sh
# Nodes that must never be stopped (FILL IN the present ones): the global SuspendTime stays INFINITE, the partition's counts.
"""
_WHOLE = """# In gres.conf of these nodes `AutoDetect=nvml`; types are those of your other Gres lines.
"""
_CUT = """# MIG: in gres.conf of these nodes `AutoDetect=nvml`; the layout must be there before slurmd starts (hosts/).
# A type is part of the profile's name as slurmd logs it at debug2: see that it says the same.
"""


def _gres(spec: PoolSpec, members: Sequence[PlacedWorkload]) -> list[tuple[str, int]]:
    """Return the type, with its colon, and the count of the GPUs of a node; slices by their profile."""
    gpu = next((workload.place.gpu for workload in members if workload.place.gpu), None)
    board = f"{gpu.partition('-')[0].lower()}" if gpu else ""
    if spec.cut is None or not spec.cut.isolated:
        return [(f"{board}:" if board else "", spec.gpus_per_node)]
    mark = f"{board}_" if board else ""
    return [(f"{mark}{kind.profile}:", count) for kind, count in spec.cut.slots.items() if count]


def _job_lines(spec: PoolSpec, workload: PlacedWorkload, partition: str) -> str:
    kind = _gres(spec, [workload])[0][0]
    count = 1 if spec.cut is not None else max(1, round(workload.place.gpus_per_pod))
    if spec.cut is not None and workload.place.shared is not None:
        kind = next(
            (found for found, _ in _gres(spec, [workload]) if workload.place.shared.shared.profile in found), kind
        )
        count = workload.place.shared.slots
    again = (
        "\n#   #SBATCH --requeue      # a lost node starts it again: it must go on from its own checkpoint"
        if spec.spot
        else ""
    )
    return f"# {workload.name}:\n#   #SBATCH --partition={partition}\n#   #SBATCH --gres=gpu:{kind}{count}{again}\n"


def resume_program(specs: Sequence[PoolSpec]) -> str:
    """Return the program that Slurm starts with a hostlist when jobs wait for nodes that are off."""
    cases = "\n".join(
        f"    {_stem(spec)}-*)\n      {_START[spec.pool.provider].format(**_words(spec))} ;;" for spec in specs
    )
    return f"""{_HEAD.format(about="Slurm's ResumeProgram: starts the nodes of a hostlist, each by its own name.")}
# FILL IN: a launch template (AWS, GCP) or image (Azure) whose machines join this cluster with slurmd under the name they get.
: "${{TEMPLATE:?launch template or image of a compute node}}" "${{GROUP:=}}"

for node in $(scontrol show hostnames "$1"); do
  case "$node" in
{cases}
    *) echo "trimtab-resume: no such node: $node" >&2 ;;
  esac
done
"""


def suspend_program(specs: Sequence[PoolSpec]) -> str:
    """Return the program that Slurm starts with a hostlist of nodes that have stood idle."""
    cases = "\n".join(
        f"    {_stem(spec)}-*)\n      {_STOP[spec.pool.provider].format(**_words(spec))} ;;" for spec in specs
    )
    return f"""{_HEAD.format(about="Slurm's SuspendProgram: ends the machines of a hostlist; halted ones may be billed on.")}
: "${{GROUP:=}}"

for node in $(scontrol show hostnames "$1"); do
  case "$node" in
{cases}
    *) echo "trimtab-suspend: no such node: $node" >&2 ;;
  esac
done
"""


_HEAD = """#!/usr/bin/env bash
# {about}
# Made by trimtab; nothing here was run. Read it, fill it in, and try it with one node by hand before Slurm does.
set -euo pipefail
"""
_START = {
    "aws": 'aws ec2 run-instances --region {region} --launch-template "LaunchTemplateName=$TEMPLATE" '
    "--instance-type {type}{spot_aws} "
    '--tag-specifications "ResourceType=instance,Tags=[{{Key=Name,Value=$node}},{{Key=trimtab,Value=slurm}}]"',
    "gcp": 'gcloud compute instances create "$node" --zone {region}-a --source-instance-template "$TEMPLATE" '
    "--machine-type {type}{spot_gcp}",
    "azure": 'az vm create --resource-group "$GROUP" --location {region} --name "$node" --image "$TEMPLATE" '
    "--size {type}{spot_azure}",
}
"""How a machine of one name is started; what is bound to it (a zone with capacity, networks) is the template's."""
_STOP = {
    "aws": 'aws ec2 describe-instances --region {region} --filters "Name=tag:Name,Values=$node" Name=tag:trimtab,Values=slurm '
    "Name=instance-state-name,Values=pending,running --query 'Reservations[].Instances[].InstanceId' --output text |\n"
    "        xargs --no-run-if-empty aws ec2 terminate-instances --region {region} --instance-ids",
    "gcp": 'gcloud compute instances delete "$node" --zone {region}-a --quiet',
    "azure": 'az vm delete --resource-group "$GROUP" --name "$node" --yes',
}


def _words(spec: PoolSpec) -> dict[str, str]:
    return {
        "region": shlex.quote(spec.pool.region),
        "type": shlex.quote(spec.pool.instance_type),
        "spot_aws": " --instance-market-options MarketType=spot" if spec.spot else "",
        "spot_gcp": " --provisioning-model SPOT --instance-termination-action DELETE" if spec.spot else "",
        "spot_azure": " --priority Spot --eviction-policy Delete --max-price -1" if spec.spot else "",
    }
