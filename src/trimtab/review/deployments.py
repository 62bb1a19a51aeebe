"""What manifests make of one workload: its deployment, and what would stop its pods from running at all.

Where its pods go is read as the scheduler and Karpenter have it: every label that a pod selects must be a node's, every taint
that keeps pods off must be tolerated (kubernetes.io, Assigning Pods to Nodes; Taints and Tolerations), and of the instance
types that a NodePool may start the cheapest is started, spot before on demand where both are allowed (karpenter.sh,
NodePools).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import (
    HedgeOnSpot,
    ReleaseIdle,
    SetCapacityType,
    SetGpuCount,
    SetReplicaPolicy,
    SetReplicas,
    SetSchedule,
    StartBeforeRuns,
    UseOffering,
    Wake,
    WorkloadEffect,
)
from trimtab.deployment.fitting import fitting_offerings
from trimtab.deployment.placement import resolve
from trimtab.fleet.kinds import RUN_KINDS
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import Workload
from trimtab.fleet.reach import offerings_at_home
from trimtab.fleet.service_law import ServiceLaw
from trimtab.levers import (
    autoscaling,
    gpu_count,
    idle_release,
    replica_count,
    right_size,
    scale_to_zero,
    schedule,
    sharing,
    spot,
)
from trimtab.policies.keda import KedaPolicy
from trimtab.policies.scaling import NO_LIMIT, HpaPolicy
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.outcomes.replica_law import leaves_enough
from trimtab.replay.outcomes.service_outcome import demand_of
from trimtab.review.manifests import DeclaredPods, Manifests, Scaler
from trimtab.review.node_groups import GROUP_NAME_LABELS, NODE_GROUP, together
from trimtab.review.pools import GPU, INSTANCE_TYPE_LABELS, NODE_POOL_LABEL, NodePool, Taint
from trimtab.review.scaling import Replica, scaling_of
from trimtab.review.shares import MIG_SLICE, PLUGIN_CONFIG_LABEL, AskedShare, slot_of
from trimtab.review.timetables import held_hours, is_timetable
from trimtab.sources.kubernetes.objects import number
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR, S_PER_MIN

_KEPT_OFF = frozenset({"NoSchedule", "NoExecute"})
_SURGE_FRAC = 0.25
"""A Deployment's default maxSurge, rounded up; maxUnavailable of as much is rounded down."""
_AS_NOW = 1.02
"""A rule that counts on more than so many times what a replica serves in history counts on something else."""
_KEDA_POLLING_S, _KEDA_COOLDOWN_S = 30, 300
"""KEDA's defaults."""


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
    refused: str = ""
    """Why it cannot be replayed; empty where it can."""
    gives_nodes_back: bool = False
    """Whether its nodes are those of a pool that starts and removes them as pods ask."""
    findings: list[ManifestFault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    changes: list[tuple[str, WorkloadEffect]] = field(default_factory=list)


def proposed_deployments(cases: Mapping[str, Case], market: Market, manifests: Manifests) -> dict[str, Proposed]:
    """Return what manifests make of some workloads, by name; as they are where they say nothing of them.

    No object says for how long those that take turns on GPUs are at work: they are replayed beside the least busy neighbours
    that all of them are, with the replicas that they then have.
    """
    found = {name: _proposed(case, market, manifests, 0.0) for name, case in cases.items()}
    taking_turns: dict[tuple[Pool, int], list[str]] = defaultdict(list)
    for name, proposed in found.items():
        slots = proposed.deployment.sharing
        if slots is not None and slots.others:
            taking_turns[slots.pool, slots.shared.slots_per_node].append(name)
    for names in taking_turns.values():
        found |= _beside_one_another({name: cases[name] for name in names}, market, manifests)
    return found


def _beside_one_another(cases: Mapping[str, Case], market: Market, manifests: Manifests) -> dict[str, Proposed]:
    found: dict[str, Proposed] = {}
    for busy_frac in sharing.BUSY_CLASSES:
        found = {name: _proposed(case, market, manifests, busy_frac) for name, case in cases.items()}
        if all(_leaves_others_time(case, found[name].deployment) for name, case in cases.items()):
            return found
    for name, proposed in found.items():
        _warn(
            proposed, name, (),
            f"takes turns on GPUs, and those that do are at work for more than {sharing.BUSY_CLASSES[-1]:.0%} of an hour: in "
            "truth it waits for longer than replayed",
            "make fewer shares of a GPU, or use MIG or nodes of its own",
        )  # fmt: skip
    return found


def _leaves_others_time(case: Case, deployment: Deployment) -> bool:
    evaluator = Evaluator(case=case)
    return leaves_enough(case, evaluator.place(deployment), evaluator.outcome(deployment))


def _proposed(case: Case, market: Market, manifests: Manifests, busy_frac: float) -> Proposed:
    """Return what manifests make of a workload, in time slices beside others that are at work for `busy_frac` of an hour."""
    name, found = case.workload.name, Proposed()
    pods, scalers = manifests.pods.get(name), manifests.scalers.get(name, [])
    pool = None if pods is None else _node_pool(pods, case.workload, manifests, found)
    if pods is not None and not found.refused:
        share = _asked_share(pods, pool, manifests, found)
        _place(pods, pool, share, busy_frac, case, market, found)
    if not found.refused and len(scalers) == 1 and is_timetable(scalers[0]):
        _timetable(scalers[0], case, found)
    elif not found.refused and case.workload.kind in RUN_KINDS and pods is not None:
        _runs(pods, pool, case, market, found)
        _warm(pods, case, manifests, found)
    elif not found.refused and case.law is not None:
        _replicas(pods, scalers, pool, case, case.law, manifests, found)
    if not found.refused:
        found.deployment = Deployment.of(*found.changes)
    return found


def _stop(found: Proposed, workload: str, files: tuple[str, ...], what: str, cure: str) -> None:
    found.findings.append(ManifestFault(weight=Weight.STOPS, workload=workload, files=files, what=what, cure=cure))


def _warn(found: Proposed, workload: str, files: tuple[str, ...], what: str, cure: str) -> None:
    found.findings.append(ManifestFault(weight=Weight.WARNS, workload=workload, files=files, what=what, cure=cure))


def _node_pool(pods: DeclaredPods, workload: Workload, manifests: Manifests, found: Proposed) -> NodePool | None:
    """Return the pool of nodes among the manifests that its pods select, after what keeps them off it was said."""
    named = pods.selected(NODE_POOL_LABEL)
    fit = (
        [selected for selected in (manifests.pools.get(named),) if selected]
        if named
        else _by_labels(pods, manifests.pools)
    )
    pool = _one_pool([group for group in fit if not _kept_off(pods, group)] or fit)
    if pool is None and fit:
        names = ", ".join(sorted(group.name for group in fit))
        found.refused = f"may run on nodes of {names}: how its pods divide over several node pools is not modelled"
        return None
    if pool is None:
        if absent := named or pods.selected(*GROUP_NAME_LABELS):
            kind = "node pool" if named else "node group"
            found.notes.append(
                f"selects the {kind} {absent}, which is not among these objects: taken to be its present nodes"
            )
        return None
    for taint in _kept_off(pods, pool):
        _stop(
            found, workload.name, (*pods.files, pool.file),
            f"does not tolerate {taint.key}={taint.value}:{taint.effect} of {pool.kind} {pool.name}: its pods stay pending",
            f"add the toleration key {taint.key}, effect {taint.effect}",
        )  # fmt: skip
    _groups_left(pods, fit, pool, workload, found)
    _contradictions(pods, pool, workload, found)
    return pool


def _kept_off(pods: DeclaredPods, pool: NodePool) -> list[Taint]:
    """Return the taints of a pool that keep its pods off."""
    taints = (taint for taint in pool.taints if taint.effect in _KEPT_OFF)
    return [taint for taint in taints if not any(toleration.tolerates(taint) for toleration in pods.tolerations or ())]


def _selected_pools(pods: DeclaredPods, manifests: Manifests) -> frozenset[str]:
    """Return the names of the pools that its pods select, whether or not they are among the manifests."""
    named = pods.selected(NODE_POOL_LABEL)
    return frozenset([named] if named else (pool.name for pool in _by_labels(pods, manifests.pools)))


def _one_pool(fit: Sequence[NodePool]) -> NodePool | None:
    """Return the pool that its pods run on: the only one, or groups that are one need; None where they divide, or have none."""
    if len(fit) <= 1:
        return next(iter(fit), None)
    return together(fit) if all(pool.kind == NODE_GROUP for pool in fit) else None


def _groups_left(
    pods: DeclaredPods, fit: Sequence[NodePool], pool: NodePool, workload: Workload, found: Proposed
) -> None:
    """Say which groups its pods select and may not run on, and what nodes of groups keep that nothing needs."""
    for group in fit:
        for taint in _kept_off(pods, group) if not _kept_off(pods, pool) else ():
            _warn(
                found, workload.name, (*pods.files, group.file),
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
    wanted = {key: value for key, value in pods.node_selector if key not in INSTANCE_TYPE_LABELS}
    return [pool for pool in pools.values() if wanted and all(pool.labels.get(key) == wanted[key] for key in wanted)]


def _contradictions(pods: DeclaredPods, pool: NodePool, workload: Workload, found: Proposed) -> None:
    """Say which labels its pods select that no node of the pool has."""
    for key, value in pods.node_selector:
        given = pool.requirements.get(key, (pool.labels[key],) if key in pool.labels else ())
        if given and value not in given:
            _stop(
                found, workload.name, (*pods.files, pool.file),
                f"selects {key}={value}, and {pool.kind} {pool.name} has {', '.join(given)} only: its pods stay pending",
                f"select {given[0]}, or let the pool have {value}",
            )  # fmt: skip
        elif not given and key not in (NODE_POOL_LABEL, *INSTANCE_TYPE_LABELS) and "/" in key and pool.labels:
            _warn(
                found, workload.name, (*pods.files, pool.file),
                f"selects {key}={value}, which {pool.kind} {pool.name} does not give its nodes",
                f"add the label to the pool's template, or set the selector to null ({key}: null)",
            )  # fmt: skip


def _shares_its_pool(pods: DeclaredPods, manifests: Manifests) -> bool:
    """Tell whether pods of another workload select the same pools."""
    mine = _selected_pools(pods, manifests)
    return bool(mine) and any(
        _selected_pools(other, manifests) == mine
        for name, other in manifests.pods.items()
        if name != pods.workload and not manifests.is_placeholder(other)
    )


def _asked_share(pods: DeclaredPods, pool: NodePool | None, manifests: Manifests, found: Proposed) -> AskedShare | None:
    """Return the parts of GPUs or nodes that its pods ask for; None for nodes of its own, or where that is refused."""
    config = manifests.sharing.get(pool.labels.get(PLUGIN_CONFIG_LABEL, "")) if pool is not None else None
    if len(pods.parts) > 1:
        found.refused = f"asks for {', '.join(name for name, _ in pods.parts)} together, which is not modelled"
    elif pods.parts:
        resource, count = pods.parts[0]
        if resource.startswith(MIG_SLICE):
            return AskedShare(resource=resource, count=count, sharing=None)
        if config is not None and resource == config.resource:
            return AskedShare(resource=resource, count=count, sharing=config)
        found.refused = (
            f"asks for {resource}, and none of these objects says what that is: the pool's label {PLUGIN_CONFIG_LABEL} and a "
            "ConfigMap with that configuration would"
        )
    elif pods.gpus and config is not None and config.resource == GPU:
        return AskedShare(resource=GPU, count=pods.gpus, sharing=config)
    elif pods.gpus and pool is not None and _shares_its_pool(pods, manifests):
        return AskedShare(resource=GPU, count=pods.gpus, sharing=None)
    return None


def _place(
    pods: DeclaredPods,
    pool: NodePool | None,
    share: AskedShare | None,
    busy_frac: float,
    case: Case,
    market: Market,
    found: Proposed,
) -> None:
    """Say on which nodes its pods run: the cheapest that they may, on spot where that is allowed."""
    if found.refused:
        return
    workload = case.workload
    asked = pods.selected(*INSTANCE_TYPE_LABELS)
    types = (asked,) if asked else (() if pool is None else pool.instance_types)
    found.gives_nodes_back = pool is not None and pool.elastic
    home = workload.pool
    offering = _cheapest(types, workload, market) if types else None
    if share is not None and offering is not None and _in_slots(share, offering, busy_frac, case, market, found):
        return
    if pods.parts and not types:
        found.refused = f"asks for {pods.parts[0][0]} of nodes that these objects do not name"
        return
    if offering is not None:
        smaller = _smaller(pods, workload, market)
        if any(effect.pool == offering.pool for effect in smaller):
            pass  # fewer GPUs a run, on nodes of their own: that effect says where
        elif offering.pool != home.held_as(CapacityType.ON_DEMAND):
            fitting = fitting_offerings(workload, [offering], market, case.settings.assumptions)
            if not fitting.fitting:
                why = next(iter(fitting.refused), "it is not known how it would run there")
                found.refused = f"would run on {offering.pool.instance_type}: {why}"
                return
            found.changes.append((right_size.NAME, fitting.fitting[0]))
        home = offering.pool
    elif types:
        found.refused = f"would run on {', '.join(types)}: no price is known for it in {home.region}"
        return
    if pool is not None and "spot" in pool.capacity_types:
        _spot(home, case, market, found)


def _in_slots(
    share: AskedShare,
    offering: Offering,
    busy_frac: float,
    case: Case,
    market: Market,
    found: Proposed,
) -> bool:
    """Tell whether its pods share nodes; say in which slots of them, or why that is not known."""
    if share.resource == GPU and share.sharing is None and share.count >= offering.gpus_per_node:
        return False
    slot = slot_of(share, case.workload, offering, market, case.settings.assumptions, busy_frac)
    if slot is not None:
        found.changes.append((sharing.NAME, slot))
    elif share.resource == GPU and share.sharing is None:
        return False
    else:
        of = offering.pool.instance_type
        found.refused = f"asks for {share.count} x {share.resource} of {of}: how it would run there is not known"
    return True


def _cheapest(types: tuple[str, ...], workload: Workload, market: Market) -> Offering | None:
    offered = [offering for offering in offerings_at_home(workload, market) if offering.pool.instance_type in types]
    return min(offered, key=lambda offering: (offering.rate_micro_usd_hr, offering.pool), default=None)


def _spot(home: Pool, case: Case, market: Market, found: Proposed) -> None:
    """Hold its nodes on spot, whether or not anybody declared that it bears interruptions: that is what the objects do."""
    workload = case.workload
    willing = replace(workload, spec=workload.spec.model_copy(update={"interruptible": True}))
    ways: tuple[SetCapacityType | HedgeOnSpot, ...] = (
        *spot.propose(willing, market, case.settings.assumptions),
        *(hedge for hedge in spot.hedges(willing, market, case.settings.assumptions) if hedge.one_in == 0),
    )
    way = next((candidate for candidate in ways if candidate.pool.nodes == home.nodes), None)
    if way is None:
        found.notes.append(
            f"spot of {home.instance_type} is not cheaper than on demand, or has no price: taken on demand"
        )
        return
    found.changes.append((spot.NAME, way))
    if workload.spec.interruptible is not True:
        _warn(
            found, workload.name, (),
            "runs on spot, and nobody declared that it bears interruptions",
            "declare interruptible: true in workloads.yaml once it saves its work or runs in several zones",
        )  # fmt: skip


def _width_unknown(pods: DeclaredPods, workload: Workload) -> str:
    """Say why nobody knows how fast runs would be on as many GPUs as their pods ask for."""
    held = round(workload.gpus_per_pod)
    used = max((size.used_gpus or 0.0 for size in workload.pod_sizes if round(size.gpus) == held), default=0.0)
    why = f"some of its pods used {used:g}" if used else "nobody measured how many they used"
    return f"asks for {pods.gpus} GPU(s) a pod, and they hold {held}: how fast it would run is not known, since {why}"


def _warm(pods: DeclaredPods, case: Case, manifests: Manifests, found: Proposed) -> None:
    """Start its nodes ahead of its runs, where placeholders of the lowest priority come to its pool just before them."""
    namespace, pools = case.workload.name.partition("/")[0], _selected_pools(pods, manifests)
    beside = [
        other
        for other in manifests.pods.values()
        if manifests.is_placeholder(other)
        and other.workload.partition("/")[0] == namespace
        and pools
        and _selected_pools(other, manifests) == pools
    ]
    room = _node_gpus(case, found)
    for other in beside:
        if (other.gpus or 0) > room:
            _warn(
                found, case.workload.name, other.files,
                f"placeholder {other.workload} asks for {other.gpus} GPUs and the nodes it waits for have {room}: it stays "
                "pending, and no node is ready when the run begins",
                f"ask for {room} at most",
            )  # fmt: skip
    minutes = [other.cron.partition(" ")[0] for other in beside if (other.gpus or 0) <= room]
    settings = case.settings
    ways = schedule.propose(case.workload, case.window, settings.bands, settings.assumptions, required_frac=1.0)
    for way in ways if minutes else ():
        # runs begin on the hour: a placeholder comes so many minutes earlier
        if isinstance(way, StartBeforeRuns) and str(round(-way.lead_s % S_PER_HR / S_PER_MIN)) in minutes:
            others = [change for change in found.changes if not isinstance(change[1], ReleaseIdle)]
            found.changes = [*others, (schedule.NAME, way)]
            return
    if minutes:
        found.notes.append("its placeholders do not come just before its runs: not counted")


def _node_gpus(case: Case, found: Proposed) -> int:
    """Return how many GPUs the nodes have that it runs on."""
    moved = [effect.gpus_per_node for _, effect in found.changes if isinstance(effect, UseOffering | SetGpuCount)]
    return moved[-1] if moved else case.workload.gpus_per_node


def _smaller(pods: DeclaredPods, workload: Workload, market: Market) -> list[SetGpuCount]:
    """Return the ways to run on as many GPUs as its pods ask for, where they held more and used no more than that."""
    held = round(workload.gpus_per_pod)
    return [
        effect for effect in gpu_count.propose(workload, market) if (effect.before, effect.gpus) == (held, pods.gpus)
    ]


def _timetable(scaler: Scaler, case: Case, found: Proposed) -> None:
    """Hold its nodes in the hours in which a timetable holds replicas."""
    hours = held_hours(scaler)
    if isinstance(hours, str):
        found.refused = f"its {scaler.kind} cannot be replayed: {hours}"
        return
    found.gives_nodes_back = True
    found.changes.append((schedule.NAME, SetSchedule(hours_of_week=hours)))
    if case.workload.kind is WorkloadKind.NOTEBOOK:
        found.notes.append(
            "replayed with its nodes given back outside its hours, which takes a pool that removes empty nodes"
        )


def _runs(pods: DeclaredPods, pool: NodePool | None, case: Case, market: Market, found: Proposed) -> None:
    workload = case.workload
    held = round(workload.gpus_per_pod)
    if pods.gpus is not None and pods.gpus != held:
        counts = _smaller(pods, workload, market)
        if not counts:
            found.refused = _width_unknown(pods, workload)
            return
        asked = pods.selected(*INSTANCE_TYPE_LABELS) or workload.pool.instance_type
        types = (pool.instance_types if pool is not None else ()) or (asked,)
        counts.sort(key=lambda count: count.pool.instance_type not in types)
        found.changes.append((gpu_count.NAME, counts[0]))
    if pool is not None and pool.elastic:
        found.changes += [
            (idle_release.NAME, effect) for effect in idle_release.propose(workload, case.settings.assumptions)
        ]


def _replicas(
    pods: DeclaredPods | None,
    scalers: list[Scaler],
    pool: NodePool | None,
    case: Case,
    law: ServiceLaw,
    manifests: Manifests,
    found: Proposed,
) -> None:
    name = case.workload.name
    before = demand_of(case).most_replicas
    room = _room(pods, pool, case, found)
    if len(scalers) > 1:
        files = tuple(follower.file for follower in scalers)
        _stop(found, name, files, f"{len(scalers)} autoscalers scale it and fight each other", "keep one of them")
    if not scalers:
        if pods is not None and pods.replicas is not None and pods.replicas != before:
            count = min(pods.replicas, room)
            found.changes.append((replica_count.NAME, SetReplicas(replicas=count, before=before)))
            _rollout(pods, pool, pods.replicas, room, case, found)
        return
    scaler = scalers[0]
    if pods is not None and pods.replicas is not None:
        _warn(
            found, name, (*pods.files, scaler.file),
            f"states replicas: {pods.replicas} beside an autoscaler: each apply sets it back to that",
            "leave replicas out of the object once the autoscaler runs, and out of the last applied configuration first",
        )  # fmt: skip
    replica = _replica(case, law, found)
    scaling = scaling_of(scaler, replica, manifests.records)
    if scaler.assumes and scaling.counted_req_s > _AS_NOW * replica.capacity_req_s:
        _warn(
            found, name, (scaler.file,),
            f"counts on {scaler.assumes}, so that a replica serves {scaling.counted_req_s:.3g} requests/s: it serves "
            f"{replica.capacity_req_s:.3g} in this history, and as replayed here its replicas run hotter by as much",
            "apply it once that is so, and review it again with a history of after",
        )  # fmt: skip
    found.notes += scaling.notes
    if scaling.policy is None:
        found.refused = f"its {scaler.kind} cannot be replayed: {scaling.refused}"
        return
    if scaling.tops_out:
        _stop(found, name, (scaler.file,), scaling.tops_out, "lower the target, or follow requests")
    effect = SetReplicaPolicy(policy=scaling.policy, metric=_followed(scaler))
    least, most = effect.hpa.min_replicas, effect.hpa.max_replicas
    if most < max(least, 1):
        found.refused = f"its {scaler.kind} has a most of {most} replicas below its least, {least}"
        return
    if least == 0 and isinstance(effect.policy, HpaPolicy):
        effect = _to_none(effect, effect.policy, scaler, case, found, outlives=scaling.outlives)
    _fragments(pool, case, found)
    _rollout(pods, pool, most, room, case, found)
    limited = effect.at_most(room)
    if limited is None:
        found.refused = f"its {scaler.kind} wants {least} replicas at least, and its node pool has room for {room}"
        return
    found.changes.append((scale_to_zero.NAME if limited.goes_to_none else autoscaling.NAME, limited))


def _to_none(
    effect: SetReplicaPolicy, hpa: HpaPolicy, scaler: Scaler, case: Case, found: Proposed, *, outlives: bool
) -> SetReplicaPolicy:
    """Return what an autoscaler with a least of 0 is replayed as: to none where something wakes it and holds requests."""
    woken = replace(effect, policy=hpa._replace(min_replicas=1))
    if not outlives:
        _stop(
            found, case.workload.name, (scaler.file,),
            "goes to zero replicas and never comes back: no trigger tells of requests while there is no pod to export them",
            "add a trigger on what stands before the pods (an ingress, a gateway, a queue), or keep one replica",
        )  # fmt: skip
        return woken
    declared = case.workload.spec.wakes_on
    if scaler.kind != "ScaledObject" or declared is None:
        found.notes.append(
            "scales to zero, and is replayed with one replica at least: what holds requests then is not declared (wakes_on in "
            "workloads.yaml). In truth it costs less, and who comes first waits for a start"
        )
        return woken
    polling_s, cooldown_s = number(scaler.spec, "pollingInterval"), number(scaler.spec, "cooldownPeriod")
    policy = KedaPolicy(
        hpa=hpa,
        polling_s=int(_KEDA_POLLING_S if polling_s is None else polling_s),
        cooldown_s=int(_KEDA_COOLDOWN_S if cooldown_s is None else cooldown_s),
    )
    return replace(effect, policy=policy, wake=Wake(query=declared.query, hold_s=declared.hold_s))


def _replica(case: Case, law: ServiceLaw, found: Proposed) -> Replica:
    """Return what one replica does on the nodes that were found for it."""
    place = resolve(case.workload, Deployment.of(*found.changes))
    return Replica(
        full_frac=1.0 if law.tested is None else law.capacity_req_s / law.tested.activity_req_s,
        capacity_req_s=place.replica_req_s(law.capacity_req_s, faster_counts=law.faster_counts),
        signal=case.workload.activity.signal,
    )


def _followed(scaler: Scaler) -> str:
    return f"{scaler.kind} {scaler.name}"


def _fragments(pool: NodePool | None, case: Case, found: Proposed) -> None:
    """Say where replicas that go leave nodes half full for good.

    A ReplicaSet takes pods first from the nodes that hold most of them (kubernetes.io, ReplicaSet, Scaling down), so that nodes
    of several replicas hardly ever become empty by themselves.
    """
    if pool is None or pool.consolidates or case.workload.gpus_per_node < 2 * case.workload.gpus_per_pod:
        return
    _warn(
        found, case.workload.name, (pool.file,),
        f"{pool.kind} {pool.name} gives back empty nodes only (WhenEmpty), and its nodes hold several replicas: they hardly "
        "ever become empty, so that the bill is higher than replayed",
        "set consolidationPolicy: WhenEmptyOrUnderutilized for services",
    )  # fmt: skip


def _room(pods: DeclaredPods | None, pool: NodePool | None, case: Case, found: Proposed) -> int:
    """Return how many replicas a pool's limit has room for, on the nodes that were found for it."""
    if pods is not None and pods.parts and pool is not None:
        resource, count = pods.parts[0]
        return pool.part_limits[resource] // count if resource in pool.part_limits else NO_LIMIT
    each = pods.gpus if pods is not None and pods.gpus else max(1, math.ceil(case.workload.gpus_per_pod))
    if pool is not None and pool.gpu_limit is not None:
        return pool.gpu_limit // each
    if pool is not None and pool.node_limit is not None:
        return pool.node_limit * (resolve(case.workload, Deployment.of(*found.changes)).gpus_per_node // each)
    return NO_LIMIT


def _rollout(
    pods: DeclaredPods | None, pool: NodePool | None, most: int, room: int, case: Case, found: Proposed
) -> None:
    """Say where a pool's limit leaves no room for its replicas, or for the next rollout."""
    if pool is None or room == NO_LIMIT:
        return
    files = (*(() if pods is None else pods.files), pool.file)
    limit = f"{pool.node_limit} nodes" if pool.gpu_limit is None else f"{pool.gpu_limit} GPUs"
    if pods is not None and pods.parts:
        limit = f"{pool.part_limits[pods.parts[0][0]]} x {pods.parts[0][0]}"
    surge = math.ceil(_SURGE_FRAC * most)
    if room < most:
        _warn(
            found, case.workload.name, files,
            f"may have {most} replicas, and {pool.kind} {pool.name} has room for {room} (limit {limit})",
            "raise the pool's limit, or lower the most replicas",
        )  # fmt: skip
    elif room < most + surge and math.floor(_SURGE_FRAC * most) == 0:
        _stop(
            found, case.workload.name, files,
            f"a rollout at {most} replicas needs {surge} more and takes none away, and {pool.kind} {pool.name} has room for "
            f"{room}: it never ends",
            "raise the pool's limit by a node, or set maxSurge: 0 and maxUnavailable: 1",
        )  # fmt: skip


def unmatched(manifests: Manifests, known: Mapping[str, object]) -> Iterator[ManifestFault]:
    """Yield what scales or patches a workload that neither the history nor the objects know."""
    for name, scalers in sorted(manifests.scalers.items()):
        if name not in known and name not in manifests.pods:
            yield ManifestFault(
                weight=Weight.STOPS,
                workload=name,
                files=tuple(scaler.file for scaler in scalers),
                what="is scaled, and neither this history nor these objects have it: nothing happens",
                cure="check the namespace and the name of scaleTargetRef",
            )
