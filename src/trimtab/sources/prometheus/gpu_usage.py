"""Hourly `gpu_usage` rows from a Prometheus server, a bounded span of hours at a time, the next ones fetched ahead."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from trimtab.sources.hour_grid import Cube, HourGrid, UsageKey
from trimtab.sources.prometheus.client import Floats, Prometheus
from trimtab.sources.prometheus.dcgm import (
    ANY_METRIC,
    METRICS,
    NEURON_HARDWARE,
    SHARES,
    ExportedMetric,
    neuron_cores,
)
from trimtab.sources.prometheus.gpu_readings import (
    LINKS,
    Ask,
    HourlyValues,
    Wanted,
    collect_counts,
    collect_energy,
    collect_histograms,
    collect_link,
    collect_statistics,
    count_disagreements,
    gauge_questions,
    link_question,
    probe_scale,
    probe_step_s,
    recorded_histograms,
    refuse_copies,
)
from trimtab.sources.prometheus.gpu_series import RECORDED, Scale, Statistic, Tally, selector
from trimtab.sources.prometheus.journal import Bins, HourSpan, Journal, identity_of
from trimtab.tables.arrow import conform, empty_table
from trimtab.units import HR_PER_DAY, HR_PER_WEEK, MS_PER_S, S_PER_HR

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")


class Prefetch(Generic[Question, Answer]):
    """Fetches the answers to a list of questions in its order while earlier ones are worked on.

    At most `at_once` are being fetched and as many again wait to be taken, if they are taken in the list's order. A question
    that is not in the list is fetched when it is taken.
    """

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        questions: Iterable[Question],
        fetch: Callable[[Question], Answer],
        at_once: int,
    ) -> None:
        self._pool = pool
        self._left: Iterator[Question] = iter(questions)
        self._fetch = fetch
        self._at_once = at_once
        self._begun: dict[Question, Future[Answer]] = {}

    def take(self, question: Question) -> Answer:
        """Return the answer to a question, and begin to fetch what comes after it."""
        self._fill(self._at_once)
        found = self._begun.pop(question, None)
        if found is None:
            return self._fetch(question)
        self._fill(self._at_once)
        return found.result()

    def _fill(self, most: int) -> None:
        while len(self._begun) < most and (question := next(self._left, None)) is not None:
            self._begun[question] = self._pool.submit(self._fetch, question)

    def cancel(self) -> None:
        """Begin no more."""
        self._left = iter(())
        for future in self._begun.values():
            future.cancel()


@contextmanager
def prefetch(
    questions: Iterable[Question], fetch: Callable[[Question], Answer], at_once: int
) -> Iterator[Prefetch[Question, Answer]]:
    """Open a Prefetch with threads of its own; an error of a fetch is raised where its answer is taken."""
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="ask") as pool:
        fetched = Prefetch(pool, questions, fetch, at_once)
        try:
            yield fetched
        finally:
            fetched.cancel()


VALUES_PER_SPAN = 30_000
_SPANS_HR = (6, 12, 24, 2 * HR_PER_DAY, 4 * HR_PER_DAY, HR_PER_WEEK, 2 * HR_PER_WEEK)
_SAMPLES_PER_REQUEST = 400_000
Histograms = dict[UsageKey, dict[int, list[int]]]

RAW_SAMPLE_LIMIT = 3_000_000
"""Raw activity samples that are fetched for histograms at most: about 65 MB of JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMetrics:
    """What a server exports about GPUs: the metrics present, how to read them, the scrape interval."""

    present: tuple[ExportedMetric, ...]
    scales: Mapping[str, Scale]
    step_s: float
    recorded: frozenset[str] = frozenset()
    """Names of the series that recording rules of ours left."""

    def of(self, canonical: str) -> list[ExportedMetric]:
        """Return the spellings present of a canonical reading."""
        return [metric for metric in self.present if metric.canonical == canonical]

    @property
    def counted(self) -> list[ExportedMetric]:
        """Return the metrics whose samples show that a device was watched: the first reading that is there."""
        for canonical in (*SHARES, "memory_used_gib", "power_w"):
            if self.of(canonical):
                return self.of(canonical)
        return []


@dataclass(slots=True, kw_only=True)
class PodHoldings:
    """Samples by hour of the whole window, by device and pod: who held what when.

    No more than a series has at the interval `step_s`: a board that two exporters tell, or a pod with several shares, has
    several series, and would make all others look as if they were seen half the time.
    """

    grid: HourGrid
    step_s: float
    pieces: dict[UsageKey, list[tuple[int, Floats]]] = field(default_factory=dict)

    def add(self, span: HourGrid, samples: Mapping[UsageKey, Floats]) -> None:
        """Note the samples of one span of hours (span.hours,) by device and pod."""
        offset = (span.start_s - self.grid.start_s) // S_PER_HR
        for key, counts in samples.items():
            seen = np.flatnonzero(counts)
            if len(seen):
                piece = np.minimum(counts[seen[0] : seen[-1] + 1], S_PER_HR / self.step_s)
                self.pieces.setdefault(key, []).append((offset + int(seen[0]), piece))

    def counts(self, key: UsageKey) -> Floats:
        """Return a key's samples by hour (n_hours,)."""
        row = np.zeros(self.grid.hours)
        for first, piece in self.pieces.get(key, []):
            row[first : first + len(piece)] += piece
        return row


def find_gpu_metrics(server: Prometheus, grid: HourGrid, tally: Tally) -> GpuMetrics:
    """Find which spellings the server has, and from the data how to read them; and what recording rules left."""
    names = server.names(grid.start_s, grid.end_s, f"{ANY_METRIC}|{RECORDED}.*")
    present = tuple(metric for metric in METRICS if metric.name in names and _is_there(server, metric, grid))
    if any(metric.of_cores for metric in present):
        hardware = server.series([NEURON_HARDWARE + server.matching()], grid.start_s, grid.end_s)
        tally.cores_of.update(neuron_cores(hardware))
    scales = {metric.name: probe_scale(server, metric, grid, tally) for metric in present}
    activity = next((metric for metric in present if metric.canonical in SHARES), None)
    if activity is not None:
        refuse_copies(server, activity, grid)
        count_disagreements(server, activity, scales[activity.name], grid, tally)
    found = GpuMetrics(
        present=present,
        scales=scales,
        step_s=float(S_PER_HR),
        recorded=frozenset(name for name in names if name.startswith(RECORDED)),
    )
    if not found.counted:
        return found
    return replace(found, step_s=min(probe_step_s(server, metric, grid) for metric in found.counted))


def _is_there(server: Prometheus, metric: ExportedMetric, grid: HourGrid) -> bool:
    """Return whether a metric whose name is there has series of boards: others use some of the names (`memory_used`) too."""
    return not metric.only or bool(server.series([selector(server, metric)], grid.start_s, grid.end_s))


def collect_gpu_usage(
    server: Prometheus,
    grid: HourGrid,
    metrics: GpuMetrics,
    tally: Tally,
    holdings: PodHoldings,
    *,
    workload_of: Callable[[str, str], str | None],
    raw_sample_limit: int = RAW_SAMPLE_LIMIT,
    journal: Journal | None = None,
    progress: Callable[[int], None] = lambda hours: None,
) -> Iterator[pa.Table]:
    """Yield the `gpu_usage` rows of successive spans of hours; memory stays bounded by the span, whatever the window.

    Spans that the journal holds are read from it; those that are asked for are kept in it.
    """
    devices = max(1, len(tally.devices))
    with_raw = devices * grid.hours * S_PER_HR / metrics.step_s <= raw_sample_limit
    pieces = list(grid.aligned_chunks(_span_hr(devices)))
    mig = any(labels.mig_profile for labels in tally.devices.values())
    kept = (journal or Journal(folder=None)).of(identity_of(server.url, server.selector, metrics, mig, with_raw))
    values = HourlyValues(server=server, recorded=metrics.recorded)
    missing = [piece for piece in pieces if not kept.holds(piece)]
    questions = [question for piece in missing for question in _questions(metrics, piece, mig=mig)]
    with prefetch(questions, values.ask, server.at_once) as fetched:
        for piece in pieces:
            span = kept.read(piece)
            if span is None:
                span = _collected(values, piece, metrics, tally, fetched.take, mig=mig, with_raw=with_raw)
                kept.write(piece, span)
            rows = usage_table(span, metrics.step_s, workload_of)
            tally.take(span.tally)
            holdings.add(piece, span.samples)
            yield rows
            progress(piece.hours)


def _span_hr(devices: int) -> int:
    """Return how many hours to collect at a time: a divisor of a week, so that windows that overlap share their spans."""
    most = VALUES_PER_SPAN // devices
    return max((hours for hours in _SPANS_HR if hours <= most), default=_SPANS_HR[0])


def _gauges(metrics: GpuMetrics, *, mig: bool) -> list[ExportedMetric]:
    """Return the gauges to collect, in the order in which spellings of one reading count."""
    return [
        metric
        for canonical in (*SHARES, "memory_used_gib", "power_w")
        if canonical != "gr_engine_active" or mig or not metrics.of("gpu_util")
        for metric in metrics.of(canonical)
    ]


def _links(metrics: GpuMetrics) -> list[ExportedMetric]:
    return [metric for canonical in LINKS for metric in metrics.of(canonical)]


def _questions(metrics: GpuMetrics, piece: HourGrid, *, mig: bool) -> Iterator[Wanted]:
    """Yield what `_collected` asks, in its order."""
    for metric in metrics.counted:
        yield Wanted(statistic=Statistic.COUNT, metric=metric, grid=piece)
    for metric in _gauges(metrics, mig=mig):
        yield from gauge_questions(metric, piece)
    for metric in metrics.of("energy_kwh"):
        yield Wanted(statistic=Statistic.RISE, metric=metric, grid=piece)
    for metric in _links(metrics):
        yield link_question(metric, piece)


def _collected(
    values: HourlyValues, piece: HourGrid, metrics: GpuMetrics, whole: Tally, ask: Ask, *, mig: bool, with_raw: bool
) -> HourSpan:
    tally = Tally(devices=dict(whole.devices), known=whole.known, cores_of=whole.cores_of)
    cube = Cube(grid=piece)
    for metric in metrics.counted:
        collect_counts(ask, metric, cube, tally)
    for metric in _gauges(metrics, mig=mig):
        collect_statistics(values.server, metric, metrics.scales[metric.name], cube, tally, ask)
    for metric in metrics.of("energy_kwh"):
        collect_energy(ask, metric, cube, tally)
    for metric in _links(metrics):
        collect_link(ask, metric, cube, tally)
    bins = _best_bins(cube, metrics, lambda metric: recorded_histograms(values, metric, cube, tally))
    basis = "recording rules"
    if with_raw and not _is_whole(bins, cube):
        bins, basis = _raw_bins(values.server, cube, metrics, tally), "raw samples"
    elif not bins:
        hours = piece.hours * len({key.device for key in cube.keys("samples")})
        tally.count("device-hours without a histogram (too many raw samples to fetch)", hours)
    return HourSpan(cube=cube, bins=bins, tally=tally, basis=basis)


def _is_whole(bins: Bins, cube: Cube) -> bool:
    """Return whether every hour in which a device was seen has its histogram."""
    return all(
        hour in bins.get(key, {})
        for key in cube.keys("samples")
        for hour in np.flatnonzero(np.nan_to_num(cube.of("samples", key))).tolist()
    )


def _raw_bins(server: Prometheus, cube: Cube, metrics: GpuMetrics, tally: Tally) -> Histograms:
    per_hour = max(1, len(tally.devices)) * S_PER_HR / metrics.step_s
    span_hr = int(np.clip(_SAMPLES_PER_REQUEST // per_hour, 1, HR_PER_DAY))

    def counted(metric: ExportedMetric) -> Histograms:
        scale = metrics.scales[metric.name]
        return collect_histograms(server, metric, scale, cube, tally, span_hr=span_hr)

    return _best_bins(cube, metrics, counted)


def _best_bins(cube: Cube, metrics: GpuMetrics, counted: Callable[[ExportedMetric], Histograms]) -> Histograms:
    """Return histograms of the best activity signal of each device: sm_active, else gpu_util."""
    bins: Histograms = {}
    for canonical in ("sm_active", "gpu_util", "gr_engine_active"):
        if all(key in bins for key in cube.keys("samples")):
            break
        for metric in metrics.of(canonical):
            bins = {**counted(metric), **bins}
    return bins


def usage_table(span: HourSpan, step_s: float, workload_of: Callable[[str, str], str | None]) -> pa.Table:
    """Return the rows of a span: the pods of one workload on one device are folded into one row per hour."""
    cube, bins = span.cube, span.bins
    sharing = shared_hours(cube, S_PER_HR / step_s)
    span.tally.count(
        "hours in which each pod of a busy board reads 0, taken as the board: --kubernetes-virtual-gpus needs hostPID: true",
        sum(int(how.lost.sum()) for key, how in sharing.items() if key.pod and how.lost is not None),
    )
    groups: dict[tuple[str, str | None], list[UsageKey]] = {}
    for key in cube.keys("samples"):
        workload = workload_of(key.namespace, key.pod) if key.pod else None
        groups.setdefault((key.device, workload), []).append(key)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    if not ordered:
        return empty_table("gpu_usage", None)
    counts = {
        key: np.where(sharing[key].apart, 0.0, seen) if not key.pod and key in sharing else seen
        for key, seen in span.samples.items()
    }
    apart = np.stack([_apart(sharing, keys, cube.grid.hours) for _, keys in ordered])
    samples = np.stack([sum((counts[key] for key in keys), start=np.zeros(cube.grid.hours)) for _, keys in ordered])
    group, hours = np.nonzero(samples > 0)
    names, workloads = (pa.array([who[part] for who, _ in ordered], type=pa.string()) for part in (0, 1))
    columns: dict[str, pa.Array] = {
        "device": names.take(pa.array(group)),
        "workload": workloads.take(pa.array(group)),
        "hour": _times(cube.grid, hours),
        "samples": pa.array(samples[group, hours].astype(np.int64)),
        "samples_expected": pa.array(np.full(len(hours), round(S_PER_HR / step_s), dtype=np.int64)),
        "of_pods": pa.array(apart[group, hours]),
    }
    for statistic in cube.values:
        if statistic in ("samples", "power_w_max") or statistic.startswith("memory_used_gib_p"):
            continue
        rows = [
            _folded(statistic, [_own(cube, statistic, key, sharing) for key in keys], keys, counts, apart[place])
            for place, (_, keys) in enumerate(ordered)
        ]
        columns[statistic] = pa.array(np.stack(rows)[group, hours], from_pandas=True)
    merged = [
        None if apart[at, hour] else _merged_bins(bins, ordered[at][1], hour)
        for at, hour in zip(group.tolist(), hours.tolist(), strict=True)
    ]
    columns["activity_histogram"] = pa.array(merged, type=pa.list_(pa.int64()))
    columns["basis"] = pa.array(["pushed down" if bins is None else span.basis for bins in merged], type=pa.string())
    return conform("gpu_usage", pa.table(columns))


_BUSY_FRAC = 0.05
"""A board that reads more than this is busy."""
_TWICE = 1.2
"""This many times the samples that an hour can have: series stand beside one another, and do not follow one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedHours:
    """What of a board's readings is a pod's own, by hour (n_hours,)."""

    apart: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Whether the exporter tells pods apart: GPU_UTIL and FB_USED are those of the pod's own processes."""
    part: Floats
    """The pod's part of the readings of the whole board: by its GPU_UTIL where pods are told apart, else equal."""
    board: UsageKey | None = None
    """The board's own series."""
    lost: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
    """Hours in which every pod of a busy board reads 0: the exporter cannot see their processes."""


def shared_hours(cube: Cube, expected: float) -> dict[UsageKey, SharedHours]:
    """Return for each pod on a board that pods share, or that is told apart, what of its readings is the pod's.

    dcgm-exporter with --kubernetes-virtual-gpus (4.5.3 on) gives GPU_UTIL and FB_USED of each pod beside the board's, which
    names no pod, and repeats every other reading of the board under each pod (NVIDIA/dcgm-exporter,
    internal/pkg/transformation/kubernetes.go). `expected` is how many samples an hour has. A key without a pod stands for the
    board's own series.
    """
    by_device: dict[str, list[UsageKey]] = {}
    for key in cube.keys("samples"):
        by_device.setdefault(key.device, []).append(key)
    found: dict[UsageKey, SharedHours] = {}
    for keys in by_device.values():
        pods = [key for key in keys if key.pod]
        if len(keys) < 2 or not pods:
            continue
        own = sum(
            (np.nan_to_num(cube.of("samples", key)) for key in keys if not key.pod), start=np.zeros(cube.grid.hours)
        )
        # a pod with several shares of a board has a series for each
        seen = np.stack([np.minimum(np.nan_to_num(cube.of("samples", key)), expected) for key in pods])
        beside = (own > 0) & (seen.max(axis=0) > 0) & (own + seen.max(axis=0) > _TWICE * expected)
        together = np.maximum(np.where(seen.sum(axis=0) > _TWICE * expected, (seen > 0).sum(axis=0), 1), 1)
        used = np.stack([np.nan_to_num(cube.of("gpu_util_mean", key)) for key in pods])
        total = used.sum(axis=0)
        board = next((key for key in keys if not key.pod), None)
        busy = np.zeros(cube.grid.hours) if board is None else np.nan_to_num(cube.of("gpu_util_mean", board))
        lost = beside & (busy >= _BUSY_FRAC) & (total == 0)
        apart = beside & ~lost
        by_use = np.where(total > 0, used / np.where(total > 0, total, 1.0), 1.0 / together)
        for place, key in enumerate(pods):
            part = np.where(apart, by_use[place], 1.0 / together)
            found[key] = SharedHours(apart=apart, part=part, board=board, lost=lost)
        for key in keys:
            if not key.pod:
                found[key] = SharedHours(apart=beside, part=np.ones(cube.grid.hours))
    return found


def _apart(
    sharing: Mapping[UsageKey, SharedHours], keys: Sequence[UsageKey], hours: int
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return the hours in which the pods of a row are told apart from others on their board."""
    known = [sharing[key].apart for key in keys if key.pod and key in sharing]
    return np.any(np.stack(known), axis=0) if known else np.zeros(hours, dtype=np.bool_)


def _own(cube: Cube, statistic: str, key: UsageKey, sharing: Mapping[UsageKey, SharedHours]) -> Floats:
    """Return what of a reading is a pod's own, where its board is shared."""
    values, how = cube.of(statistic, key), sharing.get(key)
    if how is None or not key.pod or statistic.startswith("power"):
        return values
    if statistic.startswith(("gpu_util", "memory_used")):
        return (
            values
            if how.board is None or how.lost is None
            else np.where(how.lost, cube.of(statistic, how.board), values)
        )
    if statistic == "energy_kwh":
        return values * how.part
    return np.where(how.apart, values * how.part, values)


def _times(grid: HourGrid, hours: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    starts_ms = (grid.start_s + hours * S_PER_HR) * MS_PER_S
    return pa.array(starts_ms, type=pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))


def _folded(
    statistic: str,
    rows: Sequence[Floats],
    keys: Sequence[UsageKey],
    samples: Mapping[UsageKey, Floats],
    apart: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> Floats:
    """Fold pods that shared an hour: the largest maximum, summed energy, everything else weighted by samples.

    Pods that are told apart on one board add up. A weighted quantile is not the quantile of the union; where it matters, the
    histogram is.
    """
    if len(rows) == 1:
        return rows[0]
    stacked, counts = np.stack(rows), np.stack([samples[key] for key in keys])
    present = ~np.isnan(stacked)
    some = present.any(axis=0)
    summed = np.where(present, stacked, 0.0).sum(axis=0)
    if statistic.endswith("_max"):
        folded = np.where(present, stacked, -np.inf).max(axis=0)
    elif statistic == "energy_kwh":
        folded = summed
    else:
        weight = np.where(present, counts, 0.0)
        total = np.where(weight.sum(axis=0) > 0, weight.sum(axis=0), 1.0)
        folded = (np.where(present, stacked, 0.0) * weight).sum(axis=0) / total
    if not statistic.startswith("power"):
        most = np.inf if statistic.startswith(("memory", *LINKS)) else 1.0
        folded = np.where(apart, np.minimum(summed, most) if statistic != "energy_kwh" else summed, folded)
    return np.where(some, folded, np.nan)


def _merged_bins(bins: Bins, keys: Sequence[UsageKey], hour: int) -> list[int] | None:
    found = [bins[key][hour] for key in keys if key in bins and hour in bins[key]]
    if not found:
        return None
    return found[0] if len(found) == 1 else np.sum(found, axis=0).tolist()
