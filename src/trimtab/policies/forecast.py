"""Our scaling rule: what recording rules forecast, with a margin learned from how far they were off.

In one paragraph: two straight lines are laid through the recent load, a slow one (10 minutes) and a fast one (4 minutes), and
both are read off one cold start ahead, rising slopes only. How much the load outgrew the slow forecast is recorded; its
root mean square over the last 2 hours, or over the last day, is the spread. The service is given the larger of slow +
`margin` spreads and fast + a smaller number of spreads. It never falls below a share of what it served in the last 20
minutes, nor of the same time yesterday, so that an outage upstream does not dismantle it. A HorizontalPodAutoscaler
follows the recorded number. All of it can be written as Prometheus recording rules: `avg_over_time`, `deriv`,
`max_over_time`, `offset` and arithmetic.

All loads are in units of what one replica serves. Where the default numbers come from: docs/benchmarks/replay.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trimtab.policies.scaling import NO_LIMIT, SYNC_S, HpaPolicy, Metric
from trimtab.units import S_PER_DAY, S_PER_HR


class ForecastRules(NamedTuple):
    """The windows and factors of the recording rules; `lead_s` is the cold start and one decision."""

    lead_s: int
    margin: float = 3.3
    """Spreads of headroom over the slow forecast."""
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
    margin: float = 3.3,
    tolerance_frac: float = 0.0,
    down_stabilization_s: int = 300,
) -> ForecastPolicy:
    """Return the rule for a cold start and a mean rate: rare requests need longer windows to show a level.

    `target_frac` is the load at which a replica still meets its target.
    """
    usual = ForecastRules(lead_s=math.ceil(cold_start_s) + SYNC_S, margin=margin)
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
    """Return by what factor a window must grow to hold so many requests at a mean rate."""
    if mean_req_s <= 0.0:
        return LONGEST
    return min(max(requests / (mean_req_s * window_s), 1.0), LONGEST)


def ahead(level: float, slope_per_s: float, gain: float, level_s: float, lead_s: float) -> float:
    """Read a rising line off `lead_s` ahead: a level averaged over `level_s` stands for its middle."""
    return level + gain * max(slope_per_s, 0.0) * (lead_s + level_s / 2.0)


def outgrown_frac(load: float, forecast: float, recent_peak: float) -> float:
    """Return by what share the load outgrew its forecast; 0 where it did not."""
    expected = max(forecast, ERROR_FLOOR_FRAC * recent_peak)
    if expected <= 0.0:
        return 0.0
    return min(max(load / expected - 1.0, 0.0), ERROR_MOST_FRAC)


def spread_frac(rules: ForecastRules, recent_mean_square: float, settled_mean_square: float) -> float:
    """Return the spread of forecasts: a root mean square that doubles the squares, since only half of the errors are kept."""
    recent = 2.0 * recent_mean_square
    settled = 2.0 * settled_mean_square * rules.settled_weight * rules.settled_weight
    return math.sqrt(max(recent, settled, rules.least_spread_frac * rules.least_spread_frac))


def wanted_load(rules: ForecastRules, slow: float, fast: float, spread: float) -> float:
    """Return the load to have replicas for: the slow forecast with the whole margin, or the fast one with part of it."""
    headroom = rules.margin * spread
    return max(slow * (1.0 + headroom), fast * (1.0 + rules.fast_margin_frac * headroom))
