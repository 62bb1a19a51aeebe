"""What a scaling rule holds at least, before any replay: what the history alone makes it ask for, without queue and starts.

At each decision the Kubernetes rule recommends no less than `load / (target (1 + tolerance))`: within its tolerance it keeps
what there is, which is at least that, and beyond it rounds `load / target` up; a queue only adds to the load. It rises to what
it recommends as far as it may in a decision, and falls no lower than the highest recommendation of its scale-down window
(`policies.scaling`: `per_ready_pod`, `average_value`, `stabilized`, `rate_limited`). Both only grow with what is held and what
is recommended, so that following the least recommendations gives the least that is held. Nodes only grow with that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from trimtab.policies.forecast import ForecastPolicy, ForecastRules
from trimtab.policies.metrics import NO_OTHERS, ROUNDING
from trimtab.policies.scaling import SYNC_S, HpaPolicy, Metric, StaticReplicas, window_steps
from trimtab.replay.compiled import compiled
from trimtab.replay.recorded import ForecastSeries
from trimtab.replay.series import CountArray, FloatArray
from trimtab.replay.services import ScalingPolicy, ServiceHistory, ServiceModel

_SLACK = 1e-6
"""Far above what sums round by: no recommendation is taken for more than it is."""


def is_bounded(policy: ScalingPolicy) -> TypeGuard[StaticReplicas | HpaPolicy | ForecastPolicy]:
    """Tell whether a bound on what a rule holds is known: a number, or an HPA on demand, alone or behind a forecast.

    An HPA must keep one replica and be free to rise with every decision; how it comes down plays no part.
    """
    match policy:
        case StaticReplicas():
            return True
        case HpaPolicy(metric=Metric.DEMAND) | ForecastPolicy(hpa=HpaPolicy(metric=Metric.SIGNAL)):
            hpa = policy.hpa if isinstance(policy, ForecastPolicy) else policy
        case _:
            return False
    rises_freely = hpa.up_stabilization_s <= SYNC_S and hpa.period_s <= SYNC_S
    return rises_freely and hpa.min_replicas >= 1 and hpa.others == NO_OTHERS


def least_held(
    history: ServiceHistory,
    model: ServiceModel,
    policy: StaticReplicas | HpaPolicy | ForecastPolicy,
    recorded: ForecastSeries | None,
    *,
    initial_replicas: int,
) -> CountArray:
    """Return replicas `(n_decisions,)` below those that a replay holds, ready or starting, at each decision.

    `recorded` is what the rules of a forecast record of the history. It starts from `initial_replicas`, at least 1.
    """
    if isinstance(policy, StaticReplicas):
        return np.full(history.decisions, policy.replicas, dtype=np.int32)
    hpa = policy.hpa if isinstance(policy, ForecastPolicy) else policy
    rate = history.by_decision(history.arrivals / history.step_s if history.within is None else history.within / SYNC_S)
    told = np.full(1, math.nan)
    if isinstance(policy, ForecastPolicy) and recorded is not None:
        told = history.by_decision(_forecast(policy.rules, recorded))
    return _least_course(
        rate,
        told,
        # within its tolerance it stays, with so much less than it asks for
        model.capacity_req_s * hpa.target_frac * (1.0 + hpa.tolerance_up_frac),
        window_steps(hpa.window_s) if hpa.metric == Metric.DEMAND else 1,
        window_steps(hpa.down_stabilization_s),
        hpa.min_replicas,
        hpa.max_replicas,
        hpa.up_frac,
        hpa.up_pods,
        initial_replicas,
    )


def _forecast(rules: ForecastRules, recorded: ForecastSeries) -> FloatArray:
    """Return the requests/s that are wanted at the least margin that can be learned; NaN where a forecast is not known yet."""
    headroom = rules.least_margin * recorded.spread
    slow = recorded.slow * (1.0 + headroom)
    return np.asarray(np.maximum(slow, recorded.fast * (1.0 + rules.fast_margin_frac * headroom)), dtype=np.float64)


@compiled
def _least_course(
    rate: FloatArray,
    told: FloatArray,
    served_req_s: float,
    window: int,
    hold: int,
    floor: int,
    top: int,
    up_frac: float,
    up_pods: int,
    initial: int,
) -> CountArray:
    """Return what is held at least at each decision, where a replica stays for at most `served_req_s`.

    Demand is averaged over `window` decisions, and what was recommended within `hold` of them holds back from fewer replicas.
    `told` is what a forecast asks for, in requests/s; one place for none.
    """
    held = np.empty(len(rate), dtype=np.int32)
    asked = np.empty(len(rate), dtype=np.int64)
    falling = np.empty(
        len(rate), dtype=np.int64
    )  # decisions within the while whose recommendations no later one reaches
    first, after = 0, 0
    total, known, now = 0.0, 0, initial
    for step in range(len(rate)):
        held[step] = now
        # the mean of the known values of the window; a value that is missing now asks for nothing
        if not math.isnan(rate[step]):
            total += rate[step]
            known += 1
        if step >= window and not math.isnan(rate[step - window]):
            total -= rate[step - window]
            known -= 1
        wanted = math.nan if math.isnan(rate[step]) else total / known
        if len(told) > 1 and not math.isnan(told[step]) and not wanted >= told[step]:
            wanted = told[step]
        asked[step] = floor
        if not math.isnan(wanted):
            asked[step] = max(floor, min(top, math.ceil(wanted / served_req_s * (1.0 - _SLACK) - _SLACK)))
        while after > first and asked[falling[after - 1]] <= asked[step]:
            after -= 1
        falling[after] = step
        after += 1
        # one leaves at most, since the while moves on by one decision
        if falling[first] <= step - hold:
            first += 1
        if asked[step] > now:
            now = min(asked[step], max(now + up_pods, math.ceil(now * (1.0 + up_frac) - ROUNDING)))
        else:
            now = min(now, asked[falling[first]])
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

    def mean(self, load_grid: FloatArray, curve: FloatArray, count: int) -> float:
        """Return the mean over requests of what a curve says at the load of their step's replicas; none is more than full."""
        loads = np.append(load_grid[load_grid < 1.0], 1.0)
        values = np.interp(loads, load_grid, curve)
        below = np.searchsorted(self.asked, loads * self.full * count)
        slope = np.diff(values) / np.diff(loads)
        level = values[:-1] - slope * loads[:-1]
        within = level * np.diff(self.sums[below]) + slope / (self.full * count) * np.diff(self.squares[below])
        beyond = values[0] * self.sums[below[0]] + values[-1] * (self.total - self.sums[below[-1]])
        return float(within.sum() + beyond) / self.total
