"""A service's replays, each done once, or spared by what a scaling rule holds at least.

What is shared is the trace of replicas without their nodes: replicas do the same wherever they are as fast, and other nodes are
only billed again. (Where replicas start sooner `beside` others, what they do depends on the nodes too.)

At each decision the Kubernetes rule recommends no less than `load / (target (1 + tolerance))`: within its tolerance it keeps
what there is, which is at least that, and beyond it rounds `load / target` up; a queue only adds to the load. It rises to what
it recommends as far as it may in a decision, and falls no lower than the highest recommendation of its scale-down window
(`policies.scaling`: `per_ready_pod`, `average_value`, `stabilized`, `rate_limited`). Both only grow with what is held and what
is recommended, so that following the least recommendations gives a lower bound of what is held. Nodes only grow with that.

Of KEDA's rule between none and one it is known when somebody asks: a replica is up then, once a poll saw it, and until a whole
cooldown has passed. A queue only keeps it up for longer, and what its HPA asks for comes on top.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

import numpy as np

from trimtab.fleet.model import ServiceObservation
from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.policies.forecast import ForecastPolicy, ForecastRules
from trimtab.policies.hedge import HedgePolicy
from trimtab.policies.keda import KedaPolicy, goes_to_none
from trimtab.policies.scaling import NO_OTHERS, ROUNDING, SYNC_S, HpaPolicy, Metric, StaticReplicas, window_steps
from trimtab.replay.compiled import CountArray, compiled
from trimtab.replay.hedged import HedgedReplay, SpotZones, replay_hedged
from trimtab.replay.recorded import ForecastSeries, record, wanted_loads
from trimtab.replay.services import (
    ScalingPolicy,
    ServiceHistory,
    ServiceModel,
    ServiceReplay,
    arrivals_by_decision,
    replay_service,
    seconds_held,
    usual_demand,
)

_RECORDED = 4
"""Forecasts that are kept: places come one after the other, with all their policies."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedReplay:
    """What a replay attained, and whether it ended because a target was out of reach."""

    attained_frac: FloatArray
    stopped: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LeastUse:
    """What a rule uses at least in each hour (n_hours,): node-seconds, GPU-seconds, and the most replicas at once."""

    node_seconds: IntArray
    further_seconds: IntArray | None
    """Node-seconds on nodes of another type behind its own; None where there are none."""
    gpu_seconds: IntArray
    most: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpot:
    """A spot market as drawn with a seed, and how a service keeps answering on it."""

    policy: HedgePolicy
    market: SpotZones
    seed: int


@dataclass(slots=True)
class ServiceReplays:
    """Replays of one service's history (`expected`), of that history with more demand (`stressed`), and of both on spot."""

    _expected: dict[Hashable, ReplicaTrace] = field(default_factory=dict)
    _stressed: dict[Hashable, JudgedReplay] = field(default_factory=dict)
    _recorded: dict[Hashable, ForecastSeries] = field(default_factory=dict)
    _hedged: dict[Hashable, HedgedReplay] = field(default_factory=dict)
    _spells: dict[SpotZones, Flags] = field(default_factory=dict)
    _least: dict[Hashable, LeastUse] = field(default_factory=dict)
    _least_runs: dict[Hashable, CountRuns] = field(default_factory=dict)
    _mean_demand: dict[Hashable, FloatArray] = field(default_factory=dict)
    _histories: dict[Hashable, ServiceHistory] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _drawn: FloatArray | None = None
    _parts: dict[str, ServiceReplays] = field(default_factory=dict)

    def of_part(self, name: str) -> ServiceReplays:
        """Return the replays of a part of the service that has a demand and replicas of its own."""
        return self._parts.setdefault(name, ServiceReplays())

    def drawn(self, demand: ServiceObservation, seed: Sequence[int]) -> FloatArray:
        """Return the service's arrivals by decision, gaps filled, drawn once for all that it is replayed under."""
        if self._drawn is None:
            usual = usual_demand(demand.arrivals, step_s=demand.step_s)
            self._drawn = arrivals_by_decision(usual, step_s=demand.step_s, seed=seed)
        return self._drawn

    def history(self, key: Hashable, made: Callable[[], ServiceHistory]) -> ServiceHistory:
        """Return the history of a key, made once for all that is replayed under it."""
        if key not in self._histories:
            self._histories[key] = made()
        return self._histories[key]

    def least(self, key: Hashable, made: Callable[[], LeastUse]) -> LeastUse:
        """Return the least use of a key, worked out once for all places of one speed whose nodes hold as many replicas."""
        if key not in self._least:
            self._least[key] = made()
        return self._least[key]

    def least_counts(self, key: Hashable, made: Callable[[], CountArray]) -> CountArray:
        """Return the least replicas by decision (n_decisions,) of a key, followed once for all nodes."""
        if key not in self._least_runs:
            self._least_runs[key] = CountRuns.of(made())
        return self._least_runs[key].counts()

    def number(self, key: Hashable, made: Callable[[], int]) -> int:
        """Return a number of replicas of a key, found once for all places where replicas answer alike."""
        if key not in self._numbers:
            self._numbers[key] = made()
        return self._numbers[key]

    def mean_demand(self, history: ServiceHistory, window: int) -> FloatArray:
        """Return `mean_demand` of a history, computed once for all target loads. Kept for as long as the histories are."""
        key = (history.seen_as, window)
        if key not in self._mean_demand:
            self._mean_demand[key] = mean_demand(history, window)
        return self._mean_demand[key]

    def expected(
        self,
        history: ServiceHistory,
        model: ServiceModel,
        policy: ScalingPolicy,
        replicas: int,
        required_frac: FloatArray | None,
    ) -> ServiceReplay:
        """Return a replay on the nodes of the model; `required_frac` as `replay_service` has it."""
        key = _key(history, model, policy, replicas, required_frac)
        if key not in self._expected:
            told = self._told(history, model, policy, stressed=False)
            replay = replay_service(told, model, policy, initial_replicas=replicas, required_frac=required_frac)
            self._expected[key] = trace_of(replay)
            return replay
        return on_nodes(self._expected[key], model)

    def stressed(
        self,
        history: ServiceHistory,
        model: ServiceModel,
        policy: ScalingPolicy,
        replicas: int,
        required_frac: FloatArray | None,
    ) -> JudgedReplay:
        """Return what a replay under stress attained."""
        key = _key(history, model, policy, replicas, required_frac)
        if key not in self._stressed:
            told = self._told(history, model, policy, stressed=True)
            replay = replay_service(told, model, policy, initial_replicas=replicas, required_frac=required_frac)
            self._stressed[key] = JudgedReplay(attained_frac=replay.attained_frac, stopped=replay.stopped)
        return self._stressed[key]

    def hedged(
        self,
        history: ServiceHistory,
        model: ServiceModel,
        policy: ScalingPolicy,
        spot: OnSpot,
        replicas: int,
        required_frac: FloatArray | None,
        *,
        stressed: bool,
    ) -> HedgedReplay:
        """Return a replay on spot; rates of loss at which the same zones go at the same times share it.

        Under stress only what is attained counts, and places of one speed share that whatever their nodes.
        """
        steps = len(history.arrivals) * int(history.step_s) // SYNC_S
        if spot.market not in self._spells:
            self._spells[spot.market] = spot.market.spells(steps, spot.seed)
        spells = self._spells[spot.market]
        # under stress nothing is billed, so nodes are not part of the key
        nodes = None if stressed else (model.gpus_per_replica, model.replicas_per_node)
        key = (
            *_key(history, model, policy, replicas, required_frac),
            spot.policy,
            hash(spells.tobytes()),
            stressed,
            nodes,
        )
        if key not in self._hedged:
            told = self._told(history, model, policy, stressed=stressed)
            self._hedged[key] = replay_hedged(
                told, model, policy, spot.policy, spells, initial_replicas=replicas, required_frac=required_frac
            )
        return self._hedged[key]

    def forget_histories(self) -> None:
        """Drop the series that are replayed, which take most of the memory; they are made again where they are asked for."""
        self._recorded.clear()
        self._spells.clear()
        self._histories.clear()
        self._least.clear()
        self._least_runs.clear()
        self._mean_demand.clear()
        self._drawn = None
        for part in self._parts.values():
            part.forget_histories()

    def forget(self) -> None:
        """Drop what is kept; what is asked for again is replayed again."""
        self.forget_histories()
        self._expected.clear()
        self._stressed.clear()
        self._hedged.clear()
        self._parts.clear()

    def _told(
        self, history: ServiceHistory, model: ServiceModel, policy: ScalingPolicy, *, stressed: bool
    ) -> ServiceHistory:
        """Return the history with what the recording rules of a forecasting policy say, recorded once for all target loads."""
        if not isinstance(policy, ForecastPolicy):
            return history
        rate, step_s = history.rate_seen()
        recorded = self.recorded(history, policy, stressed=stressed)
        # a forecast of requests is one of replicas, whatever these serve; what was late is not, it goes by whole replicas
        wanted = wanted_loads(policy, rate, recorded, step_s=step_s, replica_load=model.capacity_req_s)
        return replace(history, signal=wanted)

    def recorded(self, history: ServiceHistory, policy: ForecastPolicy, *, stressed: bool) -> ForecastSeries:
        """Return what a policy's rules record of a history, in requests/s; recorded once for all target loads."""
        # what the margin learns plays no part yet
        key = (stressed, history.seen_as, policy.rules._replace(late_frac=0.0))
        if key not in self._recorded:
            if len(self._recorded) >= _RECORDED:
                # the oldest one: a dict keeps the order of insertion
                del self._recorded[next(iter(self._recorded))]
            rate, step_s = history.rate_seen()
            self._recorded[key] = record(rate, step_s=step_s, rules=policy.rules)
        return self._recorded[key]


def _key(
    history: ServiceHistory,
    model: ServiceModel,
    policy: ScalingPolicy,
    replicas: int,
    required_frac: FloatArray | None,
) -> tuple[Hashable, ...]:
    """Return what a replay of a given history depends on, besides nodes; the start and the grid are the service's own."""
    required = None if required_frac is None else required_frac.tobytes()
    shape = (model.capacity_req_s, model.load_grid.tobytes(), model.ok_frac.tobytes(), model.wait_limit_s.tobytes())
    limits = (model.cold_start_s, model.queue_limit_s, model.quota_replicas, model.full_req_s, model.one_by_one_spread)
    stress = (model.closed_hours, model.metrics_late_s, *(curve.tobytes() for curve in model.guards))
    # only where a node that is up lets a replica start sooner do nodes change what replicas do
    room = None if model.warm_start_s is None else (model.warm_start_s, model.empty_node_kept_s, model.room_per_node)
    return (history.seen_as, *shape, *limits, *stress, room, type(policy).__name__, policy, replicas, required)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CountRuns:
    """Counts by decision, kept as runs of equal ones: `levels` and `lengths` `(n_runs,)`."""

    levels: CountArray
    lengths: CountArray

    @classmethod
    def of(cls, counts: CountArray) -> CountRuns:
        """Return the runs of counts (n_decisions,)."""
        starts = _starts_of_runs(counts)
        return cls(levels=counts[starts], lengths=np.diff(starts, append=len(counts)).astype(np.int32))

    def counts(self) -> CountArray:
        """Return the counts (n_decisions,)."""
        return np.repeat(self.levels, self.lengths)


@compiled
def _starts_of_runs(counts: CountArray) -> IntArray:
    """Return where runs of equal counts begin."""
    runs = 0
    for step in range(len(counts)):
        if step == 0 or counts[step] != counts[step - 1]:
            runs += 1
    starts = np.empty(runs, dtype=np.int64)
    run = 0
    for step in range(len(counts)):
        if step == 0 or counts[step] != counts[step - 1]:
            starts[run] = step
            run += 1
    return starts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicaTrace:
    """A replay without its replicas by decision, and these as runs."""

    replay: ServiceReplay
    held: CountRuns


def trace_of(replay: ServiceReplay) -> ReplicaTrace:
    """Return the course of a replay, in little memory."""
    # a view of no decisions would keep them all
    return ReplicaTrace(replay=replace(replay, held=replay.held[:0].copy()), held=CountRuns.of(replay.held))


def on_nodes(course: ReplicaTrace, model: ServiceModel) -> ServiceReplay:
    """Return the replay of the same course on the nodes of a model."""
    held = course.held.counts()
    # only the bill depends on the nodes
    node_seconds, gpu_seconds = seconds_held(model, held)
    return replace(course.replay, held=held, node_seconds=node_seconds, gpu_seconds=gpu_seconds)


_SLACK = 1e-6
"""Far above what sums round by: no recommendation is taken for more than it is."""


BoundedPolicy = StaticReplicas | HpaPolicy | ForecastPolicy | KedaPolicy


def is_bounded(policy: ScalingPolicy) -> TypeGuard[BoundedPolicy]:
    """Return whether a bound on what a rule holds is known: a number, KEDA's down to none, or an HPA on demand, alone or
    behind a forecast.

    An HPA must keep one replica and be free to rise with every decision; how it comes down plays no part.
    """
    match policy:
        case StaticReplicas():
            return True
        case KedaPolicy():
            # a load above 0 is compared with a mean, which may be lower than that of a decision
            return goes_to_none(policy) and policy.activation_load == 0.0
        case HpaPolicy(metric=Metric.DEMAND) | ForecastPolicy(hpa=HpaPolicy(metric=Metric.SIGNAL)):
            hpa = policy.hpa if isinstance(policy, ForecastPolicy) else policy
        case _:
            return False
    rises_freely = hpa.up_stabilization_s <= SYNC_S and hpa.period_s <= SYNC_S
    return rises_freely and hpa.min_replicas >= 1 and hpa.others == NO_OTHERS


def least_held(
    history: ServiceHistory,
    model: ServiceModel,
    policy: BoundedPolicy,
    recorded: ForecastSeries | None,
    *,
    initial_replicas: int,
    demand: Callable[[ServiceHistory, int], FloatArray] | None = None,
) -> CountArray:
    """Return a lower bound `(n_decisions,)` of the replicas that a replay holds, ready or starting, at each decision.

    `recorded` is what the rules of a forecast record of the history. The bound starts from `initial_replicas`, at least 1.
    `demand` looks up `mean_demand` where the caller keeps it.
    """
    if isinstance(policy, StaticReplicas):
        return np.full(history.decisions, policy.replicas, dtype=np.int32)
    if isinstance(policy, KedaPolicy):
        return _least_awake(_rate(history), policy.polling_s, policy.cooldown_s)
    told = np.full(1, math.nan)
    if isinstance(policy, ForecastPolicy) and recorded is not None:
        told = history.by_decision(_forecast(policy.rules, recorded))
    hpa = policy.hpa if isinstance(policy, ForecastPolicy) else policy
    window = window_steps(hpa.window_s) if hpa.metric == Metric.DEMAND else 1
    return _least_course(
        (demand or mean_demand)(history, window),
        told,
        # within its tolerance it stays, with so much less than it asks for
        model.capacity_req_s * hpa.target_frac * (1.0 + hpa.tolerance_up_frac),
        window_steps(hpa.down_stabilization_s),
        hpa.min_replicas,
        hpa.max_replicas,
        hpa.up_frac,
        hpa.up_pods,
        initial_replicas,
    )


def _forecast(rules: ForecastRules, recorded: ForecastSeries) -> FloatArray:
    """Return the requests/s that are wanted at least margin that can be learned; NaN where a forecast is not known yet."""
    headroom = rules.least_margin * recorded.spread
    slow = recorded.slow * (1.0 + headroom)
    return np.asarray(np.maximum(slow, recorded.fast * (1.0 + rules.fast_margin_frac * headroom)), dtype=np.float64)


def _rate(history: ServiceHistory) -> FloatArray:
    """Return the requests/s of each decision; NaN where requests were not counted."""
    return history.by_decision(history.arrivals / history.step_s if history.within is None else history.within / SYNC_S)


def mean_demand(history: ServiceHistory, window: int) -> FloatArray:
    """Return the requests/s of each decision, averaged over the last `window` decisions; NaN where this one was not counted."""
    return _running_mean(_rate(history), window)


@compiled
def _running_mean(rate: FloatArray, window: int) -> FloatArray:
    """Return the mean of the known values among the last `window`; NaN where the present value is unknown."""
    mean = np.empty(len(rate), dtype=np.float64)
    total, known = 0.0, 0
    for step in range(len(rate)):
        if not math.isnan(rate[step]):
            total += rate[step]
            known += 1
        if step >= window and not math.isnan(rate[step - window]):
            total -= rate[step - window]
            known -= 1
        mean[step] = math.nan if math.isnan(rate[step]) else total / known
    return mean


@compiled
def _least_course(
    demand: FloatArray,
    told: FloatArray,
    served_req_s: float,
    hold: int,
    floor: int,
    top: int,
    up_frac: float,
    up_pods: int,
    initial: int,
) -> CountArray:
    """Return a lower bound of the replicas at each decision, where a replica stays for at most `served_req_s`.

    `demand` is the averaged requests/s; an unknown value (NaN) asks for nothing. The highest recommendation of the last `hold`
    decisions limits scaling down. `told` is what a forecast asks for, in requests/s; a single element means no forecast.
    """
    held = np.empty(len(demand), dtype=np.int32)
    asked = np.empty(len(demand), dtype=np.int64)
    # apart from the loop below, so that it compiles to vector instructions
    for step in range(len(demand)):
        wanted = demand[step]
        if len(told) > 1 and not math.isnan(told[step]) and not wanted >= told[step]:
            wanted = told[step]
        asked[step] = floor
        if not math.isnan(wanted):
            asked[step] = max(floor, min(top, math.ceil(wanted / served_req_s * (1.0 - _SLACK) - _SLACK)))
    # decisions of the last `hold` whose recommendation no later one reaches, and these recommendations
    falling, peaks = np.empty(len(demand), dtype=np.int64), np.empty(len(demand), dtype=np.int64)
    first, after = 0, 0
    now = initial
    for step in range(len(demand)):
        held[step] = now
        if now < floor or now > top:
            # the controller asks no metric there: nothing is recommended that could hold later decisions
            now = min(max(now, floor), top)
            continue
        while after > first and peaks[after - 1] <= asked[step]:
            after -= 1
        falling[after], peaks[after] = step, asked[step]
        after += 1
        # at most one leaves, because the window moves by one decision
        if falling[first] <= step - hold:
            first += 1
        if asked[step] > now:
            now = min(asked[step], max(now + up_pods, math.ceil(now * (1.0 + up_frac) - ROUNDING)))
        else:
            now = min(now, peaks[first])
    return held


@compiled
def _least_awake(rate: FloatArray, polling_s: int, cooldown_s: int) -> CountArray:
    """Return one at each decision at which a replica is up for those who ask, and none at the others."""
    held = np.empty(len(rate), dtype=np.int32)
    now, idle_s = 1, 0.0
    for step in range(len(rate)):
        held[step] = now
        active = rate[step] > 0.0
        idle_s = 0.0 if active else idle_s + SYNC_S
        if now == 0:
            if active and (step * SYNC_S) % polling_s < SYNC_S:
                now = 1
        elif idle_s >= cooldown_s:
            now = 0
    return held


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvenSplit:
    """Each step's requests split evenly over replicas: sorted once, so that a mean over all of them is a few sums."""

    asked: FloatArray
    """Requests of each step, the fewest first (n_steps,)."""
    sums: FloatArray
    squares: FloatArray
    """Requests, and their squares, of all steps before each (n_steps + 1,)."""
    full: float
    """Requests that keep one replica busy throughout a step."""

    @classmethod
    def of(cls, arrivals: FloatArray, full: float) -> EvenSplit:
        """Sort the requests of steps (n_steps,), all of them known."""
        asked = np.sort(arrivals)
        sums, squares = (np.concatenate(([0.0], np.cumsum(values))) for values in (asked, asked * asked))
        return cls(asked=asked, sums=sums, squares=squares, full=full)

    @property
    def total(self) -> float:
        """Return all requests."""
        return float(self.sums[-1])

    @property
    def peak_load(self) -> float:
        """Return how many replicas the busiest step keeps busy; where there is a step."""
        return float(self.asked[-1]) / self.full

    def means(self, load_grid: FloatArray, curve: FloatArray) -> Callable[[int], float]:
        """Return a function of the number of replicas: the mean over requests of what a curve says at the load of their step's
        replicas; none is more than full."""
        loads = np.append(load_grid[load_grid < 1.0], 1.0)
        values = np.interp(loads, load_grid, curve)
        slope = np.diff(values) / np.diff(loads)
        level = values[:-1] - slope * loads[:-1]

        def mean(count: int) -> float:
            below = np.searchsorted(self.asked, loads * self.full * count)
            within = level * np.diff(self.sums[below]) + slope / (self.full * count) * np.diff(self.squares[below])
            beyond = values[0] * self.sums[below[0]] + values[-1] * (self.total - self.sums[below[-1]])
            return float(within.sum() + beyond) / self.total

        return mean
