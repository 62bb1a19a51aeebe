"""Workloads as the emitted actions leave them, and the node pools under them: those that want the same nodes are one."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool, SharedPool, Site
from trimtab.deployment.deployment import Deployment, dimension_of
from trimtab.deployment.effects import (
    DECODE,
    PREFILL,
    DeferRuns,
    FleetEffect,
    HedgeOnSpot,
    OverflowTo,
    ReleaseIdle,
    SetReplicaPolicy,
    SetReplicas,
    SetSchedule,
    WorkloadEffect,
)
from trimtab.deployment.placement import Placement, resolve, without_effect
from trimtab.emit.manifests.emission import node_name
from trimtab.emit.manifests.facts import SERVING, SpotType, WorkloadFacts
from trimtab.emit.manifests.gpu_sharing import Cut, alike, gke_cut, side_by_side
from trimtab.fleet.settings import RUN_NODES_KEPT_S, SERVICE_NODES_KEPT_S
from trimtab.plan.model import Action

_NO_NODES = frozenset({"precision", "start", "relocation"})
"""What asks nothing of node pools: another format of the weights, images on disks, and a move, whose nodes are elsewhere."""

_BURST = 2
"""Times the replicas or runs of the past that a pool without a ceiling of its own has room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedWorkload:
    """What is known of a workload, its deployment under the emitted actions, and where that leads."""

    known: WorkloadFacts
    deployment: Deployment
    place: Placement
    actions: tuple[Action, ...]
    """Those that ask something of its nodes."""
    waits: Mapping[str, str]
    """Dimensions of which an effect comes to nothing without another action, and what it waits for."""

    @property
    def name(self) -> str:
        """Return the workload."""
        return self.known.name

    @property
    def most_replicas(self) -> int | None:
        """Return the most replicas or runs that it may have at once; None where nothing that is emitted says so."""
        counts = []
        match self.place.scaling:
            case SetReplicaPolicy():
                counts.append(self.place.scaling.hpa.max_replicas)
            case SetReplicas(replicas=count):
                counts.append(count)
            case None:
                pass
        if self.place.batching is not None and self.place.batching.replicas is not None:
            counts.append(self.place.batching.replicas)
        if (self.place.shared is not None and not self.runs_beside) or isinstance(self.place.holding, SetSchedule):
            counts.append(self.known.replicas)
        return max(counts, default=None)

    @property
    def set_replicas(self) -> int | None:
        """Return the replicas that its own manifest must say; None where that stays as it is, or an autoscaler says it."""
        if isinstance(self.place.scaling, SetReplicas):
            return self.place.scaling.replicas
        return None if self.place.batching is None else self.place.batching.replicas

    @property
    def fills_nodes(self) -> bool:
        """Return whether its replicas come and go on nodes of several: as it is proved, each goes to the fullest node."""
        return self.place.comes_and_goes and self.place.holds_several and (self.most_replicas or 0) >= 2

    @property
    def most_gpus(self) -> float | None:
        """Return the GPUs that so many replicas hold."""
        return None if self.most_replicas is None else self.most_replicas * self.place.gpus_per_pod

    @property
    def burst_nodes(self) -> int:
        """Return the most nodes that it is let have where nothing says how many it may: a bound on what goes wrong.

        Twice the replicas or runs that history had at once, and no fewer than a node for each. Runs that queued in history
        count as if they had not: under the plan, as it is proved, they start on nodes that are made for them. Where nodes are
        slower each lasts longer, so that more of them are there at once.
        """
        times = 1.0 if self.place.replica_gpus is None else self.place.replica_gpus.times_today
        together = math.ceil(self.known.pods_if_none_waited / min(1.0, times * self.place.speed.low))
        most = max(self.known.most_replicas, together)
        packed = math.ceil(most / self.place.pods_per_node)
        return max(_BURST * packed, most) * self.place.nodes_per_pod

    @property
    def most_slots(self) -> int:
        """Return the slots of shared nodes that so many replicas hold; at least one."""
        shared, gpus = self.place.shared, self.most_gpus or 0.0
        if shared is None:
            return 0
        return max(1, math.ceil(gpus / self.place.gpus_per_node * shared.shared.slots_per_node - 1e-9))

    def waits_for(self, effect: WorkloadEffect) -> str | None:
        """Return what an effect waits for; None where it does something by itself."""
        return self.waits.get(dimension_of(effect))

    @property
    def runs_beside(self) -> bool:
        """Return whether it consists of runs on nodes of services: their pods must not be moved, those of services may be."""
        return self.place.shared is not None and isinstance(self.place.holding, ReleaseIdle | DeferRuns)

    @property
    def runs_to_end(self) -> bool:
        """Return whether its nodes are for pods that must not be moved, so that only empty ones are given back."""
        plan = self.deployment
        if self.runs_beside:
            return False
        # a service that is closed is one all the same, and who shares nodes of services is on theirs, at whatever hours
        closes = None if self.known.service is not None or self.place.shared is not None else plan.holding
        ends = (plan.gpu_count, plan.memory, closes)
        bought = plan.buying is not None and not isinstance(plan.buying, HedgeOnSpot)
        return bought or any(ends) or (plan.offering is not None and self.known.owner_kind not in SERVING)

    @property
    def as_it_will_be(self) -> WorkloadFacts:
        """Return the facts with what a replica will serve."""
        service = self.known.service
        if service is None:
            return self.known
        capacity = self.place.replica_req_s(service.capacity_req_s, faster_counts=service.faster_counts)
        return replace(self.known, service=replace(service, capacity_req_s=capacity, assumes=self._assumed))

    @property
    def _assumed(self) -> str:
        """Return what an autoscaler relies on and a page asks of a person, and no object brings about."""
        precision, batching, start = self.place.precision, self.place.batching, self.place.start
        parts = [] if precision is None else [f"its model in {precision.after.value}, not {precision.before.value}"]
        parts += [] if batching is None else [f"batches of up to {batching.max_batch} requests"]
        parts += [] if start is None else [f"starts of {start.start_s:.0f} s on a node"]
        return ", ".join(parts)


def placed_workloads(actions: Sequence[Action], known: Iterable[WorkloadFacts]) -> dict[str, PlacedWorkload]:
    """Return each workload that some actions change, resolved; those whose present nodes are not known are left out."""
    found = {}
    for facts in known:
        deployment = deployment_of(actions, facts.name)
        if deployment.changes and facts.home is not None:
            place = resolve(facts.home, deployment)
            waits = without_effect(deployment, place)
            idle = _NO_NODES | waits.keys()
            found[facts.name] = PlacedWorkload(
                known=facts,
                deployment=deployment,
                place=place,
                actions=tuple(action for action in actions if _asks_for_nodes(action, facts.name, idle)),
                waits=waits,
            )
    return found


def deployment_of(actions: Iterable[Action], workload: str) -> Deployment:
    """Return what some actions do to a workload; raises ValueError where two change the same of it."""
    return Deployment.of(
        *(
            (action.lever, change.effect)
            for action in actions
            for change in action.changes
            if change.subject == workload and not isinstance(change.effect, FleetEffect)
        )
    )


def _asks_for_nodes(action: Action, workload: str, idle: Collection[str]) -> bool:
    """Return whether an action asks something of a workload's nodes, in other dimensions than those that ask nothing."""
    effects = [change.effect for change in action.changes if change.subject == workload]
    return any(not isinstance(effect, FleetEffect) and dimension_of(effect) not in idle for effect in effects)


def here(placed: Mapping[str, PlacedWorkload], away: Iterable[str]) -> dict[str, PlacedWorkload]:
    """Return the workloads whose nodes are this cluster's, and are asked for something."""
    gone = frozenset(away)
    return {name: workload for name, workload in placed.items() if name not in gone and workload.actions}


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
    overflow: OverflowTo | None
    """The nodes behind these, of which there are then so many at most; None: there are none."""
    actions: tuple[Action, ...]
    workloads: tuple[str, ...]
    cut: Cut | None = None
    """How its nodes are cut into slots; None where whoever runs there is not counted in slots."""
    beside: str = ""
    """The name that pools have in common whose nodes are cut in several ways for the same workloads; empty: just this one."""
    by_group: bool = False
    """Whether it is node groups of the provider, and not a NodePool of Karpenter's."""
    spot_types: tuple[SpotType, ...] = ()
    """What its spot nodes may be of, the planned type first and then by price; empty where there is no other."""
    each_asks_one: bool = True
    """Whether every pod in slots asks for one of them, and by its resources: not for several, nor by a claim."""
    role: str = ""
    """Whose nodes they are, of a service that computes prompts and answers apart: of `prefill` or of `decode`."""
    also_elsewhere: bool = False
    """Whether another provider has nodes of the same type and region here, so that names tell the provider too."""

    @property
    def name(self) -> str:
        """Return the NodePool's name."""
        held = "spot" if self.spot else "block" if self.blocks else "on-demand"
        use = "runs" if self.empties else "services"
        cut = "" if self.cut is None else self.cut.name if len(self.cut.kinds) > 1 else self.cut.kinds[0].layout
        parts = [
            cut,
            use,
            self.role,
            str(self.one_in) if self.one_in else "",
            self.pool.provider if self.also_elsewhere else "",
        ]
        return node_name("trimtab", self.pool.instance_type, self.pool.region, held, *parts)

    @property
    def instance_types(self) -> tuple[str, ...]:
        """Return the types that its nodes may be of, the planned one first: several on spot alone."""
        names = tuple(known.instance_type for known in self.spot_types if self.spot)
        return names or (self.pool.instance_type,)

    @property
    def kept_s(self) -> float:
        """Return how long a node that nothing needs is kept, as the plan's bill has it."""
        return RUN_NODES_KEPT_S if self.empties else SERVICE_NODES_KEPT_S

    @property
    def provider_cuts(self) -> Mapping[str, str]:
        """Return how GKE is told to cut the GPUs of a node pool, by the names that it has for it; empty for all others."""
        return gke_cut(self.cut) if self.by_group and self.pool.provider == "gcp" and self.cut is not None else {}

    @property
    def floor_name(self) -> str:
        """Return the name of the on-demand pool beside it."""
        return f"{self.name}-floor"

    @property
    def behind(self) -> PoolSpec | None:
        """Return the pool of the nodes behind these, for what has no room on them; None where there is none."""
        if self.overflow is None:
            return None
        further = self.overflow.further
        before = self.overflow.first_nodes * self.gpus_per_node
        beyond = math.ceil((self.nodes * self.gpus_per_node - before) / further.gpus_per_node - 1e-9)
        return replace(
            self, pool=further.pool, gpus_per_node=further.gpus_per_node, nodes=max(1, beyond), overflow=None
        )

    @property
    def behind_name(self) -> str:
        """Return the name of that pool."""
        return f"{self.name}-overflow"

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
    merged: dict[_Need, list[PlacedWorkload]] = defaultdict(list)
    for role, workload in _parts(placed):
        cut, place = _cut_slots(workload), workload.place
        spot, blocks = place.spot is not None or place.hedge is not None, place.blocks is not None
        one_in = 0 if place.hedge is None else place.hedge.one_in
        site = None if cut is None else cut.site
        need = _Need(place.pool.nodes, spot, blocks, workload.runs_to_end, site, one_in, place.overflow, role)
        merged[need].append(workload)
    providers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for need in merged:
        providers[need.pool.instance_type, need.pool.region].add(need.pool.provider)
    return tuple(
        replace(spec, cut=cut, beside=beside, by_group=by_group and need.pool.provider in GROUP_PROVIDERS)
        for need, members in sorted(merged.items(), key=lambda item: [str(term) for term in item[0]])
        for also in (len(providers[need.pool.instance_type, need.pool.region]) > 1,)
        for spec in (replace(_spec(need, members), also_elsewhere=also),)
        for cut, beside in _cuts(members, spec)
    )


class _Need(NamedTuple):
    """What tells the nodes of one pool from those of another."""

    pool: Pool
    spot: bool
    blocks: bool
    empties: bool
    site: Site | None
    one_in: int
    overflow: OverflowTo | None
    role: str


def _parts(placed: Iterable[PlacedWorkload]) -> Iterator[tuple[str, PlacedWorkload]]:
    """Yield each workload, and one that computes prompts and answers apart twice, with the role of each part."""
    for workload in placed:
        if workload.place.split is None:
            yield "", workload
        else:
            for role, half in zip((PREFILL, DECODE), workload.place.halves, strict=True):
                yield role, replace(workload, place=half)


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


def _spec(need: _Need, members: Sequence[PlacedWorkload]) -> PoolSpec:
    per_node = max(workload.place.gpus_per_node for workload in members)
    gpus = sum(workload.most_gpus for workload in members if workload.most_gpus is not None)
    unbound = sum(workload.burst_nodes for workload in members if workload.most_gpus is None)
    actions = {action.id: action for workload in members for action in workload.actions}
    return PoolSpec(
        pool=need.pool,
        gpus_per_node=per_node,
        spot=need.spot,
        blocks=need.blocks,
        empties=need.empties,
        nodes=max(1, math.ceil(gpus / per_node - 1e-9) + unbound),
        one_in=need.one_in,
        overflow=need.overflow,
        role=need.role,
        actions=tuple(actions[name] for name in sorted(actions)),
        workloads=tuple(sorted(workload.name for workload in members)),
        each_asks_one=all(_asks_one(workload) for workload in members),
    )


def _asks_one(workload: PlacedWorkload) -> bool:
    shared = workload.place.shared
    return shared is None or (shared.slots == 1 and not workload.known.gpu_claims)
