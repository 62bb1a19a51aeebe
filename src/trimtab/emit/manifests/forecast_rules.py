"""Our forecasting scaling rule as Prometheus recording rules: written from a policy, and read back into the policy that it is.

Rule by rule this is what `trimtab.replay.recorded` evaluates over history: two lines read one cold start ahead, floors from the
last minutes and from yesterday, the squared share by which demand outgrew the forecast, the load that the autoscaler provided
for, the margin that learns from what came above it (a rule that reads what it recorded the time before; after a gap of an hour
it restarts), and the load to have replicas for. Where demand asks for more than all that, its queue included, demand is
what is followed, as by a plain autoscaler. An external metric with an average value of the target load makes an HPA follow
it. Windows are written a second short: Prometheus 2 counts a sample at their oldest moment and Prometheus 3 does not, and 8
minutes shall hold 32 of 15 s.

`_FORMS` is the one statement of the rules. Reading matches each of them whole and takes every number in it, so that a chain
that differs anywhere is refused and not guessed at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from trimtab.emit.manifests.demand_rules import DEMAND, LOAD, LOAD_WANTED
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
from trimtab.policies.scaling import NO_LIMIT, ROUNDING, SYNC_S, HpaPolicy, Metric
from trimtab.units import S_PER_DAY

STEADY = "trimtab:demand_steady"
SLOW = "trimtab:forecast_slow"
FAST = "trimtab:forecast_fast"
ERROR_SQUARED = "trimtab:forecast_error_squared"
SPREAD = "trimtab:forecast_spread"
HELD = "trimtab:load_held"
MARGIN = "trimtab:forecast_margin"
LOAD_FORECAST = "trimtab:load_forecast"
_DIGITS = 10
_SAME_FRAC = 1e-8
"""A number of ten digits that went through a product is right to nine."""


def _larger(one: str, other: str) -> str:
    """Return PromQL of the larger of two series with the same labels, or of the one that is there."""
    return f"(({one}) >= ({other})) or ({other}) or ({one})"


def _line(name: str) -> str:
    """Return PromQL of the line through the recent load, read one cold start ahead; only a rising slope counts."""
    level = f"avg_over_time(LOAD[<{name}_level>s])"
    return f"{level} + <{name}_reach> * clamp_min((deriv(LOAD[<{name}_slope>s]) or 0 * {level}), 0)"


def _now(series: str) -> str:
    """Return PromQL of the present sample alone: an older one says nothing of this step."""
    return f"last_over_time({series}[{SYNC_S - 1}s])"


_STEADY, _SLOW, _ERROR, _MARGIN, _FORECAST = (
    f"{name}LABELS" for name in (STEADY, SLOW, ERROR_SQUARED, MARGIN, LOAD_FORECAST)
)
_FLOOR = f"{ERROR_FLOOR_FRAC:.10g} * max_over_time({_STEADY}[{ERROR_FLOOR_S - 1}s])"
_EARLIER = f"{_SLOW} offset <lead>s"
_EXPECTED = f"(({_EARLIER}) >= ({_FLOOR})) or (({_FLOOR}) and ({_EARLIER}))"
_BEFORE = f"(last_over_time({_MARGIN}[1h]) or (0 * {_SLOW} + <first_margin>))"
_PROVIDED = f"min_over_time({HELD}LABELS[<held_over>s] offset {SYNC_S}s)"
_LATE = f"(({_now('LOAD')} > bool {_PROVIDED}) or 0 * {_now('LOAD')})"
_WEIGHT = f"({_now('LOAD')} / (avg_over_time(LOAD[{USUAL_LOAD_S - 1}s]) > 0))"
_HEADROOM = f"({_MARGIN} * ({SPREAD}LABELS or (0 * {_SLOW} + <least_spread>)))"
_REPLICAS = f"clamp_min(ceil(max_over_time({_FORECAST}[<held_for>s]) / <target> - {ROUNDING:.10g}), <least>)"
_UNLIMITED = f"{_REPLICAS} * <target>"
"""The form of HELD where the autoscaler has no highest count."""
_FORMS: Mapping[str, str] = {
    STEADY: "avg_over_time(LOAD[<hold_level>s])",
    FAST: _line("fast"),
    SLOW: _larger(
        _larger(_line("slow"), f"<hold_frac> * max_over_time({_STEADY}[<hold>s])"),
        "<yesterday_frac> * avg_over_time(LOAD[<yesterday_level>s] offset <back>s)",
    ),
    ERROR_SQUARED: (
        f"clamp(avg_over_time(LOAD[{ERROR_LEVEL_S - 1}s]) / ({_EXPECTED}) - 1, 0, {ERROR_MOST_FRAC:.10g}) ^ 2"
    ),
    SPREAD: "sqrt(clamp_min("
    + _larger(f"2 * avg_over_time({_ERROR}[<recent>s])", f"<settled_factor> * avg_over_time({_ERROR}[<settled>s])")
    + ", <least_square>))",
    MARGIN: (
        f"clamp({_BEFORE} + <rate> * ({_LATE} - <late_frac>) * {_WEIGHT}, <least_margin>, <most_margin>) or {_BEFORE}"
    ),
    LOAD_FORECAST: _larger(
        _larger(f"{_SLOW} * (1 + {_HEADROOM})", f"{FAST}LABELS * (1 + <fast_margin_frac> * {_HEADROOM})"), _now("LOAD")
    ),
    HELD: f"clamp_max({_REPLICAS}, <most>) * <target>",
    LOAD_WANTED: _larger(_FORECAST, _now("DEMAND")),
}
"""Each record's form, in the order in which one group must evaluate them. LOAD, DEMAND and LABELS stand for selectors, `<name>`
for a number that is the same wherever it stands."""
_PLACE = re.compile(r"<(\w+)>")
_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]\d+)?"


def forecast_records(policy: ForecastPolicy, load: str, demand: str, labels: str) -> dict[str, str]:
    """Return the rules as record -> expression, in the order in which one group must evaluate them.

    `load` selects the recorded load in replicas, one sample every 15 s, `demand` the same with the queue; `labels` is the
    selector, braces and all, of what is recorded here.
    """
    numbers = _numbers(policy)
    forms = {**_FORMS, **({} if "most" in numbers else {HELD: _UNLIMITED})}
    return {
        record: _PLACE.sub(lambda place: f"{numbers[place[1]]:.{_DIGITS}g}", _selected(form, load, demand, labels))
        for record, form in forms.items()
    }


def read_forecast(records: Mapping[str, str], labels: str) -> ForecastPolicy | None:
    """Return the policy that rules (record -> expression, those of one selector) are; None where any departs from the form.

    `labels` is the selector, braces and all, of the series that the rules record and read. Of its autoscaler the policy has
    what the rules rely on: target, least and most replicas, and the window of scale-down's stabilization.
    """
    numbers: dict[str, float] = {}
    for record, form in _FORMS.items():
        found = _matched(form, records.get(record, ""), labels)
        if found is None and record == HELD:
            found = _matched(_UNLIMITED, records.get(record, ""), labels)
        if found is None or any(numbers.get(name, value) != value for name, value in found.items()):
            return None
        numbers |= found
    policy = _policy(numbers)
    # some numbers follow from others: a chain in which they do not is none of ours
    agree = all(math.isclose(numbers[name], value, rel_tol=_SAME_FRAC) for name, value in _numbers(policy).items())
    return policy if agree else None


def _selected(form: str, load: str, demand: str, labels: str) -> str:
    return form.replace("LOAD", load).replace("DEMAND", demand).replace("LABELS", labels)


def _matched(form: str, expression: str, labels: str) -> dict[str, float] | None:
    """Return the numbers of an expression that has this form; None where it has another."""
    seen: set[str] = set()

    def number(place: re.Match[str]) -> str:
        known = place[1] in seen
        seen.add(place[1])
        return f"(?P={place[1]})" if known else rf"(?P<{place[1]}>{_NUMBER})"

    form = _selected(form, f"{LOAD}{labels}", f"{DEMAND}{labels}", labels)
    found = re.fullmatch(_PLACE.sub(number, re.escape(form)), expression)
    return None if found is None else {name: float(value) for name, value in found.groupdict().items()}


def _numbers(policy: ForecastPolicy) -> dict[str, float]:
    """Return what is filled into each place of the forms; `most` only where the autoscaler has a highest count."""
    rules, hpa = policy
    windows_s = {
        "slow_level": rules.slow_level_s,
        "slow_slope": rules.slow_slope_s,
        "fast_level": rules.fast_level_s,
        "fast_slope": rules.fast_slope_s,
        "hold_level": rules.hold_level_s,
        "hold": rules.hold_s,
        "yesterday_level": rules.yesterday_level_s,
        "recent": rules.recent_s,
        "settled": rules.settled_s,
        "held_over": -(-rules.lead_s // SYNC_S) * SYNC_S,
        "held_for": max(SYNC_S, hpa.down_stabilization_s),
    }
    return {
        **{name: window_s - 1 for name, window_s in windows_s.items()},
        "lead": rules.lead_s,
        "back": S_PER_DAY - rules.lead_s,
        "slow_reach": rules.slow_gain * (rules.lead_s + rules.slow_level_s / 2),
        "fast_reach": rules.fast_gain * (rules.lead_s + rules.fast_level_s / 2),
        "rate": learning_rate(rules, SYNC_S),
        "settled_factor": 2 * rules.settled_weight**2,
        "least_spread": rules.least_spread_frac,
        "least_square": rules.least_spread_frac**2,
        **{name: getattr(rules, name) for name in _AS_THEY_ARE},
        "target": hpa.target_frac,
        "least": hpa.min_replicas,
        **({"most": hpa.max_replicas} if hpa.max_replicas < NO_LIMIT else {}),
    }


_AS_THEY_ARE = (
    "late_frac", "first_margin", "least_margin", "most_margin", "fast_margin_frac", "hold_frac", "yesterday_frac",
)  # fmt: skip
"""Fields of the rules that the forms use under their own names."""


def _policy(seen: Mapping[str, float]) -> ForecastPolicy:
    """Return the policy in whose rules these numbers stand: the inverse of `_numbers`."""
    lead_s = int(seen["lead"])
    slow_level_s, fast_level_s = _window_s(seen["slow_level"]), _window_s(seen["fast_level"])
    rules = ForecastRules(
        lead_s=lead_s,
        relax_per_day=_near(seen["rate"] * seen["late_frac"] * S_PER_DAY / SYNC_S),
        slow_level_s=slow_level_s,
        slow_slope_s=_window_s(seen["slow_slope"]),
        slow_gain=_near(seen["slow_reach"] / (lead_s + slow_level_s / 2)),
        fast_level_s=fast_level_s,
        fast_slope_s=_window_s(seen["fast_slope"]),
        fast_gain=_near(seen["fast_reach"] / (lead_s + fast_level_s / 2)),
        recent_s=_window_s(seen["recent"]),
        settled_s=_window_s(seen["settled"]),
        settled_weight=_near(math.sqrt(seen["settled_factor"] / 2)),
        least_spread_frac=seen["least_spread"],
        hold_level_s=_window_s(seen["hold_level"]),
        hold_s=_window_s(seen["hold"]),
        yesterday_level_s=_window_s(seen["yesterday_level"]),
        **{name: seen[name] for name in _AS_THEY_ARE},
    )
    hpa = HpaPolicy(
        target_frac=seen["target"],
        min_replicas=int(seen["least"]),
        max_replicas=int(seen.get("most", NO_LIMIT)),
        metric=Metric.SIGNAL,
        down_stabilization_s=_window_s(seen["held_for"]),
    )
    return ForecastPolicy(rules=rules, hpa=hpa)


def _window_s(written_s: float) -> int:
    return int(written_s) + 1


def _near(value: float) -> float:
    return float(f"{value:.{_DIGITS - 1}g}")
