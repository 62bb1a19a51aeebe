"""How many replicas manifests keep of a service: a number of them or an autoscaler, within what a pool's limit has room for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import SetReplicaPolicy, SetReplicas, Wake
from trimtab.deployment.placement import resolve
from trimtab.fleet.service_law import ServiceLaw, gpu_seconds_per_request
from trimtab.levers import autoscaling, replica_count, scale_to_zero
from trimtab.policies.keda import KedaPolicy
from trimtab.policies.scaling import NO_LIMIT, HpaPolicy
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.outcomes.service_model import demand_of
from trimtab.review.disruption import blocked_up_to, usual_rollout
from trimtab.review.karpenter import NODE_POOL, is_limited
from trimtab.review.manifests import DeclaredPods, Manifests, Scaler
from trimtab.review.placing import Proposed
from trimtab.review.pools import NodePool
from trimtab.review.scaling import (
    PAUSED_OUT,
    Replica,
    Scaling,
    bounds,
    fallback_of,
    hours_of,
    idles,
    is_on,
    may_go_to_none,
    paused,
    paused_at,
    reads_absence_as_zero,
    scaling_of,
)
from trimtab.sources.kubernetes.objects import number, text

_AS_NOW = 1.02
"""A rule that relies on more than so many times what a replica serves in history relies on something else."""
_KEDA_POLLING_S, _KEDA_COOLDOWN_S = 30, 300
"""KEDA's defaults."""


def scale_replicas(
    pods: DeclaredPods | None,
    scalers: list[Scaler],
    pool: NodePool | None,
    case: Case,
    law: ServiceLaw,
    manifests: Manifests,
    found: Proposed,
    *,
    most: int | None = None,
) -> None:
    """Say how many replicas it has: as an autoscaler does or as stated, within its pool's limit, and `most` at most."""
    name = case.workload.name
    before = demand_of(case).most_replicas
    room = room_on(pods, pool, case, found) if most is None else most
    for scaler in [scaler for scaler in scalers if _names_another(scaler, pods)]:
        kind = _scaled_kind(scaler)
        found.stop(
            name, (scaler.file,),
            f"scales a {kind} of this name, and it is a {pods.kind if pods else ''}: nothing happens",
            "state its kind in scaleTargetRef",
        )  # fmt: skip
    scalers = [scaler for scaler in scalers if not _names_another(scaler, pods)]
    if len(scalers) > 1:
        files = tuple(follower.file for follower in scalers)
        found.stop(name, files, f"{len(scalers)} autoscalers scale it and fight each other", "keep one of them")
    if not scalers:
        wanted = before if pods is None or pods.replicas is None else pods.replicas
        count = min(wanted, room)
        if (pods is not None and pods.replicas is not None) or most is not None:
            if count != before:
                found.changes.append((replica_count.NAME, SetReplicas(replicas=count, before=before)))
            _rollout(pods, pool, wanted, room, case, found)
        _drains(pods, pool, wanted, wanted, case, manifests, found)
        return
    scaler = scalers[0]
    if paused(scaler):
        said = paused_at(scaler)
        held = min(before if said is None else said, room)
        found.notes.append(f"its {scaler.kind} is paused, at {held} replicas")
        if held != before:
            found.changes.append((replica_count.NAME, SetReplicas(replicas=held, before=before)))
        return
    if pods is not None and pods.replicas is not None:
        found.warn(
            name, (*pods.files, scaler.file),
            f"states replicas: {pods.replicas} beside an autoscaler: each apply sets it back to that",
            "leave replicas out of the object once the autoscaler runs, and out of the last applied configuration first",
        )  # fmt: skip
    replica = _replica(case, law, found)
    scaling = scaling_of(scaler, replica, manifests.records)
    if scaler.assumes and scaling.counted_req_s > _AS_NOW * replica.capacity_req_s:
        found.warn(
            name, (scaler.file,),
            f"relies on {scaler.assumes}, so that a replica serves {scaling.counted_req_s:.3g} requests/s: it serves "
            f"{replica.capacity_req_s:.3g} in this history, and as replayed here its replicas run hotter by as much",
            "apply it once that is so, and review it again with later history",
        )  # fmt: skip
    elif scaler.assumes:
        found.notes.append(
            f"its {scaler.kind} relies on {scaler.assumes}, which no object shows: replayed as history had it"
        )
    found.notes += scaling.notes
    _without_metrics(scaler, case, found)
    if scaling.never_asks:
        # where no replica was ever seen full, it is not known what a full one shows: the replay's targets tell what it costs
        say = found.stop if replica.seen_full or scaling.policy is None else found.warn
        say(name, (scaler.file,), scaling.never_asks, scaling.cure)
    if scaling.policy is None:
        found.refused = f"its {scaler.kind} cannot be replayed: {scaling.refused}"
        return
    hours = hours_of(scaler, case.window, found.notes)
    if isinstance(hours, str):
        found.refused = f"its {scaler.kind} cannot be replayed: {hours}"
        return
    effect = SetReplicaPolicy(policy=scaling.policy, metric=_followed(scaler), tokens=scaling.tokens, hours=hours)
    least, highest = effect.hpa.min_replicas, effect.hpa.max_replicas
    if highest < max(least, 1):
        found.refused = f"its {scaler.kind} has a most of {highest} replicas below its least, {least}"
        return
    idle = number(scaler.spec, "idleReplicaCount")
    if scaler.kind == "ScaledObject" and idle is not None and idle >= least:
        found.refused = f"KEDA takes no idleReplicaCount ({idle:.0f}) that is not below minReplicaCount ({least})"
        return
    hpa = effect.policy
    if isinstance(hpa, HpaPolicy):
        to_none = may_go_to_none(scaler)
        effect = _to_none(effect, hpa, scaler, case, found, scaling) if to_none else _awake(effect, hpa)
    _drains(pods, pool, least, highest, case, manifests, found)
    _rollout(pods, pool, highest, room, case, found)
    limited = effect.at_most(room)
    if limited is None and most is not None:
        found.changes.append((replica_count.NAME, SetReplicas(replicas=most, before=before)))
        return
    if limited is None:
        found.refused = f"its {scaler.kind} wants {least} replicas at least, and its node pool has room for {room}"
        return
    if not scaling.counted_req_s:
        found.at_ends = tuple(_at_ends(limited, case, found))
    found.changes.append((scale_to_zero.NAME if limited.goes_to_none else autoscaling.NAME, limited))


_SCALED_KINDS = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "Rollout", "LeaderWorkerSet"})
"""Kinds that are scaled under their own name."""


def _scaled_kind(scaler: Scaler) -> str:
    """Return the kind of object that an autoscaler scales; a ScaledObject's default is a Deployment."""
    return text(scaler.spec, "scaleTargetRef", "kind") or ("Deployment" if scaler.kind == "ScaledObject" else "")


def _names_another(scaler: Scaler, pods: DeclaredPods | None) -> bool:
    """Return whether an autoscaler is for an object of another kind than the one that has its name."""
    kinds = {_scaled_kind(scaler), "" if pods is None else pods.kind}
    return len(kinds) == 2 and kinds <= _SCALED_KINDS


def _without_metrics(scaler: Scaler, case: Case, found: Proposed) -> None:
    """Say what a ScaledObject does while its metrics are absent, where that is too few replicas for what history asked."""
    fallback, name = fallback_of(scaler), case.workload.name
    as_zero = reads_absence_as_zero(scaler)
    if as_zero and scaler.kind == "ScaledObject":
        instead = ", and its fallback never holds" if fallback is not None else ""
        found.warn(
            name, (scaler.file,),
            f"to its trigger {', '.join(as_zero)} an absent series is 0 (ignoreNullValues): without a metric it goes to its "
            f"fewest replicas{instead}",
            'set ignoreNullValues: "false"',
        )  # fmt: skip
        return
    if fallback is None:
        return
    demand = demand_of(case)
    load = demand.arrivals / demand.step_s / case.law.capacity_req_s if case.law is not None else demand.arrivals * 0
    busiest = math.ceil(np.nanmax(load, initial=0.0))
    # it holds at least what its bounds ask, and no more (an HPA applies them to what a metric asks)
    low, high = bounds(scaler)
    held = max(low, min(high, fallback.held(low)))
    if held < busiest:
        found.warn(
            name, (scaler.file,),
            f"its fallback ({fallback.behavior}) holds {held} replicas while its metrics are absent, and the busiest step of "
            f"this history keeps {busiest} busy",
            f"set fallback.replicas to {busiest} or more, or behavior: currentReplicasIfHigher",
        )  # fmt: skip


def _at_ends(effect: SetReplicaPolicy, case: Case, found: Proposed) -> Iterator[Deployment]:
    """Yield an autoscaler on GPU activity as the ends of an estimated speed have it: what runs faster shows less activity.

    History does not hold what its requests would show on another GPU, and no model tells it to a few percent.
    """
    speed = resolve(case.workload, Deployment.of(*found.changes)).speed
    if speed.low < speed.high and isinstance(effect.policy, HpaPolicy):
        for end in (speed.low, speed.high):
            hpa = effect.policy._replace(target_frac=effect.policy.target_frac * end / speed.value)
            yield Deployment.of(*found.changes, (autoscaling.NAME, replace(effect, policy=hpa)))


def _awake(effect: SetReplicaPolicy, hpa: HpaPolicy) -> SetReplicaPolicy:
    """Return the same autoscaler that keeps its last replica."""
    return replace(effect, policy=hpa._replace(min_replicas=max(1, hpa.min_replicas)))


def _to_none(
    effect: SetReplicaPolicy, hpa: HpaPolicy, scaler: Scaler, case: Case, found: Proposed, scaling: Scaling
) -> SetReplicaPolicy:
    """Return what an autoscaler that goes to none is replayed as: so where something wakes it and holds requests."""
    woken = _awake(effect, hpa)
    if not scaling.outlives and effect.hours:
        found.warn(
            case.workload.name, (scaler.file,),
            "goes to zero replicas outside its hours, and comes back when they begin: no trigger sees requests while there "
            "is no pod to export them. Replayed with at least one replica",
            "add a trigger on what is in front of the pods (an ingress, a gateway, a queue), or keep one replica",
        )  # fmt: skip
        return woken
    if not scaling.outlives:
        found.stop(
            case.workload.name, (scaler.file,),
            "goes to zero replicas and never comes back: no trigger sees requests while there is no pod to export them",
            "add a trigger on what is in front of the pods (an ingress, a gateway, a queue), or keep one replica",
        )  # fmt: skip
        return woken
    if is_on(scaler, PAUSED_OUT):
        found.stop(
            case.workload.name, (scaler.file,),
            f"goes to zero replicas and never comes back: {PAUSED_OUT} lets no trigger wake it",
            "remove the annotation, or keep one replica",
        )  # fmt: skip
        return woken
    declared = case.workload.spec.wakes_on
    if scaler.kind != "ScaledObject" or declared is None:
        found.notes.append(
            "scales to zero, and is replayed with one replica at least: what holds requests then is not declared (wakes_on in "
            "workloads.yaml). In reality it costs less, and the first request waits for a start"
        )
        return woken
    polling_s, cooldown_s = number(scaler.spec, "pollingInterval"), number(scaler.spec, "cooldownPeriod")
    policy = KedaPolicy(
        hpa=hpa,
        polling_s=int(_KEDA_POLLING_S if polling_s is None else polling_s),
        cooldown_s=int(_KEDA_COOLDOWN_S if cooldown_s is None else cooldown_s),
        idles=idles(scaler),
    )
    if (awake := scaling.activation) is not None:
        policy = policy._replace(
            activation_load=awake.load,
            activation_window_s=awake.window_s,
            activation_backlog_replica_s=awake.backlog_replica_s,
        )
    return replace(effect, policy=policy, wake=Wake(query=declared.query, hold_s=declared.hold_s))


def _replica(case: Case, law: ServiceLaw, found: Proposed) -> Replica:
    """Return what one replica does on the nodes that were found for it.

    A request takes so much less of a faster GPU, whether or not a replica is assumed to serve more there.
    """
    workload = case.workload
    place = resolve(workload, Deployment.of(*found.changes))
    capacity = place.replica_req_s(law.rule_req_s, faster_counts=law.faster_counts)
    service = workload.service
    per_request = None if service is None else gpu_seconds_per_request(service, workload.activity.busy_gpus)
    full_frac = capacity / place.replica_req_s(workload.gpus_per_pod / per_request) if per_request else 1.0
    return Replica(
        capacity_req_s=capacity,
        full_frac=full_frac,
        most_frac=full_frac * law.full_req_s / law.capacity_req_s,
        seen_full=law.is_seen_full,
        signal=workload.activity.signal,
        tokens_counted=law.counted is not None,
    )


def _followed(scaler: Scaler) -> str:
    return f"{scaler.kind} {scaler.name}"


def most_wanted(manifests: Manifests, case: Case, pods: DeclaredPods) -> int:
    """Return the most replicas that a service may have by its autoscaler, or has."""
    scalers = manifests.scalers.get(case.workload.name, [])
    if scalers:
        return bounds(scalers[0])[1]
    return demand_of(case).most_replicas if pods.replicas is None else pods.replicas


def _drains(
    pods: DeclaredPods | None,
    pool: NodePool | None,
    least: int,
    most: int,
    case: Case,
    manifests: Manifests,
    found: Proposed,
) -> None:
    """Say where its nodes cannot be drained, so that those of several replicas stay until the last of them goes.

    A ReplicaSet takes pods first from the nodes that hold most of them (Kubernetes 1.34, pkg/controller/replicaset,
    getPodsRankedByRelatedPodsOnSameNode), so that nodes of several replicas hardly ever become empty by themselves.
    """
    if pods is None or pool is None:
        return
    name = case.workload.name
    budgets = manifests.budgets_of(pods)
    blocked = blocked_up_to(budgets, most)
    named = ", ".join(budget.name for budget in budgets)
    files = (*pods.files, *(budget.file for budget in budgets))
    if blocked >= most > 0:
        found.warn(
            name, files,
            f"PodDisruptionBudget {named} never lets a pod go: no node of its can be drained, for an upgrade, drift or "
            "consolidation, and one that is to go stays billed",
            "allow one eviction (maxUnavailable: 1), or have a replica more than must stay",
        )  # fmt: skip
    elif blocked >= max(least, 1):
        found.notes.append(f"with {blocked} replicas or fewer PodDisruptionBudget {named} lets no node be drained")
    if not pool.consolidates:
        cause, cure = (
            f"{pool.kind} {pool.name} gives back empty nodes only",
            "set consolidationPolicy: WhenEmptyOrUnderutilized",
        )
    elif pods.stays_put:
        cause, cure = "its pods forbid that their nodes be disrupted", "remove the annotation from services"
    elif blocked >= most > 0:
        cause, cure = f"PodDisruptionBudget {named} allows no eviction", "allow one eviction (maxUnavailable: 1)"
    else:
        return
    place = resolve(case.workload, Deployment.of(*found.changes))
    if most > least and place.holds_several:
        found.moved = False
        found.warn(
            name, (*pods.files, pool.file),
            f"{cause}, and its nodes hold several replicas: each stays until the last of them goes, and is billed so", cure,
        )  # fmt: skip


def room_on(pods: DeclaredPods | None, pool: NodePool | None, case: Case, found: Proposed) -> int:
    """Return how many replicas a pool's limit has room for, on the nodes that were found for it.

    Karpenter starts no node of which all GPUs together would exceed the limit, needed or not (kubernetes-sigs/karpenter v1.9.1,
    scheduling/scheduler.go, filterByRemainingResources).
    """
    if pool is None:
        return NO_LIMIT
    if pods is not None and pods.parts:
        resource, count = pods.parts[0]
        return pool.part_limits[resource] // count if resource in pool.part_limits else NO_LIMIT
    each = pods.gpus if pods is not None and pods.gpus else max(1, math.ceil(case.workload.gpus_per_pod))
    place = resolve(case.workload, Deployment.of(*found.changes))
    cut = place.shared is not None and place.shared.shared.is_cut
    per_node = place.shared.shared.slots_per_node if place.shared is not None and cut else place.gpus_per_node
    rooms = [] if pool.node_limit is None else [pool.node_limit * (per_node // each)]
    if pool.gpu_limit is not None:
        whole = per_node >= each and pool.kind == NODE_POOL and not cut
        rooms.append(pool.gpu_limit // per_node * (per_node // each) if whole else pool.gpu_limit // each)
    return min(rooms, default=NO_LIMIT)


def _rollout(
    pods: DeclaredPods | None, pool: NodePool | None, most: int, room: int, case: Case, found: Proposed
) -> None:
    """Say where a pool's limit leaves no room for its replicas, or for the next rollout."""
    if pool is None or room == NO_LIMIT or not is_limited(pool):
        return
    files = (*(() if pods is None else pods.files), pool.file)
    limit = f"{pool.node_limit} nodes" if pool.gpu_limit is None else f"{pool.gpu_limit} GPUs"
    if pods is not None and pods.parts:
        limit = f"{pool.part_limits[pods.parts[0][0]]} x {pods.parts[0][0]}"
    rollout = (pods.rollout if pods is not None else None) or usual_rollout("" if pods is None else pods.kind)
    surge, gone = rollout.steps(most)
    if room < most:
        found.warn(
            case.workload.name, files,
            f"may have {most} replicas, and {pool.kind} {pool.name} has room for {room} (limit {limit})",
            "raise the pool's limit, or lower the maximum replicas",
        )  # fmt: skip
    elif room == most and gone == 0:
        found.stop(
            case.workload.name, files,
            f"a rollout at {most} replicas needs {surge} more and takes none away, and {pool.kind} {pool.name} has room for "
            f"{room}: it never ends",
            "raise the pool's limit by a node, or set maxSurge: 0 and maxUnavailable: 1",
        )  # fmt: skip
