"""Our forecasting scaling rule as Prometheus recording rules, from the demand series that `demand_rules` records.

Rule by rule this is what `trimtab.replay.recorded` evaluates over history: two lines read one cold start ahead, floors from the
last minutes and from yesterday, the squared share by which demand outgrew the forecast, and the load to have replicas for.
An external metric with an average value of the target load makes an HPA follow the last one. Windows are written a second
short: Prometheus 2 counts a sample at their oldest moment and Prometheus 3 does not, and 8 minutes shall hold 32 of 15 s.
"""

from __future__ import annotations

from trimtab.policies.forecast import (
    ERROR_FLOOR_FRAC,
    ERROR_FLOOR_S,
    ERROR_LEVEL_S,
    ERROR_MOST_FRAC,
    ForecastRules,
)
from trimtab.units import S_PER_DAY

STEADY = "trimtab:demand_steady"
SLOW = "trimtab:forecast_slow"
FAST = "trimtab:forecast_fast"
ERROR_SQUARED = "trimtab:forecast_error_squared"
SPREAD = "trimtab:forecast_spread"
LOAD_WANTED = "trimtab:load_wanted"


def forecast_records(rules: ForecastRules, demand: str, labels: str) -> dict[str, str]:
    """Return the rules as record -> expression, in the order in which one group must evaluate them.

    `demand` selects the recorded demand in replicas, one sample every 15 s; `labels` is the selector, braces and all, of what
    is recorded here.
    """
    steady, slow, fast, error, spread = (f"{name}{labels}" for name in (STEADY, SLOW, FAST, ERROR_SQUARED, SPREAD))
    return {
        STEADY: f"avg_over_time({demand}[{_window(rules.hold_level_s)}])",
        FAST: _line(demand, rules.fast_level_s, rules.fast_slope_s, rules.fast_gain, rules.lead_s),
        SLOW: _slow(rules, demand, steady),
        ERROR_SQUARED: _error_squared(rules, demand, steady, slow),
        SPREAD: _spread(rules, error),
        LOAD_WANTED: _wanted(rules, slow, fast, spread),
    }


def _window(window_s: int) -> str:
    return f"{window_s - 1}s"


def _line(demand: str, level_s: int, slope_s: int, gain: float, lead_s: int) -> str:
    reach_s = gain * (lead_s + level_s / 2)
    level = f"avg_over_time({demand}[{_window(level_s)}])"
    slope = f"(deriv({demand}[{_window(slope_s)}]) or 0 * {level})"
    return f"{level} + {reach_s:.10g} * clamp_min({slope}, 0)"


def _larger(one: str, other: str) -> str:
    """Return PromQL of the larger of two series with the same labels, or of the one that is there."""
    return f"(({one}) >= ({other})) or ({other}) or ({one})"


def _slow(rules: ForecastRules, demand: str, steady: str) -> str:
    line = _line(demand, rules.slow_level_s, rules.slow_slope_s, rules.slow_gain, rules.lead_s)
    held = f"{rules.hold_frac:.10g} * max_over_time({steady}[{_window(rules.hold_s)}])"
    back_s = S_PER_DAY - rules.lead_s
    yesterday = (
        f"{rules.yesterday_frac:.10g} * avg_over_time({demand}[{_window(rules.yesterday_level_s)}] offset {back_s}s)"
    )
    return _larger(_larger(line, held), yesterday)


def _error_squared(rules: ForecastRules, demand: str, steady: str, slow: str) -> str:
    forecast = f"{slow} offset {rules.lead_s}s"
    floor = f"{ERROR_FLOOR_FRAC:.10g} * max_over_time({steady}[{_window(ERROR_FLOOR_S)}])"
    expected = f"(({forecast}) >= ({floor})) or (({floor}) and ({forecast}))"
    outgrown = f"avg_over_time({demand}[{_window(ERROR_LEVEL_S)}]) / ({expected}) - 1"
    return f"clamp({outgrown}, 0, {ERROR_MOST_FRAC:.10g}) ^ 2"


def _spread(rules: ForecastRules, error: str) -> str:
    recent = f"2 * avg_over_time({error}[{_window(rules.recent_s)}])"
    settled = f"{2 * rules.settled_weight**2:.10g} * avg_over_time({error}[{_window(rules.settled_s)}])"
    return f"sqrt(clamp_min({_larger(recent, settled)}, {rules.least_spread_frac**2:.10g}))"


def _wanted(rules: ForecastRules, slow: str, fast: str, spread: str) -> str:
    least = rules.least_spread_frac
    known = f"({spread} or (0 * {slow} + {least:.10g}))"
    full = f"{slow} * (1 + {rules.margin:.10g} * {known})"
    part = f"{fast} * (1 + {rules.margin * rules.fast_margin_frac:.10g} * {known})"
    return _larger(full, part)
