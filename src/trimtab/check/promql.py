"""PromQL: whether a query parses, which series it selects, and values that no series can have.

Parsed by promql-parser (MIT), which follows Prometheus' own grammar and types. What a dashboard leaves to Grafana
(`$__rate_interval`, `$datasource`) is filled in first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from trimtab.check.faults import nearest
from trimtab.check.schemas import NEEDS, rows
from trimtab.errors import UsageError

_VARIABLE = re.compile(r"\[\$__?[a-z_]+\]|\[\$\{__?[a-z_]+\}\]")
_PLAIN_VARIABLE = re.compile(r"\$__?[a-z_]+|\$\{[a-z_]+(:[a-z]+)?\}|\$[a-z_]+")
_UNITLESS = re.compile(r"\[\s*[0-9.]+\s*[\]:]")
_TIMES = re.compile(r"\[([^\]]*)\]|\boffset\s+-?\s*(\S+)")
"""A window with its step, or an offset."""
_NUMBER = re.compile(r"\s*([0-9][0-9.]*(?:[eE]\+?[0-9]+)?)")
_MOST_S = 2**63 / 1e9
"""Prometheus keeps times as nanoseconds in 64 bits: some 292 years."""
_STRINGS = re.compile(r'"[^"]*"|\'[^\']*\'')
_HISTOGRAM = ("_bucket", "_sum", "_count")
_BACK = frozenset({"rate", "irate", "increase", "delta", "idelta", "deriv", "changes", "resets", "predict_linear"})
"""Functions that need two samples in their window at least."""
_OF_SHARES = frozenset({"histogram_quantile", "quantile_over_time"})
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Series that a query selects: their name, labels that must equal or match, and over which window."""

    name: str
    equal: Mapping[str, str]
    matching: Mapping[str, str]
    range_s: float | None = None
    two_samples: bool = False
    """Whether what reads the window gives nothing for one sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query as it was read: what is wrong with it (empty: nothing), and what it selects."""

    wrong: str = ""
    cure: str = ""
    selectors: tuple[Selector, ...] = ()
    grouped: tuple[tuple[str, ...], ...] = ()
    """Labels that each of its aggregations is by."""


@cache
def read_query(text: str) -> Query:
    """Read a PromQL expression."""
    try:
        import promql_parser
    except ImportError as error:
        raise UsageError(f"checking needs the package promql-parser: {NEEDS}") from error
    filled = _PLAIN_VARIABLE.sub("x", _VARIABLE.sub("[5m]", text)) if "$" in text else text
    if any(time > _MOST_S for time in _numbers_of_times(_STRINGS.sub("", filled))):
        # asked before it is parsed: promql-parser panics over such a time
        return Query(wrong="has a time of more than 292 years", cure="write one that Prometheus can keep, such as [5m]")
    try:
        parsed = promql_parser.parse(filled)
    except ValueError as error:
        return Query(wrong=f"is no PromQL: {error}", cure="correct it; `promtool check rules` says the same")
    if _UNITLESS.search(_STRINGS.sub("", filled)):
        return Query(
            wrong="has a window without a unit, which Prometheus 2 refuses", cure="write its unit, such as [5m]"
        )
    odd = next(_odd(parsed), None)
    if odd is not None:
        return Query(wrong=odd[0], cure=odd[1], selectors=tuple(_selectors(parsed, None)))
    return Query(selectors=tuple(_selectors(parsed, None)), grouped=tuple(_grouped(parsed)))


def _numbers_of_times(text: str) -> Iterator[float]:
    """Yield the first number of each window, step and offset; with a unit it is of that unit."""
    for window, offset in _TIMES.findall(text):
        for part in (offset or window).split(":"):
            number = _NUMBER.match(part)
            if number is not None and number[1].count(".") <= 1:
                yield float(number[1])


def _children(node: Any) -> Iterator[Any]:
    """Yield the parts of a node; the parser's classes carry no types."""
    for name in ("expr", "lhs", "rhs", "param"):
        part = getattr(node, name, None)
        if part is not None:
            yield part
    yield from getattr(node, "args", ())


def _selectors(node: Any, function: str | None) -> Iterator[Selector]:
    kind = type(node).__name__
    if kind == "MatrixSelector":
        yield _selector(node.vector_selector, node.range.total_seconds(), function in _BACK)
    elif kind == "VectorSelector":
        yield _selector(node, None, False)
    else:
        inside = node.func.name if kind == "Call" else None
        for child in _children(node):
            yield from _selectors(child, inside)


def _grouped(node: Any) -> Iterator[tuple[str, ...]]:
    if type(node).__name__ == "AggregateExpr" and node.modifier is not None and str(node.modifier.type).endswith(".By"):
        yield tuple(node.modifier.labels)
    for child in _children(node):
        yield from _grouped(child)


def _selector(node: Any, range_s: float | None, two_samples: bool) -> Selector:
    equal, matching = dict[str, str](), dict[str, str]()
    for matcher in node.matchers.matchers:
        operator = str(matcher.op).rpartition(".")[2]
        if operator == "Equal":
            equal[matcher.name] = matcher.value
        elif operator == "Re":
            matching[matcher.name] = matcher.value
    name = node.name or equal.pop("__name__", "")
    return Selector(name=name, equal=equal, matching=matching, range_s=range_s, two_samples=two_samples)


def _odd(node: Any) -> Iterator[tuple[str, str]]:
    """Yield what parses and makes no sense: shares beyond 1, aggregation of nothing."""
    if type(node).__name__ == "Call" and node.func.name in _OF_SHARES:
        share = node.args[0]
        if type(share).__name__ == "NumberLiteral" and not 0 <= share.val <= 1:
            yield f"asks for the quantile {share.val:g}, and quantiles are 0 to 1", f"write {share.val / 100:g}"
    if type(node).__name__ == "Call" and node.func.name == "histogram_quantile":
        series = next(_selectors(node.args[1], None), None)
        if series is not None and series.name and not series.name.endswith("_bucket") and ":" not in series.name[1:-1]:
            yield f"takes the quantile of {series.name}, which is no bucket", f"read {series.name}_bucket"
    for child in _children(node):
        yield from _odd(child)


@cache
def exported() -> frozenset[str]:
    """Return the names of series that exporters and model servers write (`data/metrics.csv`, the catalog of servers)."""
    from trimtab.catalog.model_servers import PROXIES, SERVERS

    names = set(_OF_PROMETHEUS)
    for row in rows("metrics.csv"):
        names |= _written(row["metric"], row["type"])
    for server in (*SERVERS, *PROXIES):
        names |= {*server.names, *server.completed, *server.waiting, *server.kv_cache, server.arrived}
        names |= {server.flops, server.read_bytes, server.write_bytes}
        for histogram in (server.latency, server.ttft, server.input_tokens, server.output_tokens):
            names |= _written(histogram, "histogram") if histogram else set()
        if server.failed and not re.search("[={]", server.failed):
            names.add(server.failed)
    return frozenset(names - {""})


@cache
def exported_labels() -> frozenset[str]:
    """Return the names of labels that series of the usual exporters have (`data/labels.csv`)."""
    return frozenset(row["label"] for row in rows("labels.csv"))


_OF_PROMETHEUS = frozenset({"up", "ALERTS", "scrape_samples_scraped", "scrape_duration_seconds"})
"""Series that Prometheus itself writes."""


def _written(name: str, kind: str) -> set[str]:
    return {f"{name}{ending}" for ending in _HISTOGRAM} if kind == "histogram" else {name}


def unknown_series(name: str, recorded: frozenset[str], scraped: frozenset[str] | None) -> tuple[str, bool] | None:
    """Return how to correct a series that nothing is known to write, and whether that is sure; None where it is written.

    `recorded` are the names that the folder's own rules record; `scraped` those that a Prometheus has, where it was asked.
    """
    everything = recorded | exported() | (scraped or frozenset())
    if not name or name in everything:
        return None
    near = nearest(name, everything, least_frac=0.85)
    family = name.partition(":")[0] if ":" in name else ""
    sure = (
        bool(near)
        or scraped is not None
        or (bool(family) and any(series.startswith(f"{family}:") for series in recorded))
    )
    return (f"write {near}" if near else "give --metrics with the names that your Prometheus has, or record it"), sure
