"""Read the results of serving benchmarks (GuideLLM, inference-perf, llm-d-benchmark, MLPerf's LoadGen) as one measured point.

Each tool nests its figures differently and in its own units. `figures_of` finds the mean time per output token, the mean
latency of a request and the requests in flight, under the names that `--calibrate` reads. A tool that states a rate and not a
concurrency gets one by Little's law: requests a second times seconds a request. Formats as of 2026-11: GuideLLM `benchmarks`,
inference-perf `summary_lifecycle_metrics.json`, llm-d-benchmark's report 0.1 and 0.2, `mlperf_log_summary.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trimtab.units import MS_PER_S, NS_PER_MS

Figures = Mapping[str, object]
_S_UNITS = frozenset({"s", "s/token"})


def figures_of(content: Mapping[str, object]) -> Figures | None:
    """Return a result's figures by our names; None where it is of none of these tools."""
    sweep = content.get("benchmarks")
    if isinstance(sweep, Sequence) and not isinstance(sweep, str):
        runs = [run for run in sweep if isinstance(run, Mapping)]
        return _guidellm(runs) if runs else None
    for path in (("successes",), ("metrics",), ("results", "request_performance", "aggregate")):
        found = _at(content, *path)
        if found is not None and isinstance(found.get("latency"), Mapping):
            return _by_latency(found)
    return None


def figures_of_loadgen(text: str) -> Figures | None:
    """Return the figures of MLPerf's summary of a run; None where the text is none."""
    lines = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    if "MLPerf Results Summary" not in text:
        return None
    tpot_ns, latency_ns = _float(lines.get("Mean Time to Output Token (ns)")), _float(lines.get("Mean latency (ns)"))
    per_s = _float(lines.get("Completed samples per second"))
    latency_ms = None if latency_ns is None else latency_ns / NS_PER_MS
    return _figures(None if tpot_ns is None else tpot_ns / NS_PER_MS, latency_ms, per_s, None)


def _guidellm(runs: Sequence[Mapping[str, object]]) -> Figures:
    """Return the figures of a run; of a sweep those of the middle one by concurrency."""

    def mean(run: Mapping[str, object], name: str) -> float | None:
        return _number(_at(run, "metrics", name, "successful"), "mean")

    ranked = sorted(runs, key=lambda run: mean(run, "request_concurrency") or 0.0)
    run = ranked[len(ranked) // 2]
    tpot_ms = mean(run, "inter_token_latency_ms") or mean(run, "time_per_output_token_ms")
    latency_s = mean(run, "request_latency")
    latency_ms = None if latency_s is None else latency_s * MS_PER_S
    return _figures(tpot_ms, latency_ms, mean(run, "requests_per_second"), mean(run, "request_concurrency"))


def _by_latency(found: Mapping[str, object]) -> Figures:
    """Return the figures of inference-perf (seconds) and of llm-d-benchmark (seconds unless units say otherwise)."""
    tpot_ms = _mean_ms(_at(found, "latency", "time_per_output_token")) or _mean_ms(
        _at(found, "latency", "inter_token_latency")
    )
    latency_ms = _mean_ms(_at(found, "latency", "request_latency"))
    rates = _at(found, "throughput") or {}
    per_s = (
        _number(rates, "requests_per_sec")
        or _number(rates, "request_rate")
        or _number(_at(found, "throughput", "request_rate"), "mean")
    )
    return _figures(tpot_ms, latency_ms, per_s, None)


def _mean_ms(record: Mapping[str, object] | None) -> float | None:
    mean = _number(record, "mean")
    if record is None or mean is None:
        return None
    return mean * MS_PER_S if str(record.get("units", "s")) in _S_UNITS else mean


def _figures(
    tpot_ms: float | None, latency_ms: float | None, requests_per_s: float | None, concurrency: float | None
) -> Figures:
    if concurrency is None and requests_per_s is not None and latency_ms is not None:
        concurrency = requests_per_s * latency_ms / MS_PER_S
    named = {
        "tpot_ms": tpot_ms,
        "latency_ms": latency_ms,
        "concurrency": None if concurrency is None else max(1, round(concurrency)),
    }
    return {name: value for name, value in named.items() if value is not None}


def _at(content: object, *path: str) -> Mapping[str, object] | None:
    for name in path:
        content = content.get(name) if isinstance(content, Mapping) else None
    return content if isinstance(content, Mapping) else None


def _number(record: Mapping[str, object] | None, name: str) -> float | None:
    value = None if record is None else record.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _float(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r"[\d.]+(?:[eE][+-]?\d+)?", text) else None
