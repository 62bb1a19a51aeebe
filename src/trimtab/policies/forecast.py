"""Our scaling rule: forecasts by recording rules, with a margin that adapts online to its own misses.

In one paragraph: two straight lines are laid through the recent load, a slow one (10 minutes) and a fast one (4 minutes), and
both are read off one cold start ahead, rising slopes only. How much the load outgrew the slow forecast is recorded; its
root mean square over the last 2 hours, or over the last day, is the spread. The service is given the larger of slow +
`margin` spreads and fast + a smaller number of spreads, and never less than its load now. It never falls below a share of what
it served in the last 20 minutes, nor of the same time yesterday, so that an outage upstream does not dismantle it. A
HorizontalPodAutoscaler follows the recorded number.

The margin is not chosen: whenever the load is above what the rule had provided, it rises, and else it falls a little, so
that in the long run just the share `late_frac` of the load comes late, whatever the world does (adaptive conformal inference:
Gibbs and Candes, NeurIPS 2021, arXiv 2106.00170, with the margin itself as what is learned). All of it can be written as
Prometheus recording rules: `avg_over_time`, `deriv`, `max_over_time`, `offset`, arithmetic, and a rule that reads what it
recorded before.

All loads are in units of what one replica serves. Where the default numbers come from: docs/benchmarks/replay.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trimtab.policies.scaling import NO_LIMIT, ROUNDING, SYNC_S, HpaPolicy, Metric
from trimtab.units import S_PER_DAY, S_PER_HR


class ForecastRules(NamedTuple):
    """The windows and factors of the recording rules; `lead_s` is the cold start and one decision."""

    lead_s: int
    late_frac: float = 0.0005
    """Share of the load that the margin lets come above what was provided."""
    first_margin: float = 3.3
    """Spreads of headroom over the slow forecast, before anything was learned."""
    least_margin: float = 1.0
    most_margin: float = 24.0
    relax_per_day: float = 0.6
    """What the margin falls by on a day without a miss."""
    fast_margin_frac: float = 0.6
    """Share of that headroom which the fast forecast gets."""
    slow_level_s: int = 480
    slow_slope_s: int = 600
    slow_gain: float = 0.8
    fast_level_s: int = 120
    fast_slope_s: int = 240
    fast_gain: float = 1.2
    recent_s: int = 2 * S_PER_HR
    settled_s: int = S_PER_DAY
    settled_weight: float = 0.8
    """Share of the settled spread that a calm recent window cannot undercut."""
    least_spread_frac: float = 0.045
    hold_level_s: int = 300
    hold_s: int = 1200
    hold_frac: float = 0.7
    yesterday_level_s: int = 600
    yesterday_frac: float = 0.5


ERROR_LEVEL_S = 60
"""The load that a forecast is compared with is that of a minute."""
ERROR_MOST_FRAC = 0.5
"""A return from an outage counts as no larger an error than this."""
ERROR_FLOOR_S = S_PER_HR
ERROR_FLOOR_FRAC = 0.3
"""A forecast below this share of the last hour's peak is an outage, and errors are counted against the share instead."""


LATE_SHARE = 0.5
"""The margin may use up so much of the permitted misses: what is late behind a queue is not counted."""
LEAST_LATE_FRAC = 0.00005
"""A target of every request is learned as one of nearly every request: the margin must be able to fall."""
USUAL_LOAD_S = S_PER_DAY
"""A miss counts by the load that it met, over the mean load of a day."""


class ForecastPolicy(NamedTuple):
    """Recording rules and the HorizontalPodAutoscaler that follows what they record."""

    rules: ForecastRules
    hpa: HpaPolicy


SLOW_REQUESTS = 4000.0
"""A slow level averages over at least so many requests (a counting error of 1.6 %), as far as LONGEST lets it."""
FAST_REQUESTS = 1500.0
LONGEST = 6.0
"""The windows of a line grow to at most so many times their usual length."""


def forecast_policy(
    *,
    cold_start_s: float,
    mean_req_s: float = math.inf,
    min_replicas: int = 1,
    max_replicas: int = NO_LIMIT,
    target_frac: float = 1.0,
    required_frac: float = 0.999,
    tolerance_frac: float = 0.0,
    down_stabilization_s: int = 300,
) -> ForecastPolicy:
    """Return the rule for a cold start and a mean rate: rare requests need longer windows to show a level.

    `target_frac` is the load at which a replica still meets its target, `required_frac` the share of requests that shall.
    """
    late_frac = max(LATE_SHARE * (1.0 - required_frac), LEAST_LATE_FRAC)
    usual = ForecastRules(lead_s=math.ceil(cold_start_s) + SYNC_S, late_frac=late_frac)
    slow = stretch(SLOW_REQUESTS, mean_req_s, usual.slow_level_s)
    fast = stretch(FAST_REQUESTS, mean_req_s, usual.fast_level_s)
    return ForecastPolicy(
        rules=usual._replace(
            slow_level_s=round(usual.slow_level_s * slow),
            slow_slope_s=round(usual.slow_slope_s * slow),
            fast_level_s=round(usual.fast_level_s * fast),
            fast_slope_s=round(usual.fast_slope_s * fast),
        ),
        hpa=HpaPolicy(
            target_frac=target_frac,
            min_replicas=min_replicas,
            max_replicas=max_replicas,
            metric=Metric.SIGNAL,
            tolerance_up_frac=tolerance_frac,
            tolerance_down_frac=tolerance_frac,
            down_stabilization_s=down_stabilization_s,
        ),
    )


def stretch(requests: float, mean_req_s: float, window_s: float) -> float:
    """Return the factor by which a window must grow to contain this many requests at a mean rate."""
    if mean_req_s <= 0.0:
        return LONGEST
    return min(max(requests / (mean_req_s * window_s), 1.0), LONGEST)


def ahead(level: float, slope_per_s: float, gain: float, level_s: float, lead_s: float) -> float:
    """Read a rising line off `lead_s` ahead: a level averaged over `level_s` stands for its middle."""
    return level + gain * max(slope_per_s, 0.0) * (lead_s + level_s / 2.0)


def outgrown_frac(load: float, forecast: float, recent_peak: float) -> float:
    """Return by what share the load outgrew its forecast; 0 if it did not."""
    expected = max(forecast, ERROR_FLOOR_FRAC * recent_peak)
    if expected <= 0.0:
        return 0.0
    return min(max(load / expected - 1.0, 0.0), ERROR_MOST_FRAC)


def spread_frac(rules: ForecastRules, recent_mean_square: float, settled_mean_square: float) -> float:
    """Return the spread of forecasts: a root mean square that doubles the squares, since only half of the errors are kept."""
    recent = 2.0 * recent_mean_square
    settled = 2.0 * settled_mean_square * rules.settled_weight * rules.settled_weight
    return math.sqrt(max(recent, settled, rules.least_spread_frac * rules.least_spread_frac))


def learning_rate(rules: ForecastRules, step_s: float) -> float:
    """Return by how much the margin rises for a step of the usual load that comes late."""
    return rules.relax_per_day * step_s / S_PER_DAY / rules.late_frac


def learned_margin(
    rules: ForecastRules, margin: float, load: float, provided: float, usual_load: float, step_s: float
) -> float:
    """Return the margin after a step: it rises where the load came above what was provided, else it falls a little."""
    if math.isnan(load) or usual_load <= 0.0:
        return margin
    late = 1.0 if load > provided else 0.0
    moved = margin + learning_rate(rules, step_s) * (late - rules.late_frac) * load / usual_load
    return min(max(moved, rules.least_margin), rules.most_margin)


def wanted_load(rules: ForecastRules, slow: float, fast: float, spread: float, margin: float) -> float:
    """Return the load to have replicas for: the slow forecast with the whole margin, or the fast one with part of it."""
    headroom = margin * spread
    return max(slow * (1.0 + headroom), fast * (1.0 + rules.fast_margin_frac * headroom))


def provided_load(hpa: HpaPolicy, highest_wanted: float) -> float:
    """Return the load that the replicas of an autoscaler serve which follows the highest of what was wanted lately."""
    replicas = math.ceil(highest_wanted / hpa.target_frac - ROUNDING)
    return min(max(replicas, hpa.min_replicas), hpa.max_replicas) * hpa.target_frac
