"""Readings of GPUs by device, pod and hour: asked of recorded series or pushed down to the server, bad hours repaired.

A rule's value for the hour that ends at H is recorded within the hour after H (see `gpu_series`), so it is read an hour
later than it is of.

A sentinel, a NaN or a share above 1 spoils its whole hour once averaged. Such hours show in their maximum, their minimum or
a mean that is not a number; their raw samples alone are fetched, and the statistics made here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from trimtab.errors import SourceError
from trimtab.sources.hour_grid import EDGE_S, Cube, HourGrid, UsageKey
from trimtab.sources.prometheus.client import AnswerTooLarge, Floats, Ints, Prometheus, Series
from trimtab.sources.prometheus.dcgm import SHARES, ExportedMetric, GpuLabels, MetricUnit
from trimtab.sources.prometheus.gpu_series import (
    BIN_LABEL,
    GAUGE_STATISTICS,
    HISTOGRAM,
    Scale,
    Statistic,
    Tally,
    device_matcher,
    group_of,
    grouped,
    recorded_name,
    selector,
    statistics_of,
)
from trimtab.tables.checks import SENTINEL_FLOOR
from trimtab.tables.rollup import histogram_of
from trimtab.tables.schemas import HISTOGRAM_BINS
from trimtab.units import MS_PER_S, S_PER_HR

logger = logging.getLogger(__name__)

_NEARLY_ALL_FRAC = 0.99
"""Rules that saw this share of an hour's devices saw them all: a board that fails within an hour is in one count only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One question: a statistic of a metric, over some hours."""

    statistic: Statistic
    metric: ExportedMetric
    grid: HourGrid


Ask = Callable[[Wanted], list[Series]]
"""Answers a question with series whose times are the ends of the hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyValues:
    """Asks one server; `recorded` are the names of the recorded series that it has."""

    server: Prometheus
    recorded: frozenset[str] = frozenset()
    _known: dict[tuple[str, HourGrid], list[tuple[bool, HourGrid]]] = field(default_factory=dict, repr=False)

    def ask(self, wanted: Wanted) -> list[Series]:
        """Return the series of a statistic: of hours in which rules ran from them, of others from the samples."""
        name = recorded_name(wanted.metric.name, wanted.statistic.label)
        if name not in self.recorded:
            return self._pushed_down(wanted)
        query = _query(wanted, f"last_over_time({name}{self.server.matching()}[1h])")
        return [
            series
            for ruled, run in self.runs(wanted.metric, wanted.grid)
            for series in (self._from_rules(query, run) if ruled else self._pushed_down(replace(wanted, grid=run)))
        ]

    def histograms(self, metric: ExportedMetric, grid: HourGrid) -> list[Series]:
        """Return the recorded counts by device, pod and bin, of the hours in which rules ran."""
        name = recorded_name(metric.name, HISTOGRAM)
        if name not in self.recorded:
            return []
        query = f"sum by ({group_of(metric)}, {BIN_LABEL}) (last_over_time({name}{self.server.matching()}[1h]))"
        runs = [run for ruled, run in self.runs(metric, grid) if ruled]
        return [series for run in runs for series in self._from_rules(query, run)]

    def _from_rules(self, query: str, grid: HourGrid) -> list[Series]:
        later = self._over(query, _an_hour_later(grid))
        return [replace(series, times_ms=series.times_ms - S_PER_HR * MS_PER_S) for series in later]

    def runs(self, metric: ExportedMetric, grid: HourGrid) -> list[tuple[bool, HourGrid]]:
        """Cut a grid into runs of hours in which rules recorded as many series as there were, and of others."""
        key = (metric.name, grid)
        if key not in self._known:
            ruled = enumerate(self._is_ruled(metric, grid).tolist())
            grouped = [(is_so, [hour for hour, _ in run]) for is_so, run in groupby(ruled, key=itemgetter(1))]
            self._known[key] = [
                (is_so, HourGrid(start_s=grid.start_s + hours[0] * S_PER_HR, hours=len(hours)))
                for is_so, hours in grouped
            ]
        return self._known[key]

    def _is_ruled(self, metric: ExportedMetric, grid: HourGrid) -> npt.NDArray[np.bool_]:
        """Tell by hour whether rules recorded as many series of a metric as there were in the middle of it."""
        # The energy counter has no count of its own: its rise is recorded.
        label = statistics_of(metric)[0].label
        name = recorded_name(metric.name, label)
        ruled = self._counted(f"last_over_time({name}{self.server.matching()}[1h])", _an_hour_later(grid), 0)
        inner = f"count by ({group_of(metric)}) ({selector(self.server, metric)})"
        seen = self._counted(inner, grid, S_PER_HR // 2)
        return np.asarray(ruled >= _NEARLY_ALL_FRAC * seen, dtype=np.bool_)

    def _counted(self, inner: str, grid: HourGrid, before_end_s: int) -> Floats:
        """Return how many series an expression has in each hour, asked that long before the hour's end."""
        counts = np.zeros(grid.hours)
        first_s, last_s = (at - before_end_s for at in (grid.first_evaluation_s, grid.last_evaluation_s))
        for series in self.server.range(f"count({inner})", first_s, last_s, S_PER_HR):
            counts[grid.hour_of(series.times_ms)] = series.values
        return counts

    def _pushed_down(self, wanted: Wanted) -> list[Series]:
        """Push a statistic down; where the server refuses even one hour of it, a sixteenth of the boards at a time."""
        try:
            return list(self._sampled(wanted))
        except AnswerTooLarge as error:
            logger.info("asking by shards: %s", error)
        label = wanted.metric.uuid_label
        digits = [f'{label}=~".*{digit:x}"' for digit in range(16)]
        shards = (*digits, f'{label}!~".*[0-9a-f]"')
        return [series for shard in shards for series in self._sampled(wanted, shard)]

    def _sampled(self, wanted: Wanted, *shard: str) -> Iterator[Series]:
        samples = f"{selector(self.server, wanted.metric, *shard)}[1h]"
        return self._over(_query(wanted, wanted.statistic.function.format(samples=samples)), wanted.grid)

    def _over(self, query: str, grid: HourGrid) -> Iterator[Series]:
        return self.server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, S_PER_HR)


def _query(wanted: Wanted, value: str) -> str:
    below = " < 0" if wanted.statistic.only_below_zero else ""
    return f"{wanted.statistic.joined} by ({group_of(wanted.metric)}) ({value}){below}"


def _an_hour_later(grid: HourGrid) -> HourGrid:
    return replace(grid, start_s=grid.start_s + S_PER_HR)


_BOUNDS = {"memory_used_gib": 1024.0, "power_w": 5000.0}
"""No board holds or draws as much: larger readings are faults of the exporter."""
TOLERANCE = 1e-6
_MOST_REPAIRS = 2_000
_NAMES = tuple(statistic.label for statistic in GAUGE_STATISTICS)


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRepair:
    """Repairs one metric's hours in a cube, where its statistics stand under `target`."""

    server: Prometheus
    metric: ExportedMetric
    target: str
    scale: Scale
    cube: Cube
    tally: Tally

    def repair(self, taken: Mapping[UsageKey, Floats], negative: Mapping[UsageKey, Ints]) -> None:
        """Replace the statistics of hours that hold a bad reading.

        `taken` tells the hours that are this metric's, `negative` those in which a reading was below 0.
        """
        repairs = 0
        for key, hours in self._spoilt(taken, negative).items():
            hopeless = [hour for hour in hours.tolist() if self._is_all_sentinel(key, hour)]
            self.tally.count(f"{self.metric.name}: unsupported (sentinel) hours dropped", len(hopeless))
            self._forget(key, hopeless)
            rest = sorted(set(hours.tolist()) - set(hopeless))
            repairs += len(rest)
            if repairs > _MOST_REPAIRS:
                self.tally.count(f"{self.metric.name}: hours with readings out of bounds dropped", len(rest))
                self._forget(key, rest)
                continue
            for hour in rest:
                self._repair_hour(key, hour)

    def _spoilt(self, taken: Mapping[UsageKey, Floats], negative: Mapping[UsageKey, Ints]) -> dict[UsageKey, Ints]:
        """Return by key the hours whose maximum, minimum or mean shows a bad reading."""
        bound = bound_of(self.metric)
        spoilt = {}
        for key, mine in taken.items():
            highest, mean = (self.cube.of(f"{self.target}_{name}", key) for name in ("max", "mean"))
            bad = (mine > 0) & (~(highest <= bound + TOLERANCE) | np.isnan(mean))
            below = negative.get(key)
            if below is not None:
                bad[below[(below >= 0) & (below < len(bad))]] = True
            if bad.any():
                spoilt[key] = np.flatnonzero(bad)
        return spoilt

    def _is_all_sentinel(self, key: UsageKey, hour: int) -> bool:
        factor = self.scale.of(self.tally.devices[key.device].node)
        return bool(self.cube.of(f"{self.target}_mean", key)[hour] / factor >= SENTINEL_FLOOR * (1 - TOLERANCE))

    def _forget(self, key: UsageKey, hours: Iterable[int]) -> None:
        for hour in hours:
            self._put(key, hour, dict.fromkeys(_NAMES, np.nan))

    def _repair_hour(self, key: UsageKey, hour: int) -> None:
        labels = self.tally.devices[key.device]
        chosen = selector(self.server, self.metric, device_matcher(self.metric, labels))
        at_s = self.cube.grid.start_s + (hour + 1) * S_PER_HR - EDGE_S
        raw = [
            series.values * self.scale.of(labels.node)
            for series in self.server.instant(f"{chosen}[1h]", at_s)
            if (found := self.tally.key_of(series)) is not None and found[0] == key
        ]
        readings = sound_readings(np.concatenate(raw) if raw else np.zeros(0), self.metric, self.tally)
        self._put(key, hour, _statistics(readings))

    def _put(self, key: UsageKey, hour: int, statistics: Mapping[str, float]) -> None:
        for name, value in statistics.items():
            if f"{self.target}_{name}" in self.cube.values:
                self.cube.replace(f"{self.target}_{name}", key, hour, value)


def bound_of(metric: ExportedMetric) -> float:
    """Return the largest value that a metric can have, in its canonical unit."""
    return 1.0 if metric.canonical in SHARES else _BOUNDS.get(metric.canonical, np.inf)


def sound_readings(readings: Floats, metric: ExportedMetric, tally: Tally) -> Floats:
    """Return the readings without sentinels, NaN and negatives, clamped to the bound; what was changed is counted."""
    bound = bound_of(metric)
    kept = np.isfinite(readings) & (readings >= 0.0) & (readings < SENTINEL_FLOOR * MetricUnit.PERCENT.factor)
    tally.count(f"{metric.name}: readings dropped (sentinel, NaN or negative)", int((~kept).sum()))
    over = kept & (readings > bound + TOLERANCE)
    tally.count(f"{metric.name}: readings clamped to their bound", int(over.sum()))
    return np.asarray(np.minimum(readings[kept], bound), dtype=np.float64)


def _statistics(readings: Floats) -> dict[str, float]:
    if not len(readings):
        return dict.fromkeys(_NAMES, np.nan)
    return {
        "max": float(readings.max()),
        "mean": float(readings.mean()),
        "p50": float(np.quantile(readings, 0.5)),
        "p95": float(np.quantile(readings, 0.95)),
    }


_ENERGY_BOUND_KWH = 5.0
_PROBE_STEP_HR = 6

_MEAN = "avg by ({group}) (avg_over_time({name}[1h]))"


def probe_scale(server: Prometheus, metric: ExportedMetric, grid: HourGrid, tally: Tally) -> Scale:
    """Tell from the data whether a share comes as 0..1 or as percent, node by node: names and help texts do not say."""
    if metric.unit is not MetricUnit.SHARE:
        return Scale(usual=metric.unit.factor)
    query = grouped(_MEAN, metric, selector(server, metric))
    highest: dict[str, float] = {}
    for series in server.range(query, *grid.looks(_PROBE_STEP_HR)):
        found = tally.key_of(series)
        plausible = series.values[(series.values >= 0.0) & (series.values <= 1.0 / MetricUnit.PERCENT.factor)]
        if found is not None and len(plausible):
            node = found[1].node
            highest[node] = max(highest.get(node, 0.0), float(plausible.max()))
    percent = {node: MetricUnit.PERCENT.factor for node, top in highest.items() if top > 1.0 + TOLERANCE}
    if len(percent) == len(highest) and percent:
        return Scale(usual=MetricUnit.PERCENT.factor)
    return Scale(usual=1.0, by_node=percent)


_LOOK_EVERY_HR = 24
"""How often series are looked at for copies and disagreement: both last, and each look reads an hour of all boards."""
_APART_FRAC = 0.10
"""Two exporters sample a board at other moments; over an hour their means differ by a few points at most."""


def count_disagreements(server: Prometheus, metric: ExportedMetric, scale: Scale, grid: HourGrid, tally: Tally) -> None:
    """Count the boards of which several exporters tell a share, apart in half of the hours looked at or more."""
    board = metric.uuid_label
    mean = f"avg by ({board}, job, instance) (avg_over_time({selector(server, metric)}[1h]))"
    # one exporter gives 0: the highest and the lowest are the same series
    query = f"max by ({board}) ({mean}) - min by ({board}) ({mean})"
    # an answer in pieces has a board several times
    looks: dict[str, list[float]] = {}
    for series in server.range(query, *grid.looks(_LOOK_EVERY_HR)):
        looks.setdefault(series.labels.get(board, ""), []).extend((series.values * scale.usual >= _APART_FRAC).tolist())
    reason = "GPUs for which two exporters report shares 10 points or more apart, counted as their mean"
    tally.count(f"{metric.name}: {reason}", sum(2 * sum(apart) >= len(apart) for apart in looks.values()))


REPLICA_LABELS = ("prometheus_replica", "replica", "receive_replica", "__replica__")
"""By which the copies of one series are told apart that two Prometheus servers scraped: the operator's external label, that of
Thanos' guides, its receivers', and the one that Cortex and Mimir remove."""


def refuse_copies(server: Prometheus, metric: ExportedMetric, grid: HourGrid) -> None:
    """Raise SourceError where most boards come once for each replica of Prometheus: every sum would count them all."""
    board, chosen = metric.uuid_label, selector(server, metric)
    copies = f"count by ({board}) (count by ({board}, {', '.join(REPLICA_LABELS)}) ({chosen}))"
    query = f"avg({copies} > bool 1) > 0.5"
    step_s = min(_LOOK_EVERY_HR, grid.hours) * S_PER_HR
    if not any(
        len(series.values) for series in server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, step_s)
    ):
        return
    seen_labels = server.series([chosen], grid.start_s, grid.end_s)
    values = {name: sorted({labels[name] for labels in seen_labels if name in labels}) for name in REPLICA_LABELS}
    name, seen = max(values.items(), key=lambda item: len(item[1]))
    raise SourceError(
        f"{server.url} gives every series once for each replica of Prometheus ({name}: {', '.join(seen)}), so that requests "
        f"and replicas would count {len(seen)} times; have the querier remove copies (Thanos: --query.replica-label={name}), "
        f"or take one with --selector '{name}=\"{seen[0] if seen else ''}\"'"
    )


def probe_step_s(server: Prometheus, metric: ExportedMetric, grid: HourGrid) -> float:
    """Return the scrape interval: an hour over the most samples that a series had in one."""
    query = f"max(count_over_time({selector(server, metric)}[1h]))"
    pieces = server.range(query, *grid.looks(_PROBE_STEP_HR))
    most = max((float(series.values.max()) for series in pieces), default=0.0)
    return nearest_step_s(S_PER_HR / most) if most else float(S_PER_HR)


def nearest_step_s(step_s: float) -> float:
    """Return the usual scrape interval within 5 % of one, else itself: jitter must not make an hour look incomplete."""
    usual = (1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
    near = [value for value in usual if abs(value - step_s) <= 0.05 * value]
    return near[0] if near else step_s


def collect_counts(ask: Ask, metric: ExportedMetric, cube: Cube, tally: Tally) -> None:
    """Count each device's samples by pod and hour."""
    held = {key.device: np.zeros(cube.grid.hours) for key in cube.keys("samples")}
    for key in cube.keys("samples"):
        if key.pod:
            held[key.device] += np.nan_to_num(cube.of("samples", key))
    wanted = Wanted(statistic=Statistic.COUNT, metric=metric, grid=cube.grid)
    for key, _, series in _of_boards(ask(wanted), wanted, tally):
        hours = cube.grid.hour_of(series.times_ms)
        free = np.ones(len(hours), dtype=bool)
        if metric.of_unheld and key.device in held:
            free = held[key.device][hours] == 0
        cube.add("samples", key, hours[free], series.values[free])


def _of_boards(answer: Iterable[Series], wanted: Wanted, tally: Tally) -> Iterator[tuple[UsageKey, GpuLabels, Series]]:
    """Yield the series of an answer with whose they are; those of a board's cores as one.

    A board's mean and quantiles are the means of its cores', of those that are reported: neuron-monitor reports cores in use.
    """
    cores: dict[UsageKey, tuple[GpuLabels, list[Series]]] = {}
    for series in answer:
        found = tally.key_of(series)
        if found is not None and wanted.metric.of_cores:
            cores.setdefault(found[0], (found[1], []))[1].append(series)
        elif found is not None:
            yield (*found, series)
    for key, (labels, each) in cores.items():
        yield key, labels, _joined(each, wanted.statistic)


def _joined(each: list[Series], statistic: Statistic) -> Series:
    times_ms = np.unique(np.concatenate([series.times_ms for series in each]))
    values = np.full((len(each), len(times_ms)), np.nan)
    for row, series in enumerate(each):
        values[row, np.searchsorted(times_ms, series.times_ms)] = series.values
    match statistic:
        case Statistic.COUNT | Statistic.MAX:
            joined = np.nanmax(values, axis=0)
        case Statistic.MIN:
            joined = np.nanmin(values, axis=0)
        case _:
            joined = np.nanmean(values, axis=0)
    return replace(each[0], times_ms=times_ms, values=joined)


def collect_energy(ask: Ask, metric: ExportedMetric, cube: Cube, tally: Tally) -> None:
    """Collect the energy drawn in each hour; boards with MIG repeat the whole board's, which is no instance's."""
    for series in ask(Wanted(statistic=Statistic.RISE, metric=metric, grid=cube.grid)):
        found = tally.key_of(series)
        if found is None or found[1].mig_profile:
            continue
        drawn_kwh = series.values * metric.unit.factor
        sound = np.isfinite(drawn_kwh) & (drawn_kwh >= 0.0) & (drawn_kwh <= _ENERGY_BOUND_KWH)
        tally.count(f"{metric.name}: hours with an implausible rise dropped", int((~sound).sum()))
        hours = cube.grid.hour_of(series.times_ms)
        cube.put("energy_kwh", found[0], hours[sound], drawn_kwh[sound])


LINKS = ("pcie_rx_gb_s", "pcie_tx_gb_s")
"""Readings of which the mean of the hour is kept alone."""
_LINK_BOUND_GB_S = 128.0
"""Sixteen lanes of PCIe 6 carry 121 GB/s: a higher mean is a sentinel's."""


def link_question(metric: ExportedMetric, grid: HourGrid) -> Wanted:
    """Return what `collect_link` asks about a link."""
    return Wanted(statistic=Statistic.MEAN, metric=metric, grid=grid)


def collect_link(ask: Ask, metric: ExportedMetric, cube: Cube, tally: Tally) -> None:
    """Collect the mean rate of a link in each hour; boards with MIG repeat the whole board's, which is no instance's."""
    for series in ask(link_question(metric, cube.grid)):
        found = tally.key_of(series)
        if found is None or found[1].mig_profile:
            continue
        rate_gb_s = series.values * metric.unit.factor
        sound = np.isfinite(rate_gb_s) & (rate_gb_s >= 0.0) & (rate_gb_s <= _LINK_BOUND_GB_S)
        tally.count(f"{metric.name}: hours with an implausible mean dropped", int((~sound).sum()))
        hours = cube.grid.hour_of(series.times_ms)
        cube.put(f"{metric.canonical}_mean", found[0], hours[sound], rate_gb_s[sound])


def gauge_questions(metric: ExportedMetric, grid: HourGrid) -> list[Wanted]:
    """Return what `collect_statistics` asks about a gauge, in its order."""
    return [
        Wanted(statistic=statistic, metric=metric, grid=grid)
        for statistic in statistics_of(metric)
        if statistic is not Statistic.COUNT
    ]


def collect_statistics(
    server: Prometheus, metric: ExportedMetric, scale: Scale, cube: Cube, tally: Tally, ask: Ask | None = None
) -> None:
    """Collect a gauge's statistics by device, pod and hour, with the hours that hold bad readings repaired from raw samples."""
    ask = ask or HourlyValues(server=server).ask
    taken: dict[UsageKey, Floats] = {}
    spoilt: dict[UsageKey, Ints] = {}
    target = "gpu_util" if metric.canonical == "gr_engine_active" else metric.canonical
    for question in gauge_questions(metric, cube.grid):
        for key, labels, series in _of_boards(ask(question), question, tally):
            if not _applies(metric, labels):
                continue
            hours = cube.grid.hour_of(series.times_ms)
            if question.statistic is Statistic.MIN:
                spoilt[key] = np.union1d(spoilt.get(key, hours), hours)
                continue
            if question.statistic is Statistic.MAX:
                free = np.isnan(cube.of(f"{target}_max", key))
                if metric.of_unheld:
                    free &= np.nan_to_num(cube.of("samples", key)) > 0
                mine = taken.setdefault(key, np.zeros(cube.grid.hours, dtype=np.float64))
                mine[hours] = free[hours]
            ours = taken.get(key, np.zeros(cube.grid.hours))[hours] > 0
            name = f"{target}_{question.statistic.label}"
            cube.put(name, key, hours[ours], series.values[ours] * scale.of(labels.node))
    HourRepair(server=server, metric=metric, target=target, scale=scale, cube=cube, tally=tally).repair(taken, spoilt)


def _applies(metric: ExportedMetric, labels: GpuLabels) -> bool:
    """On MIG, GPU_UTIL is 0 or absent and power is the whole board's, repeated; GR_ENGINE_ACTIVE is per instance."""
    return not labels.mig_profile or metric.canonical not in ("gpu_util", "power_w")


def collect_histograms(
    server: Prometheus, metric: ExportedMetric, scale: Scale, cube: Cube, tally: Tally, *, span_hr: int
) -> dict[UsageKey, dict[int, list[int]]]:
    """Fetch raw samples of a share and count them into 101 bins by key and hour, `span_hr` hours a request."""
    found_bins: dict[UsageKey, dict[int, list[int]]] = {}
    for piece in cube.grid.chunks(span_hr):
        query = f"{selector(server, metric)}[{piece.hours}h]"
        for series in server.instant(query, piece.last_evaluation_s):
            found = tally.key_of(series)
            if found is None or not _applies(metric, found[1]):
                continue
            readings = series.values * scale.of(found[1].node)
            hours = cube.grid.hour_of(series.times_ms)
            seen = np.nan_to_num(cube.of("samples", found[0])) > 0
            for hour in np.unique(hours[seen[hours]]):
                sound = np.clip(readings[(hours == hour) & (readings < 2.0) & (readings >= 0.0)], 0.0, 1.0)
                _add_bins(found_bins.setdefault(found[0], {}), int(hour), sound)
    return found_bins


def recorded_histograms(
    values: HourlyValues, metric: ExportedMetric, cube: Cube, tally: Tally
) -> dict[UsageKey, dict[int, list[int]]]:
    """Read the histograms that a rule recorded, by key and hour, of the hours in which it ran."""
    found_bins: dict[UsageKey, dict[int, list[int]]] = {}
    for series in values.histograms(metric, cube.grid):
        found = tally.key_of(series)
        if found is None or not _applies(metric, found[1]):
            continue
        at = round(float(series.labels.get(BIN_LABEL, "nan")))
        for hour, number in zip(cube.grid.hour_of(series.times_ms).tolist(), series.values.tolist(), strict=True):
            if 0 <= at < HISTOGRAM_BINS:
                bins = found_bins.setdefault(found[0], {}).setdefault(hour, [0] * HISTOGRAM_BINS)
                bins[at] += round(number)
    return found_bins


def _add_bins(bins: dict[int, list[int]], hour: int, readings: Iterable[float]) -> None:
    counted = histogram_of(readings)
    if counted.sum():
        former = bins.get(hour)
        bins[hour] = counted.tolist() if former is None else (counted + np.asarray(former)).tolist()
