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
    SetSchedule,
)
from trimtab.deployment.placement import Placement
from trimtab.fleet.model import ServiceObservation, Target
from trimtab.fleet.settings import Assumptions
from trimtab.fleet.starts import SlowStarts
from trimtab.fleet.targets import histogram_of, share_within
from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.policies.hedge import HedgePolicy
from trimtab.policies.keda import KedaPolicy
from trimtab.replay.compiled import CountArray
from trimtab.replay.hedged import SpotZones
from trimtab.replay.nodes import CountRuns
from trimtab.replay.outcomes.least_held import BoundedPolicy, EvenSplit, is_bounded
from trimtab.replay.outcomes.outcome import (
    AS_PREDICTED,
    Attained,
    Case,
    Outcome,
    Stress,
    held_as,
    safe_required_frac,
)
from trimtab.replay.outcomes.service_model import (
    JUDGED,
    demand_at,
    demand_of,
    is_open,
    law_known,
    replay_input,
    replicas_at_start,
    service_model,
    written_policy,
)
from trimtab.replay.outcomes.service_replays import (
    JudgedReplay,
    LeastUse,
    OnSpot,
    ServiceReplays,
)
from trimtab.replay.services import (
    ScalingPolicy,
    ServiceHistory,
    ServiceModel,
    least_seconds_held,
    seconds_held,
)
from trimtab.tables.workloads import TargetMetric
from trimtab.units import HR_PER_WEEK, S_PER_HR

_ROUNDING_FRAC = 1e-6
"""Far above what sums of a replay round by."""
_LOADS_TRIED = 50
"""Numbers of replicas are tried up to where each is busy for a fiftieth of its time at the peak."""


def service_outcome(case: Case, place: Placement, replays: ServiceReplays, *, may_stop: bool = False) -> Outcome:
    """Replay the service's arrivals on replicas placed and scaled as the deployment says.

    Another replay, with more demand and at the low end of the speed estimate, says whether the targets are safe. It goes first:
    where the outcome `may_stop`, each ends once a target is out of reach, the other one once it is so even without a margin.

    Where no replica may be up, the first request waits for a start, and is late for every declared limit. Whether an undeclared
    target is "no worse than observed" is evaluated as if one replica stayed up: the owner allowed the wait and stated no limit.
    """
    targets, excused, safe = _required(case, place)
    replicas = replicas_at_start(case, place)
    worlds = [replay_input(case, place, targets, replays, stressed=stressed) for stressed in (False, True)]
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
        on_demand, further = _overflowing(place, place.overflow, models[0], expected.runs)
    found = Outcome(
        on_demand=on_demand,
        spot=spot,
        further=further,
        attained=_attained(targets, expected.attained_frac, (stressed or expected).attained_frac),
        gpus=expected.gpu_seconds,
        replicas=_most_replicas(expected.gpu_seconds, expected.replicas, case.window.hours, place),
        most_replicas=max(expected.most_replicas, 0 if stressed is None else stressed.most_replicas),
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
    load, model, policy = replay_input(case, place, targets, replays, stressed=True)
    stressed, _ = stressed_replay(replays, load, model, policy, replicas_at_start(case, place), safe, may_stop=True)
    attained = _attained(targets, np.ones(len(targets)), np.where(excused, 1.0, stressed.attained_frac))
    unknown = np.zeros(0, dtype=np.int64)
    return Outcome(
        on_demand=unknown,
        spot=unknown,
        attained=attained,
        most_replicas=stressed.most_replicas,
        stopped=True,
    )


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
    held: CountRuns,
    billed: Callable[[ServiceModel, CountRuns], tuple[IntArray, IntArray]] = seconds_held,
) -> tuple[IntArray, IntArray]:
    """Return node-seconds by hour of the nodes that come first, and of those behind, for a course of replicas every 15 s.

    The last replicas to come run behind, and are the first to go: a ReplicaSet removes the youngest ones first (Kubernetes
    1.34, pkg/controller/controller_utils.go, ActivePodsWithRanks), and a scheduler fills nodes of the pool of highest weight.
    """
    (first, first_held), (behind, behind_held) = _on_two_pools(place, overflow, model, held)
    return billed(first, first_held)[0], billed(behind, behind_held)[0]


def _on_two_pools(
    place: Placement, overflow: OverflowTo, model: ServiceModel, held: CountRuns
) -> tuple[tuple[ServiceModel, CountRuns], tuple[ServiceModel, CountRuns]]:
    """Return the model and the replicas of the nodes that come first, and of those behind."""
    first = np.minimum(held.levels, place.first_pods)
    behind = replace(model, gpus_per_node=overflow.further.gpus_per_node)
    return (model, replace(held, levels=first)), (behind, replace(held, levels=held.levels - first))


def replicas_held(case: Case, place: Placement, replays: ServiceReplays) -> tuple[ServiceModel, CountRuns] | None:
    """Return a service as it is replayed there, and its replicas, ready and starting, at each decision.

    None for a hedged service.
    """
    if place.hedge is not None:
        return None
    targets = tuple(target for target in case.targets if target.metric in JUDGED)
    world = replay_input(case, place, targets, replays, stressed=False)
    return world.model, replays.expected(
        world.history, world.model, world.policy, replicas_at_start(case, place), None
    ).runs


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
    starts = scaled or hedged or isinstance(place.holding, SetSchedule) or not replicas_at_start(case, place)
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
    replicas = replicas_at_start(case, place)
    if place.hedge is not None or place.holding is not None or case.stress != AS_PREDICTED or replicas < 1:
        return None
    # nothing departs, so that the rule acts as it is written
    policy = written_policy(place, replicas)
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
    law = law_known(case)
    return place.replica_req_s(law.capacity_req_s, faster_counts=law.faster_counts)


def _least_use(
    case: Case, place: Placement, replays: ServiceReplays, policy: BoundedPolicy, course: Hashable
) -> LeastUse:
    """Return what a bounded rule uses at least; replicas of one `course` do the same on any nodes."""
    # it says nothing of targets
    history, model = demand_at(case, place, replays), service_model(case, law_known(case), place, ())
    held = replays.least_held(course, history, model, policy, replicas_at_start(case, place))
    node_seconds, gpu_seconds = least_seconds_held(model, held)
    further_seconds = None
    if place.overflow is not None:
        # replicas of both kinds only grow with all of them
        node_seconds, further_seconds = _overflowing(place, place.overflow, model, held, least_seconds_held)
    per_step = history.decisions // len(history.arrivals)
    most = _most_replicas(gpu_seconds, held.every(per_step), case.window.hours, place)
    return LeastUse(node_seconds=node_seconds, further_seconds=further_seconds, gpu_seconds=gpu_seconds, most=most)


def least_number(case: Case, place: Placement, replays: ServiceReplays) -> int:
    """Return a number of replicas, the same at all times, below which some target is missed under stress, without a replay.

    No request waits here, and each replica is as busy as its share of each step's requests makes it: a queue only makes answers
    later, and replicas busier. Where a law answers sooner at some higher load, it is assumed to do so at this one.
    """
    targets = tuple(target for target in case.targets if target.metric in JUDGED)
    history, model, _ = replay_input(case, place, targets, replays, stressed=True)
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
    return replace(
        found,
        attained=attained,
        most_replicas=_most_of(found.most_replicas, while_up.most_replicas),
        stopped=found.stopped or while_up.stopped,
    )


def _most_of(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


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


def _most_replicas(gpu_seconds: IntArray, replicas: CountArray, hours: int, place: Placement) -> IntArray:
    """Return the most replicas held at once in each hour (n_hours,): at any step (n_steps,) or at the next hour's first."""
    # steps are seen at their ends only: the hour's mean is a floor under what was held in between
    mean = np.ceil(gpu_seconds[:hours] / S_PER_HR / place.gpus_per_pod - 1e-6).astype(np.int64)
    at_steps = replicas[: len(replicas) // hours * hours].reshape(hours, -1)
    # what the next hour begins with may have been started in this one
    first = np.append(at_steps[1:, 0], at_steps[-1, 0])
    return np.asarray(np.maximum.reduce([mean, at_steps.max(axis=1), first]), dtype=np.int64)


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
