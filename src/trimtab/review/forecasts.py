"""A chain of recording rules that forecasts load, read back into the policy that it is: exactly this form, or nothing.

The form is that of the rule which `trimtab.policies.forecast` replays: two lines read one
cold start ahead, floors, the squared share by which load outgrew its forecast, a margin that learns. Each rule is matched
whole, and every number in it is read, so that a chain that differs anywhere is refused and not guessed at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.policies.forecast import (
    ERROR_FLOOR_FRAC,
    ERROR_FLOOR_S,
    ERROR_LEVEL_S,
    ERROR_MOST_FRAC,
    USUAL_LOAD_S,
    ForecastRules,
)
from trimtab.policies.scaling import NO_LIMIT, ROUNDING, SYNC_S
from trimtab.units import S_PER_DAY

WANTED = "trimtab:load_wanted"
"""The last series of the chain, which an autoscaler follows."""
LOAD = "trimtab:load_replicas"
"""The load that it forecasts, in replicas."""
_DEMAND = "trimtab:demand_replicas"
_FIELD = re.compile(r"<(\w+)>")
_DIGITS = 9
"""Rules are written with ten digits; a number that went through a product is right to nine."""


def _larger(one: str, other: str) -> str:
    return f"(({one}) >= ({other})) or ({other}) or ({one})"


def _line(name: str) -> str:
    level = f"avg_over_time(LOAD[<{name}_level>s])"
    return f"{level} + <{name}_reach> * clamp_min((deriv(LOAD[<{name}_slope>s]) or 0 * {level}), 0)"


def _now(series: str) -> str:
    return f"last_over_time({series}[{SYNC_S - 1}s])"


_SLOW, _FAST, _STEADY = ("trimtab:" + name + "LABELS" for name in ("forecast_slow", "forecast_fast", "demand_steady"))
_ERROR, _SPREAD, _MARGIN, _FORECAST, _HELD = (
    "trimtab:" + name + "LABELS"
    for name in ("forecast_error_squared", "forecast_spread", "forecast_margin", "load_forecast", "load_held")
)
_FLOOR = f"{ERROR_FLOOR_FRAC:.10g} * max_over_time({_STEADY}[{ERROR_FLOOR_S - 1}s])"
_EARLIER = f"{_SLOW} offset <lead>s"
_EXPECTED = f"(({_EARLIER}) >= ({_FLOOR})) or (({_FLOOR}) and ({_EARLIER}))"
_BEFORE = f"(last_over_time({_MARGIN}[1h]) or (0 * {_SLOW} + <first_margin>))"
_LATE = f"(({_now('LOAD')} > bool min_over_time({_HELD}[<held_over>s] offset {SYNC_S}s)) or 0 * {_now('LOAD')})"
_WEIGHT = f"({_now('LOAD')} / (avg_over_time(LOAD[{USUAL_LOAD_S - 1}s]) > 0))"
_HEADROOM = f"({_MARGIN} * ({_SPREAD} or (0 * {_SLOW} + <least_spread>)))"
_REPLICAS = f"clamp_min(ceil(max_over_time({_FORECAST}[<held_for>s]) / <target> - {ROUNDING:.10g}), <least>)"
_FORMS: Mapping[str, tuple[str, ...]] = {
    _STEADY: ("avg_over_time(LOAD[<hold_level>s])",),
    _FAST: (_line("fast"),),
    _SLOW: (
        _larger(
            _larger(_line("slow"), f"<hold_frac> * max_over_time({_STEADY}[<hold>s])"),
            "<yesterday_frac> * avg_over_time(LOAD[<yesterday_level>s] offset <back>s)",
        ),
    ),
    _ERROR: (f"clamp(avg_over_time(LOAD[{ERROR_LEVEL_S - 1}s]) / ({_EXPECTED}) - 1, 0, {ERROR_MOST_FRAC:.10g}) ^ 2",),
    _SPREAD: (
        "sqrt(clamp_min("
        + _larger(f"2 * avg_over_time({_ERROR}[<recent>s])", f"<settled_factor> * avg_over_time({_ERROR}[<settled>s])")
        + ", <least_square>))",
    ),
    _MARGIN: (
        f"clamp({_BEFORE} + <rate> * ({_LATE} - <late_frac>) * {_WEIGHT}, <least_margin>, <most_margin>) or {_BEFORE}",
    ),
    _FORECAST: (
        _larger(
            _larger(f"{_SLOW} * (1 + {_HEADROOM})", f"{_FAST} * (1 + <fast_margin_frac> * {_HEADROOM})"), _now("LOAD")
        ),
    ),
    _HELD: (f"clamp_max({_REPLICAS}, <most>) * <target>", f"{_REPLICAS} * <target>"),
    f"{WANTED}LABELS": (_larger(_FORECAST, _now("DEMAND")),),
}
"""Each rule's form: LOAD, DEMAND and LABELS stand for selectors, `<name>` for a number that is the same wherever it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a chain of rules forecasts with, and the autoscaler that it counts on."""

    rules: ForecastRules
    target_frac: float
    min_replicas: int
    max_replicas: int
    held_for_s: int
    """Over which the highest forecast counts: its scale-down's stabilization."""


def read_forecast(records: Mapping[str, str], labels: str) -> Forecast | None:
    """Return what rules (record -> expression, those of one selector) forecast; None where any departs from the form.

    `labels` is the selector, braces and all, of the series that the rules record and read.
    """
    numbers: dict[str, float] = {}
    for series, forms in _FORMS.items():
        found = _first_match(forms, records.get(series.removesuffix("LABELS"), ""), labels)
        if found is None or any(numbers.get(name, value) != value for name, value in found.items()):
            return None
        numbers |= found
    return _forecast(numbers)


def _first_match(forms: tuple[str, ...], expression: str, labels: str) -> dict[str, float] | None:
    for form in forms:
        found = _pattern(form, labels).fullmatch(expression)
        if found is not None:
            return {name: float(value) for name, value in found.groupdict().items()}
    return None


def _pattern(form: str, labels: str) -> re.Pattern[str]:
    """Return a pattern that takes every place of one name to hold one number."""
    seen: set[str] = set()

    def number(place: re.Match[str]) -> str:
        known = place[1] in seen
        seen.add(place[1])
        return f"(?P={place[1]})" if known else rf"(?P<{place[1]}>\d+(?:\.\d+)?(?:e[+-]\d+)?)"

    for name, series in (("LOAD", LOAD), ("DEMAND", _DEMAND), ("LABELS", "")):
        form = form.replace(name, f"{series}{labels}" if name == "LABELS" else f"{series}LABELS")
    return re.compile(_FIELD.sub(number, re.escape(form).replace(r"\<", "<").replace(r"\>", ">")))


def _forecast(seen: Mapping[str, float]) -> Forecast | None:
    """Return the policy of the numbers; None where those that follow from others do not."""
    window = {
        name: int(seen[name]) + 1
        for name in (
            "slow_level", "slow_slope", "fast_level", "fast_slope", "hold_level", "hold", "yesterday_level", "recent",
            "settled", "held_over", "held_for",
        )
    }  # fmt: skip
    lead_s = int(seen["lead"])
    rules = ForecastRules(
        lead_s=lead_s,
        late_frac=seen["late_frac"],
        first_margin=seen["first_margin"],
        least_margin=seen["least_margin"],
        most_margin=seen["most_margin"],
        relax_per_day=_near(seen["rate"] * seen["late_frac"] * S_PER_DAY / SYNC_S),
        fast_margin_frac=seen["fast_margin_frac"],
        slow_level_s=window["slow_level"],
        slow_slope_s=window["slow_slope"],
        slow_gain=_near(seen["slow_reach"] / (lead_s + window["slow_level"] / 2)),
        fast_level_s=window["fast_level"],
        fast_slope_s=window["fast_slope"],
        fast_gain=_near(seen["fast_reach"] / (lead_s + window["fast_level"] / 2)),
        recent_s=window["recent"],
        settled_s=window["settled"],
        settled_weight=_near(math.sqrt(seen["settled_factor"] / 2)),
        least_spread_frac=seen["least_spread"],
        hold_level_s=window["hold_level"],
        hold_s=window["hold"],
        hold_frac=seen["hold_frac"],
        yesterday_level_s=window["yesterday_level"],
        yesterday_frac=seen["yesterday_frac"],
    )
    agree = (
        seen["back"] == S_PER_DAY - lead_s
        and window["held_over"] == -(-lead_s // SYNC_S) * SYNC_S
        and math.isclose(seen["least_square"], rules.least_spread_frac**2, rel_tol=1e-8)
    )
    if not agree:
        return None
    return Forecast(
        rules=rules,
        target_frac=seen["target"],
        min_replicas=int(seen["least"]),
        max_replicas=int(seen.get("most", NO_LIMIT)),
        held_for_s=window["held_for"],
    )


def _near(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
