"""Recording rules over a regular grid of samples: as much of PromQL as rules about one series need.

Written from prometheus.io/docs/prometheus/latest/querying (operators, functions): a range selector takes the samples younger
than its length, `deriv` is the slope of simple linear regression, a comparison keeps its left side where it holds, `or` fills
what is absent, `and` keeps the left side where the right one is there. Absent is NaN. Labels are ignored: there is one series.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from benchmarks.proving.world.clock import TICK_S

Floats = npt.NDArray[np.float64]
_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?![a-z0-9])|(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?P<labels>\{[^}]*\})?"
    r"|(?P<range>\[[0-9]+s\])|(?P<seconds>[0-9]+)s|(?P<sign>>=|<=|>|<|[-+*/^(),]))"
)
_LEVELS = (("or",), ("and",), (">=", "<=", ">", "<"), ("+", "-"), ("*", "/"), ("^",))
_OVER_TIME = frozenset({"avg_over_time", "max_over_time", "deriv"})


class NotUnderstood(Exception):
    """An expression beyond what this reads."""


def evaluate(expression: str, series: Mapping[str, Floats]) -> Floats:
    """Return an expression's value at each sample of the series it names (n,); raises NotUnderstood."""
    return _Reader(expression, series).whole()


class _Reader:
    def __init__(self, expression: str, series: Mapping[str, Floats]) -> None:
        self.series = series
        self.length = len(next(iter(series.values())))
        self.tokens: list[tuple[str, str]] = []
        at, text = 0, " ".join(expression.split())
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise NotUnderstood(text[at : at + 40])
            kind = next(name for name in ("number", "name", "range", "seconds", "sign") if found[name] is not None)
            self.tokens.append((kind, found[kind]))
            at = found.end()
        self.at = 0

    def whole(self) -> Floats:
        value = self._level(0)
        if self.at < len(self.tokens):
            raise NotUnderstood(str(self.tokens[self.at : self.at + 4]))
        return value

    def _peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def _take(self, wanted: str = "") -> str:
        text = self._peek()
        if not text or (wanted and text != wanted):
            raise NotUnderstood(f"{text!r} where {wanted or 'more'} was expected")
        self.at += 1
        return text

    def _level(self, level: int) -> Floats:
        if level == len(_LEVELS):
            return self._value()
        left = self._level(level + 1)
        while self._peek() in _LEVELS[level]:
            sign = self._take()
            left = _joined(sign, left, self._level(level + 1))
        return left

    def _value(self) -> Floats:
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if text == "(":
            self._take()
            value = self._level(0)
            self._take(")")
            return self._offset(value)
        self._take()
        if kind == "number":
            return np.full(self.length, float(text))
        if text in _OVER_TIME:
            return self._over_time(text)
        if text in {"clamp_min", "clamp_max", "clamp", "sqrt"}:
            return self._function(text)
        if kind != "name" or text not in self.series:
            raise NotUnderstood(text)
        return self._offset(self.series[text])

    def _offset(self, value: Floats) -> Floats:
        if self._peek() != "offset":
            return value
        self._take()
        back = round(float(self._take()) / TICK_S)
        moved = np.full(self.length, np.nan)
        moved[back:] = value[: self.length - back] if back else value
        return moved

    def _over_time(self, name: str) -> Floats:
        self._take("(")
        chosen = self._take()
        if chosen not in self.series:
            raise NotUnderstood(chosen)
        samples = int(self._take()[1:-2]) // TICK_S + 1
        value = self._offset(self.series[chosen])
        self._take(")")
        return self._offset(_rolled(name, value, samples))

    def _function(self, name: str) -> Floats:
        self._take("(")
        value = self._level(0)
        bounds = []
        while self._peek() == ",":
            self._take()
            bounds.append(self._level(0))
        self._take(")")
        match name:
            case "sqrt":
                return np.sqrt(value)
            case "clamp_min":
                return np.maximum(value, bounds[0])
            case "clamp_max":
                return np.minimum(value, bounds[0])
            case _:
                return np.minimum(np.maximum(value, bounds[0]), bounds[1])


def _joined(sign: str, left: Floats, right: Floats) -> Floats:
    with np.errstate(all="ignore"):
        match sign:
            case "or":
                return np.where(np.isnan(left), right, left)
            case "and":
                return np.where(np.isnan(right), np.nan, left)
            case ">=":
                return np.where(left >= right, left, np.nan)
            case "<=":
                return np.where(left <= right, left, np.nan)
            case ">":
                return np.where(left > right, left, np.nan)
            case "<":
                return np.where(left < right, left, np.nan)
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "/":
                return left / right
            case _:
                return np.asarray(left**right)


def _rolled(name: str, value: Floats, samples: int) -> Floats:
    """Apply a function to the last `samples` values at each place, of which absent ones are left out."""
    if name == "max_over_time":
        padded = np.concatenate([np.full(samples - 1, -np.inf), np.where(np.isnan(value), -np.inf, value)])
        highest = np.lib.stride_tricks.sliding_window_view(padded, samples).max(axis=1)
        return np.where(np.isinf(highest), np.nan, highest)
    there = ~np.isnan(value)
    y = np.where(there, value, 0.0)
    x: Floats = np.arange(len(value)).astype(np.float64) * TICK_S * there
    n, sum_y = _last(there.astype(np.float64), samples), _last(y, samples)
    with np.errstate(all="ignore"):
        if name == "avg_over_time":
            return np.where(n > 0, sum_y / n, np.nan)
        sum_x = _last(x, samples)
        spread = _last(np.asarray(x * x), samples) - sum_x * sum_x / n
        slope = (_last(np.asarray(x * y), samples) - sum_x * sum_y / n) / spread
        return np.where(n > 1, slope, np.nan)


def _last(values: Floats, samples: int) -> Floats:
    total = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    return np.asarray(total[ends] - total[np.maximum(ends - samples, 0)])
