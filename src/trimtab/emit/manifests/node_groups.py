"""Node groups where no Karpenter runs: a script for each that makes it, and what Cluster Autoscaler needs to know.

Sources: EKS API, CreateNodegroup; `gcloud container node-pools create`; `az aks nodepool add`; GKE CRD reference, ComputeClass;
Cluster Autoscaler, cloudprovider/aws/README.md (node-template tags for groups of size 0) and expander/priority/readme.md;
EKS user guide, "Create a managed node group with Capacity Blocks for ML" (a launch template names one block and the type).

A spot group of EKS lists every type that does for the planned one (`spot_types`): Cluster Autoscaler relies on the first of
them, the smallest (cloudprovider/aws/README.md, "Using Mixed Instances Policies and Spot Instances"). Node pools of GKE and AKS
are of one type, so that each other type has a group of its own, which comes after the planned one and before on demand.
"""

from __future__ import annotations

import hashlib
import math
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from trimtab.emit.manifests.emission import (
    ApplyStage,
    ManifestFile,
    Piece,
    Plain,
    Withheld,
    dns_name,
    metadata,
    yaml_text,
)
from trimtab.emit.manifests.facts import EmitFacts
from trimtab.emit.manifests.gpu_sharing import GKE_MOST_CLIENTS, Cut, node_label, slot_resource
from trimtab.emit.manifests.karpenter import GPU_RESOURCE, GPU_TAINT, SLICES, SPOT_TAINT, SPREAD, node_limit
from trimtab.emit.manifests.pool_specs import COMPUTE_CLASS, GROUP_LABEL, PoolSpec
from trimtab.units import S_PER_MIN

PRIORITIES = "cluster-autoscaler-priority-expander"
"""The name that Cluster Autoscaler reads (expander/priority/readme.md)."""
_SPOT, _ON_DEMAND, _BEHIND, _OTHERS = 20, 10, 5, 1
_AKS_NAME_LENGTH = 12
"""Of a Linux node pool: lowercase letters and digits (AKS, "Create node pools", limitations)."""
_GKE_NAME_LENGTH = 40
_EKS_NAME_LENGTH = 63
_RESERVATION_LENGTH = 18
"""Of `-` and the hexadecimal digits of a capacity reservation's id."""
_EFFECTS: Mapping[str, str] = MappingProxyType({"NoSchedule": "NO_SCHEDULE"})
"""How EKS spells a taint's effect."""
_HEAD = """#!/usr/bin/env bash
# {about}
# Made by trimtab for {actions}; nothing here was run. It makes groups and takes none away.
set -euo pipefail
"""


def group_files(spec: PoolSpec, facts: EmitFacts) -> Iterator[Piece]:
    """Yield the script of a need's node groups, one for each way to hold nodes; on GKE the class that prefers one too."""
    names = tuple(action.id for action in spec.actions)
    if (reason := by_hand(spec)) is not None:
        for name in names:
            yield Withheld(action=name, subject=", ".join(spec.workloads), reason=reason)
        return
    yield ManifestFile(
        path=group_script_path(spec),
        text=group_script(spec, facts),
        kind="script of a node group",
        actions=names,
        stage=ApplyStage.NODES,
    )
    if spec.pool.provider == "gcp":
        yield ManifestFile(
            path=f"nodes/{spec.name.removeprefix('trimtab-')}.computeclass.yaml",
            text=yaml_text(compute_class(spec), comment=f"trimtab {', '.join(names)}: once its node pools are made"),
            kind="ComputeClass",
            actions=names,
            stage=ApplyStage.NODES,
        )


def group_script_path(spec: PoolSpec) -> str:
    """Return where the script of a need's node groups is written."""
    return f"node-groups/{spec.name.removeprefix('trimtab-')}.sh"


def by_hand(spec: PoolSpec) -> str | None:
    """Return what of a need no node group carries; None where one does."""
    what = None
    if spec.blocks and spec.pool.provider != "aws":
        what = "capacity blocks"
    elif spec.cut is not None and spec.provider_cuts:
        what = _not_by_gke(spec, spec.cut)
    if what is None:
        return None
    return f"{what} in a node group of {spec.pool.instance_type} ({spec.pool.provider}): set up by hand"


def _not_by_gke(spec: PoolSpec, cut: Cut) -> str | None:
    """Return which cut of GPUs GKE does not make: it cuts all GPUs of a node pool alike, and gives a container one part."""
    if len(cut.kinds) > 1:
        return "GPUs cut into several profiles"
    if not spec.each_asks_one:
        return "several parts of a GPU for one replica, or parts that are claimed,"
    if not cut.isolated and cut.per_gpu > GKE_MOST_CLIENTS:
        return f"more than {GKE_MOST_CLIENTS} shares of a GPU"
    return None


def group_script(spec: PoolSpec, facts: EmitFacts) -> str:
    """Return the script that makes the groups of a need, from 0 nodes up to its limit."""
    most, behind = node_limit(spec, facts), 0 if spec.behind is None else node_limit(spec.behind, facts)
    then = "" if spec.behind is None else f", then {spec.behind.pool.instance_type}, 0 to {behind} nodes"
    head = _HEAD.format(
        about=f"{spec.pool.instance_type} in {spec.pool.region}, 0 to {most} nodes{then}, for {', '.join(spec.workloads)}",
        actions=", ".join(action.id for action in spec.actions),
    )
    make = {"aws": _eks, "gcp": _gke, "azure": _aks}[spec.pool.provider]
    # what is to be filled in is asked for once, whatever the number of groups
    most = math.ceil(most / max(1, spec.one_in))
    lines = dict.fromkeys(
        line for group in _groups(spec) for line in make(spec, group, behind if group.behind else most)
    )
    if not spec.blocks:
        return head + "\n".join(lines) + "\n"
    first, *others = lines
    once = "\n".join(["# Once: the group on demand, for what finds no booked node", *others])
    body = f'if [ -z "${{RESERVATION:-}}" ]; then\n{once}\n  exit\nfi\n'
    return head + first + body + _block_group(spec) + "\n"


@dataclass(frozen=True, slots=True)
class _Group:
    """One node group of a need: it holds nodes in one way."""

    types: tuple[str, ...]
    spot: bool
    share: int = 0
    """Which share of the replicas of a hedged service it takes, counted from 1; 0: all."""
    rank: int = 0
    """How many types of spot nodes are cheaper, each in a group of its own; 0: it is of the planned one."""
    behind: bool = False
    """Whether it takes what has no room in the group before it, on nodes of another type."""


def _groups(spec: PoolSpec) -> tuple[_Group, ...]:
    """Return the node groups of a need: behind those on spot there is one on demand.

    Of a hedged service the replicas are spread evenly over shares, each a label that one group gives to its nodes; the first
    share is on demand alone (karpenter.sh/docs/concepts/scheduling, "On-Demand/Spot Ratio Split", with groups for pools).
    """
    planned = (spec.pool.instance_type,)
    if spec.behind is not None:
        return (_Group(planned, spot=False), _Group((spec.behind.pool.instance_type,), spot=False, behind=True))
    if not spec.spot:
        return (_Group(planned, spot=False),)
    if not spec.one_in:
        return (*_spot_groups(spec, 0), _Group(planned, spot=False))
    return (
        _Group(planned, spot=False, share=1),
        *(
            group
            for share in range(2, spec.one_in + 1)
            for group in (*_spot_groups(spec, share), _Group(planned, spot=False, share=share))
        ),
    )


def _spot_groups(spec: PoolSpec, share: int) -> Iterator[_Group]:
    """Yield the groups of spot nodes of a share: one of all types on EKS, elsewhere one of each."""
    if spec.pool.provider == "aws":
        yield _Group(spec.instance_types, spot=True, share=share)
        return
    for rank, name in enumerate(spec.instance_types):
        yield _Group((name,), spot=True, share=share, rank=rank)


def group_name(spec: PoolSpec, group: _Group) -> str:
    """Return the name of a group, within what its provider allows."""
    parts = [spec.behind_name if group.behind else spec.name]
    parts += [*([f"share-{group.share}"] if group.share else []), *(group.types if group.rank else ())]
    wanted = "-".join([*parts, "fallback"] if (spec.spot and not group.spot) or spec.blocks else parts)
    match spec.pool.provider:
        case "azure":
            return ("tt" + hashlib.sha256(wanted.encode()).hexdigest())[:_AKS_NAME_LENGTH]
        case "gcp":
            return dns_name(wanted, length=_GKE_NAME_LENGTH)
        case _:
            return dns_name(wanted, length=_EKS_NAME_LENGTH)


def _labels(spec: PoolSpec, group: _Group) -> dict[str, str]:
    labels = {COMPUTE_CLASS if spec.pool.provider == "gcp" else GROUP_LABEL: spec.name}
    labels |= {SLICES: spec.beside} if spec.beside else {}
    labels |= {SPREAD: str(group.share)} if group.share else {}
    # GKE labels nodes by how it cuts their GPUs itself
    return labels | (dict([node_label(spec.cut)]) if spec.cut is not None and not spec.provider_cuts else {})


def _taint(spec: PoolSpec) -> Mapping[str, Plain]:
    return SPOT_TAINT if spec.spot else GPU_TAINT


def _eks(spec: PoolSpec, group: _Group, most: int) -> Iterator[str]:
    name, taint, region = group_name(spec, group), _taint(spec), shlex.quote(spec.pool.region)
    labels = ",".join(f"{key}={value}" for key, value in _labels(spec, group).items())
    yield """
# FILL IN: the cluster, the role of its nodes, the subnets (separated by blanks), an AMI type with NVIDIA's driver
: "${CLUSTER:?name of the EKS cluster}" "${NODE_ROLE:?ARN of the IAM role of its nodes}" "${SUBNETS:?subnet ids}"
AMI_TYPE="${AMI_TYPE:-AL2023_x86_64_NVIDIA}"
"""
    yield f"""# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region {region} --cluster-name "$CLUSTER" --nodegroup-name {name} \\
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \\
  --instance-types {" ".join(map(shlex.quote, group.types))} --capacity-type {"SPOT" if group.spot else "ON_DEMAND"} \\
  --scaling-config minSize=0,maxSize={most},desiredSize=0 \\
  --labels {shlex.quote(labels)} \\
  --taints key={taint["key"]},value={taint["value"]},effect={_EFFECTS[str(taint["effect"])]}
aws eks wait nodegroup-active --region {region} --cluster-name "$CLUSTER" --nodegroup-name {name}"""
    if spec.cut is not None:
        yield f"""
# What a node will offer once it is cut: from size 0 Cluster Autoscaler knows it from these tags alone
GROUP="$(aws eks describe-nodegroup --region {region} --cluster-name "$CLUSTER" --nodegroup-name {name} \\
  --query 'nodegroup.resources.autoScalingGroups[0].name' --output text)"
aws autoscaling create-or-update-tags --region {region} --tags \\"""
        tags = {slot_resource(kind): count for kind, count in spec.cut.slots.items() if count} | {GPU_RESOURCE: 0}
        yield " \\\n".join(
            f'  "ResourceId=$GROUP,ResourceType=auto-scaling-group,PropagateAtLaunch=false,'
            f'Key=k8s.io/cluster-autoscaler/node-template/resources/{resource},Value={count}"'
            for resource, count in tags.items()
        )


def _block_group(spec: PoolSpec) -> str:
    """Return what makes the group of one block that was bought: a launch template holds its reservation."""
    taint, region = _taint(spec), shlex.quote(spec.pool.region)
    whole = _Group((spec.pool.instance_type,), spot=False)
    labels = ",".join(f"{key}={value}" for key, value in _labels(spec, whole).items())
    return f"""
# For each block that was bought: RESERVATION=cr-... NODES=4 SUBNETS=<those of its zone> bash this-script.
# Its nodes are reclaimed half an hour before it ends; delete its group afterwards:
#   aws eks delete-nodegroup --region {region} --cluster-name "$CLUSTER" --nodegroup-name "$NAME"
: "${{NODES:?nodes of the block}}"
NAME={block_group_prefix(spec)}-"${{RESERVATION#cr-}}"
aws ec2 create-launch-template --region {region} --launch-template-name "$NAME" --launch-template-data \\
  '{{"InstanceType": "{spec.pool.instance_type}", "InstanceMarketOptions": {{"MarketType": "capacity-block"}},
    "CapacityReservationSpecification": {{"CapacityReservationTarget": {{"CapacityReservationId": "'"$RESERVATION"'"}}}}}}'
# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region {region} --cluster-name "$CLUSTER" --nodegroup-name "$NAME" \\
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \\
  --launch-template "name=$NAME,version=1" --capacity-type CAPACITY_BLOCK \\
  --scaling-config "minSize=0,maxSize=$NODES,desiredSize=0" \\
  --labels {shlex.quote(labels)} \\
  --taints key={taint["key"]},value={taint["value"]},effect={_EFFECTS[str(taint["effect"])]}"""


def block_group_prefix(spec: PoolSpec) -> str:
    """Return what the groups of blocks of a need are called, but for the reservation behind it."""
    return dns_name(spec.name, length=_EKS_NAME_LENGTH - _RESERVATION_LENGTH)


def _gke(spec: PoolSpec, group: _Group, most: int) -> Iterator[str]:
    name, taint, value = group_name(spec, group), _taint(spec), spec.name
    gpus = spec.behind.gpus_per_node if group.behind and spec.behind is not None else spec.gpus_per_node
    labels = ",".join(f"{key}={said}" for key, said in _labels(spec, group).items())
    cut = "".join(f",{option}={said}" for option, said in spec.provider_cuts.items())
    accelerator = "ACCELERATOR_BEHIND" if group.behind else "ACCELERATOR"
    # other types of spot nodes have the GPU of the planned one
    named = group.types[0] if group.behind else spec.pool.instance_type
    yield f"""
# FILL IN: the cluster, and the accelerator of {named} as `gcloud compute accelerator-types list` spells it
: "${{CLUSTER:?name of the GKE cluster}}" "${{{accelerator}:?such as nvidia-tesla-a100}}"
"""
    yield f"""gcloud container node-pools create {name} --cluster "$CLUSTER" --location {shlex.quote(spec.pool.region)} \\
  --machine-type {shlex.quote(group.types[0])}{" --spot" if group.spot else ""} \\
  --accelerator "type=${accelerator},count={gpus}{cut},gpu-driver-version=default" \\
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes {most} --location-policy ANY \\
  --node-labels {labels} \\
  --node-taints {COMPUTE_CLASS}={value}:NoSchedule,{taint["key"]}={taint["value"]}:{taint["effect"]}"""


def _aks(spec: PoolSpec, group: _Group, most: int) -> Iterator[str]:
    name, taint = group_name(spec, group), _taint(spec)
    labels = " ".join(shlex.quote(f"{key}={value}") for key, value in _labels(spec, group).items())
    held = " \\\n  --priority Spot --eviction-policy Delete --spot-max-price -1" if group.spot else ""
    yield """
# FILL IN: the resource group and the cluster. A spot pool gets the taint kubernetes.azure.com/scalesetpriority=spot from AKS.
: "${GROUP:?resource group}" "${CLUSTER:?name of the AKS cluster}"
"""
    yield f"""az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name {name} \\
  --node-vm-size {shlex.quote(group.types[0])} --mode User{held} \\
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count {most} \\
  --labels {labels} --node-taints {taint["key"]}={taint["value"]}:{taint["effect"]}"""


def compute_class(spec: PoolSpec) -> dict[str, Plain]:
    """Return GKE's class that takes spot pools first and scales nothing else up (GKE CRD reference, ComputeClass)."""
    grouped = _groups(spec)
    levels = [(True, rank) for rank in range(len(spec.instance_types))] + [(False, 0), (False, 1)]
    return {
        "apiVersion": "cloud.google.com/v1",
        "kind": "ComputeClass",
        "metadata": metadata(spec.name, spec.actions),
        "spec": {
            "priorities": [
                {"nodepools": names}
                for level in levels
                if (
                    names := [
                        group_name(spec, group) for group in grouped if (group.spot, group.rank + group.behind) == level
                    ]
                )
            ],
            "whenUnsatisfiable": "DoNotScaleUp",
            "autoscalingPolicy": {
                "consolidationDelayMinutes": _kept_min([spec]),
                # runs are moved nowhere: only a node without any GPU in use is given back
                **({"gpuConsolidationThreshold": 0} if spec.empties else {}),
            },
        },
    }


def _kept_min(specs: Sequence[PoolSpec]) -> int:
    """Return how long a node that nothing needs is kept: the autoscaler has one time, so the longest that was replayed."""
    return max(1, round(max(spec.kept_s for spec in specs) / S_PER_MIN))


def autoscaler_files(specs: Sequence[PoolSpec]) -> Iterator[ManifestFile]:
    """Yield what Cluster Autoscaler needs to know of a cluster's groups: which to grow first, and when to give nodes back."""
    grouped = [spec for spec in specs if spec.by_group and spec.pool.provider != "gcp" and by_hand(spec) is None]
    if not grouped:
        return
    actions = list({action.id: action for spec in grouped for action in spec.actions}.values())
    names = tuple(action.id for action in actions)
    levels: dict[int, list[str]] = defaultdict(list)
    for spec in grouped:
        for group in _groups(spec):
            levels[_level(group)].append(_scaling_group(spec, group))
    levels[_SPOT] += [f"^eks-{block_group_prefix(spec)}-[0-9a-f]+-.*" for spec in grouped if spec.blocks]
    levels[_OTHERS] = [".*"]
    text = "".join(
        f"{level}:\n" + "".join(f"  - {name}\n" for name in held)
        for level, held in sorted(levels.items(), reverse=True)
        if held
    )
    yield ManifestFile(
        path=f"nodes/{PRIORITIES}.configmap.yaml",
        text=yaml_text(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata(PRIORITIES, actions, namespace="kube-system"),
                "data": {"priorities": text},
            },
            comment="for Cluster Autoscaler with expander=priority: the highest number that matches is grown first",
        ),
        kind="ConfigMap",
        actions=names,
        stage=ApplyStage.NODES,
    )
    if any(spec.pool.provider == "aws" for spec in grouped):
        values: dict[str, Plain] = {
            "extraArgs": {
                "expander": "priority,least-waste",
                "scale-down-unneeded-time": f"{_kept_min(grouped)}m",
                "scale-down-delay-after-add": f"{_kept_min(grouped)}m",
                "skip-nodes-with-local-storage": False,
            }
        }
        yield ManifestFile(
            path="helm/cluster-autoscaler.values.yaml",
            text=yaml_text(values, comment="Helm values of cluster-autoscaler, to be merged with yours"),
            kind="Helm values",
            actions=names,
            stage=ApplyStage.DECIDE,
        )


def _level(group: _Group) -> int:
    """Return how early a group is grown: cheap types of spot nodes first, on demand after them, then other types behind."""
    if group.spot:
        return max(_ON_DEMAND + 1, _SPOT - group.rank)
    return _BEHIND if group.behind else _ON_DEMAND


def _scaling_group(spec: PoolSpec, group: _Group) -> str:
    """Return a regular expression for the scaling group that the provider makes for a node group."""
    name = group_name(spec, group)
    return f"^aks-{name}-.*" if spec.pool.provider == "azure" else f"^eks-{name}-[0-9a-f]{{8}}-.*"


def group_needs(specs: Sequence[PoolSpec]) -> Iterator[str]:
    """Yield what node groups need in the cluster before anything is applied."""
    grouped = [spec for spec in specs if spec.by_group]
    if not grouped:
        return
    yield "the scripts in `node-groups/` run, each once and after it was read: they make the groups that pods will ask for"
    providers = {spec.pool.provider for spec in grouped}
    if providers & {"aws", "azure"}:
        yield (
            f"Cluster Autoscaler with `expander=priority`; where a ConfigMap `{PRIORITIES}` is there already, add its lines to "
            "the one in `nodes/` (there can be one only)"
        )
    if "azure" in providers:
        yield (
            "`az aks update --cluster-autoscaler-profile expander=priority "
            f"scale-down-unneeded-time={_kept_min(grouped)}m scale-down-delay-after-add={_kept_min(grouped)}m`, beside "
            "what your profile has (it is replaced whole)"
        )
    if "gcp" in providers:
        yield "GKE 1.30.3 or later, for ComputeClasses (1.33 for `gpuConsolidationThreshold`)"
    if any(spec.provider_cuts for spec in grouped):
        yield "no device plugin of NVIDIA's GPU operator on nodes whose GPUs GKE cuts: GKE's own does it"
