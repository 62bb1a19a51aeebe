"""Queries for GPU readings: pushed down to one value a device, pod and hour, on the server."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from trimtab.sources.dcgm import GpuLabels, Metric, Unit
from trimtab.sources.gpu_mending import TOLERANCE, Mender
from trimtab.sources.gpu_series import STATISTICS, Scale, Tally, grouped, hourly, selector
from trimtab.sources.hours import Cube, HourGrid, UsageKey
from trimtab.sources.promql import Floats, Prometheus
from trimtab.tables.rollup import histogram_of
from trimtab.units import S_PER_HR

_ENERGY_BOUND_KWH = 5.0
_PROBE_STEP_HR = 6

NEEDED = {
    "memory_used_gib": ("max", "mean"),
    "power_w": ("max", "mean"),
}
_COUNT = "sum by ({group}) (count_over_time({name}[1h]))"
_RISE = "max by ({group}) (increase({name}[1h]))"


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
    percent = {node: Unit.PERCENT.factor for node, top in highest.items() if top > 1.0 + TOLERANCE}
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
    for series in hourly(server, _COUNT, metric, cube.grid):
        found = tally.key_of(series)
        if found is not None:
            cube.add("samples", found[0], cube.grid.hour_of(series.times_ms), series.values)


def collect_energy(server: Prometheus, metric: Metric, cube: Cube, tally: Tally) -> None:
    """Collect the energy drawn in each hour; boards with MIG repeat the whole board's, which is no instance's."""
    for series in hourly(server, _RISE, metric, cube.grid):
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
        for series in hourly(server, STATISTICS[statistic], metric, cube.grid):
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
    Mender(server=server, metric=metric, target=target, scale=scale, cube=cube, tally=tally).mend(taken)


def _applies(metric: Metric, labels: GpuLabels) -> bool:
    """On MIG, GPU_UTIL is 0 or absent and power is the whole board's, repeated; GR_ENGINE_ACTIVE is per instance."""
    return not labels.mig_profile or metric.canonical not in ("gpu_util", "power_w")


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
