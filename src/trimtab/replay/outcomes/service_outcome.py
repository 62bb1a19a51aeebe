"""Replay a service under a deployment."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trimtab.deployment.effects import (
    HedgeOnSpot,
    OverflowTo,
    SetReplicaPolicy,
    SetReplicas,
    SetSchedule,
    ShortenStart,
    TimedReplicas,
)
from trimtab.deployment.placement import Placement
from trimtab.fleet.law_evidence import Bound
from trimtab.fleet.model import ServiceObservation, Target, Window
from trimtab.fleet.service_law import ServiceLaw, activity_as_demand
from trimtab.fleet.settings import SERVICE_NODES_KEPT_S, Assumptions
from trimtab.fleet.starts import SlowStarts
from trimtab.fleet.targets import histogram_of, share_within
from trimtab.fleet.token_work import TokenWork, in_tokens
from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.hedge import HedgePolicy
from trimtab.policies.keda import CronPolicy, KedaPolicy
from trimtab.policies.scaling import SYNC_S, HpaPolicy, Metric, StaticReplicas
from trimtab.replay.compiled import CountArray
from trimtab.replay.fluid import GUARD_TIMES, GuardCurves
from trimtab.replay.hedged import SpotZones
from trimtab.replay.outcomes.outcome import (
    AS_PREDICTED,
    Attained,
    Case,
    Outcome,
    Stress,
    held_as,
    safe_required_frac,
    targets_at,
)
from trimtab.replay.outcomes.replica_law import replica_law
from trimtab.replay.outcomes.service_replays import (
    BoundedPolicy,
    EvenSplit,
    JudgedReplay,
    LeastUse,
    OnSpot,
    ServiceReplays,
    is_bounded,
    least_held,
)
from trimtab.replay.services import (
    NO_GUARDS,
    QUEUE_LIMIT_S,
    ScalingPolicy,
    ServiceHistory,
    ServiceModel,
    least_seconds_held,
    seconds_held,
    shared_out,
    usual_demand,
)
from trimtab.tables.workloads import TargetMetric
from trimtab.units import HR_PER_WEEK, S_PER_HR, S_PER_MIN

WAIT_COUNTED_S = 60.0
"""A request that queues longer counts as not served, where only throughput or a time per token is promised."""
SHORTEST_IN_TURN_S = 1.0
"""A rule counts a request that waits as its time over 15 s of a replica: of shorter ones less than a tolerance of 10 %."""
_ROUNDING_FRAC = 1e-6
"""Far above what sums of a replay round by."""
_LOADS_TRIED = 50
"""Numbers of replicas are tried up to where each is busy for a fiftieth of its time at the peak."""
JUDGED = {TargetMetric.LATENCY, TargetMetric.TTFT, TargetMetric.TPOT, TargetMetric.THROUGHPUT}


def demand_of(case: Case) -> ServiceObservation:
    """Return the demand to replay: requests, or the work of their tokens by the case's law; activity where there are none."""
    service = case.workload.service
    if service is None:
        return activity_as_demand(case.workload)
    return in_tokens(service, case.law.counted if case.law is not None else None)


def service_outcome(case: Case, place: Placement, replays: ServiceReplays, *, may_stop: bool = False) -> Outcome:
    """Replay the service's arrivals on replicas placed and scaled as the deployment says.

    Another replay, with more demand and at the low end of the speed estimate, says whether the targets are safe. It goes first:
    where the outcome `may_stop`, each ends once a target is out of reach, the other one once it is so even without a margin.

    Where no replica may be up, the first request waits for a start, and is late for every declared limit. Whether an undeclared
    target is "no worse than observed" is evaluated as if one replica stayed up: the owner allowed the wait and stated no limit.
    """
    targets, excused, safe = _required(case, place)
    replicas = _replicas(case, place)
    worlds = [_world(case, place, targets, replays, stressed=stressed) for stressed in (False, True)]
    loads, models, (usual, slow) = zip(*worlds, strict=True)
    if place.hedge is not None:
        once_missed = safe if may_stop else None
        return _hedged(case, place.hedge, loads, models, (usual, slow), replicas, targets, once_missed, replays)
    stressed, beside = None, False
    if case.stress.with_headroom or has_room_beside(models[1]):
        stressed, beside = stressed_replay(replays, loads[1], models[1], slow, replicas, safe, may_stop=may_stop)
    stopped = stressed is not None and stressed.stopped
    # once the replay under stress has failed, this one need only tell whether the plain targets fail too
    required = np.where(excused, 0.0, [target.required_frac for target in targets]) if stopped else None
    expected = replays.expected(loads[0], replace(models[0], beside=beside), usual, replicas, required)
    on_demand, spot = held_as(place, expected.node_seconds)
    further = None
    if place.overflow is not None:
        on_demand, further = _overflowing(place, place.overflow, models[0], expected.held)
    found = Outcome(
        on_demand=on_demand,
        spot=spot,
        further=further,
        attained=_attained(targets, expected.attained_frac, (stressed or expected).attained_frac),
        gpus=expected.gpu_seconds,
        replicas=_most_replicas(expected.gpu_seconds, expected.replicas, case.window.hours, place),
        stopped=stopped,
    )
    if not excused.any():
        return found
    return _judged_while_up(found, service_outcome(case, _with_one_up(place), replays, may_stop=may_stop), excused)


def outcome_under_stress(case: Case, place: Placement, replays: ServiceReplays) -> Outcome | None:
    """Make the first of the two replays of `service_outcome` alone; None where the other is needed to know what it says.

    The outcome says which targets are missed under stress, and nothing of what is used or attained where all goes as predicted.
    """
    if place.hedge is not None or not case.stress.with_headroom:
        return None
    targets, excused, safe = _required(case, place)
    load, model, policy = _world(case, place, targets, replays, stressed=True)
    stressed, _ = stressed_replay(replays, load, model, policy, _replicas(case, place), safe, may_stop=True)
    attained = _attained(targets, np.ones(len(targets)), np.where(excused, 1.0, stressed.attained_frac))
    unknown = np.zeros(0, dtype=np.int64)
    return Outcome(on_demand=unknown, spot=unknown, attained=attained, stopped=True)


class _Required(NamedTuple):
    """The targets that a replay judges, which of them it excuses (n_targets,), and the share of each to attain under stress."""

    targets: tuple[Target, ...]
    excused: Flags
    safe_frac: FloatArray


def _required(case: Case, place: Placement) -> _Required:
    targets = tuple(target for target in case.targets if target.metric in JUDGED)
    excused = np.array([_excuses_who_comes_first(place, target) for target in targets], dtype=np.bool_)
    margin = case.settings.planning.target_margin_frac
    safe = np.array([safe_required_frac(target, margin) for target in targets])
    # these targets are judged by another replay, in which one replica stays up
    safe[excused] = 0.0
    return _Required(targets=targets, excused=excused, safe_frac=safe)


def _overflowing(
    place: Placement,
    overflow: OverflowTo,
    model: ServiceModel,
    held: CountArray,
    billed: Callable[[ServiceModel, CountArray], tuple[IntArray, IntArray]] = seconds_held,
) -> tuple[IntArray, IntArray]:
    """Return node-seconds by hour of the nodes that come first, and of those behind, for a course of replicas every 15 s.

    The last replicas to come run behind, and are the first to go: a ReplicaSet removes the youngest ones first (Kubernetes
    1.34, pkg/controller/controller_utils.go, ActivePodsWithRanks), and a scheduler fills nodes of the pool of highest weight.
    """
    (first, first_held), (behind, behind_held) = _on_two_pools(place, overflow, model, held)
    return billed(first, first_held)[0], billed(behind, behind_held)[0]


def _on_two_pools(
    place: Placement, overflow: OverflowTo, model: ServiceModel, held: CountArray
) -> tuple[tuple[ServiceModel, CountArray], tuple[ServiceModel, CountArray]]:
    """Return the model and the replicas of the nodes that come first, and of those behind."""
    first = np.minimum(held, place.first_pods)
    return (model, first), (replace(model, gpus_per_node=overflow.further.gpus_per_node), held - first)


def replicas_held(case: Case, place: Placement, replays: ServiceReplays) -> tuple[ServiceModel, CountArray] | None:
    """Return a service as it is replayed there, and its replicas, ready and starting, at each decision (n_decisions,).

    None for a hedged service.
    """
    if place.hedge is not None:
        return None
    targets = tuple(target for target in case.targets if target.metric in JUDGED)
    world = _world(case, place, targets, replays, stressed=False)
    return world.model, replays.expected(world.history, world.model, world.policy, _replicas(case, place), None).held


def seconds_placed(
    case: Case, place: Placement, replays: ServiceReplays, *, kept_s: float, spreads: bool, moves: bool
) -> IntArray | None:
    """Return the node-seconds by hour of `service_outcome`'s replicas on nodes that are kept, filled and drained in other ways.

    None for a hedged service.
    """
    found = replicas_held(case, place, replays)
    if found is None:
        return None
    pools = (found,) if place.overflow is None else _on_two_pools(place, place.overflow, *found)
    each = [
        seconds_held(as_billed(case, model, moves=moves), on, kept_s=kept_s, spreads=spreads, moves=moves)[0]
        for model, on in pools
    ]
    return np.asarray(np.sum(each, axis=0), dtype=np.int64)


def as_billed(case: Case, model: ServiceModel, *, moves: bool) -> ServiceModel:
    """Return a service whose nodes are billed: without a node's start where that is assumed and nothing drains nodes.

    An assumed start is a long one, which is careful for targets. For such a bill it is not: of replicas that start for longer
    more are removed before they are ready, and a node that they leave empty goes, which else would stay for long.
    """
    node_s = case.settings.assumptions.node_startup_s
    if moves or node_s != Assumptions().node_startup_s:
        return model
    return replace(model, cold_start_s=max(model.cold_start_s - node_s, model.warm_start_s or 0.0))


def felt_by_service(case: Case, place: Placement, stress: Stress) -> Stress:
    """Return what of a stress a replay of the service reads there; the rest says nothing to it.

    Replicas that are there from the first step to the last start nowhere and follow no metric.
    """
    scaled = isinstance(place.scaling, SetReplicaPolicy) or place.split is not None
    hedged = place.hedge is not None
    starts = scaled or hedged or isinstance(place.holding, SetSchedule) or not _replicas(case, place)
    return Stress(
        speed=stress.speed,
        closed_hours=stress.closed_hours if starts else (0, 0),
        zones_lost=stress.zones_lost if hedged else 0,
        metrics_late_s=stress.metrics_late_s if scaled else 0.0,
        starts=stress.starts if starts else SlowStarts(),
        guards=stress.guards if scaled else (),
    )


def least_outcome(case: Case, place: Placement, replays: ServiceReplays) -> Outcome | None:
    """Return what a service would use at least in each hour, without a replay; None where no such bound is known.

    It says nothing of targets. Not known on spot, by timetable, in a world under stress, or of a service that may have none up.
    """
    replicas = _replicas(case, place)
    if place.hedge is not None or place.holding is not None or case.stress != AS_PREDICTED or replicas < 1:
        return None
    # nothing departs, so that the rule acts as it is written
    policy = _policy(place, replicas)
    if not is_bounded(policy):
        return None
    # of the world, which takes longer to make than to look up what it comes to, all that a bound depends on
    counts = place.scaling.tokens if isinstance(place.scaling, SetReplicaPolicy) else None
    course = (counts, _expected_req_s(case, place), type(policy).__name__, policy, replicas)
    key = (*course, place.gpus_per_node, place.gpus_per_pod, place.first_pods, place.further_pods_per_node)
    least = replays.least(key, lambda: _least_use(case, place, replays, policy, course))
    on_demand, spot = held_as(place, least.node_seconds)
    return Outcome(
        on_demand=on_demand,
        spot=spot,
        attained=(),
        further=least.further_seconds,
        gpus=least.gpu_seconds,
        replicas=least.most,
    )


def _expected_req_s(case: Case, place: Placement) -> float:
    """Return what a replica serves there, where nothing departs from the plan."""
    law = _law(case)
    return place.replica_req_s(law.capacity_req_s, faster_counts=law.faster_counts)


def _law(case: Case) -> ServiceLaw:
    if case.law is None:
        raise ValueError(f"{case.workload.name} has no service law")
    return case.law


def _least_use(
    case: Case, place: Placement, replays: ServiceReplays, policy: BoundedPolicy, course: Hashable
) -> LeastUse:
    """Return what a bounded rule uses at least; replicas of one `course` do the same on any nodes."""
    targets = tuple(target for target in case.targets if target.metric in JUDGED)
    history, model, _ = _world(case, place, targets, replays, stressed=False)

    def followed() -> CountArray:
        recorded = replays.recorded(history, policy, stressed=False) if isinstance(policy, ForecastPolicy) else None
        initial = _replicas(case, place)
        return least_held(history, model, policy, recorded, initial_replicas=initial, demand=replays.mean_demand)

    held = replays.least_counts(course, followed)
    node_seconds, gpu_seconds = least_seconds_held(model, held)
    further_seconds = None
    if place.overflow is not None:
        # replicas of both kinds only grow with all of them
        node_seconds, further_seconds = _overflowing(place, place.overflow, model, held, least_seconds_held)
    per_step = history.decisions // len(history.arrivals)
    most = _most_replicas(gpu_seconds, held[per_step - 1 :: per_step], case.window.hours, place)
    return LeastUse(node_seconds=node_seconds, further_seconds=further_seconds, gpu_seconds=gpu_seconds, most=most)


def least_number(case: Case, place: Placement, replays: ServiceReplays) -> int:
    """Return a number of replicas, the same at all times, below which some target is missed under stress, without a replay.

    No request waits here, and each replica is as busy as its share of each step's requests makes it: a queue only makes answers
    later, and replicas busier. Where a law answers sooner at some higher load, it is assumed to do so at this one.
    """
    targets = tuple(target for target in case.targets if target.metric in JUDGED)
    history, model, _ = _world(case, place, targets, replays, stressed=True)
    closed = isinstance(place.holding, SetSchedule)
    key = (history.seen_as, closed, model.capacity_req_s, model.load_grid.tobytes(), model.ok_frac.tobytes())
    return replays.number(key, lambda: _least_number(case, targets, history, model))


def _least_number(case: Case, targets: tuple[Target, ...], history: ServiceHistory, model: ServiceModel) -> int:
    known = ~np.isnan(history.arrivals)
    split = EvenSplit.of(history.arrivals[known], model.capacity_req_s * history.step_s)
    if not targets or split.total <= 0:
        return 1
    best = np.maximum.accumulate(model.ok_frac[:, ::-1], axis=1)[:, ::-1]
    margin = case.settings.planning.target_margin_frac
    required = [safe_required_frac(target, margin) - _ROUNDING_FRAC for target in targets]
    means = [split.means(model.load_grid, curve) for curve in best]

    def misses(count: int) -> bool:
        return any(mean(count) < frac for mean, frac in zip(means, required, strict=True))

    enough = max(1, math.ceil(split.peak_load * _LOADS_TRIED))
    if misses(enough):
        return enough
    return 1 + bisect_left(range(1, enough), True, key=lambda count: not misses(count))


class _ReplayInput(NamedTuple):
    """What a service is replayed in: its demand, its replicas at a place, and the rule as it acts there."""

    history: ServiceHistory
    model: ServiceModel
    policy: ScalingPolicy


def _world(
    case: Case, place: Placement, targets: tuple[Target, ...], replays: ServiceReplays, *, stressed: bool
) -> _ReplayInput:
    """Return the world as predicted, or `stressed`: more demand, and speeds at the low end of their estimate."""
    law = _law(case)
    closed = isinstance(place.holding, SetSchedule)
    growth = 1 + case.settings.planning.demand_headroom_frac if stressed else 1.0
    counts, hours = (
        (place.scaling.tokens, place.scaling.hours) if isinstance(place.scaling, SetReplicaPolicy) else (None, ())
    )
    history = replays.history(
        (growth, closed, counts, hours), lambda: _history(case, replays, growth, counts, hours, closed=closed)
    )
    model = service_model(case, law, place, targets_at(targets, place), low=stressed)
    # the number that is written into the manifest, whichever speed is tried here
    emitted_req_s = place.replica_req_s(law.rule_req_s, faster_counts=law.faster_counts)
    policy = as_emitted(_policy(place, _replicas(case, place)), emitted_req_s / model.capacity_req_s)
    return _ReplayInput(history=history, model=model, policy=policy)


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


def _excuses_who_comes_first(place: Placement, target: Target) -> bool:
    """Return whether a target leaves out requests that wait for the first replica: it is undeclared, and no replica may be up.

    On spot no request is left out.
    """
    scaling = place.scaling
    to_none = isinstance(scaling, SetReplicaPolicy) and scaling.goes_to_none and place.hedge is None
    return to_none and not target.declared and target.limit_s is not None


def _with_one_up(place: Placement) -> Placement:
    """Return a place where the same rule keeps its last replica."""
    scaling = place.scaling
    if not isinstance(scaling, SetReplicaPolicy) or not isinstance(scaling.policy, KedaPolicy):
        raise ValueError(f"{scaling} never gives up its last replica")
    hpa = scaling.policy.hpa
    policy = scaling.policy._replace(hpa=hpa._replace(min_replicas=max(1, hpa.min_replicas)), idles=False)
    return replace(place, scaling=replace(scaling, policy=policy))


def _judged_while_up(found: Outcome, while_up: Outcome, excused: Flags) -> Outcome:
    """Return an outcome with some targets attained as they are while a replica is up."""
    both = zip(found.attained, while_up.attained, excused, strict=True)
    attained = tuple(up if is_excused else before for before, up, is_excused in both)
    return replace(found, attained=attained, stopped=found.stopped or while_up.stopped)


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


def _hedged(
    case: Case,
    hedge: HedgeOnSpot,
    loads: Sequence[ServiceHistory],
    models: Sequence[ServiceModel],
    policies: Sequence[ScalingPolicy],
    replicas: int,
    targets: Sequence[Target],
    safe_frac: FloatArray | None,
    replays: ServiceReplays,
) -> Outcome:
    """Replay on spot with an on-demand floor; under stress every zone is lost at least about once a week."""
    zones = max(1, hedge.zones - case.stress.zones_lost)
    often, usual = (
        OnSpot(
            policy=HedgePolicy(hedge.one_in),
            market=SpotZones(zones=zones, loss_per_hr=rate_per_hr, outage_s=hedge.outage_s),
            seed=case.seed,
        )
        for rate_per_hr in (max(hedge.loss_per_hr, 1.0 / HR_PER_WEEK), hedge.loss_per_hr)
    )
    stressed = None
    if case.stress.with_headroom:
        stressed = replays.hedged(loads[1], models[1], policies[1], often, replicas, safe_frac, stressed=True)
    stopped = stressed is not None and stressed.stopped
    required = np.array([target.required_frac for target in targets]) if stopped else None
    expected = replays.hedged(loads[0], models[0], policies[0], usual, replicas, required, stressed=False)
    return Outcome(
        on_demand=expected.on_demand_node_seconds,
        spot=expected.spot_node_seconds,
        attained=_attained(targets, expected.attained_frac, (stressed or expected).attained_frac),
        interruptions=expected.lost,
        gpus=expected.gpu_seconds,
        stopped=stopped,
    )


def stressed_replay(
    replays: ServiceReplays,
    load: ServiceHistory,
    model: ServiceModel,
    policy: ScalingPolicy,
    replicas: int,
    safe_frac: FloatArray,
    *,
    may_stop: bool,
) -> tuple[JudgedReplay, bool]:
    """Return what the replay under stress attained, and whether replicas take room beside others on a node.

    They do where targets are safe with it and not without: a workload of the same node pool could take that room, and what
    replicas do without it is the same on all nodes, so that most options need no other replay.
    """
    required = safe_frac if may_stop else None
    alone = replays.stressed(load, replace(model, beside=False), policy, replicas, required)
    # room beside others decides nothing: there is none, or targets are safe without it
    if not has_room_beside(model) or np.all(alone.attained_frac >= safe_frac):
        return alone, False
    beside = replays.stressed(load, model, policy, replicas, required)
    return (beside, True) if np.all(beside.attained_frac >= safe_frac) else (alone, False)


def has_room_beside(model: ServiceModel) -> bool:
    """Return whether a replica may start sooner beside others, on a node that is up."""
    return model.warm_start_s is not None and model.replicas_per_node >= 2


def _attained(targets: Sequence[Target], expected: FloatArray, stressed: FloatArray) -> tuple[Attained, ...]:
    return tuple(
        Attained(target=target, frac=float(at_value), safe_frac=float(at_low))
        for target, at_value, at_low in zip(targets, expected, stressed, strict=True)
    )


def is_open(case: Case, demand: ServiceObservation) -> Flags:
    """Tell of each step of a demand (n_steps,) whether the service must answer then; always where no hours are declared."""
    declared = case.workload.spec.open_hours
    if declared is None:
        return np.ones(len(demand.arrivals), dtype=np.bool_)
    hours = (np.arange(len(demand.arrivals)) * demand.step_s // S_PER_HR).astype(np.int64) + case.window.first_week_hour
    return np.isin(hours % HR_PER_WEEK, declared.hours_of_week)


class OutsideHours(NamedTuple):
    """Requests while a service is declared closed, requests in all hours, and closed steps: unmeasured ones, and all."""

    requests: float
    of_requests: float
    unmeasured_steps: int
    steps: int

    def __str__(self) -> str:
        if not self.of_requests:
            return "none were counted"
        gaps = (
            f"; {self.unmeasured_steps:,} of {self.steps:,} closed steps were not measured"
            if self.unmeasured_steps
            else ""
        )
        return f"{self.requests:,.0f} ({self.requests / self.of_requests:.1%}){gaps}"


def outside_hours(case: Case) -> OutsideHours | None:
    """Return what came outside a service's declared hours, which is refused where it is closed then; None without requests."""
    service = case.workload.service
    if service is None:
        return None
    closed, counted = ~is_open(case, service), np.isfinite(service.arrivals)
    refused, whole = (float(service.arrivals[steps].sum()) for steps in (closed & counted, counted))
    return OutsideHours(refused, whole, int((closed & ~counted).sum()), int(closed.sum()))


def _policy(place: Placement, replicas: int) -> ScalingPolicy:
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


def _replicas(case: Case, place: Placement) -> int:
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


def _most_replicas(gpu_seconds: IntArray, replicas: CountArray, hours: int, place: Placement) -> IntArray:
    """Return the most replicas held at once in each hour (n_hours,): at any step (n_steps,) or at the next hour's first."""
    # steps are seen at their ends only: the hour's mean is a floor under what was held in between
    mean = np.ceil(gpu_seconds[:hours] / S_PER_HR / place.gpus_per_pod - 1e-6).astype(np.int64)
    at_steps = replicas[: len(replicas) // hours * hours].reshape(hours, -1)
    # what the next hour begins with may have been started in this one
    first = np.append(at_steps[1:, 0], at_steps[-1, 0])
    return np.asarray(np.maximum.reduce([mean, at_steps.max(axis=1), first]), dtype=np.int64)


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
        load_grid=there.grid(),
        ok_frac=np.array([there.ok_frac(target.limit_s, speed, target.metric) for target in targets]).reshape(
            len(targets), -1
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

    Where the law promises nothing any more the limit is assumed to be passed, as targets are judged, by what the law tells of
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


def baseline_attained(case: Case, target: Target) -> float | None:
    """Return the share of requests that history itself had within a latency limit; None where it was not measured."""
    service = case.workload.service
    if service is None or target.limit_s is None:
        return None
    le_s, count = judging_histogram(case, service, target.metric)
    if not count.size:
        return None
    share = float(share_within(le_s, count.sum(axis=0), target.limit_s))
    return None if np.isnan(share) else share


def judging_histogram(case: Case, service: ServiceObservation, metric: TargetMetric) -> tuple[FloatArray, FloatArray]:
    """Return bounds (n_buckets,) and counts (n_steps, n_buckets) of the times by which the case's law judges a metric.

    So the shares before and after are of the same times: of first tokens where the law has them, even if this history has not.
    """
    return histogram_of(service, metric if case.law is None else case.law.judging(metric))


def hourly_demand_gpus(case: Case) -> FloatArray:
    """Return demand in GPUs at full activity, per hour (n_hours,), for pictures."""
    demand = demand_of(case)
    law = case.law
    per_hour = round(S_PER_HR / demand.step_s)
    arrivals = demand.arrivals[: case.window.hours * per_hour].reshape(case.window.hours, -1)
    seen = ~np.isnan(arrivals)
    rate = np.divide(
        np.where(seen, arrivals, 0.0).sum(axis=1),
        seen.sum(axis=1) * demand.step_s,
        out=np.full(case.window.hours, np.nan),
        where=seen.any(axis=1),
    )
    capacity = law.capacity_req_s if law else 1.0
    return np.asarray(rate / capacity * case.workload.gpus_per_pod, dtype=np.float64)
