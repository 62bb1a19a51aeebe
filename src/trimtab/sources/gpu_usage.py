"""Hourly `gpu_usage` rows from a Prometheus server, a bounded span of hours at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from trimtab.sources.dcgm import ANY_METRIC, METRICS, SHARES, Metric
from trimtab.sources.gpu_queries import (
    collect_counts,
    collect_energy,
    collect_histograms,
    collect_statistics,
    probe_scale,
    probe_step_s,
)
from trimtab.sources.gpu_series import Scale, Tally
from trimtab.sources.hours import Cube, HourGrid, UsageKey
from trimtab.sources.promql import Floats, Prometheus
from trimtab.tables.arrow import conform, empty_table
from trimtab.units import HR_PER_DAY, HR_PER_WEEK, MS_PER_S, S_PER_HR

logger = logging.getLogger(__name__)

_VALUES_PER_CHUNK = 30_000
_SAMPLES_PER_REQUEST = 400_000
RAW_SAMPLE_LIMIT = 3_000_000
"""Raw activity samples that are fetched for histograms at most: about 65 MB of JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMetrics:
    """What a server exports about GPUs: the metrics present, how to read them, the scrape interval."""

    present: tuple[Metric, ...]
    scales: Mapping[str, Scale]
    step_s: float

    def of(self, canonical: str) -> list[Metric]:
        """Return the spellings present of a canonical reading."""
        return [metric for metric in self.present if metric.canonical == canonical]

    @property
    def counted(self) -> list[Metric]:
        """Return the metrics whose samples show that a device was watched: the first reading that is there."""
        for canonical in (*SHARES, "memory_used_gib", "power_w"):
            if self.of(canonical):
                return self.of(canonical)
        return []


@dataclass(slots=True, kw_only=True)
class Holdings:
    """Samples by hour of the whole window, by device and pod: who held what when."""

    grid: HourGrid
    pieces: dict[UsageKey, list[tuple[int, Floats]]] = field(default_factory=dict)

    def add(self, cube: Cube) -> None:
        """Note the samples of one span of hours."""
        offset = (cube.grid.start_s - self.grid.start_s) // S_PER_HR
        for key in cube.keys("samples"):
            counts = np.nan_to_num(cube.of("samples", key))
            seen = np.flatnonzero(counts)
            if len(seen):
                piece = counts[seen[0] : seen[-1] + 1].copy()
                self.pieces.setdefault(key, []).append((offset + int(seen[0]), piece))

    def counts(self, key: UsageKey) -> Floats:
        """Return a key's samples by hour (n_hours,)."""
        row = np.zeros(self.grid.hours)
        for first, piece in self.pieces.get(key, []):
            row[first : first + len(piece)] += piece
        return row


def find_gpu_metrics(server: Prometheus, grid: HourGrid, tally: Tally) -> GpuMetrics:
    """Find which spellings the server has, and from the data how to read them."""
    names = server.names(grid.start_s, grid.end_s, ANY_METRIC)
    present = tuple(metric for metric in METRICS if metric.name in names)
    scales = {metric.name: probe_scale(server, metric, grid, tally) for metric in present}
    found = GpuMetrics(present=present, scales=scales, step_s=float(S_PER_HR))
    if not found.counted:
        return found
    step_s = min(probe_step_s(server, metric, grid) for metric in found.counted)
    return GpuMetrics(present=present, scales=scales, step_s=step_s)


def collect_gpu_usage(
    server: Prometheus,
    grid: HourGrid,
    metrics: GpuMetrics,
    tally: Tally,
    holdings: Holdings,
    *,
    workload_of: Callable[[str, str], str | None],
    raw_sample_limit: int = RAW_SAMPLE_LIMIT,
    progress: Callable[[int], None] = lambda hours: None,
) -> Iterator[pa.Table]:
    """Yield the `gpu_usage` rows of successive spans of hours; memory stays bounded by the span, whatever the window."""
    devices = max(1, len(tally.devices))
    raw_samples = devices * grid.hours * S_PER_HR / metrics.step_s
    with_histograms = raw_samples <= raw_sample_limit
    if not with_histograms:
        tally.count("device-hours without a histogram (too many raw samples to fetch)", devices * grid.hours)
    span = int(np.clip(_VALUES_PER_CHUNK // devices, HR_PER_DAY // 4, 2 * HR_PER_WEEK))
    for piece in grid.chunks(span):
        cube = _cube(server, piece, metrics, tally)
        holdings.add(cube)
        bins = _histograms(server, cube, metrics, tally) if with_histograms else {}
        yield usage_table(cube, bins, metrics.step_s, workload_of)
        progress(piece.hours)


def _cube(server: Prometheus, piece: HourGrid, metrics: GpuMetrics, tally: Tally) -> Cube:
    cube = Cube(grid=piece)
    for metric in metrics.counted:
        collect_counts(server, metric, cube, tally)
    mig = any(labels.mig_profile for labels in tally.devices.values())
    for canonical in (*SHARES, "memory_used_gib", "power_w"):
        if canonical == "gr_engine_active" and not mig and metrics.of("gpu_util"):
            continue
        for metric in metrics.of(canonical):
            collect_statistics(server, metric, metrics.scales[metric.name], cube, tally)
    for metric in metrics.of("energy_kwh"):
        collect_energy(server, metric, cube, tally)
    return cube


def _histograms(
    server: Prometheus, cube: Cube, metrics: GpuMetrics, tally: Tally
) -> dict[UsageKey, dict[int, list[int]]]:
    """Return histograms of the best activity signal of each device: sm_active, else gpu_util."""
    per_hour = max(1, len(tally.devices)) * S_PER_HR / metrics.step_s
    span_hr = int(np.clip(_SAMPLES_PER_REQUEST // per_hour, 1, HR_PER_DAY))
    bins: dict[UsageKey, dict[int, list[int]]] = {}
    for canonical in ("sm_active", "gpu_util", "gr_engine_active"):
        missing = [key for key in cube.keys("samples") if key not in bins]
        if not missing:
            break
        for metric in metrics.of(canonical):
            found = collect_histograms(server, metric, metrics.scales[metric.name], cube, tally, span_hr=span_hr)
            bins = {**found, **bins}
    return bins


def usage_table(
    cube: Cube,
    bins: Mapping[UsageKey, Mapping[int, list[int]]],
    step_s: float,
    workload_of: Callable[[str, str], str | None],
) -> pa.Table:
    """Return the rows of a span: the pods of one workload on one device are folded into one row an hour."""
    groups: dict[tuple[str, str | None], list[UsageKey]] = {}
    for key in cube.keys("samples"):
        workload = workload_of(key.namespace, key.pod) if key.pod else None
        groups.setdefault((key.device, workload), []).append(key)
    tables = [
        _rows(cube, bins, step_s, device, workload, keys)
        for (device, workload), keys in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    ]
    return pa.concat_tables(tables).combine_chunks() if tables else empty_table("gpu_usage", None)


def _rows(
    cube: Cube,
    bins: Mapping[UsageKey, Mapping[int, list[int]]],
    step_s: float,
    device: str,
    workload: str | None,
    keys: Sequence[UsageKey],
) -> pa.Table:
    counts = np.nan_to_num(np.stack([cube.of("samples", key) for key in keys]))
    hours = np.flatnonzero(counts.sum(axis=0) > 0)
    columns: dict[str, pa.Array] = {
        "device": pa.repeat(pa.scalar(device), len(hours)),
        "workload": pa.array([workload] * len(hours), type=pa.string()),
        "hour": _times(cube.grid, hours),
        "samples": pa.array(counts.sum(axis=0)[hours].astype(np.int64)),
        "samples_expected": pa.array(np.full(len(hours), round(S_PER_HR / step_s), dtype=np.int64)),
    }
    for statistic in cube.values:
        if statistic in ("samples", "power_w_max"):
            continue
        stacked = np.stack([cube.of(statistic, key) for key in keys])
        columns[statistic] = pa.array(_folded(statistic, stacked, counts)[hours], from_pandas=True)
    merged = [_merged_bins(bins, keys, int(hour)) for hour in hours]
    columns["activity_histogram"] = pa.array(merged, type=pa.list_(pa.int64()))
    columns["basis"] = pa.array(["pushed down" if one is None else "raw samples" for one in merged], type=pa.string())
    known = {name: column for name, column in columns.items() if not name.startswith("memory_used_gib_p")}
    return conform("gpu_usage", pa.table(known))


def _times(grid: HourGrid, hours: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    starts_ms = (grid.start_s + hours * S_PER_HR) * MS_PER_S
    return pa.array(starts_ms, type=pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))


def _folded(statistic: str, stacked: Floats, counts: Floats) -> Floats:
    """Fold pods that shared an hour: the largest maximum, summed energy, everything else weighted by samples.

    A weighted quantile is not the quantile of the union; where it matters, the histogram is.
    """
    if len(stacked) == 1:
        return np.asarray(stacked[0], dtype=np.float64)
    present = ~np.isnan(stacked)
    some = present.any(axis=0)
    if statistic.endswith("_max"):
        folded = np.where(present, stacked, -np.inf).max(axis=0)
    elif statistic == "energy_kwh":
        folded = np.where(present, stacked, 0.0).sum(axis=0)
    else:
        weight = np.where(present, counts, 0.0)
        total = np.where(weight.sum(axis=0) > 0, weight.sum(axis=0), 1.0)
        folded = (np.where(present, stacked, 0.0) * weight).sum(axis=0) / total
    return np.where(some, folded, np.nan)


def _merged_bins(
    bins: Mapping[UsageKey, Mapping[int, list[int]]], keys: Sequence[UsageKey], hour: int
) -> list[int] | None:
    found = [bins[key][hour] for key in keys if key in bins and hour in bins[key]]
    if not found:
        return None
    return found[0] if len(found) == 1 else np.sum(found, axis=0).tolist()
