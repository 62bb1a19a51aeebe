"""What enacts a plan on machines that no Kubernetes runs: Slurm's nodes, Terraform variables, scripts for a host.

Semantics: Slurm 26.11, doc/man/man5/slurm.conf.5 (node state CLOUD, SuspendTime of a partition, ResumeTimeout),
doc/html/power_save.shtml (the programs get a hostlist) and doc/html/gres.shtml ("MIG Management": a type is part of the
profile's name, AutoDetect=nvml, layouts are made before slurmd starts).

The variables say types, sizes and how instance groups are held. Which resources a site's own modules make of them is theirs;
the comments name the arguments of the providers' resources (hashicorp/aws aws_autoscaling_group, hashicorp/google
google_compute_autoscaler, hashicorp/azurerm azurerm_linux_virtual_machine_scale_set).
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from trimtab.deployment.effects import SetReplicaPolicy, SetSchedule
from trimtab.emit.manifests.emission import ApplyStage, ManifestFile, Piece, node_name
from trimtab.emit.manifests.facts import SLURM, EmitFacts, NodeFacts
from trimtab.emit.manifests.host_scripts import host_files
from trimtab.emit.manifests.karpenter import node_limit
from trimtab.emit.manifests.pool_specs import PlacedWorkload, PoolSpec, pool_specs
from trimtab.emit.manifests.scope import Scope

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


def machine_files(scope: Scope) -> Iterator[Piece]:
    """Yield the files of the workloads that run outside Kubernetes; nothing where there is none."""
    on_slurm = [workload for workload in scope.off.values() if workload.known.owner_kind == SLURM]
    elsewhere = [workload for workload in scope.off.values() if workload.known.owner_kind != SLURM]
    slurm_specs, other_specs = pool_specs(on_slurm), pool_specs(elsewhere)
    # clouds give Slurm new nodes by name; owned nodes, and machines of a group, are those that are there
    stay = _staying(scope, [spec for spec in slurm_specs if spec.pool.provider not in CLOUDS])
    yield from slurm_files(slurm_specs, on_slurm, scope.facts, stay)
    yield from terraform_files(other_specs, elsewhere, scope.facts)
    yield from host_files((*slurm_specs, *other_specs))
    yield from _given_back(scope, slurm_specs, stay, slurm=True)
    yield from _given_back(scope, other_specs, _staying(scope, other_specs), slurm=False)


def _left_by(scope: Scope, specs: Sequence[PoolSpec]) -> list[NodeFacts]:
    """Return the machines that only the workloads of some needs hold, in the order in which to empty them."""
    leaving = {name for spec in specs for name in spec.workloads}
    found = [node for node in scope.facts.nodes if node.goes_with and leaving.issuperset(node.goes_with)]
    return sorted(found, key=lambda node: (len(node.held_by), node.name))


def _staying(scope: Scope, specs: Sequence[PoolSpec]) -> dict[str, tuple[str, ...]]:
    """Return the present machines that a need goes on with, by its name: as many as it asks for, of its own kind."""
    return {
        spec.name: tuple(
            [node.name for node in reversed(_left_by(scope, [spec])) if node.pool.nodes == spec.pool.nodes][
                : spec.nodes
            ]
        )
        for spec in specs
        if not spec.spot
    }


def _given_back(
    scope: Scope, specs: Sequence[PoolSpec], stay: Mapping[str, Sequence[str]], *, slurm: bool
) -> Iterator[ManifestFile]:
    """Yield an order for each kind of machine that only those who leave hold."""
    kept = {name for names in stay.values() for name in names}
    groups: dict[str, list[NodeFacts]] = defaultdict(list)
    for node in _left_by(scope, specs):
        if node.name not in kept:
            groups[node.pool.instance_type].append(node)
    for instance_type, nodes in sorted(groups.items()):
        held_by = sorted({workload for node in nodes for workload in node.goes_with})
        actions = dict.fromkeys(action.id for name in held_by for action in scope.off[name].actions)
        yield ManifestFile(
            path=f"orders/{node_name('give-back', 'slurm' if slurm else 'machines', instance_type)}.md",
            text=_page(instance_type, nodes, held_by, slurm=slurm),
            kind="steps for a person",
            actions=tuple(actions),
            stage=ApplyStage.RELEASE,
        )


def _page(instance_type: str, nodes: Sequence[NodeFacts], held_by: Sequence[str], *, slurm: bool) -> str:
    names = [node.name for node in nodes]
    commas = shlex.quote(",".join(names))
    steps = (
        f"""```sh
scontrol update NodeName={commas} State=DRAIN Reason="given back: their jobs run elsewhere"
squeue --nodelist={commas}      # empty: runs under way end by themselves
```

Then take the nodes out of their `NodeName` and `PartitionName` lines, restart slurmctld, and end the machines (owned ones: \
switch them off, or give them to other work)."""
        if slurm
        else """Take them from their load balancer or queue, see with `nvidia-smi` that nothing holds a GPU, lower the group's \
size (`min_size` and `max_size` in Terraform), and end these machines and no others (scale-in protection on those that stay)."""
    )
    listed = "\n".join(f"{number}. `{name}`" for number, name in enumerate(names, 1))
    return f"""# Give back {len(names)} machine{"" if len(names) == 1 else "s"} of {instance_type}

Only {", ".join(f"`{name}`" for name in held_by)} held them. Until they are gone the bill holds both.

{listed}

{steps}

The way back: the same machines and lines again; nothing else changes for their jobs than the partition or group that they name.
"""


_ARGUMENTS: Mapping[str, str] = {
    "aws": "aws_autoscaling_group: min_size, max_size; instance_type and spot in its launch template or mixed_instances_policy",
    "gcp": "google_compute_autoscaler: autoscaling_policy.min_replicas, max_replicas; machine_type and "
    "scheduling.provisioning_model in google_compute_instance_template",
    "azure": "azurerm_linux_virtual_machine_scale_set: sku, priority; azurerm_monitor_autoscale_setting: capacity",
}


def terraform_files(
    specs: Sequence[PoolSpec], placed: Sequence[PlacedWorkload], facts: EmitFacts
) -> Iterator[ManifestFile]:
    """Yield the variables of all groups, and how many machines each may have; nothing where there is no group."""
    if specs:
        yield ManifestFile(
            path="terraform/trimtab-instance-groups.tf",
            text=terraform_text(specs, placed, facts),
            kind="Terraform variables",
            actions=tuple(dict.fromkeys(action.id for spec in specs for action in spec.actions)),
            stage=ApplyStage.NODES,
        )


def terraform_text(specs: Sequence[PoolSpec], placed: Sequence[PlacedWorkload], facts: EmitFacts) -> str:
    """Return one variable whose default is the plan: a site's module reads it with `for_each`."""
    providers = sorted({spec.pool.provider for spec in specs})
    where = "".join(f"# {name}: {_ARGUMENTS[name]}\n" for name in providers if name in _ARGUMENTS)
    groups = "".join(
        _group(spec, [workload for workload in placed if workload.name in spec.workloads], facts) for spec in specs
    )
    return f"""# Made by trimtab; nothing here was applied. Read it into the module that makes your instance groups:
#   for_each = var.trimtab_instance_groups
{where}# The groups that these replace shrink by the orders in orders/, after the new machines have held.

variable "trimtab_instance_groups" {{
  description = "Instance groups of the plan, by name: what machines, how many, and how they are held."
  type = map(object({{
    provider      = string
    region        = string
    instance_type = string
    spot          = bool
    min_size      = number
    max_size      = number
    idle_after_s  = number
    workloads     = list(string)
  }}))
  default = {{
{groups}  }}

  validation {{
    condition     = alltrue([for group in var.trimtab_instance_groups : group.min_size <= group.max_size])
    error_message = "A group's min_size is above its max_size."
  }}
}}
"""


def _group(spec: PoolSpec, members: Sequence[PlacedWorkload], facts: EmitFacts) -> str:
    least, most = sum(_least_nodes(workload) for workload in members), node_limit(spec, facts)
    rows = {
        "provider": spec.pool.provider,
        "region": spec.pool.region,
        "instance_type": spec.pool.instance_type,
        "spot": spec.spot,
        "min_size": min(least, most),
        "max_size": most,
        "idle_after_s": round(spec.kept_s),
        "workloads": list(spec.workloads),
    }
    width = max(map(len, rows))
    body = "".join(f"      {key:{width}} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in rows.items())
    actions = ", ".join(action.id for action in spec.actions)
    return f"    # {actions}\n    {json.dumps(node_name(spec.name))} = {{\n{body}    }}\n"


def _least_nodes(workload: PlacedWorkload) -> int:
    """Return the machines that a workload never goes below: none for runs or out of hours, else those of its least replicas."""
    if workload.runs_to_end or isinstance(workload.place.holding, SetSchedule):
        return 0
    scaling = workload.place.scaling
    replicas = (
        scaling.hpa.min_replicas
        if isinstance(scaling, SetReplicaPolicy)
        else workload.set_replicas or workload.known.replicas
    )
    return -(-replicas // max(1, workload.place.pods_per_node)) * workload.place.nodes_per_pod
