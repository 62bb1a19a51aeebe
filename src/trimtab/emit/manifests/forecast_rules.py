"""Our forecasting scaling rule as Prometheus recording rules, from the demand series that `demand_rules` records.

Rule by rule this is what `trimtab.replay.recorded` evaluates over history: two lines read one cold start ahead, floors from the
last minutes and from yesterday, the squared share by which demand outgrew the forecast, the load that the autoscaler provided
for, the margin that learns from what came above it (a rule that reads what it recorded the time before; after a gap of an hour
it restarts), and the load to have replicas for. Where demand asks for more than all that, its queue included, demand is
what is followed, as by a plain autoscaler. An external metric with an average value of the target load makes an HPA follow
it. Windows are written a second short: Prometheus 2 counts a sample at their oldest moment and Prometheus 3 does not, and 8
minutes shall hold 32 of 15 s.
"""

from __future__ import annotations

from trimtab.emit.manifests.demand_rules import LOAD_WANTED
from trimtab.policies.forecast import (
    ERROR_FLOOR_FRAC,
    ERROR_FLOOR_S,
    ERROR_LEVEL_S,
    ERROR_MOST_FRAC,
    USUAL_LOAD_S,
    ForecastPolicy,
    ForecastRules,
    learning_rate,
)
from trimtab.policies.scaling import NO_LIMIT, ROUNDING, SYNC_S, HpaPolicy
from trimtab.units import S_PER_DAY

STEADY = "trimtab:demand_steady"
SLOW = "trimtab:forecast_slow"
FAST = "trimtab:forecast_fast"
ERROR_SQUARED = "trimtab:forecast_error_squared"
SPREAD = "trimtab:forecast_spread"
HELD = "trimtab:load_held"
MARGIN = "trimtab:forecast_margin"
LOAD_FORECAST = "trimtab:load_forecast"


def forecast_records(policy: ForecastPolicy, load: str, demand: str, labels: str) -> dict[str, str]:
    """Return the rules as record -> expression, in the order in which one group must evaluate them.

    `load` selects the recorded load in replicas, one sample every 15 s, `demand` the same with the queue; `labels` is the
    selector, braces and all, of what is recorded here.
    """
    rules = policy.rules
    steady, slow, fast, error, spread, margin, forecast, held = (
        f"{name}{labels}" for name in (STEADY, SLOW, FAST, ERROR_SQUARED, SPREAD, MARGIN, LOAD_FORECAST, HELD)
    )
    return {
        STEADY: f"avg_over_time({load}[{_window(rules.hold_level_s)}])",
        FAST: _line(load, rules.fast_level_s, rules.fast_slope_s, rules.fast_gain, rules.lead_s),
        SLOW: _slow(rules, load, steady),
        ERROR_SQUARED: _error_squared(rules, load, steady, slow),
        SPREAD: _spread(rules, error),
        MARGIN: _margin(rules, load, held, margin, slow),
        LOAD_FORECAST: _larger(_wanted(rules, slow, fast, spread, margin), _now(load)),
        HELD: _held(policy.hpa, forecast),
        LOAD_WANTED: _larger(forecast, _now(demand)),
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


def _now(series: str) -> str:
    """Return PromQL of the present sample alone: an older one says nothing of this step."""
    return f"last_over_time({series}[{_window(SYNC_S)}])"


def _margin(rules: ForecastRules, load: str, held: str, margin: str, slow: str) -> str:
    before = f"(last_over_time({margin}[1h]) or (0 * {slow} + {rules.first_margin:.10g}))"
    lead_s = -(-rules.lead_s // SYNC_S) * SYNC_S
    provided = f"min_over_time({held}[{_window(lead_s)}] offset {SYNC_S}s)"
    late = f"(({_now(load)} > bool {provided}) or 0 * {_now(load)})"
    weight = f"({_now(load)} / (avg_over_time({load}[{_window(USUAL_LOAD_S)}]) > 0))"
    rate = f"{learning_rate(rules, SYNC_S):.10g}"
    moved = f"{before} + {rate} * ({late} - {rules.late_frac:.10g}) * {weight}"
    return f"clamp({moved}, {rules.least_margin:.10g}, {rules.most_margin:.10g}) or {before}"


def _held(hpa: HpaPolicy, forecast: str) -> str:
    highest = f"max_over_time({forecast}[{_window(max(SYNC_S, hpa.down_stabilization_s))}])"
    replicas = f"clamp_min(ceil({highest} / {hpa.target_frac:.10g} - {ROUNDING:.10g}), {hpa.min_replicas})"
    if hpa.max_replicas < NO_LIMIT:
        replicas = f"clamp_max({replicas}, {hpa.max_replicas})"
    return f"{replicas} * {hpa.target_frac:.10g}"


def _wanted(rules: ForecastRules, slow: str, fast: str, spread: str, margin: str) -> str:
    known = f"({margin} * ({spread} or (0 * {slow} + {rules.least_spread_frac:.10g})))"
    return _larger(f"{slow} * (1 + {known})", f"{fast} * (1 + {rules.fast_margin_frac:.10g} * {known})")
