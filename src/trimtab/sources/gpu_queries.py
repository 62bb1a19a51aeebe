"""Queries for GPU readings: pushed down to one value a device, pod and hour, on the server."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from trimtab.sources.dcgm import GpuLabels, Metric, Unit
from trimtab.sources.gpu_mending import TOLERANCE, Mender
from trimtab.sources.gpu_series import Scale, Statistic, Tally, grouped, selector
from trimtab.sources.hourly_values import Ask, HourlyValues, Wanted
from trimtab.sources.hours import Cube, HourGrid, UsageKey
from trimtab.sources.promql import Floats, Ints, Prometheus
from trimtab.sources.recording_rules import BIN_LABEL, statistics_of
from trimtab.tables.rollup import histogram_of
from trimtab.tables.schemas import HISTOGRAM_BINS
from trimtab.units import S_PER_HR

_ENERGY_BOUND_KWH = 5.0
_PROBE_STEP_HR = 6

_MEAN = "avg by ({group}) (avg_over_time({name}[1h]))"


def probe_scale(server: Prometheus, metric: Metric, grid: HourGrid, tally: Tally) -> Scale:
    """Tell from the data whether a share comes as 0..1 or as percent, node by node: names and help texts do not say."""
    if metric.unit is not Unit.SHARE:
        return Scale(usual=metric.unit.factor)
    query = grouped(_MEAN, metric, selector(server, metric))
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


def collect_counts(ask: Ask, metric: Metric, cube: Cube, tally: Tally) -> None:
    """Count each device's samples by pod and hour."""
    for series in ask(Wanted(statistic=Statistic.COUNT, metric=metric, grid=cube.grid)):
        found = tally.key_of(series)
        if found is not None:
            cube.add("samples", found[0], cube.grid.hour_of(series.times_ms), series.values)


def collect_energy(ask: Ask, metric: Metric, cube: Cube, tally: Tally) -> None:
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


def gauge_questions(metric: Metric, grid: HourGrid) -> list[Wanted]:
    """Return what `collect_statistics` asks about a gauge, in its order."""
    return [
        Wanted(statistic=statistic, metric=metric, grid=grid)
        for statistic in statistics_of(metric)
        if statistic is not Statistic.COUNT
    ]


def collect_statistics(
    server: Prometheus, metric: Metric, scale: Scale, cube: Cube, tally: Tally, ask: Ask | None = None
) -> None:
    """Collect a gauge's statistics by device, pod and hour, with the hours that hold bad readings mended from raw samples."""
    ask = ask or HourlyValues(server=server).ask
    taken: dict[UsageKey, Floats] = {}
    spoilt: dict[UsageKey, Ints] = {}
    target = "gpu_util" if metric.canonical == "gr_engine_active" else metric.canonical
    for wanted in gauge_questions(metric, cube.grid):
        for series in ask(wanted):
            found = tally.key_of(series)
            if found is None or not _applies(metric, found[1]):
                continue
            hours = cube.grid.hour_of(series.times_ms)
            key = found[0]
            if wanted.statistic is Statistic.MIN:
                spoilt[key] = np.union1d(spoilt.get(key, hours), hours)
                continue
            if wanted.statistic is Statistic.MAX:
                free = np.isnan(cube.of(f"{target}_max", key))
                mine = taken.setdefault(key, np.zeros(cube.grid.hours, dtype=np.float64))
                mine[hours] = free[hours]
            ours = taken.get(key, np.zeros(cube.grid.hours))[hours] > 0
            name = f"{target}_{wanted.statistic.label}"
            cube.put(name, key, hours[ours], series.values[ours] * scale.of(found[1].node))
    Mender(server=server, metric=metric, target=target, scale=scale, cube=cube, tally=tally).mend(taken, spoilt)


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


def recorded_histograms(
    values: HourlyValues, metric: Metric, cube: Cube, tally: Tally
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
