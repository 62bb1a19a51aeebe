"""A service as it is replayed: its demand, its replicas at a place, and the rule that scales them there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimtab.deployment.effects import SetReplicaPolicy, SetReplicas, SetSchedule, ShortenStart, TimedReplicas
from trimtab.deployment.placement import Placement
from trimtab.fleet.law_evidence import Bound
from trimtab.fleet.model import ServiceObservation, Target, Window
from trimtab.fleet.service_law import ServiceLaw, activity_as_demand
from trimtab.fleet.settings import SERVICE_NODES_KEPT_S, Assumptions
from trimtab.fleet.token_work import TokenWork, in_tokens
from trimtab.ledger.arrays import Flags, FloatArray
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.keda import CronPolicy, KedaPolicy
from trimtab.policies.scaling import SYNC_S, HpaPolicy, Metric, StaticReplicas
from trimtab.replay.fluid import GUARD_TIMES, GuardCurves
from trimtab.replay.outcomes.outcome import Case, targets_at
from trimtab.replay.outcomes.replica_law import replica_law
from trimtab.replay.outcomes.service_replays import ServiceReplays
from trimtab.replay.services import (
    NO_GUARDS,
    QUEUE_LIMIT_S,
    ScalingPolicy,
    ServiceHistory,
    ServiceModel,
    shared_out,
    usual_demand,
)
from trimtab.tables.workloads import TargetMetric
from trimtab.units import HR_PER_WEEK, S_PER_HR, S_PER_MIN

WAIT_COUNTED_S = 60.0
"""A request that queues longer counts as not served, where only throughput or a time per token is promised."""
SHORTEST_IN_TURN_S = 1.0
"""A rule counts a request that waits as its time over 15 s of a replica: of shorter ones less than a tolerance of 10 %."""
JUDGED = {TargetMetric.LATENCY, TargetMetric.TTFT, TargetMetric.TPOT, TargetMetric.THROUGHPUT}


def demand_of(case: Case) -> ServiceObservation:
    """Return the demand to replay: requests, or the work of their tokens by the case's law; activity where there are none."""
    service = case.workload.service
    if service is None:
        return activity_as_demand(case.workload)
    return in_tokens(service, case.law.counted if case.law is not None else None)


class ReplayInput(NamedTuple):
    """What a service is replayed in: its demand, its replicas at a place, and the rule as it acts there."""

    history: ServiceHistory
    model: ServiceModel
    policy: ScalingPolicy


def replay_input(
    case: Case, place: Placement, targets: tuple[Target, ...], replays: ServiceReplays, *, stressed: bool
) -> ReplayInput:
    """Return the world as predicted, or `stressed`: more demand, and speeds at the low end of their estimate."""
    law, history = law_known(case), demand_at(case, place, replays, stressed=stressed)
    model = service_model(case, law, place, targets_at(targets, place), low=stressed)
    # the number that is written into the manifest, whichever speed is tried here
    emitted_req_s = place.replica_req_s(law.rule_req_s, faster_counts=law.faster_counts)
    policy = as_emitted(written_policy(place, replicas_at_start(case, place)), emitted_req_s / model.capacity_req_s)
    return ReplayInput(history=history, model=model, policy=policy)


def law_known(case: Case) -> ServiceLaw:
    """Return the law of a case; raises ValueError where none was learnt."""
    if case.law is None:
        raise ValueError(f"{case.workload.name} has no service law")
    return case.law


def demand_at(case: Case, place: Placement, replays: ServiceReplays, *, stressed: bool = False) -> ServiceHistory:
    """Return what a service is replayed on there, made once for all places where it is the same."""
    closed = isinstance(place.holding, SetSchedule)
    growth = 1 + case.settings.planning.demand_headroom_frac if stressed else 1.0
    counts, hours = (
        (place.scaling.tokens, place.scaling.hours) if isinstance(place.scaling, SetReplicaPolicy) else (None, ())
    )
    return replays.history(
        (growth, closed, counts, hours), lambda: _history(case, replays, growth, counts, hours, closed=closed)
    )


def _history(
    case: Case,
    replays: ServiceReplays,
    growth: float,
    counts: TokenWork | None,
    hours: Sequence[TimedReplicas],
    *,
    closed: bool,
) -> ServiceHistory:
    """Return `growth` times the demand of a case; `closed`: no request comes outside the hours declared open.

    Rules see requests, or the work of tokens as they count it.
    """
    demand = demand_of(case)
    asked, within = demand.arrivals, _within(case, demand, replays, counts)
    if closed:
        # declared closed: no request has to be answered, so none is assumed to come
        is_there = is_open(case, demand)
        asked = np.where(is_there, asked, 0.0)
        within = None if within is None else np.where(np.repeat(is_there, len(within) // len(asked)), within, 0.0)
    decisions = len(asked) * (int(demand.step_s) // SYNC_S)
    return ServiceHistory(
        arrivals=asked * growth,
        step_s=demand.step_s,
        start_hour=case.window.first_week_hour,
        within=None if within is None else within * growth,
        asked=asked_by_the_hour(hours, case.window.first_week_hour, decisions) if hours else None,
        seen_as=(counts, tuple(hours)) if hours else counts,
    )


def asked_by_the_hour(hours: Sequence[TimedReplicas], start_hour: int, decisions: int) -> FloatArray:
    """Return the replicas that a timetable asks for at each decision (n_decisions,), which ends its 15 s; 0 outside its hours.

    >>> asked_by_the_hour((TimedReplicas(begin_min=1, length_min=1, replicas=4),), 0, 9).tolist()
    [0.0, 0.0, 0.0, 4.0, 4.0, 4.0, 4.0, 0.0, 0.0]
    """
    by_minute = np.zeros(HR_PER_WEEK * S_PER_HR // S_PER_MIN)
    for span in hours:
        minutes = (span.begin_min + np.arange(span.length_min)) % len(by_minute)
        by_minute[minutes] = np.maximum(by_minute[minutes], span.replicas)
    ends_s = start_hour * S_PER_HR + (1 + np.arange(decisions)) * SYNC_S
    return np.asarray(by_minute[ends_s // S_PER_MIN % len(by_minute)], dtype=np.float64)


def _within(
    case: Case, demand: ServiceObservation, replays: ServiceReplays, counts: TokenWork | None
) -> FloatArray | None:
    """Return demand by decision as the emitted rule sees it, with gaps of the history filled; None where it is the steps' own.

    Requests are drawn within each step, and tokens come with them. Activity is averaged by the rule and needs no more than its
    gaps filled.
    """
    service = case.workload.service
    if service is not None:
        requests = replays.drawn(service, seed_of(case, case.window))
        if counts is None:
            return requests
        counted = in_tokens(service, counts).arrivals
        return shared_out(usual_demand(counted, step_s=service.step_s), requests)
    if not np.isnan(demand.arrivals).any():
        return None
    decisions = int(demand.step_s) // SYNC_S
    return np.repeat(usual_demand(demand.arrivals, step_s=demand.step_s) / decisions, decisions)


def seed_of(case: Case, window: Window) -> tuple[int, ...]:
    """Return the seed of what came inside steps, for each service and window: what is planned on one is proved on another."""
    return (case.seed, int(window.start.timestamp()), *case.workload.name.encode())


def is_open(case: Case, demand: ServiceObservation) -> Flags:
    """Return for each step of a demand (n_steps,) whether the service must answer then; always where no hours are declared."""
    declared = case.workload.spec.open_hours
    if declared is None:
        return np.ones(len(demand.arrivals), dtype=np.bool_)
    hours = (np.arange(len(demand.arrivals)) * demand.step_s // S_PER_HR).astype(np.int64) + case.window.first_week_hour
    return np.isin(hours % HR_PER_WEEK, declared.hours_of_week)


def written_policy(place: Placement, replicas: int) -> ScalingPolicy:
    """Return what says how many replicas there are: an autoscaler, a timetable, or their number."""
    if isinstance(place.scaling, SetReplicaPolicy):
        return place.scaling.policy
    if isinstance(place.holding, SetSchedule):
        held = frozenset(place.holding.hours_of_week)
        return CronPolicy(tuple(replicas if hour in held else 0 for hour in range(HR_PER_WEEK)))
    return StaticReplicas(replicas)


def as_emitted(policy: ScalingPolicy, times: float) -> ScalingPolicy:
    """Return a policy as its emitted rule acts where a replica serves less than that rule takes it to, by so many times.

    The rule divides requests by a number that was written down when the plan was made: slower replicas cannot be told from
    others, and get as many requests each. A policy that reads how busy its replicas are knows by itself.
    """
    match policy:
        case HpaPolicy() if times != 1.0 and policy.metric is not Metric.DUTY_CYCLE:
            return policy._replace(target_frac=policy.target_frac * times)
        case ForecastPolicy() if times != 1.0:
            return policy._replace(hpa=policy.hpa._replace(target_frac=policy.hpa.target_frac * times))
        case KedaPolicy() if times != 1.0 and policy.hpa.metric is not Metric.DUTY_CYCLE:
            return policy._replace(hpa=policy.hpa._replace(target_frac=policy.hpa.target_frac * times))
        case _:
            return policy


def replicas_at_start(case: Case, place: Placement) -> int:
    """Return the replicas at the start: as many as history ran, as were set, or as batching leaves."""
    if isinstance(place.scaling, SetReplicas):
        return place.scaling.replicas
    fewer = None if place.batching is None else place.batching.replicas
    return demand_of(case).most_replicas if fewer is None else fewer


def floor_replicas(case: Case) -> int:
    """Return the fewest replicas to plan with: declared, else two where history had two, so that one lost is no outage.

    Rules that keep a replica take one where none is declared enough. One is also enough where a lost replica is back well
    within every latency target.
    """
    declared = case.workload.spec.min_replicas
    if declared is not None:
        return max(1, declared)
    limits = [target.limit_s for target in case.targets if target.metric in JUDGED and target.limit_s is not None]
    unhurried = bool(limits) and min(limits) >= 2 * cold_start_of(case)
    return 1 if unhurried else min(2, demand_of(case).most_replicas)


def cold_start_of(case: Case, start: ShortenStart | None = None) -> float:
    """Return the time from asking for a replica to a ready one on a new node: its start, then the service's own.

    `start` is what a plan does to the latter.
    """
    node_s, slow_node_s = case.settings.assumptions.node_startup_s, case.stress.starts.node_s
    # a measured slow start counts only where it is longer than planned
    slow_s = warm_start_of(case, start) + (node_s if slow_node_s is None else slow_node_s)
    return max(planned_start_of(case, start) + node_s, slow_s)


def warm_start_of(case: Case, start: ShortenStart | None = None) -> float:
    """Return the service's own start, on a node that is up."""
    saved_s = 0.0 if start is None else start.saved_s
    # a slow start may be slow for another reason than what the plan removes: no more goes than that usually took
    slow_s = case.stress.starts.own_s.get(case.workload.name, 0.0) - saved_s
    return max(planned_start_of(case, start), slow_s)


def planned_start_of(case: Case, start: ShortenStart | None = None) -> float:
    """Return the service's own start that plans take: declared, else stated for all, else measured, else assumed.

    No more than a plan makes of it (`start`).
    """
    declared, stated = case.workload.spec.cold_start_s, case.settings.assumptions.service_cold_start_s
    measured = case.workload.start_s
    if declared is not None:
        own_s = declared
    else:
        own_s = stated if measured is None or stated != Assumptions().service_cold_start_s else measured
    return own_s if start is None else min(own_s, start.start_s)


def service_model(
    case: Case, law: ServiceLaw, place: Placement, targets: tuple[Target, ...], *, low: bool = False
) -> ServiceModel:
    """Return a service as the replay takes it: a replica's capacity and law at a place, on its nodes, judged by targets.

    `low`: at the careful end of its speed. Room on a node that it shares may be another workload's by the time that a replica
    starts: every start there takes a node's.
    """
    there, speed = replica_law(law, place, low=low)
    grid = there.grid()
    speed *= case.stress.speed
    capacity_req_s = place.replica_req_s(law.capacity_req_s, low=low, faster_counts=law.faster_counts)
    capacity_req_s *= case.stress.speed
    # a careful world is one in which the careful capacity is all there is
    own_times = place.batching is not None or place.replica_gpus is not None
    room = 1.0 if low or own_times else law.full_req_s / law.capacity_req_s
    return ServiceModel(
        capacity_req_s=capacity_req_s,
        full_req_s=capacity_req_s * room,
        one_by_one_spread=_one_by_one_spread(law, place, capacity_req_s),
        load_grid=grid,
        ok_frac=np.array([there.ok_frac(target.limit_s, speed, target.metric) for target in targets]).reshape(
            len(targets), len(grid)
        ),
        # the batch comes after the wait: the queue may take what it leaves of the limit
        wait_limit_s=np.array([max(0.0, _wait_limit(target) - there.full_batch_s) for target in targets]),
        cold_start_s=cold_start_of(case, place.start),
        # which of its nodes has room depends on their type: every start there takes a node's
        warm_start_s=None if place.shared or place.overflow else warm_start_of(case, place.start),
        empty_node_kept_s=SERVICE_NODES_KEPT_S,
        gpus_per_replica=place.gpus_per_pod,
        gpus_per_node=place.gpus_per_node,
        closed_hours=case.stress.closed_hours,
        metrics_late_s=case.stress.metrics_late_s,
        guards=_guard_curves(case.stress.guards, there, speed)
        if isinstance(place.scaling, SetReplicaPolicy)
        else NO_GUARDS,
        # no request gives up before a target is missed, or while it is held until replicas are up
        queue_limit_s=max(
            [QUEUE_LIMIT_S, _held_s(place), *(target.limit_s for target in targets if target.limit_s is not None)]
        ),
    )


def _one_by_one_spread(law: ServiceLaw, place: Placement, capacity_req_s: float) -> float | None:
    """Return how far times of requests scatter that a replica takes one at a time; None where a fluid says as much of them."""
    in_turn = law.tested is not None and law.tested.bound is Bound.ONE_BY_ONE
    other_law = place.batching is not None or place.replica_gpus is not None or place.shared is not None
    if not in_turn or other_law or capacity_req_s > 1 / SHORTEST_IN_TURN_S:
        return None
    return law.run_time_spread


def _guard_curves(guarded: Sequence[Target], law: ServiceLaw, speed: float) -> GuardCurves:
    """Return what triggers on latency read of replicas of a law at a speed.

    Where the law promises nothing any more the limit is assumed to be passed, as targets are judged, by what the law says about
    times there. The trigger measures at the service: a longer way to it plays no part.
    """
    limits_s = [(target, target.limit_s) for target in guarded if target.limit_s is not None]
    if not limits_s:
        return NO_GUARDS
    return GuardCurves(
        within_frac=np.array(
            [
                [
                    law.ok_frac(limit_s, speed, target.metric),
                    *(law.within_frac(limit_s * times, speed, target.metric) for times in GUARD_TIMES[1:]),
                ]
                for target, limit_s in limits_s
            ]
        ),
        wait_limit_s=np.array(
            [[max(0.0, limit_s * times - law.full_batch_s) for times in GUARD_TIMES] for _, limit_s in limits_s]
        ),
        required_frac=np.array([target.required_frac for target, _ in limits_s]),
    )


def _held_s(place: Placement) -> float:
    """Return how long a request is held before its replicas; 0 where nothing holds it."""
    wake = place.scaling.wake if isinstance(place.scaling, SetReplicaPolicy) else None
    return 0.0 if wake is None else wake.hold_s


def _wait_limit(target: Target) -> float:
    # a token's limit is kept by whoever is served: what comes before the first is not part of it
    if target.limit_s is None or target.metric is TargetMetric.TPOT:
        return WAIT_COUNTED_S
    return target.limit_s
