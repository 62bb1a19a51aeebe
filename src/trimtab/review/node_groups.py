"""Node groups, read as pools of nodes: EKS's, GKE's and AKS's own objects, and eksctl's ClusterConfig.

A group holds nodes in one way. Cluster Autoscaler, or the provider's, starts and removes them between its least and its most;
nodes of a group where those are the same are never given back. Sources: AWS Controllers for Kubernetes, Nodegroup; eksctl,
config file schema (`managedNodeGroups`, `nodeGroups`); Config Connector, ContainerNodePool; Azure Service Operator,
ManagedClustersAgentPool; AKS, "Add a Spot node pool" (its label and taint); GKE, "Custom compute classes".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import yaml
from pydantic import TypeAdapter, ValidationError

from trimtab.emit.manifests.gpu_sharing import GKE_LABEL, GKE_STRATEGIES
from trimtab.emit.manifests.node_groups import PRIORITIES
from trimtab.errors import InputError
from trimtab.review.pools import GPU, INSTANCE_TYPE, GpuSharing, NodePool, Taint, fewer_on_demand
from trimtab.sources.kubernetes.objects import Object, at, listed, mapping, number, text

GROUP_NAME_LABELS = (
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
)
"""Labels that the provider gives each node, with the name of its group."""
NODE_GROUP = "node group"
BLOCK = "capacity-block"
"""How nodes are held that were booked in capacity blocks."""
COMPUTE_CLASS = "cloud.google.com/compute-class"
_AKS_SPOT = Taint(key="kubernetes.azure.com/scalesetpriority", value="spot", effect="NoSchedule")
_GKE_CLIENTS = 2
"""How many share a GPU where a node pool does not say (GKE, "Share GPUs with multiple workloads using GPU time-sharing")."""
_PRIORITIES = TypeAdapter(dict[int, list[re.Pattern[str]]])
GROUP_KINDS = frozenset({"Nodegroup", "ContainerNodePool", "ManagedClustersAgentPool", "ClusterConfig"})


def node_groups(kind: str, name: str, file: str, body: Object) -> Iterator[NodePool]:
    """Yield the node groups that an object declares; several for a ClusterConfig."""
    match kind:
        case "Nodegroup":
            yield _eks(text(body, "spec", "name") or name, file, body)
        case "ContainerNodePool":
            yield _gke(text(body, "spec", "resourceID") or name, file, body)
        case "ManagedClustersAgentPool":
            yield _aks(text(body, "spec", "azureName") or name, file, body)
        case _:
            for key in ("managedNodeGroups", "nodeGroups"):
                yield from (_eksctl(file, group) for group in listed(body, key))


def _group(
    name: str,
    file: str,
    types: Sequence[str],
    labels: Mapping[str, str],
    taints: Iterable[Taint],
    *,
    spot: bool,
    least: float | None,
    most: float | None,
) -> NodePool:
    return NodePool(
        name=name,
        file=file,
        kind=NODE_GROUP,
        requirements={INSTANCE_TYPE: tuple(types)} if types else {},
        labels=labels,
        taints=tuple(taints),
        gpu_limit=None,
        node_limit=None if most is None else int(most),
        held_as=("spot",) if spot else ("on-demand",),
        consolidates=True,
        elastic=most is not None and most > (least or 0),
        least_nodes=int(least or 0),
    )


def _taints(found: Iterable[Object]) -> Iterator[Taint]:
    """Yield taints of objects with key, value and effect, as EKS and Config Connector or as Kubernetes spells that."""
    for taint in found:
        effect = text(taint, "effect").replace("_", "").lower()
        spelt = {"noschedule": "NoSchedule", "noexecute": "NoExecute", "prefernoschedule": "PreferNoSchedule"}
        yield Taint(key=text(taint, "key"), value=text(taint, "value"), effect=spelt.get(effect, ""))


def _names(body: object, *path: str) -> list[str]:
    found = at(body, *path)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def _eks(name: str, file: str, body: Object) -> NodePool:
    spot = text(body, "spec", "capacityType") == "SPOT"
    most = number(body, "spec", "scalingConfig", "maxSize")
    given = {"eks.amazonaws.com/nodegroup": name, "eks.amazonaws.com/capacityType": "SPOT" if spot else "ON_DEMAND"}
    group = _group(
        name, file, _names(body, "spec", "instanceTypes"), {**given, **mapping(body, "spec", "labels")},
        _taints(listed(body, "spec", "taints")), spot=spot,
        least=number(body, "spec", "scalingConfig", "minSize"), most=most,
    )  # fmt: skip
    return _in_blocks(group) if is_block_group(body) else group


def _eksctl(file: str, body: Object) -> NodePool:
    name, spot = text(body, "name"), at(body, "spot") is True
    types = _names(body, "instanceTypes") or [text(body, "instanceType")]
    given = {"eks.amazonaws.com/nodegroup": name, "alpha.eksctl.io/nodegroup-name": name}
    wanted = number(body, "desiredCapacity")
    group = _group(
        name, file, [instance_type for instance_type in types if instance_type], {**given, **mapping(body, "labels")},
        _taints(listed(body, "taints")),
        spot=spot, least=number(body, "minSize") or 0, most=_or(number(body, "maxSize"), wanted),
    )  # fmt: skip
    return _in_blocks(group) if text(body, "instanceMarketOptions", "marketType") == "capacity-block" else group


def is_block_group(nodegroup: Object) -> bool:
    """Return whether a Nodegroup of EKS holds nodes of capacity blocks (EKS user guide, "Capacity Blocks for ML")."""
    return text(nodegroup, "spec", "capacityType") == "CAPACITY_BLOCK"


def _in_blocks(group: NodePool) -> NodePool:
    """Return a group whose nodes are those of blocks; its launch template names the block, and often the instance type."""
    return replace(group, held_as=(BLOCK,), block_nodes=group.node_limit or 0)


def _or(value: float | None, other: float | None) -> float | None:
    return other if value is None else value


def _gke(name: str, file: str, body: Object) -> NodePool:
    spec, config = at(body, "spec"), at(body, "spec", "nodeConfig")
    spot = at(config, "spot") is True or at(config, "preemptible") is True
    scaling = at(spec, "autoscaling")
    fixed = _or(number(spec, "nodeCount"), number(spec, "initialNodeCount"))
    least = _or(number(scaling, "totalMinNodeCount"), number(scaling, "minNodeCount"))
    most = _or(number(scaling, "totalMaxNodeCount"), number(scaling, "maxNodeCount"))
    given = {"cloud.google.com/gke-nodepool": name, **({"cloud.google.com/gke-spot": "true"} if spot else {})}
    labels = {**given, **mapping(config, "labels")}
    # pods that select a compute class are let onto its nodes by GKE itself
    taints = [taint for taint in _taints(listed(config, "taint")) if taint.key != COMPUTE_CLASS]
    types = [text(config, "machineType")] if text(config, "machineType") else []
    bounds = (least, most) if isinstance(scaling, Mapping) else (fixed, fixed)
    sharing, profile, cut_labels = _gke_cut(next(iter(listed(config, "guestAccelerator")), {}))
    labels |= cut_labels
    group = _group(name, file, types, labels, taints, spot=spot, least=bounds[0], most=bounds[1])
    return replace(group, sharing=sharing, profile=profile)


def _gke_cut(accelerator: Object) -> tuple[GpuSharing | None, str, dict[str, str]]:
    """Return how GKE shares the GPUs of a node pool, into which slices it cuts them, and how it labels their nodes for it."""
    profile = text(accelerator, "gpuPartitionSize")
    strategy = text(accelerator, "gpuSharingConfig", "gpuSharingStrategy").lower().replace("_", "-")
    clients = number(accelerator, "gpuSharingConfig", "maxSharedClientsPerGpu")
    isolation = next((known for known, name in GKE_STRATEGIES.items() if name == strategy), None)
    said = {"gpu-partition-size": profile, "gpu-sharing-strategy": strategy}
    said |= {"max-shared-clients-per-gpu": "" if clients is None else str(int(clients))}
    labels = {f"{GKE_LABEL}{option}": value for option, value in said.items() if value}
    sharing = (
        None
        if isolation is None
        else GpuSharing(isolation=isolation, per_gpu=int(clients or _GKE_CLIENTS), resource=GPU)
    )
    return sharing, profile, labels


def _aks(name: str, file: str, body: Object) -> NodePool:
    spec = at(body, "spec")
    spot = text(spec, "scaleSetPriority") == "Spot"
    given = {"kubernetes.azure.com/agentpool": name, **({_AKS_SPOT.key: _AKS_SPOT.value} if spot else {})}
    scaled, fixed = at(spec, "enableAutoScaling") is True, number(spec, "count")
    taints = (_aks_taint(item) for item in _names(spec, "nodeTaints"))
    return _group(
        name, file, [text(spec, "vmSize")] if text(spec, "vmSize") else [], {**given, **mapping(spec, "nodeLabels")},
        {*taints, *([_AKS_SPOT] if spot else [])}, spot=spot,
        least=number(spec, "minCount") if scaled else fixed, most=number(spec, "maxCount") if scaled else fixed,
    )  # fmt: skip


def _aks_taint(spelling: str) -> Taint:
    rest, _, effect = spelling.rpartition(":")
    key, _, value = rest.partition("=")
    return Taint(key=key, value=value, effect=effect)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRank:
    """How early groups are grown whose names match: the highest level first."""

    level: int
    pattern: re.Pattern[str]


def ranks_of(kind: str, name: str, body: Object) -> Iterator[GroupRank]:
    """Yield what an object says of which groups are grown first; raises InputError for what Cluster Autoscaler cannot read.

    Its expander `priority` takes of the groups that can grow the one that the highest number matches (Cluster Autoscaler,
    expander/priority/readme.md); GKE the first of a ComputeClass that can (GKE, "Custom compute classes").
    """
    if kind == "ComputeClass" and ranks_groups(body):
        for place, priority in enumerate(listed(body, "spec", "priorities")):
            for group in _names(priority, "nodepools"):
                yield GroupRank(level=-place, pattern=re.compile(f"^{re.escape(group)}$"))
    if kind == "ConfigMap" and name == PRIORITIES:
        try:
            levels = _PRIORITIES.validate_python(yaml.safe_load(text(body, "data", "priorities")) or {})
        except (ValidationError, yaml.YAMLError) as error:
            raise InputError(
                f"ConfigMap {name}: priorities cannot be read ({error}); write numbers, each with a list of regular expressions"
            ) from error
        for level, patterns in levels.items():
            yield from (GroupRank(level=level, pattern=pattern) for pattern in patterns)


def ranked(group: NodePool, ranks: Sequence[GroupRank]) -> NodePool:
    """Return a group with the weight of the highest rank that matches it, by its own name or by that of its scaling group."""
    # EKS and AKS name the scaling group of a managed group so (amazon-eks-user-guide, AKS node resource group)
    names = (group.name, f"eks-{group.name}-0123abcd-0123-4567-89ab-0123456789ab", f"aks-{group.name}-12345678-vmss")
    levels = [rank.level for rank in ranks if any(rank.pattern.search(name) for name in names)]
    return replace(group, weight=max(levels)) if levels else group


def ranks_groups(compute_class: Object) -> bool:
    """Return whether a ComputeClass only says which of some node pools come first, and has GKE make none of its own."""
    ranked = listed(compute_class, "spec", "priorities")
    makes = at(compute_class, "spec", "nodePoolAutoCreation", "enabled") is True
    return bool(ranked) and not makes and all(set(priority) == {"nodepools"} for priority in ranked)


def together(groups: Sequence[NodePool], spread: Sequence[str] = ()) -> NodePool | None:
    """Return groups of the same instance types, of which pods may run on each, as one pool; None where they differ in types.

    Those on spot may be of further types, each in a group of its own or all in one. What is booked comes first, then spot
    before on demand, as an autoscaler has it that is told to (expander=priority, price; a ComputeClass). A group of blocks that
    names no type is of the type of the others. Pods that must be spread evenly over the values of a label keep on demand what
    its groups without spot take.
    """
    typed = [group for group in groups if group.instance_types or not group.block_nodes] or groups
    first = typed[0]
    alike = (first.kind, first.sharing, first.profile)
    if any((group.kind, group.sharing, group.profile) != alike for group in typed):
        return None
    on_spot, without = (
        [group for group in typed if ("spot" in group.capacity_types) is spot] for spot in (True, False)
    )
    fewer = fewer_on_demand(on_spot, without)
    if fewer is None and len({group.instance_types for group in typed}) > 1:
        return None
    types = tuple(dict.fromkeys(name for group in on_spot for name in group.instance_types))
    held = {way for group in groups for way in group.capacity_types}
    limits = [group.node_limit for group in groups]
    return replace(
        first,
        name=", ".join(sorted(group.name for group in groups)),
        requirements=first.requirements if fewer is None else {INSTANCE_TYPE: types},
        on_demand_types=fewer or (),
        held_as=tuple(way for way in (BLOCK, "spot", "on-demand") if way in held),
        taints=tuple(dict.fromkeys(taint for group in groups for taint in group.taints)),
        node_limit=None if None in limits else sum(limit or 0 for limit in limits),
        elastic=all(group.elastic for group in groups),
        least_nodes=sum(group.least_nodes for group in groups),
        block_nodes=sum(group.block_nodes for group in groups),
        one_in=next((floor for key in spread if (floor := _floor(groups, key))), 0),
    )


def _floor(groups: Sequence[NodePool], key: str) -> int:
    """Return how many values a label has for each one of groups without spot; 0 where there is none such, or none with spot."""
    values = {group.labels.get(key) for group in groups}
    spot = {group.labels.get(key) for group in groups if "spot" in group.capacity_types}
    if None in values or not spot or spot == values:
        return 0
    return round(len(values) / len(values - spot))
