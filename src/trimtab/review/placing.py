"""Where pods go: the pool of nodes that they select, what keeps them off it, and what they hold there.

It is read as the scheduler and Karpenter have it: every label that a pod selects must be a node's, every taint
that keeps pods off must be tolerated (kubernetes.io, Assigning Pods to Nodes; Taints and Tolerations), and of the instance
types that a NodePool may start the cheapest is started, spot before on demand where both are allowed (karpenter.sh,
NodePools).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import (
    BookBlocks,
    HedgeOnSpot,
    SetCapacityType,
    SetGpuCount,
    SetReplicaGpus,
    WorkloadEffect,
)
from trimtab.deployment.fitting import fitting_offerings
from trimtab.emit.manifests.gpu_sharing import DEVICE_PLUGIN_CONFIG
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import RUN_KINDS, Workload
from trimtab.fleet.reach import offerings_at_home
from trimtab.levers import capacity_blocks, gpu_count, replica_gpus, right_size, sharing, spot
from trimtab.levers.lever import LeverRequest
from trimtab.policies.blocks import MOST_NODES, BlockCalendar
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Case
from trimtab.review.karpenter import (
    NODE_POOL,
    PriceOverlay,
    admits,
    by_weight,
    joined,
    names_instances,
    shares_over,
    shown_price,
)
from trimtab.review.manifests import RUN_OBJECTS, DeclaredPods, Manifests
from trimtab.review.node_groups import GROUP_NAME_LABELS, NODE_GROUP, together
from trimtab.review.pools import CAPACITY_TYPE_LABEL, GPU, INSTANCE_TYPE_LABELS, NODE_POOL_LABEL, NodePool, Taint
from trimtab.review.shares import MIG_SLICE, AskedShare, slot_of
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import DAYS_PER_WEEK, micro_usd, usd

_WELL_KNOWN = (
    "kubernetes.io/", "node.kubernetes.io/", "beta.kubernetes.io/", "topology.kubernetes.io/", "topology.k8s.aws/",
    "failure-domain.beta.kubernetes.io/", "karpenter.sh/", "karpenter.k8s.aws/", "karpenter.azure.com/", "karpenter.k8s.gcp/",
)  # fmt: skip
"""What labels begin with that Karpenter or its provider gives nodes by itself (pkg/apis/v1/labels.go, WellKnownLabels)."""
_ARCHITECTURE = ("kubernetes.io/arch", "beta.kubernetes.io/arch")
_KEPT_OFF = frozenset({"NoSchedule", "NoExecute"})
_OF_ALL_NODES = ("kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch")
"""Labels that tell no pool of GPU nodes from another."""


class Weight(Enum):
    """How much a finding matters."""

    STOPS = "stops"
    """Pods do not run, or the objects contradict each other: the change must not be merged as it is."""
    WARNS = "warns"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFault:
    """What would go wrong with the objects themselves: where, what, and the cure."""

    weight: Weight
    workload: str
    files: tuple[str, ...]
    what: str
    cure: str


@dataclass(slots=True, kw_only=True)
class Proposed:
    """One workload under some manifests."""

    deployment: Deployment = AS_IT_IS
    at_ends: tuple[Deployment, ...] = ()
    """The same at the low and the high end of an estimated speed, where that says how many replicas there are."""
    refused: str = ""
    """Why it cannot be replayed; empty where it can."""
    gives_nodes_back: bool = False
    """Whether its nodes are those of a pool that starts and removes them as pods ask."""
    held_hours: frozenset[int] = frozenset()
    """Hours of the week (UTC) in which its nodes are not given back, needed or not."""
    kept_s: float | None = None
    """How long a node of its that nothing needs is kept; None: as replays have it."""
    moved: bool = True
    """Whether replicas are moved so that nodes become empty."""
    spreads: bool = False
    """Whether a new replica goes to the emptiest of several nodes with room, not to the fullest."""
    waits_s: tuple[float, ...] = ()
    """How long each run waits for quota, or for a node pool's limit, before it has its nodes; empty where neither counts."""
    run_nodes: NodePool | None = None
    """The node pool that makes nodes for its runs; None where none does."""
    mix: tuple[tuple[float, Deployment], ...] = ()
    """Of pods on several pools: deployments whose node-seconds, times factors that add up to 1, are those of all."""
    judged: tuple[Deployment, ...] = ()
    """Of pods on several pools: deployments of which the one that keeps a target worst counts; empty: those of `mix`."""
    findings: list[ManifestFault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    changes: list[tuple[str, WorkloadEffect]] = field(default_factory=list)

    def stop(self, workload: str, files: tuple[str, ...], what: str, cure: str) -> None:
        """Add what stops its pods, or a contradiction."""
        self.findings.append(ManifestFault(weight=Weight.STOPS, workload=workload, files=files, what=what, cure=cure))

    def warn(self, workload: str, files: tuple[str, ...], what: str, cure: str) -> None:
        """Add what would go wrong without stopping its pods."""
        self.findings.append(ManifestFault(weight=Weight.WARNS, workload=workload, files=files, what=what, cure=cure))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShare:
    """A pool of nodes, and the share of its pods that a workload has there; None: what has no room in those before it."""

    pool: NodePool
    frac: float | None


def pools_of(pods: DeclaredPods, workload: Workload, manifests: Manifests, found: Proposed) -> tuple[PoolShare, ...]:
    """Return the pools of nodes among the manifests that its pods run on, after what keeps them off was said.

    One pool takes all of them; NodePools of different nodes take shares, or one takes what has no room in those before it.
    """
    fit = _selected(pods, manifests)
    open_to_it = [group for group in fit if not _kept_off(pods, group)]
    # where taints keep its pods off every pool, those of the one that comes first are reported
    pool = _one_pool(open_to_it or by_weight(fit)[:1], pods.spread)
    if pool is None and fit:
        groups = [group for group in fit if group.kind != NODE_POOL]
        if groups and len({group.weight for group in groups}) < len(fit):
            names = ", ".join(sorted(group.name for group in fit))
            found.refused = f"may run on nodes of {names}: nothing says which node group is grown first"
            return ()
        return _divided(pods, open_to_it, workload, found)
    if pool is None:
        if absent := pods.selected(NODE_POOL_LABEL) or pods.selected(*GROUP_NAME_LABELS):
            kind = "node pool" if pods.selected(NODE_POOL_LABEL) else "node group"
            found.notes.append(
                f"selects the {kind} {absent}, which is not among these objects: assumed to be its present nodes"
            )
        return ()
    for taint in _kept_off(pods, pool):
        found.stop(
            workload.name, (*pods.files, pool.file),
            f"does not tolerate {taint.key}={taint.value}:{taint.effect} of {pool.kind} {pool.name}: its pods stay pending",
            f"add the toleration key {taint.key}, effect {taint.effect}",
        )  # fmt: skip
    _groups_left(pods, fit, pool, workload, found)
    _contradictions(pods, pool, workload, found)
    return (PoolShare(pool=_as_selected(pods, pool), frac=1.0),)


def _selected(pods: DeclaredPods, manifests: Manifests) -> list[NodePool]:
    """Return the pools whose nodes have every label that its pods ask for; none where they ask for none."""
    either = dict(pods.alternatives)
    names = either.get(NODE_POOL_LABEL) or tuple(name for name in (pods.selected(NODE_POOL_LABEL),) if name)
    if names:
        return [manifests.pools[name] for name in names if name in manifests.pools]
    return _by_labels(pods, manifests.pools)


def _as_selected(pods: DeclaredPods, pool: NodePool) -> NodePool:
    """Return a pool with nothing but the capacity type that its pods select, where they select one."""
    asked = pods.selected(CAPACITY_TYPE_LABEL)
    return replace(pool, held_as=(asked,)) if asked in pool.capacity_types and pool.kind == NODE_POOL else pool


def _divided(pods: DeclaredPods, fit: Sequence[NodePool], workload: Workload, found: Proposed) -> tuple[PoolShare, ...]:
    """Return how its pods divide over NodePools: evenly over a label's values, or in order of weight while there is room."""
    order = by_weight(fit)
    for pool in order:
        _contradictions(pods, pool, workload, found)
    names = ", ".join(pool.name for pool in order)
    shares = next((shares for key in pods.spread if (shares := shares_over(order, key))), ())
    if shares:
        said = ", ".join(f"{share:.0%} on {pool.name}" for pool, share in zip(order, shares, strict=True))
        found.notes.append(f"its replicas are spread over {names}: {said}. Targets are those of the slowest of them")
        return tuple(PoolShare(pool=pool, frac=share) for pool, share in zip(order, shares, strict=True) if share)
    found.notes.append(
        f"runs on {order[0].name} while that has room, then on {', '.join(pool.name for pool in order[1:])} (weight, then "
        "name): targets are those of the slowest of them"
    )
    return tuple(PoolShare(pool=pool, frac=None) for pool in order)


def _kept_off(pods: DeclaredPods, pool: NodePool) -> list[Taint]:
    """Return the taints of a pool that keep its pods off."""
    taints = (taint for taint in pool.taints if taint.effect in _KEPT_OFF)
    return [taint for taint in taints if not any(toleration.tolerates(taint) for toleration in pods.tolerations or ())]


def selected_pools(pods: DeclaredPods, manifests: Manifests) -> frozenset[str]:
    """Return the names of the pools that its pods select, whether or not they are among the manifests."""
    named = pods.selected(NODE_POOL_LABEL)
    return frozenset([named] if named else (pool.name for pool in _selected(pods, manifests)))


def _one_pool(fit: Sequence[NodePool], spread: Sequence[str]) -> NodePool | None:
    """Return the pool that its pods run on: the only one, or groups that are one need; None where they divide, or have none."""
    if len(fit) <= 1:
        return next(iter(fit), None)
    kinds = {pool.kind for pool in fit}
    if kinds == {NODE_GROUP}:
        return together(fit, spread)
    return joined(fit, spread) if kinds == {NODE_POOL} else None


def _groups_left(
    pods: DeclaredPods, fit: Sequence[NodePool], pool: NodePool, workload: Workload, found: Proposed
) -> None:
    """Say which groups its pods select and may not run on, and what nodes of groups keep that nothing needs."""
    for group in fit:
        for taint in _kept_off(pods, group) if not _kept_off(pods, pool) else ():
            found.warn(
                workload.name, (*pods.files, group.file),
                f"selects {group.kind} {group.name} and does not tolerate its {taint.key}={taint.value}:{taint.effect}: runs "
                f"on {pool.name} only",
                f"add the toleration key {taint.key}, effect {taint.effect}",
            )  # fmt: skip
    if pool.kind == NODE_GROUP and pool.elastic:
        found.notes.append(f"nodes of {pool.name} come and go where Cluster Autoscaler runs, or the provider's own")
    if pool.least_nodes:
        found.notes.append(f"{pool.name} keeps {pool.least_nodes} node(s) whatever is asked for: not counted")


def _by_labels(pods: DeclaredPods, pools: Mapping[str, NodePool]) -> list[NodePool]:
    """Return the pools whose labels are all that its pods select; none where they select no such label."""
    asked = [(key, (value,)) for key, value in pods.node_selector] + list(pods.alternatives)
    wanted = {key: set(values) for key, values in asked if key not in (*INSTANCE_TYPE_LABELS, *_OF_ALL_NODES)}
    return [pool for pool in pools.values() if wanted and all(wanted[key] & set(pool.gives(key)) for key in wanted)]


def _contradictions(pods: DeclaredPods, pool: NodePool, workload: Workload, found: Proposed) -> None:
    """Say which labels its pods select that no node of the pool has."""
    for key, value in pods.node_selector:
        given = pool.requirements.get(key) or pool.gives(key)
        if given and value not in given:
            found.stop(
                workload.name, (*pods.files, pool.file),
                f"selects {key}={value}, and {pool.kind} {pool.name} has {', '.join(given)} only: its pods stay pending",
                f"select {given[0]}, or let the pool have {value}",
            )  # fmt: skip
        elif given or key in (NODE_POOL_LABEL, *INSTANCE_TYPE_LABELS) or key in pool.open_labels:
            continue
        elif pool.kind == NODE_POOL and not key.startswith(_WELL_KNOWN):
            # only well-known labels may be left open (karpenter v1.9.1, pkg/scheduling/requirements.go, Compatible)
            found.stop(
                workload.name, (*pods.files, pool.file),
                f"selects {key}={value}, which {pool.kind} {pool.name} does not give its nodes: its pods stay pending",
                f"add the label to the pool's template, or set the selector to null ({key}: null)",
            )  # fmt: skip
        elif "/" in key and pool.labels and pool.kind != NODE_POOL:
            found.warn(
                workload.name, (*pods.files, pool.file),
                f"selects {key}={value}, which {pool.kind} {pool.name} does not give its nodes",
                f"add the label to the group, or set the selector to null ({key}: null)",
            )  # fmt: skip
        elif key in _ARCHITECTURE and value != "amd64":
            found.notes.append(f"selects {key}={value}: which instance types have it is not modelled")


def _on_its_pools(pods: DeclaredPods, manifests: Manifests) -> list[DeclaredPods]:
    """Return the pods of other workloads that select the same pools."""
    mine = selected_pools(pods, manifests)
    return [
        other
        for name, other in manifests.pods.items()
        if mine
        and name != pods.workload
        and not manifests.is_placeholder(other)
        and selected_pools(other, manifests) == mine
    ]


def asked_share(
    pods: DeclaredPods, pool: NodePool | None, workload: Workload, manifests: Manifests, found: Proposed
) -> AskedShare | None:
    """Return the parts of GPUs or nodes that its pods ask for; None for nodes of its own, or where that is refused.

    A patch that says nothing of GPUs leaves as many as its pods held. Without them it is taken to share where runs are put on
    the nodes of what is not: whoever wants no such thing gives runs a pool of their own.
    """
    config = manifests.sharing.get(pool.labels.get(DEVICE_PLUGIN_CONFIG, "")) if pool is not None else None
    if pool is not None and pods.gpus and (pool.sharing is not None or pool.profile):
        if pool.sharing is not None and pool.profile:
            found.refused = f"runs in slices of GPUs that are also shared ({pool.name}), which is not modelled"
        resource = f"{MIG_SLICE}{pool.profile}" if pool.profile else GPU
        return AskedShare(resource=resource, count=pods.gpus, sharing=pool.sharing)
    if len(pods.parts) > 1:
        found.refused = f"asks for {', '.join(name for name, _ in pods.parts)} together, which is not modelled"
    elif pods.parts:
        resource, count = pods.parts[0]
        if resource.startswith(MIG_SLICE):
            return AskedShare(resource=resource, count=count, sharing=None)
        if config is not None and resource == config.resource:
            return AskedShare(resource=resource, count=count, sharing=config)
        found.refused = (
            f"asks for {resource}, and none of these objects says what that is: the pool's label {DEVICE_PLUGIN_CONFIG} and a "
            "ConfigMap with that configuration would"
        )
    elif pods.gpus and config is not None and config.resource == GPU:
        return AskedShare(resource=GPU, count=pods.gpus, sharing=config)
    elif pool is not None and (beside := _on_its_pools(pods, manifests)):
        mixed = len({other.kind in RUN_OBJECTS for other in (pods, *beside)}) > 1
        gpus = pods.gpus or (round(workload.gpus_per_pod) if mixed else 0)
        return AskedShare(resource=GPU, count=gpus, sharing=None) if gpus else None
    return None


def place_pods(
    pods: DeclaredPods,
    pool: NodePool | None,
    share: AskedShare | None,
    busy_frac: float,
    case: Case,
    market: Market,
    manifests: Manifests,
    found: Proposed,
) -> None:
    """Say on which nodes its pods run: the cheapest that they may, on spot where that is allowed."""
    if found.refused:
        return
    workload = case.workload
    asked = pods.selected(*INSTANCE_TYPE_LABELS)
    types = (asked,) if asked else (() if pool is None else types_of(pool, workload, market))
    found.gives_nodes_back = pool is not None and pool.elastic
    if pool is not None and pool.kind == NODE_POOL:
        found.held_hours, found.kept_s = pool.held_hours, pool.kept_s
    home = workload.pool
    offering = (
        _cheapest(types, pods.gpus or workload.gpus_per_pod, workload, pool, market, manifests.overlays)
        if types
        else None
    )
    number = _other_number(pods, offering, case, market, found)
    if found.refused:
        return
    if number is not None:
        share = None  # its own nodes hold as many replicas as there is room for, whoever else is on their pool
    if share is not None and offering is not None and _in_slots(share, offering, busy_frac, case, market, found):
        return
    if pods.parts and not types:
        found.refused = f"asks for {pods.parts[0][0]} of nodes that these objects do not name"
        return
    if offering is not None:
        smaller = with_fewer_gpus(pods, workload, market)
        if number is not None:
            found.changes.append((replica_gpus.NAME, number))
        elif any(effect.pool == offering.pool for effect in smaller):
            pass  # fewer GPUs a run, on nodes of their own: that effect says where
        elif offering.pool != home.held_as(CapacityType.ON_DEMAND):
            fitting = fitting_offerings(workload, [offering], market, case.settings.assumptions)
            if not fitting.fitting:
                why = next(iter(fitting.refused), "it is not known how it would run there")
                found.refused = f"would run on {offering.pool.instance_type}: {why}"
                return
            found.changes.append((right_size.NAME, fitting.fitting[0]))
        home = offering.pool
        if pool is not None and not asked:
            _other_types(types, offering, pool, pods.gpus or workload.gpus_per_pod, workload, market, found)
    elif types:
        found.refused = f"would run on {', '.join(types)}: no price is known for it in {home.region}"
        return
    if pool is not None and pool.block_nodes:
        _blocks(pool, home, case, market, found)
    elif pool is not None and "spot" in pool.capacity_types:
        _spot(home, pool.one_in, case, market, found)
        if "on-demand" not in pool.capacity_types and pool.kind == NODE_POOL:
            found.warn(
                workload.name, (*pods.files, pool.file),
                f"node pool {pool.name} has spot alone: its pods stay pending while spot gives no node. Replayed as if they "
                "ran on demand then",
                "let the pool have on-demand too, or add a pool of less weight that has",
            )  # fmt: skip


def _other_number(
    pods: DeclaredPods, offering: Offering | None, case: Case, market: Market, found: Proposed
) -> SetReplicaGpus | None:
    """Return what a service's replicas do on another number of GPUs, where their server is told to use it; else None."""
    workload = case.workload
    held = round(workload.gpus_per_pod)
    if workload.kind is not WorkloadKind.SERVING or pods.tensor in (None, held) or offering is None:
        return None
    if pods.tensor != pods.gpus:
        found.stop(
            workload.name, pods.files,
            f"its server is started on {pods.tensor} GPUs (--tensor-parallel-size), and its pods ask for {pods.gpus or held}",
            "let both say the same number",
        )  # fmt: skip
        return None
    ask = LeverRequest(evaluator=Evaluator(case=case), market=market)
    stated = replica_gpus.stated_number(ask, offering.pool.instance_type, pods.gpus or held, pods.most_sequences)
    if isinstance(stated, str):
        found.refused = f"serves on {pods.gpus} GPUs a replica, not {held}, and that cannot be replayed: {stated}"
        return None
    return stated


def _blocks(pool: NodePool, home: Pool, case: Case, market: Market, found: Proposed) -> None:
    """Hold so many of its nodes in capacity blocks, and the rest on demand: on every day, for no object says when one ends."""
    price = market.block_price(home)
    if case.workload.kind not in RUN_KINDS:
        found.refused = f"may run in capacity blocks of {pool.name}, which is modelled for runs only"
    elif "on-demand" not in pool.capacity_types:
        found.refused = (
            f"may run in capacity blocks of {pool.name} alone: how it waits for the next one is not modelled"
        )
    elif price is None:
        found.refused = (
            f"may run in capacity blocks of {home.instance_type}: no price of them is known in {home.region}"
        )
    else:
        nodes = min(pool.block_nodes, MOST_NODES)
        block = BookBlocks(
            pool=home.held_as(CapacityType.CAPACITY_BLOCK), calendar=BlockCalendar((nodes,) * DAYS_PER_WEEK),
            rate_micro_usd_hr=micro_usd(price.usd_hr), on_demand_micro_usd_hr=market.rate(home),
        )  # fmt: skip
        found.changes.append((capacity_blocks.NAME, block))
        found.notes.append(
            f"{nodes} node(s) of {pool.name} are in capacity blocks: billed on every day, used or not, for no object says when "
            "a block begins and ends"
        )


def _in_slots(
    share: AskedShare,
    offering: Offering,
    busy_frac: float,
    case: Case,
    market: Market,
    found: Proposed,
) -> bool:
    """Return whether its pods share nodes; say in which slots of them, or why that is not known."""
    if share.resource == GPU and share.sharing is None and share.count >= offering.gpus_per_node:
        return False
    slot = slot_of(share, case.workload, offering, market, case.settings.assumptions, busy_frac)
    if slot is not None and case.workload.kind in RUN_KINDS and not slot.shared.is_cut:
        slot = sharing.wide_enough(slot, case)
    if slot is not None:
        found.changes.append((sharing.NAME, slot))
    elif share.resource == GPU and share.sharing is None:
        return False
    else:
        of = offering.pool.instance_type
        found.refused = f"asks for {share.count} x {share.resource} of {of}: how it would run there is not known"
    return True


def types_of(pool: NodePool, workload: Workload, market: Market) -> tuple[str, ...]:
    """Return the instance types that a pool may start in a workload's region, or those that it names; none: any."""
    if not names_instances(pool):
        return ()
    offered = [
        offering.pool.instance_type for offering in offerings_at_home(workload, market) if admits(pool, offering)
    ]
    return (
        tuple(dict.fromkeys(offered))
        or pool.instance_types
        or tuple(f"{need.key} {need.operator}" for need in pool.needs)
    )


def _cheapest(
    types: tuple[str, ...],
    gpus: float,
    workload: Workload,
    pool: NodePool | None,
    market: Market,
    overlays: Sequence[PriceOverlay],
) -> Offering | None:
    """Return the instance type that is started: the cheapest, at prices as Karpenter sees them where the pool is its own."""
    offered = [offering for offering in offerings_at_home(workload, market) if offering.pool.instance_type in types]

    def seen_usd_hr(offering: Offering) -> float:
        if pool is None:
            return usd(offering.rate_micro_usd_hr)
        shown = overlays if pool.kind == NODE_POOL else ()
        ways = [(way, market.rate(held)) for way, held in _ways_to_hold(offering, pool)]
        return min(
            (shown_price(usd(rate), offering, way, pool, shown) for way, rate in ways),
            default=usd(offering.rate_micro_usd_hr),
        )

    # a pod that must fit on one node cannot start a smaller one
    wide = [offering for offering in offered if offering.gpus_per_node >= gpus]
    return min(wide or offered, key=lambda offering: (seen_usd_hr(offering), offering.pool), default=None)


def _ways_to_hold(offering: Offering, pool: NodePool) -> Iterator[tuple[str, Pool]]:
    if "on-demand" in pool.capacity_types and pool.starts_on_demand(offering.pool.instance_type):
        yield "on-demand", offering.pool
    if "spot" in pool.capacity_types and offering.spot is not None:
        yield "spot", offering.pool.held_as(CapacityType.SPOT)


_MOST_NAMED = 5
"""Instance types that are named where a pool may start many."""


def _other_types(
    types: Sequence[str],
    started: Offering,
    pool: NodePool,
    gpus: float,
    workload: Workload,
    market: Market,
    found: Proposed,
) -> None:
    """Say which other types a pool may start for its pods, and at what price: the cheapest is billed, while there is any.

    Where the types on demand are others than the one that is started on spot, its price behind spot is not known.
    """
    if not pool.starts_on_demand(started.pool.instance_type) and "on-demand" in pool.capacity_types:
        found.refused = (
            f"would run on spot nodes of {started.pool.instance_type}, and on demand on "
            f"{', '.join(pool.on_demand_types)}: other nodes behind spot are not modelled"
        )
        return
    others = sorted(
        (market.rate(held), offering.pool.instance_type)
        for offering in offerings_at_home(workload, market)
        if offering.pool.instance_type in types and offering.pool != started.pool and offering.gpus_per_node >= gpus
        for _, held in list(_ways_to_hold(offering, pool))[-1:]
    )
    if not others:
        return
    most = started.rate_micro_usd_hr
    named = [
        f"{name} ({_usd_hr(rate)}{f', more than {started.pool.instance_type} on demand' if rate > most else ''})"
        for rate, name in others[:_MOST_NAMED]
    ]
    named += [f"{len(others) - _MOST_NAMED} more"] if len(others) > _MOST_NAMED else []
    rate = min((market.rate(held) for _, held in _ways_to_hold(started, pool)), default=most)
    found.notes.append(
        f"billed as {started.pool.instance_type} ({_usd_hr(rate)}), the type that {pool.kind} {pool.name} starts first; "
        f"without capacity of that it starts {', '.join(named)}"
    )


def _usd_hr(rate_micro_usd_hr: int) -> str:
    return f"${usd(rate_micro_usd_hr):.4g} an hour"


def _spot(home: Pool, one_in: int, case: Case, market: Market, found: Proposed) -> None:
    """Hold its nodes on spot, one replica in so many on demand (0: none), for that is what the objects do.

    Whether anybody declared that it bears interruptions is another question.
    """
    workload = case.workload
    willing = replace(workload, spec=workload.spec.model_copy(update={"interruptible": True}))
    ways: tuple[SetCapacityType | HedgeOnSpot, ...] = (
        *spot.propose(willing, market, case.settings.assumptions),
        *(replace(hedge, one_in=one_in) for hedge in spot.hedges(willing, market, case.settings.assumptions)),
    )
    way = next((candidate for candidate in ways if candidate.pool.nodes == home.nodes), None)
    if way is None:
        found.notes.append(
            f"spot of {home.instance_type} is not cheaper than on demand, or has no price: taken on demand"
        )
        return
    found.changes.append((spot.NAME, way))
    if workload.spec.interruptible is not True:
        found.warn(
            workload.name, (),
            "runs on spot, and it is not declared interruptible",
            "declare interruptible: true in workloads.yaml once it saves its work or runs in several zones",
        )  # fmt: skip


def with_fewer_gpus(pods: DeclaredPods, workload: Workload, market: Market) -> list[SetGpuCount]:
    """Return the ways to run on as many GPUs as its pods ask for, where they held more and used no more than that."""
    held = round(workload.gpus_per_pod)
    return [
        effect for effect in gpu_count.propose(workload, market) if (effect.before, effect.gpus) == (held, pods.gpus)
    ]
