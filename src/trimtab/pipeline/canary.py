"""One side of a canary comparison: a file of requests, or a service of a bundle with its measured latencies and its bill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.catalog import load_catalog
from trimtab.diagnose.canary import MIN_SLICES, CanaryRun, run_of
from trimtab.errors import InputError, UnknownName
from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
from trimtab.fleet.settings import Settings
from trimtab.inputs.arrow_tables import read_arrow_table
from trimtab.inputs.documents import read_json
from trimtab.ledger.arrays import FloatArray
from trimtab.pipeline.opening import open_fleet, priced_history
from trimtab.plan.verify.baseline import baseline_of
from trimtab.units import MS_PER_S, US_PER_S

LATENCY_S = ("latency_s", "latency", "duration_s", "duration", "e2e_latency_s", "e2e_latency", "elapsed_s")
LATENCY_MS = ("latency_ms", "duration_ms", "e2el_ms", "e2e_latency_ms", "elapsed_ms")
START = ("start_s", "start", "timestamp", "start_time", "time", "arrival_s")
STATUS = ("ok", "success", "status", "status_code", "error")
_HTTP_FAILED = 400
_LEAST = 100
"""Requests below which a 99th percentile is the largest reading."""


def read_run(path: Path, usd_hr: float | None) -> CanaryRun:
    """Return a run from a file; raises InputError saying which column or key is missing, or what cannot be."""
    if path.suffix.lower() == ".json":
        latency, start, failed = _from_bench(path)
    else:
        latency, start, failed = _from_table(path)
    _check(path, latency, start, failed)
    answered = int((failed == 0).sum())
    slices = min(30, max(MIN_SLICES, answered // 50))
    return run_of(str(path), latency, start, failed, usd_hr, slices=slices)


def _check(path: Path, latency: FloatArray, start: FloatArray, failed: FloatArray) -> None:
    good = failed == 0
    wrong = int((~np.isfinite(latency[good]) | (latency[good] <= 0)).sum())
    if wrong:
        raise InputError(f"{path}: {wrong} answered requests have a latency that is missing, not finite or not above 0")
    if int(good.sum()) < _LEAST:
        raise InputError(f"{path}: {int(good.sum())} answered requests; a 99th percentile needs at least {_LEAST}")
    if not np.isfinite(start).all():
        raise InputError(f"{path}: {int((~np.isfinite(start)).sum())} requests do not say when they began")
    if float(np.ptp(start)) <= 0:
        raise InputError(f"{path}: all requests begin at the same moment, so that there is no throughput")


def _from_table(path: Path) -> tuple[FloatArray, FloatArray, FloatArray]:
    table = read_arrow_table(path)
    columns = {name.lower(): name for name in table.column_names}
    latency = _latency(path, table, columns)
    start_name = next((columns[name] for name in START if name in columns), None)
    if start_name is None:
        raise InputError(f"{path}: no column says when a request began; name it one of {', '.join(START)}")
    start = _moments(path, table[start_name], start_name)
    status = next((columns[name] for name in STATUS if name in columns), None)
    failed = np.zeros(len(latency)) if status is None else _failed(table[status], status.lower())
    return latency, start, failed


def _latency(path: Path, table: pa.Table, columns: Mapping[str, str]) -> FloatArray:
    for names, scale in ((LATENCY_S, 1.0), (LATENCY_MS, MS_PER_S)):
        for name in names:
            if name in columns:
                return _numbers(path, table[columns[name]], columns[name]) / scale
    raise InputError(
        f"{path}: no column of latencies among {', '.join(table.column_names)}; name it latency_s (seconds) or latency_ms"
    )


def _numbers(path: Path, column: pa.ChunkedArray, name: str) -> FloatArray:
    try:
        return np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{path}: column {name} holds something that is not a number: {error}") from error


def _moments(path: Path, column: pa.ChunkedArray, name: str) -> FloatArray:
    """Return moments in seconds from a column of numbers or of timestamps."""
    if pa.types.is_timestamp(column.type):
        micro = pc.cast(pc.cast(column, pa.timestamp("us", tz=column.type.tz), safe=False), pa.int64())
        return _numbers(path, micro, name) / US_PER_S
    return _numbers(path, column, name)


def _failed(column: pa.ChunkedArray, name: str) -> FloatArray:
    """Return 1 where a request failed: ok false, an HTTP status from 400 on, or an error that says something."""
    values = column.to_pylist()
    if name in ("ok", "success"):
        return np.array([float(str(value).lower() not in ("true", "1", "1.0", "yes", "ok")) for value in values])
    if name == "error":
        return np.array([float(bool(value) and str(value).lower() not in ("false", "0", "none")) for value in values])
    return np.array([float(not _is_fine(value)) for value in values])


def _is_fine(status: object) -> bool:
    text = str(status).strip().lower()
    return int(text) < _HTTP_FAILED if text.isdigit() else text in ("ok", "success", "200 ok", "true")


def _from_bench(path: Path) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return requests of a benchmark: first token and the gaps between tokens add up to a latency."""
    found = read_json(path)
    if not isinstance(found, dict) or not {"ttfts", "itls"} <= found.keys():
        raise InputError(
            f"{path}: no single requests in it (keys ttfts, itls): run `vllm bench serve --save-result --save-detailed`"
        )
    ttft, gaps = found["ttfts"], found["itls"]
    if not isinstance(ttft, Sequence) or not isinstance(gaps, Sequence) or len(ttft) != len(gaps):
        raise InputError(f"{path}: ttfts and itls must be lists of the same length")
    errors = found.get("errors") or [""] * len(ttft)
    try:
        latency = np.array([first + sum(rest) for first, rest in zip(ttft, gaps, strict=True)], dtype=np.float64)
        failed = np.array([float(bool(error) or not value > 0) for error, value in zip(errors, latency, strict=True)])
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{path}: ttfts must hold numbers, itls lists of numbers, errors one text a request ({error}); run it again"
        ) from error
    return latency, _starts(found, path, len(latency)), failed


def _starts(found: Mapping[str, object], path: Path, count: int) -> FloatArray:
    """Return when requests began; spread evenly over the run where the file does not say."""
    starts = found.get("start_times")
    if isinstance(starts, Sequence) and len(starts) == count:
        try:
            return np.asarray(starts, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"{path}: start_times must hold numbers ({error}); run it again") from error
    duration = found.get("duration")
    if not isinstance(duration, int | float) or not duration > 0:
        raise InputError(f"{path}: neither start_times nor a duration above 0")
    return np.linspace(0.0, float(duration), count, endpoint=False)


_BEYOND = 2.0
"""A latency beyond the last bound of a histogram is taken as twice that bound."""


def canary_side(path: Path, usd_hr: float | None, name: str | None, prices: Path | None) -> CanaryRun:
    """Return a side; raises InputError, BundleError, MissingPrice, or UnknownName for a service that is not there."""
    if path.is_file():
        return read_run(path, usd_hr)
    settings, catalog = Settings(), load_catalog(prices)
    fleet, _ = priced_history(open_fleet(path), settings, catalog)
    market = Market(
        catalog=catalog,
        at=fleet.window.end.date(),
        max_term_years=settings.planning.max_term_years,
        assumptions=settings.assumptions,
    )
    measured = {
        workload.name: workload
        for workload in fleet.workloads
        if workload.service is not None and workload.service.latency_count.size
    }
    service = _chosen(path, measured, name)
    costs = {workload.workload: workload.usd_hr for workload in baseline_of(fleet, market).workloads}
    return _run(path, service, costs[service.name] if usd_hr is None else usd_hr)


def _chosen(path: Path, measured: dict[str, Workload], name: str | None) -> Workload:
    if not measured:
        raise InputError(
            f"{path}: no service of this bundle has latencies (table demand, latency_le_s and latency_count)"
        )
    if name is not None and name not in measured:
        raise UnknownName("service with latencies", name, measured, where=str(path))
    if name is None and len(measured) > 1:
        raise InputError(f"{path} holds {len(measured)} services with latencies: say which, --workload {min(measured)}")
    return measured[name or min(measured)]


def _run(path: Path, workload: Workload, usd_hr: float) -> CanaryRun:
    service = workload.service
    assert service is not None
    bounds = np.asarray(service.latency_le_s, dtype=np.float64)
    finite = bounds[np.isfinite(bounds)]
    place = np.where(np.isfinite(bounds), bounds, finite.max() * _BEYOND)
    counts = [np.asarray(row, dtype=np.float64) for row in service.latency_count if np.isfinite(row).all()]
    if len(counts) < MIN_SLICES:
        raise InputError(
            f"{path}: {len(counts)} intervals of {workload.name} have latencies; {MIN_SLICES} are the least"
        )
    if not sum(row.sum() for row in counts):
        raise InputError(f"{path}: no request of {workload.name} was answered")
    return CanaryRun(
        name=f"{path} {workload.name}",
        slice_s=service.step_s,
        latency_s=tuple(place for _ in counts),
        weight=tuple(counts),
        failed=np.zeros(len(counts)),
        usd_hr=usd_hr,
    )
