"""A scrape (the text that an exporter answers) -> canonical readings; every other line is counted with its reason.

The format: Prometheus text exposition 0.0.4 and OpenMetrics 1.0. Names and units: `data/metrics.csv`, a row a metric with its
canonical name (whose last word is the unit: ratio, bytes, watts, hertz, seconds, celsius, total) and the factor to it.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from trimtab.errors import Fault
from trimtab.tables.checks import SENTINEL_FLOOR

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|(?=\}))')
_REST = re.compile(r"\s*(\S+)(?:\s+(\S+))?\s*(?:#.*)?$")
_ESCAPES = {r"\n": "\n", r"\"": '"', r"\\": "\\"}
_ESCAPED = re.compile(r'\\[n"\\]')
_PARTS = ("_bucket", "_sum", "_count")
_MOST_LABELS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalMetric:
    """One spelling: its canonical name (empty = we use it for nothing), and the factor to the canonical unit."""

    name: str
    kind: str
    canonical: str
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One sample under its canonical name and unit; `part` is bucket, sum or count of a histogram."""

    canonical: str
    part: str
    labels: Mapping[str, str]
    value: float


@dataclass(slots=True, kw_only=True)
class Scrape:
    """What a text held: readings, lines ignored by reason, and lines that are not of the format."""

    readings: list[Reading] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    failed: list[Fault] = field(default_factory=list)
    lines: int = 0


@cache
def canonical_metrics() -> Mapping[str, CanonicalMetric]:
    """Return every spelling known, by its name."""
    with (files("benchmarks.reference") / "data" / "metrics.csv").open(encoding="utf-8") as stream:
        return {
            row["metric"]: CanonicalMetric(
                name=row["metric"], kind=row["type"], canonical=row["canonical"], factor=float(row["factor"])
            )
            for row in csv.DictReader(stream)
        }


def read_scrape(text: str, *, where: str = "scrape") -> Scrape:
    """Read a scrape whole; never raises: a line that cannot be read is a fault with its number."""
    found = Scrape()
    # str.splitlines would also break at form feeds and Unicode separators, which may stand in label values.
    for number, line in enumerate(text.split("\n"), start=1):
        found.lines += 1
        stripped = line.strip()
        if not stripped:
            found.ignored["blank"] += 1
        elif stripped.startswith("#"):
            found.ignored["comment, HELP or TYPE"] += 1
        else:
            _take(stripped, f"{where} line {number}", found)
    if text.endswith("\n") or not text:
        found.lines -= 1
        found.ignored["blank"] -= 1
    return found


def _take(line: str, place: str, found: Scrape) -> None:
    try:
        name, labels, value = parse_sample(line)
    except ValueError as error:
        cure = "see the text exposition format of Prometheus"
        found.failed.append(Fault(what=str(error), where=place, value=line[:80], cure=cure))
        return
    reading = _reading(name, labels, value)
    if isinstance(reading, str):
        found.ignored[reading] += 1
    else:
        found.readings.append(reading)


def parse_sample(line: str) -> tuple[str, dict[str, str], float]:
    """Return name, labels and value of a sample line; raises ValueError saying what is wrong."""
    matched = _NAME.match(line)
    if matched is None:
        raise ValueError("no metric name")
    rest = line[matched.end() :]
    labels: dict[str, str] = {}
    if rest.lstrip().startswith("{"):
        labels, rest = _labels(rest.lstrip()[1:])
    values = _REST.match(rest)
    if values is None or (rest and not labels and not rest[0].isspace() and rest[0] != "{"):
        raise ValueError("no value")
    try:
        value = float(values[1].replace("_", "x"))
        if values[2] is not None:
            float(values[2])
    except ValueError:
        raise ValueError("the value or the time is no number") from None
    return matched[0], labels, value


def _labels(text: str) -> tuple[dict[str, str], str]:
    labels: dict[str, str] = {}
    at = 0
    while not text[at:].lstrip().startswith("}"):
        matched = _LABEL.match(text, at)
        if matched is None or len(labels) >= _MOST_LABELS:
            raise ValueError('labels are not of the form {name="value",...}')
        labels[matched[1]] = _ESCAPED.sub(lambda one: _ESCAPES[one[0]], matched[2])
        at = matched.end()
    return labels, text[text.index("}", at) + 1 :]


def _reading(name: str, labels: dict[str, str], value: float) -> Reading | str:
    """Return the reading of a sample, or the reason why it is none."""
    if name.endswith("_created") and name not in canonical_metrics():
        return "moment at which a counter was created"
    metric, part = _metric(name)
    if metric is None:
        return "metric that we do not know"
    if not metric.canonical:
        return "metric that we use for nothing"
    resource = labels.get("resource", "")
    if name.startswith("kube_") and resource and not resource.startswith(("nvidia_com_", "amd_com_", "gpu_intel_com_")):
        return "Kubernetes resource that is no GPU"
    if math.isnan(value) or abs(value) >= SENTINEL_FLOOR:
        return "no reading (sentinel or NaN)"
    scaled = value if part == "count" or part == "bucket" else value * metric.factor
    if part == "bucket" and metric.factor != 1.0:
        labels = {**labels, "le": repr(float(labels.get("le", "nan")) * metric.factor)}
    return Reading(canonical=metric.canonical, part=part, labels=labels, value=scaled)


def _metric(name: str) -> tuple[CanonicalMetric | None, str]:
    """Find a metric by its name on the wire: counters may carry `_total`, histograms `_bucket`, `_sum` or `_count`."""
    known = canonical_metrics()
    if name in known and known[name].kind != "histogram":
        return known[name], ""
    for part in _PARTS:
        base = name.removesuffix(part)
        if base != name and base in known and known[base].kind == "histogram":
            return known[base], part[1:]
    if name.endswith("_total") and name.removesuffix("_total") in known:
        return known[name.removesuffix("_total")], ""
    return known.get(name), ""
