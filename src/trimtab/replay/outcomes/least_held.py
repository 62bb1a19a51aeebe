"""What a scaling rule holds at least, without a replay of it.

At each decision the Kubernetes rule recommends no less than `load / (target (1 + tolerance))`: within its tolerance it keeps
what there is, which is at least that, and beyond it rounds `load / target` up; a queue only adds to the load. It rises to what
it recommends as far as it may in a decision, and falls no lower than the highest recommendation of its scale-down window
(`policies.scaling`: `per_ready_pod`, `average_value`, `stabilized`, `rate_limited`). Both only grow with what is held and what
is recommended, so that following the least recommendations gives a lower bound of what is held. Nodes only grow with that.

Of KEDA's rule between none and one it is known when somebody asks: a replica is up then, once a poll saw it, and until a whole
cooldown has passed. A queue only keeps it up for longer, and what its HPA asks for comes on top.

Replicas change far less often than they are decided on. So what all rules of a service read alike, its demand and the highest
demand of the window for scaling down, is worked out once (`AskedDemand`), and a rule passes over whole blocks of decisions in
which neither asks for a change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import numpy as np

from trimtab.ledger.arrays import FloatArray
from trimtab.policies.forecast import ForecastPolicy, ForecastRules
from trimtab.policies.keda import KedaPolicy, goes_to_none
from trimtab.policies.scaling import NO_OTHERS, ROUNDING, SYNC_S, HpaPolicy, Metric, StaticReplicas, window_steps
from trimtab.replay.compiled import CountArray, compiled, inlined
from trimtab.replay.nodes import CountRuns
from trimtab.replay.recorded import ForecastSeries
from trimtab.replay.services import ScalingPolicy, ServiceHistory, ServiceModel

_SLACK = 1e-6
"""Far above what sums round by: no recommendation is taken for more than it is."""
_BLOCK = 16
"""Decisions that are passed over at once where they ask for no change."""
_NOTHING = -math.inf
"""A demand that is not known: it asks for nothing."""


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


class AskedDemand(NamedTuple):
    """What rules read of a history, whatever load they keep replicas at; requests/s, minus infinity where not known."""

    now: FloatArray
    """Averaged demand, or what a forecast tells if that is more (n_decisions,)."""
    highest: FloatArray
    """The highest of it within the window for scaling down (n_decisions,)."""
    most: FloatArray
    """The highest `now` of each block of decisions (n_blocks,)."""
    least: FloatArray
    """The lowest `highest` of each block (n_blocks,)."""

    @classmethod
    def of(
        cls, history: ServiceHistory, policy: HpaPolicy | ForecastPolicy, recorded: ForecastSeries | None
    ) -> AskedDemand:
        """Return what a policy reads; `recorded` is what the rules of a forecast record of the history."""
        now = mean_demand(history, _averaged(policy))
        if isinstance(policy, ForecastPolicy) and recorded is not None:
            # fmax leaves out what is not known
            now = np.fmax(now, history.by_decision(_forecast(policy.rules, recorded)))
        now = np.where(np.isnan(now), _NOTHING, now)
        highest = _highest_of_last(now, window_steps(_hpa(policy).down_stabilization_s))
        blocks = np.arange(0, len(now), _BLOCK)
        return cls(now, highest, np.maximum.reduceat(now, blocks), np.minimum.reduceat(highest, blocks))


def readings_of(policy: HpaPolicy | ForecastPolicy) -> Hashable:
    """Return what tells policies apart that read a history's demand in other ways."""
    rules = policy.rules if isinstance(policy, ForecastPolicy) else None
    return _averaged(policy), window_steps(_hpa(policy).down_stabilization_s), rules


def _hpa(policy: HpaPolicy | ForecastPolicy) -> HpaPolicy:
    return policy.hpa if isinstance(policy, ForecastPolicy) else policy


def _averaged(policy: HpaPolicy | ForecastPolicy) -> int:
    """Return over how many decisions a policy averages demand."""
    hpa = _hpa(policy)
    return window_steps(hpa.window_s) if hpa.metric == Metric.DEMAND else 1


def _highest_of_last(values: FloatArray, window: int) -> FloatArray:
    """Return the highest of the last `window` values at each step (n_steps,)."""
    highest, covered = values, 1
    while covered < window:
        # twice as many at a time
        back = min(covered, window - covered)
        highest = np.concatenate((highest[:back], np.maximum(highest[back:], highest[:-back])))
        covered += back
    return highest


def least_held(
    history: ServiceHistory,
    model: ServiceModel,
    policy: BoundedPolicy,
    asked: AskedDemand | None,
    *,
    initial_replicas: int,
) -> CountRuns:
    """Return a lower bound of the replicas that a replay holds, ready or starting, at each decision.

    `asked` is what an autoscaler reads of the history; None where it is to be worked out here, without a forecast. The bound
    starts from `initial_replicas`, at least 1.
    """
    if isinstance(policy, StaticReplicas):
        return CountRuns.constant(policy.replicas, history.decisions)
    if isinstance(policy, KedaPolicy):
        return CountRuns.of(_least_awake(_rate(history), policy.polling_s, policy.cooldown_s))
    hpa = _hpa(policy)
    levels, lengths = _least_course(
        asked or AskedDemand.of(history, policy, None),
        # within its tolerance it stays, with so much less than it asks for
        model.capacity_req_s * hpa.target_frac * (1.0 + hpa.tolerance_up_frac),
        window_steps(hpa.down_stabilization_s),
        min(hpa.min_replicas, hpa.max_replicas),
        hpa.max_replicas,
        hpa.up_frac,
        hpa.up_pods,
        initial_replicas,
    )
    return CountRuns(levels=levels, lengths=lengths)


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


@inlined
def _recommended(demand: float, served_req_s: float, floor: int, top: int) -> int:
    """Return the replicas that a demand asks for, each of which stays for at most `served_req_s`."""
    if demand == _NOTHING:
        return floor
    return max(floor, min(top, math.ceil(demand / served_req_s * (1.0 - _SLACK) - _SLACK)))


@inlined
def _unchanged_between(now: int, served_req_s: float, floor: int, top: int) -> tuple[float, float]:
    """Return a demand from which on no replica is removed from `now` replicas, and one up to which nothing is added.

    Between them no recommendation has to be worked out: the slack is far more than what these products round by.
    """
    fewest = ((now - 1) * (1.0 + 4.0 * _SLACK) + 4.0 * _SLACK) * served_req_s if now > floor else -math.inf
    return fewest, now * served_req_s if now < top else math.inf


@compiled
def _least_course(
    asked: AskedDemand,
    served_req_s: float,
    hold: int,
    floor: int,
    top: int,
    up_frac: float,
    up_pods: int,
    initial: int,
) -> tuple[CountArray, CountArray]:
    """Return a lower bound of the replicas, as the counts and lengths of runs.

    The highest recommendation of the last `hold` decisions limits scaling down; it is that of their highest demand.
    """
    levels, lengths = np.empty(len(asked.now), dtype=np.int32), np.empty(len(asked.now), dtype=np.int32)
    runs, begin, step, now = 0, 0, 0, initial
    fewest, most = _unchanged_between(now, served_req_s, floor, top)
    # the controller asks no metric of a count that it may not have: nothing is recommended that could hold later decisions
    is_blind, since = initial < floor or initial > top, _NOTHING
    while step < len(asked.now):
        if step % _BLOCK == 0 and (step >= hold or not is_blind):
            block = step // _BLOCK
            while block < len(asked.most) and asked.most[block] <= most and asked.least[block] >= fewest:
                block += 1
            step = block * _BLOCK
            if step >= len(asked.now):
                break
        demand, highest, after = asked.now[step], asked.highest[step], now
        if is_blind and step == 0:
            after = min(max(now, floor), top)
        else:
            if is_blind and step < hold:
                since = max(since, demand)
                highest = since
            if demand > most or highest < fewest:
                wanted = _recommended(demand, served_req_s, floor, top)
                if wanted > now:
                    after = min(wanted, max(now + up_pods, math.ceil(now * (1.0 + up_frac) - ROUNDING)))
                else:
                    after = min(now, _recommended(highest, served_req_s, floor, top))
        step += 1
        if after != now:
            levels[runs], lengths[runs] = now, step - begin
            runs, begin, now = runs + 1, step, after
            fewest, most = _unchanged_between(now, served_req_s, floor, top)
    if begin < len(asked.now):
        levels[runs], lengths[runs] = now, len(asked.now) - begin
        runs += 1
    return levels[:runs].copy(), lengths[:runs].copy()


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
