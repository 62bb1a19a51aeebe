"""The node pools under a plan's workloads: those that want the same nodes, held and released the same way, share one."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool, SharedPool, Site
from trimtab.emit.manifests.cuts import Cut, alike, side_by_side
from trimtab.emit.manifests.objects import node_name
from trimtab.emit.manifests.placed import PlacedWorkload
from trimtab.fleet.settings import RUN_NODES_KEPT_S, SERVICE_NODES_KEPT_S
from trimtab.plan.model import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """One NodePool: its nodes, how they may be held, and who asked for it."""

    pool: Pool
    gpus_per_node: int
    spot: bool
    blocks: bool
    """Nodes in capacity blocks come first."""
    empties: bool
    nodes: int
    """The most that its workloads need at once."""
    one_in: int
    """One replica in so many stays in an on-demand pool beside this one; 0: none, and there is no such pool."""
    actions: tuple[Action, ...]
    workloads: tuple[str, ...]
    cut: Cut | None = None
    """How its nodes are cut into slots; None where whoever runs there is not counted in slots."""
    beside: str = ""
    """The name that pools have in common whose nodes are cut in several ways for the same workloads; empty: just this one."""
    by_group: bool = False
    """Whether it is node groups of the provider, and not a NodePool of Karpenter's."""

    @property
    def name(self) -> str:
        """Return the NodePool's name."""
        held = "spot" if self.spot else "block" if self.blocks else "on-demand"
        use = "runs" if self.empties else "services"
        cut = "" if self.cut is None else self.cut.name if len(self.cut.kinds) > 1 else self.cut.kinds[0].layout
        parts = [cut, use, str(self.one_in) if self.one_in else ""]
        return node_name("trimtab", self.pool.instance_type, self.pool.region, held, *parts)

    @property
    def kept_s(self) -> float:
        """Return how long a node that nothing needs is kept, as the plan's bill has it."""
        return RUN_NODES_KEPT_S if self.empties else SERVICE_NODES_KEPT_S

    @property
    def floor_name(self) -> str:
        """Return the name of the on-demand pool beside it."""
        return f"{self.name}-floor"

    @property
    def capacity_types(self) -> tuple[CapacityType, ...]:
        """Return how nodes may be held, in the order in which Karpenter prefers them: on demand is always the last resort."""
        if self.blocks:
            return (CapacityType.RESERVED, CapacityType.ON_DEMAND)
        return (CapacityType.SPOT, CapacityType.ON_DEMAND) if self.spot else (CapacityType.ON_DEMAND,)


GROUP_PROVIDERS = frozenset({"aws", "gcp", "azure"})
"""Providers whose managed Kubernetes has node groups that are written here."""
GROUP_LABEL = "trimtab.dev/node-pool"
COMPUTE_CLASS = "cloud.google.com/compute-class"
"""The label and taint by which a node pool of GKE belongs to a ComputeClass; pods that select it need no toleration."""


def pool_specs(placed: Iterable[PlacedWorkload], *, by_group: bool = False) -> tuple[PoolSpec, ...]:
    """Merge workloads that want the same nodes, held and released the same way, into one pool each.

    `by_group`: the cluster has node groups and no Karpenter.
    Where they want slices of several profiles on the same nodes, there is a pool for each layout that a node has.
    """
    merged: dict[tuple[Pool, bool, bool, bool, Site | None, int], list[PlacedWorkload]] = defaultdict(list)
    for workload in placed:
        cut, place = _cut_slots(workload), workload.place
        spot, blocks = place.spot is not None or place.hedge is not None, place.blocks is not None
        one_in = 0 if place.hedge is None else place.hedge.one_in
        merged[place.pool.nodes, spot, blocks, workload.runs_to_end, None if cut is None else cut.site, one_in].append(
            workload
        )
    return tuple(
        replace(spec, cut=cut, beside=beside, by_group=by_group and pool.provider in GROUP_PROVIDERS)
        for (pool, spot, blocks, empties, _, one_in), members in sorted(
            merged.items(), key=lambda item: [str(term) for term in item[0]]
        )
        for spec in (_spec(pool, members, spot=spot, blocks=blocks, empties=empties, one_in=one_in),)
        for cut, beside in _cuts(members, spec)
    )


def _cut_slots(workload: PlacedWorkload) -> SharedPool | None:
    """Return the parts of GPUs that a workload runs in; None on whole ones."""
    shared = workload.place.shared
    return shared.shared if shared is not None and shared.shared.is_cut else None


def _cuts(members: Sequence[PlacedWorkload], spec: PoolSpec) -> list[tuple[Cut | None, str]]:
    """Return how the nodes under some workloads are cut: not, all alike, or in several ways that have a name in common."""
    wanted: Counter[SharedPool] = Counter()
    for workload in members:
        shared = _cut_slots(workload)
        if shared is not None:
            wanted[shared] += workload.most_slots
    if not wanted:
        return [(None, "")]
    if len(wanted) == 1:
        return [(alike(next(iter(wanted)), spec.gpus_per_node), "")]
    common = f"{spec.name}-slices"
    return [(cut, common) for cut in side_by_side(wanted, spec.gpus_per_node)]


def _spec(
    pool: Pool, members: Sequence[PlacedWorkload], *, spot: bool, blocks: bool, empties: bool, one_in: int
) -> PoolSpec:
    per_node = max(workload.place.gpus_per_node for workload in members)
    gpus = sum(workload.most_gpus for workload in members if workload.most_gpus is not None)
    unbound = sum(workload.burst_nodes for workload in members if workload.most_gpus is None)
    actions = {action.id: action for workload in members for action in workload.actions}
    return PoolSpec(
        pool=pool,
        gpus_per_node=per_node,
        spot=spot,
        blocks=blocks,
        empties=empties,
        nodes=max(1, math.ceil(gpus / per_node - 1e-9) + unbound),
        one_in=one_in,
        actions=tuple(actions[name] for name in sorted(actions)),
        workloads=tuple(sorted(workload.name for workload in members)),
    )
