"""PromQL: as much of it as recording rules and autoscalers' queries ask for, over series with labels. The rest is refused.

Written from prometheus.io/docs/prometheus/latest/querying (basics, operators, functions). Vectors are matched by their labels,
one to one; `or` adds what its left side lacks, `and` and `unless` keep or drop what its right side has; a comparison keeps its
left side where it holds, or with `bool` says 1 or 0; `deriv` is the slope of simple linear regression; `irate` and `idelta`
take the last two samples of their range. A range is open at its old end, as in Prometheus 3.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchmarks.proving.world.samples import Floats, Labels, Series, Store

Vector = dict[Labels, float]
Value = Vector | float


class NotUnderstood(Exception):
    """An expression beyond what this reads."""


class Moment(NamedTuple):
    """When, and over which series, something is evaluated: anew for each rule of a group."""

    store: Store
    at_s: float
    group: object = None
    """The same for all rules of a group at one evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What expressions that are evaluated together share."""

    records: frozenset[str] = frozenset()
    """The series that they record: what does not read these has one value for all of them."""
    reach_s: dict[str, float] = field(default_factory=dict)
    """How far back they look at each series, by name."""
    known: dict[str, Expression] = field(default_factory=dict)
    """Every part of them, by its text."""


class Expression:
    """What an expression's text says; its value is worked out once a moment, however often the text repeats it.

    Where it is `shared` it is worked out once for a whole group of rules.
    """

    def __init__(self, text: str, value: Callable[[Moment], Value], *, shared: bool) -> None:
        """Take the text, for messages, and how to work its value out."""
        self.text = text
        self._work_out = value
        self._shared = shared
        self._asked: object = None
        self._value: Value = math.nan

    def value(self, moment: Moment) -> Value:
        """Return a number or a vector."""
        asked = moment.group if self._shared and moment.group is not None else moment
        if asked is not self._asked:
            self._value, self._asked = self._work_out(moment), asked
        return self._value

    def vector(self, moment: Moment) -> Vector:
        """Return a vector; raises NotUnderstood where the expression is a number."""
        value = self.value(moment)
        if isinstance(value, float):
            raise NotUnderstood(f"a number where a vector was expected: {self.text}")
        return value

    def number(self, moment: Moment) -> float:
        """Return a number; raises NotUnderstood where the expression is a vector."""
        value = self.value(moment)
        if not isinstance(value, float):
            raise NotUnderstood(f"a vector where a number was expected: {self.text}")
        return value


def parse(text: str, scope: Scope | None = None) -> Expression:
    """Return an expression, noted in its scope; raises NotUnderstood, with the function or the sign that is not known."""
    reader = _Reader(text, scope or Scope())
    found = reader.binary(0)
    if reader.peek():
        raise NotUnderstood(f"{' '.join(reader.texts[reader.at : reader.at + 4])!r} after the end of an expression")
    return found


def evaluate(text: str, store: Store, at_s: float) -> Value:
    """Return an expression's value at a moment."""
    return parse(text).value(Moment(store, at_s))


_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<duration>(?:[0-9]+(?:ms|[smhdwy]))+)(?![a-zA-Z0-9_])
    |(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![a-zA-Z0-9_])
    |(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    |(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^(),<>={}\[\]])
    )""",
    re.VERBOSE,
)
_LEVELS = (("or",), ("and", "unless"), ("==", "!=", ">=", "<=", ">", "<"), ("+", "-"), ("*", "/", "%"))
"""Operators from the weakest to the strongest; `^` binds more than a sign, and to the right."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_SETS = frozenset({"or", "and", "unless"})


class _Matching(NamedTuple):
    """How the two sides of an operator find each other: by these labels alone, or by all but these."""

    only: bool
    labels: frozenset[str]

    def key(self, labels: Labels) -> Labels:
        if not self.only and not self.labels:
            return labels
        return tuple(pair for pair in labels if (pair[0] in self.labels) is self.only)


class _Reader:
    """Reads an expression from left to right; equal parts of its text become one expression."""

    def __init__(self, text: str, scope: Scope) -> None:
        self.scope = scope
        self.kinds: list[str] = []
        self.texts: list[str] = []
        self.at = place = 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None:
                raise NotUnderstood(repr(text[place : place + 40]))
            kind = found.lastgroup or ""
            self.kinds.append(kind)
            self.texts.append(found[kind])
            place = found.end()

    def peek(self) -> str:
        """Return the next word; empty at the end."""
        return self.texts[self.at] if self.at < len(self.texts) else ""

    def take(self, wanted: str = "") -> str:
        """Return the next word and pass it."""
        text = self.peek()
        if not text or (wanted and text != wanted):
            raise NotUnderstood(f"{text!r} where {wanted or 'more'!r} was expected")
        self.at += 1
        return text

    def kind(self) -> str:
        """Return the next word's kind."""
        return self.kinds[self.at] if self.at < len(self.kinds) else ""

    def _made(self, begin: int, value: Callable[[Moment], Value]) -> Expression:
        words = self.texts[begin : self.at]
        text, shared = " ".join(words), self.scope.records.isdisjoint(words)
        return self.scope.known.setdefault(text, Expression(text, value, shared=shared))

    def binary(self, level: int) -> Expression:
        """Read operators of a level and of those that bind more."""
        if level == len(_LEVELS):
            return self._signed()
        begin, left = self.at, self.binary(level + 1)
        while self.peek() in _LEVELS[level]:
            sign = self.take()
            says = self.peek() == "bool"
            if says:
                self.take()
            matching = self._matching()
            left = self._made(begin, _operation(sign, left, self.binary(level + 1), matching, says=says))
        return left

    def _matching(self) -> _Matching:
        if self.peek() not in {"on", "ignoring"}:
            return _Matching(False, frozenset())
        only = self.take() == "on"
        labels = frozenset(self._names())
        if self.peek() in {"group_left", "group_right"}:
            raise NotUnderstood(self.peek())
        return _Matching(only, labels)

    def _names(self) -> Iterator[str]:
        self.take("(")
        while self.peek() != ")":
            yield self.take()
            if self.peek() == ",":
                self.take()
        self.take(")")

    def _signed(self) -> Expression:
        begin = self.at
        if self.peek() not in {"-", "+"}:
            return self._power()
        sign, inner = self.take(), self._signed()
        return inner if sign == "+" else self._made(begin, lambda moment: _each(inner.value(moment), operator.neg))

    def _power(self) -> Expression:
        begin, base = self.at, self._part()
        if self.peek() != "^":
            return base
        self.take()
        return self._made(begin, _operation("^", base, self._signed(), _Matching(False, frozenset()), says=False))

    def _part(self) -> Expression:
        begin, kind, text = self.at, self.kind(), self.take()
        if text == "(":
            inner = self.binary(0)
            self.take(")")
            return inner
        if kind == "number":
            return self._made(begin, lambda _: float(text))
        if kind != "name":
            raise NotUnderstood(repr(text))
        if text.lower() in {"inf", "nan"}:
            return self._made(begin, lambda _: float(text))
        if text in _AGGREGATES and self.peek() in {"by", "("}:
            return self._aggregate(begin, _AGGREGATES[text])
        if self.peek() == "(":
            return self._function(begin, text)
        return self._instant(begin, text)

    def _instant(self, begin: int, name: str) -> Expression:
        chosen = self._selected(name)
        if self.peek() == "[":
            raise NotUnderstood(f"a range of {name} outside a function")
        offset_s = self._offset_s()
        self._reaches(name, offset_s)

        def value(moment: Moment) -> Value:
            at_s, lookback_s = moment.at_s - offset_s, moment.store.lookback_s
            found = ((labels, series.last(at_s, lookback_s)) for labels, series in chosen(moment.store))
            return {labels: last for labels, last in found if last is not None}

        return self._made(begin, value)

    def _reaches(self, name: str, back_s: float) -> None:
        self.scope.reach_s[name] = max(self.scope.reach_s.get(name, 0.0), back_s)

    def _selected(self, name: str) -> Callable[[Store], Iterator[tuple[Labels, Series]]]:
        """Read a selector's labels; return what finds its series."""
        wanted: list[Callable[[Mapping[str, str]], bool]] = []
        if self.peek() == "{":
            self.take()
            while self.peek() != "}":
                wanted.append(_matcher(self.take(), self.take(), _unquoted(self.take())))
                if self.peek() == ",":
                    self.take()
            self.take("}")
        # which series a selector means does not change; looking at their labels once is enough
        fits: dict[Labels, bool] = {}

        def chosen(store: Store) -> Iterator[tuple[Labels, Series]]:
            for labels, series in store.named(name):
                if labels not in fits:
                    pairs = dict(labels)
                    fits[labels] = all(fitting(pairs) for fitting in wanted)
                if fits[labels]:
                    yield labels, series

        return chosen

    def _offset_s(self) -> float:
        if self.peek() != "offset":
            return 0.0
        self.take()
        return self._duration_s()

    def _duration_s(self) -> float:
        if self.kind() != "duration":
            raise NotUnderstood(f"{self.peek()!r} where a duration was expected")
        parts = re.findall(r"([0-9]+)(ms|[smhdwy])", self.take())
        return sum(int(number) * _SECONDS[unit] for number, unit in parts)

    def _function(self, begin: int, name: str) -> Expression:
        self.take("(")
        if name in _OVER_RANGE:
            return self._over_range(begin, _OVER_RANGE[name])
        if name not in _FUNCTIONS:
            raise NotUnderstood(f"the function {name}")
        arguments = []
        while self.peek() != ")":
            arguments.append(self.binary(0))
            if self.peek() == ",":
                self.take()
        self.take(")")
        count, function = _FUNCTIONS[name]
        if len(arguments) != count:
            raise NotUnderstood(f"{name} of {len(arguments)} arguments")
        return self._made(begin, lambda moment: function(arguments, moment))

    def _over_range(self, begin: int, function: Callable[[Floats, Floats], float | None]) -> Expression:
        if self.kind() != "name":
            raise NotUnderstood(f"a range of {self.peek()!r}, which is no series")
        name = self.take()
        chosen = self._selected(name)
        self.take("[")
        length_s = self._duration_s()
        self.take("]")
        offset_s = self._offset_s()
        self.take(")")
        self._reaches(name, length_s + offset_s)

        def value(moment: Moment) -> Value:
            to_s = moment.at_s - offset_s
            found: Vector = {}
            for labels, series in chosen(moment.store):
                if series.newest_s <= to_s - length_s:
                    continue
                at_s, values = series.within(to_s - length_s, to_s)
                result = function(at_s, values) if len(values) else None
                if result is not None:
                    found[labels] = result
            return found

        return self._made(begin, value)

    def _aggregate(self, begin: int, function: Callable[[list[float]], float]) -> Expression:
        by = frozenset(self._by())
        self.take("(")
        inner = self.binary(0)
        self.take(")")
        by |= frozenset(self._by())

        def value(moment: Moment) -> Value:
            groups: dict[Labels, list[float]] = {}
            for labels, one in inner.vector(moment).items():
                groups.setdefault(tuple(pair for pair in labels if pair[0] in by), []).append(one)
            return {labels: function(values) for labels, values in groups.items()}

        return self._made(begin, value)

    def _by(self) -> Iterator[str]:
        if self.peek() == "by":
            self.take()
            yield from self._names()


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def _matcher(label: str, sign: str, value: str) -> Callable[[Mapping[str, str]], bool]:
    """Return what tells whether labels fit: an absent label is an empty one, a pattern is anchored at both ends."""
    if label == "__name__":
        raise NotUnderstood("a selector by the label __name__")
    if sign in {"=", "!="}:
        return lambda labels: (labels.get(label, "") == value) is (sign == "=")
    if sign not in {"=~", "!~"}:
        raise NotUnderstood(repr(sign))
    pattern = re.compile(value)
    return lambda labels: (pattern.fullmatch(labels.get(label, "")) is not None) is (sign == "=~")


def _each(value: Value, function: Callable[[float], float]) -> Value:
    if isinstance(value, float):
        return function(value)
    return {labels: function(one) for labels, one in value.items()}


def _operation(
    sign: str, left: Expression, right: Expression, matching: _Matching, *, says: bool
) -> Callable[[Moment], Value]:
    if sign in _SETS:
        return lambda moment: _of_sets(sign, left.vector(moment), right.vector(moment), matching)
    if sign in _COMPARED:
        return _comparison(_COMPARED[sign], left, right, matching, says=says)
    if says:
        raise NotUnderstood(f"bool after {sign}")
    calculate = _CALCULATED[sign]

    def value(moment: Moment) -> Value:
        one, other = left.value(moment), right.value(moment)
        if isinstance(one, float):
            return _each(other, lambda each: calculate(one, each))
        if isinstance(other, float):
            return _each(one, lambda each: calculate(each, other))
        return {labels: calculate(a, b) for labels, a, b in _pairs(one, other, matching)}

    return value


def _comparison(
    holds: Callable[[float, float], bool], left: Expression, right: Expression, matching: _Matching, *, says: bool
) -> Callable[[Moment], Value]:
    def value(moment: Moment) -> Value:
        one, other = left.value(moment), right.value(moment)
        if isinstance(one, float) and isinstance(other, float):
            if not says:
                raise NotUnderstood(f"two numbers compared without bool: {left.text}")
            return float(holds(one, other))
        # what is kept is the vector's value, on whichever side it stands
        if isinstance(one, float):
            found = [(labels, each, holds(one, each)) for labels, each in _vector(other).items()]
        elif isinstance(other, float):
            found = [(labels, each, holds(each, other)) for labels, each in one.items()]
        else:
            found = [(labels, a, holds(a, b)) for labels, a, b in _pairs(one, other, matching)]
        return {labels: float(held) if says else each for labels, each, held in found if says or held}

    return value


def _vector(value: Value) -> Vector:
    if isinstance(value, float):
        raise NotUnderstood("a number where a vector was expected")
    return value


def _pairs(one: Vector, other: Vector, matching: _Matching) -> Iterator[tuple[Labels, float, float]]:
    """Yield the elements that match, under the labels by which they do."""
    sides: list[dict[Labels, float]] = []
    for side in (one, other):
        keyed: dict[Labels, float] = {}
        for labels, value in side.items():
            key = matching.key(labels)
            if key in keyed:
                raise NotUnderstood(f"several elements that match by {dict(key)}")
            keyed[key] = value
        sides.append(keyed)
    left, right = sides
    for key, value in left.items():
        if key in right:
            yield key, value, right[key]


def _of_sets(sign: str, left: Vector, right: Vector, matching: _Matching) -> Vector:
    if sign == "or":
        there = {matching.key(labels) for labels in left}
        return left | {labels: value for labels, value in right.items() if matching.key(labels) not in there}
    there = {matching.key(labels) for labels in right}
    return {labels: value for labels, value in left.items() if (matching.key(labels) in there) is (sign == "and")}


def _quotient(one: float, other: float) -> float:
    """Divide as floating-point numbers are divided: by zero too."""
    if other:
        return one / other
    return math.nan if not one or math.isnan(one) else math.copysign(math.inf, one) * math.copysign(1.0, other)


def _power(one: float, other: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float64(one) ** np.float64(other))


def _remainder(one: float, other: float) -> float:
    return math.fmod(one, other) if other and math.isfinite(one) else math.nan


_CALCULATED: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient, "%": _remainder, "^": _power,
}  # fmt: skip


def _at_least(value: float, least: float) -> float:
    # written so that what is no number stays none
    return least if value < least else value


def _at_most(value: float, most: float) -> float:
    return most if value > most else value


def _clamp(arguments: list[Expression], moment: Moment) -> Value:
    least, most = arguments[1].number(moment), arguments[2].number(moment)
    if least > most:
        return {}
    return _each(arguments[0].vector(moment), lambda each: _at_least(_at_most(each, most), least))


def _bounded(bound: Callable[[float, float], float]) -> Callable[[list[Expression], Moment], Value]:
    def value(arguments: list[Expression], moment: Moment) -> Value:
        limit = arguments[1].number(moment)
        return _each(arguments[0].vector(moment), lambda each: bound(each, limit))

    return value


def _of_each(function: Callable[[float], float]) -> Callable[[list[Expression], Moment], Value]:
    return lambda arguments, moment: _each(arguments[0].vector(moment), function)


def _root(value: float) -> float:
    return math.nan if value < 0 else math.sqrt(value)


def _ceiling(value: float) -> float:
    return float(math.ceil(value)) if math.isfinite(value) else value


_FUNCTIONS: Mapping[str, tuple[int, Callable[[list[Expression], Moment], Value]]] = {
    "clamp": (3, _clamp),
    "clamp_min": (2, _bounded(_at_least)),
    "clamp_max": (2, _bounded(_at_most)),
    "sqrt": (1, _of_each(_root)),
    "ceil": (1, _of_each(_ceiling)),
    "vector": (1, lambda arguments, moment: {(): arguments[0].number(moment)}),
}
"""Name -> number of arguments, and its value."""


def _slope(at_s: Floats, values: Floats) -> float | None:
    """Return the slope of simple linear regression; None where there are fewer than two samples."""
    if len(values) < 2:
        return None
    # from the first sample on, so that the sums stay small
    x, y = at_s - at_s[0], values - values[0]
    x = x - x.mean()
    return float((x @ y) / (x @ x))


def _last_rise(at_s: Floats, values: Floats) -> float | None:
    """Return the rate of a counter between its last two samples: after a reset it counts from zero."""
    if len(values) < 2:
        return None
    rise = values[-1] if values[-1] < values[-2] else values[-1] - values[-2]
    return float(rise / (at_s[-1] - at_s[-2]))


_OVER_RANGE: Mapping[str, Callable[[Floats, Floats], float | None]] = {
    "avg_over_time": lambda _, values: float(values.mean()),
    "max_over_time": lambda _, values: float(np.fmax.reduce(values)),
    "min_over_time": lambda _, values: float(np.fmin.reduce(values)),
    "last_over_time": lambda _, values: float(values[-1]),
    "deriv": _slope,
    "irate": _last_rise,
    "idelta": lambda _, values: float(values[-1] - values[-2]) if len(values) > 1 else None,
}
_AGGREGATES: Mapping[str, Callable[[list[float]], float]] = {
    "sum": lambda values: float(sum(values)),
    "max": lambda values: float(np.fmax.reduce(values)),
    "min": lambda values: float(np.fmin.reduce(values)),
    "avg": lambda values: sum(values) / len(values),
    "count": lambda values: float(len(values)),
}
