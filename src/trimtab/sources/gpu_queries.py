"""Queries for GPU readings: pushed down to one value a device, pod and hour, on the server.

A reading outside its bounds (a sentinel such as 9223372036854775794, a share above 1, NaN) spoils its whole hour once averaged.
Such hours show in their maximum or minimum; their raw samples alone are fetched, and the statistics made here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trimtab.sources.dcgm import KEPT_LABELS, SHARES, GpuLabels, Metric, Unit, read_labels
from trimtab.sources.hours import EDGE_S, Cube, HourGrid, UsageKey
from trimtab.sources.promql import AnswerTooLarge, Floats, Prometheus, Series
from trimtab.tables.column_checks import SENTINEL_FLOOR
from trimtab.tables.rollup import histogram_of
from trimtab.units import S_PER_HR

logger = logging.getLogger(__name__)

_GROUP = ", ".join(label for label in KEPT_LABELS if label not in ("instance", "exported_container"))
_GROUP_BY_INSTANCE = f"{_GROUP}, instance"
_BOUNDS = {"memory_used_gib": 1024.0, "power_w": 5000.0}
"""No board holds or draws as much: larger readings are faults of the exporter."""
_ENERGY_BOUND_KWH = 5.0
_TOLERANCE = 1e-6
_MOST_REPAIRS = 2_000
_PROBE_STEP_HR = 6

STATISTICS = {
    "max": "max by ({group}) (max_over_time({name}[1h]))",
    "mean": "avg by ({group}) (avg_over_time({name}[1h]))",
    "p50": "avg by ({group}) (quantile_over_time(0.5, {name}[1h]))",
    "p95": "avg by ({group}) (quantile_over_time(0.95, {name}[1h]))",
}
"""Maximum first: it decides which hours need their raw samples."""
NEEDED = {
    "memory_used_gib": ("max", "mean"),
    "power_w": ("max", "mean"),
}
_NEGATIVE = "min by ({group}) (min_over_time({name}[1h])) < 0"
_COUNT = "sum by ({group}) (count_over_time({name}[1h]))"
_RISE = "max by ({group}) (increase({name}[1h]))"


@dataclass(slots=True, kw_only=True)
class Tally:
    """What was seen on the way: devices by name, and readings clamped or dropped by reason."""

    devices: dict[str, GpuLabels] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, reason: str, number: int = 1) -> None:
        """Add to a reason."""
        if number:
            self.counts[reason] = self.counts.get(reason, 0) + number

    def key_of(self, series: Series) -> tuple[UsageKey, GpuLabels] | None:
        """Return whose readings a series holds, noting the device; None where its labels name none."""
        labels = read_labels(series.labels)
        if labels is None:
            self.count("GPU series without a device label ignored", len(series.values))
            return None
        self.devices[labels.device] = labels
        return UsageKey(labels.device, labels.namespace, labels.pod), labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What a metric's values are multiplied with, on most nodes and on some."""

    usual: float
    by_node: Mapping[str, float] = field(default_factory=dict)

    def of(self, node: str) -> float:
        """Return the factor on a node."""
        return self.by_node.get(node, self.usual)


def selector(server: Prometheus, metric: Metric, *matchers: str) -> str:
    """Return the selector of a metric under the client's own label filter."""
    return metric.name + server.matching(*matchers)


def grouped(query: str, metric: Metric, chosen: str) -> str:
    """Fill a query's template; nvidia_smi series name their node by `instance` alone."""
    group = _GROUP_BY_INSTANCE if metric.name.startswith("nvidia_smi") else _GROUP
    return query.format(group=group, name=chosen)


def probe_scale(server: Prometheus, metric: Metric, grid: HourGrid, tally: Tally) -> Scale:
    """Tell from the data whether a share comes as 0..1 or as percent, node by node: names and help texts do not say."""
    if metric.unit is not Unit.SHARE:
        return Scale(usual=metric.unit.factor)
    query = grouped(STATISTICS["mean"], metric, selector(server, metric))
    step_s = min(_PROBE_STEP_HR, grid.hours) * S_PER_HR
    highest: dict[str, float] = {}
    for series in server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, step_s):
        found = tally.key_of(series)
        plausible = series.values[(series.values >= 0.0) & (series.values <= 1.0 / Unit.PERCENT.factor)]
        if found is not None and len(plausible):
            node = found[1].node
            highest[node] = max(highest.get(node, 0.0), float(plausible.max()))
    percent = {node: Unit.PERCENT.factor for node, top in highest.items() if top > 1.0 + _TOLERANCE}
    if len(percent) == len(highest) and percent:
        return Scale(usual=Unit.PERCENT.factor)
    return Scale(usual=1.0, by_node=percent)


def probe_step_s(server: Prometheus, metric: Metric, grid: HourGrid) -> float:
    """Return the scrape interval: an hour over the most samples that a series had in one."""
    query = f"max(count_over_time({selector(server, metric)}[1h]))"
    step_s = min(_PROBE_STEP_HR, grid.hours) * S_PER_HR
    pieces = server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, step_s)
    most = max((float(series.values.max()) for series in pieces), default=0.0)
    return nearest_step_s(S_PER_HR / most) if most else float(S_PER_HR)


def nearest_step_s(step_s: float) -> float:
    """Return the usual scrape interval within 5 % of one, else itself: jitter must not make an hour look incomplete."""
    usual = (1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
    near = [value for value in usual if abs(value - step_s) <= 0.05 * value]
    return near[0] if near else step_s


def collect_counts(server: Prometheus, metric: Metric, cube: Cube, tally: Tally) -> None:
    """Count each device's samples by pod and hour."""
    for series in _over(server, _COUNT, metric, cube.grid):
        found = tally.key_of(series)
        if found is not None:
            cube.add("samples", found[0], cube.grid.hour_of(series.times_ms), series.values)


def collect_energy(server: Prometheus, metric: Metric, cube: Cube, tally: Tally) -> None:
    """Collect the energy drawn in each hour; boards with MIG repeat the whole board's, which is no instance's."""
    for series in _over(server, _RISE, metric, cube.grid):
        found = tally.key_of(series)
        if found is None or found[1].mig_profile:
            continue
        drawn_kwh = series.values * metric.unit.factor
        sound = np.isfinite(drawn_kwh) & (drawn_kwh >= 0.0) & (drawn_kwh <= _ENERGY_BOUND_KWH)
        tally.count(f"{metric.name}: hours with an implausible rise dropped", int((~sound).sum()))
        hours = cube.grid.hour_of(series.times_ms)
        cube.put("energy_kwh", found[0], hours[sound], drawn_kwh[sound])


def collect_statistics(server: Prometheus, metric: Metric, scale: Scale, cube: Cube, tally: Tally) -> None:
    """Collect a gauge's statistics by device, pod and hour, with the hours that hold bad readings mended from raw samples."""
    taken: dict[UsageKey, Floats] = {}
    target = "gpu_util" if metric.canonical == "gr_engine_active" else metric.canonical
    for statistic in NEEDED.get(metric.canonical, tuple(STATISTICS)):
        for series in _over(server, STATISTICS[statistic], metric, cube.grid):
            found = tally.key_of(series)
            if found is None or not _applies(metric, found[1]):
                continue
            hours = cube.grid.hour_of(series.times_ms)
            key = found[0]
            if statistic == "max":
                free = np.isnan(cube.of(f"{target}_max", key))
                mine = taken.setdefault(key, np.zeros(cube.grid.hours, dtype=np.float64))
                mine[hours] = free[hours]
            ours = taken.get(key, np.zeros(cube.grid.hours))[hours] > 0
            cube.put(f"{target}_{statistic}", key, hours[ours], series.values[ours] * scale.of(found[1].node))
    _mend(server, metric, target, scale, cube, taken, tally)


def _applies(metric: Metric, labels: GpuLabels) -> bool:
    """On MIG, GPU_UTIL is 0 or absent and power is the whole board's, repeated; GR_ENGINE_ACTIVE is per instance."""
    return not labels.mig_profile or metric.canonical not in ("gpu_util", "power_w")


def _over(server: Prometheus, template: str, metric: Metric, grid: HourGrid) -> Iterator[Series]:
    """Evaluate a query over the hours; where the server refuses even one hour of it, a sixteenth of the boards at a time."""
    try:
        whole = list(_hourly(server, template, metric, grid))
    except AnswerTooLarge as error:
        logger.info("asking by shards: %s", error)
        label = uuid_label(metric)
        digits = [f'{label}=~".*{digit:x}"' for digit in range(16)]
        whole = [
            series
            for shard in (*digits, f'{label}!~".*[0-9a-f]"')
            for series in _hourly(server, template, metric, grid, shard)
        ]
    yield from whole


def _hourly(server: Prometheus, template: str, metric: Metric, grid: HourGrid, *shard: str) -> Iterator[Series]:
    query = grouped(template, metric, selector(server, metric, *shard))
    return server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, S_PER_HR)


def uuid_label(metric: Metric) -> str:
    """Return the label in which a metric carries a board's UUID."""
    return "uuid" if metric.name.startswith("nvidia_smi") else "UUID"


def _mend(
    server: Prometheus,
    metric: Metric,
    target: str,
    scale: Scale,
    cube: Cube,
    taken: Mapping[UsageKey, Floats],
    tally: Tally,
) -> None:
    """Replace the statistics of hours that hold a reading out of bounds."""
    bound = _bound(metric)
    spoilt = {
        key: np.flatnonzero((mine > 0) & ~(cube.of(f"{target}_max", key) <= bound + _TOLERANCE))
        for key, mine in taken.items()
    }
    for series in _over(server, _NEGATIVE, metric, cube.grid):
        found = tally.key_of(series)
        if found is not None and found[0] in spoilt:
            spoilt[found[0]] = np.union1d(spoilt[found[0]], cube.grid.hour_of(series.times_ms))
    repairs = 0
    for key, hours in spoilt.items():
        hopeless = [int(hour) for hour in hours if _all_sentinel(cube, target, key, int(hour), scale, tally)]
        tally.count(f"{metric.name}: unsupported (sentinel) hours dropped", len(hopeless))
        _forget(cube, target, key, hopeless)
        rest = [int(hour) for hour in hours if hour not in set(hopeless)]
        if repairs + len(rest) > _MOST_REPAIRS:
            tally.count(f"{metric.name}: hours with readings out of bounds dropped", len(rest))
            _forget(cube, target, key, rest)
            continue
        repairs += len(rest)
        for hour in rest:
            _mend_hour(server, metric, target, scale, cube, key, hour, tally)


def _bound(metric: Metric) -> float:
    return 1.0 if metric.canonical in SHARES else _BOUNDS.get(metric.canonical, np.inf)


def _all_sentinel(cube: Cube, target: str, key: UsageKey, hour: int, scale: Scale, tally: Tally) -> bool:
    node = tally.devices[key.device].node
    mean = cube.of(f"{target}_mean", key)[hour] / scale.of(node)
    return bool(mean >= SENTINEL_FLOOR * (1 - _TOLERANCE))


def _forget(cube: Cube, target: str, key: UsageKey, hours: Sequence[int]) -> None:
    for hour in hours:
        for statistic in STATISTICS:
            if f"{target}_{statistic}" in cube.values:
                cube.replace(f"{target}_{statistic}", key, hour, np.nan)


def _mend_hour(
    server: Prometheus,
    metric: Metric,
    target: str,
    scale: Scale,
    cube: Cube,
    key: UsageKey,
    hour: int,
    tally: Tally,
) -> None:
    labels = tally.devices[key.device]
    at_s = cube.grid.start_s + (hour + 1) * S_PER_HR - EDGE_S
    raw = [
        series.values * scale.of(labels.node)
        for series in server.instant(f"{selector(server, metric, device_matcher(metric, labels))}[1h]", at_s)
        if (found := tally.key_of(series)) is not None and found[0] == key
    ]
    readings = sound_readings(np.concatenate(raw) if raw else np.zeros(0), metric, tally)
    for statistic, value in _statistics(readings).items():
        if f"{target}_{statistic}" in cube.values:
            cube.replace(f"{target}_{statistic}", key, hour, value)


def device_matcher(metric: Metric, labels: GpuLabels) -> str:
    """Return a matcher of a device's board, by the label that carries its UUID."""
    if labels.uuid.startswith(f"{labels.node}/gpu"):
        return f'gpu="{labels.uuid.rpartition("/gpu")[2]}"'
    return f'{uuid_label(metric)}="{labels.uuid}"'


def sound_readings(readings: Floats, metric: Metric, tally: Tally) -> Floats:
    """Return the readings without sentinels, NaN and negatives, clamped to the bound; what was changed is counted."""
    bound = _bound(metric)
    kept = np.isfinite(readings) & (readings >= 0.0) & (readings < SENTINEL_FLOOR * Unit.PERCENT.factor)
    tally.count(f"{metric.name}: readings dropped (sentinel, NaN or negative)", int((~kept).sum()))
    over = kept & (readings > bound + _TOLERANCE)
    tally.count(f"{metric.name}: readings clamped to their bound", int(over.sum()))
    return np.asarray(np.minimum(readings[kept], bound), dtype=np.float64)


def _statistics(readings: Floats) -> dict[str, float]:
    if not len(readings):
        return dict.fromkeys(STATISTICS, np.nan)
    return {
        "max": float(readings.max()),
        "mean": float(readings.mean()),
        "p50": float(np.quantile(readings, 0.5)),
        "p95": float(np.quantile(readings, 0.95)),
    }


def collect_histograms(
    server: Prometheus, metric: Metric, scale: Scale, cube: Cube, tally: Tally, *, span_hr: int
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
            for hour in np.unique(hours):
                sound = np.clip(readings[(hours == hour) & (readings < 2.0) & (readings >= 0.0)], 0.0, 1.0)
                _add_bins(found_bins.setdefault(found[0], {}), int(hour), sound)
    return found_bins


def _add_bins(bins: dict[int, list[int]], hour: int, readings: Iterable[float]) -> None:
    counted = histogram_of(readings)
    if counted.sum():
        former = bins.get(hour)
        bins[hour] = counted.tolist() if former is None else (counted + np.asarray(former)).tolist()
