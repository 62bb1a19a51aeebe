"""What Prometheus recording rules would have recorded over a history: rolling means, maxima and slopes, and our forecast.

A window holds the samples of its last seconds, the present one included. Samples that are missing (NaN) are left out, as
`avg_over_time` leaves them out; where a window holds none, nothing is recorded (NaN).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trimtab.ledger.arrays import FloatArray
from trimtab.policies import forecast
from trimtab.policies.forecast import (
    ERROR_FLOOR_S,
    ERROR_LEVEL_S,
    USUAL_LOAD_S,
    ForecastPolicy,
    ForecastRules,
    ahead,
    learned_margin,
    outgrown_frac,
    provided_load,
    spread_frac,
    wanted_load,
)
from trimtab.policies.scaling import ROUNDING
from trimtab.replay.compiled import admit, compiled
from trimtab.units import S_PER_DAY

admit(forecast)


class ForecastSeries(NamedTuple):
    """The recorded series `(n_steps,)` that the margin combines: two forecasts and their spread."""

    slow: FloatArray
    fast: FloatArray
    spread: FloatArray


def samples(window_s: float, step_s: float) -> int:
    """Return how many samples a window holds: at least one."""
    return max(1, round(window_s / step_s))


@compiled
def rolling_mean(values: FloatArray, window: int) -> FloatArray:
    """Return the mean of the last `window` samples at each step; sums restart every window, so that no rounding piles up."""
    means = np.empty(len(values))
    total, count, since = 0.0, 0, 0
    for i in range(len(values)):
        if since >= window:
            total, count, since = 0.0, 0, 0
            for j in range(i - window + 1, i):
                if not math.isnan(values[j]):
                    total += values[j]
                    count += 1
        # the sample that leaves the window
        elif i >= window and not math.isnan(values[i - window]):
            total -= values[i - window]
            count -= 1
        if not math.isnan(values[i]):
            total += values[i]
            count += 1
        since += 1
        means[i] = total / count if count > 0 else math.nan
    return means


@compiled
def rolling_max(values: FloatArray, window: int) -> FloatArray:
    """Return the maximum of the last `window` samples at each step."""
    highest = np.empty(len(values))
    at = -1
    for i in range(len(values)):
        # the highest is still inside: only the new sample can beat it
        if at >= 0 and at > i - window:
            if not math.isnan(values[i]) and values[i] >= values[at]:
                at = i
        else:
            # it has left: look through the whole window
            at = -1
            for j in range(max(0, i - window + 1), i + 1):
                if not math.isnan(values[j]) and (at < 0 or values[j] >= values[at]):
                    at = j
        highest[i] = values[at] if at >= 0 else math.nan
    return highest


@compiled
def rolling_slope(values: FloatArray, window: int) -> FloatArray:
    """Return the least-squares slope per sample of the last `window` samples (`deriv`); 0 where there are fewer than two."""
    slopes = np.zeros(len(values))
    for i in range(len(values)):
        count, sum_x, sum_y, sum_xx, sum_xy = 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(max(0, i - window + 1), i + 1):
            if not math.isnan(values[j]):
                # counted from the present, so that the sums stay small
                x = float(j - i)
                count += 1.0
                sum_x += x
                sum_y += values[j]
                sum_xx += x * x
                sum_xy += x * values[j]
        spread = count * sum_xx - sum_x * sum_x
        # no line goes through fewer than two samples
        if spread > 0.0:
            slopes[i] = (count * sum_xy - sum_x * sum_y) / spread
    return slopes


@compiled
def lines_ahead(
    level: FloatArray, slope: FloatArray, step_s: float, gain: float, level_s: float, lead_s: float
) -> FloatArray:
    """Return the forecast of one line at each step."""
    forecasts = np.empty(len(level))
    for i in range(len(level)):
        forecasts[i] = ahead(level[i], slope[i] / step_s, gain, level_s, lead_s)
    return forecasts


@compiled
def squared_errors(load: FloatArray, slow: FloatArray, peak: FloatArray, lead: int) -> FloatArray:
    """Return the squared share by which the load outgrew the forecast made `lead` samples before; NaN where unknown."""
    errors = np.full(len(load), math.nan)
    for i in range(lead, len(load)):
        if not (math.isnan(load[i]) or math.isnan(slow[i - lead])):
            errors[i] = outgrown_frac(load[i], slow[i - lead], peak[i]) ** 2
    return errors


@compiled
def spreads(rules: ForecastRules, recent: FloatArray, settled: FloatArray) -> FloatArray:
    """Return the spread at each step; errors not seen yet count as none."""
    result = np.empty(len(recent))
    for i in range(len(recent)):
        near = 0.0 if math.isnan(recent[i]) else recent[i]
        far = 0.0 if math.isnan(settled[i]) else settled[i]
        result[i] = spread_frac(rules, near, far)
    return result


@compiled
def learned(
    policy: ForecastPolicy, load: FloatArray, usual: FloatArray, recorded: ForecastSeries, step_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return the load to have replicas for and the margin behind it, at each step; `usual` is the mean load of a day.

    What was provided for a step is what an autoscaler holds throughout the cold start before it, following the highest that
    was wanted within its window for scaling down.
    """
    rules, hpa = policy
    slow, fast, spread = recorded
    lead = max(1, math.ceil(rules.lead_s / step_s - ROUNDING))
    hold = max(1, math.ceil(hpa.down_stabilization_s / step_s - ROUNDING))
    wanted, margins, held = np.empty(len(load)), np.empty(len(load)), np.empty(len(load))
    margin = rules.first_margin
    for i in range(len(load)):
        # where nothing was held yet nothing could be missed
        provided = math.inf
        for j in range(max(0, i - lead), i):
            # what was asked for later than a cold start ago is not ready: the least held since is what served
            provided = min(provided, held[j])
        # learnt before it is used, from what has been seen by now
        margin = learned_margin(rules, margin, load[i], provided, usual[i], step_s)
        wanted[i] = wanted_load(rules, slow[i], fast[i], spread[i], margin)
        # The load of now is the least to provide for. The comparison is turned round so that a forecast of NaN gives
        # way too.
        if not (load[i] <= wanted[i] or math.isnan(load[i])):
            wanted[i] = load[i]
        margins[i] = margin
        highest = math.nan
        for j in range(max(0, i - hold + 1), i + 1):
            # written so that the first known value replaces NaN, and NaN replaces nothing
            if not wanted[j] <= highest and not math.isnan(wanted[j]):
                highest = wanted[j]
        held[i] = math.inf if math.isnan(highest) else provided_load(hpa, highest)
    return wanted, margins


def wanted_loads(
    policy: ForecastPolicy, load: FloatArray, recorded: ForecastSeries, *, step_s: float, replica_load: float = 1.0
) -> FloatArray:
    """Return the load to have replicas for, in replicas, at each step `(n_steps,)`.

    `load` and what was recorded of it are in units of which one replica serves `replica_load`.
    """
    usual = rolling_mean(load, samples(USUAL_LOAD_S, step_s))
    scaled = ForecastSeries(recorded.slow / replica_load, recorded.fast / replica_load, recorded.spread)
    wanted, _ = learned(policy, load / replica_load, usual / replica_load, scaled, float(step_s))
    return wanted


def record(load: FloatArray, *, step_s: float, rules: ForecastRules) -> ForecastSeries:
    """Evaluate the recording rules over a load `(n_steps,)`, in replicas; the margin plays no part yet."""

    def line(level_s: int, slope_s: int, gain: float) -> FloatArray:
        level = rolling_mean(load, samples(level_s, step_s))
        # a slope needs two samples
        slope = rolling_slope(load, max(2, samples(slope_s, step_s)))
        return lines_ahead(level, slope, float(step_s), gain, float(level_s), float(rules.lead_s))

    slow = line(rules.slow_level_s, rules.slow_slope_s, rules.slow_gain)
    fast = line(rules.fast_level_s, rules.fast_slope_s, rules.fast_gain)
    steady = rolling_mean(load, samples(rules.hold_level_s, step_s))
    # fmax leaves out NaN: a floor that is not known yet is none
    slow = np.fmax(slow, rules.hold_frac * rolling_max(steady, samples(rules.hold_s, step_s)))
    slow = np.fmax(slow, rules.yesterday_frac * _yesterday(load, step_s, rules))
    lead = samples(rules.lead_s, step_s)
    minute = rolling_mean(load, samples(ERROR_LEVEL_S, step_s))
    peak = rolling_max(steady, samples(ERROR_FLOOR_S, step_s))
    errors = squared_errors(minute, slow, peak, lead)
    spread = spreads(
        rules,
        rolling_mean(errors, samples(rules.recent_s, step_s)),
        rolling_mean(errors, samples(rules.settled_s, step_s)),
    )
    return ForecastSeries(slow=slow, fast=fast, spread=spread)


def _yesterday(load: FloatArray, step_s: float, rules: ForecastRules) -> FloatArray:
    """Return yesterday's level `lead_s` after this time of day; NaN on the first day."""
    level = rolling_mean(load, samples(rules.yesterday_level_s, step_s))
    back = samples(S_PER_DAY - rules.lead_s, step_s)
    return np.concatenate([np.full(min(back, len(load)), np.nan), level[: max(0, len(load) - back)]])
