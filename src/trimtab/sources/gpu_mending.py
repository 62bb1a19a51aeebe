"""Hours that hold a bad reading, made again from their raw samples.

A sentinel, a NaN or a share above 1 spoils its whole hour once averaged. Such hours show in their maximum, their minimum or
a mean that is no number; their raw samples alone are fetched, and the statistics made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from trimtab.sources.dcgm import SHARES, Metric, Unit
from trimtab.sources.gpu_series import GAUGE_STATISTICS, Scale, Tally, device_matcher, selector
from trimtab.sources.hours import EDGE_S, Cube, UsageKey
from trimtab.sources.promql import Floats, Ints, Prometheus
from trimtab.tables.column_checks import SENTINEL_FLOOR
from trimtab.units import S_PER_HR

_BOUNDS = {"memory_used_gib": 1024.0, "power_w": 5000.0}
"""No board holds or draws as much: larger readings are faults of the exporter."""
TOLERANCE = 1e-6
_MOST_REPAIRS = 2_000
_NAMES = tuple(statistic.label for statistic in GAUGE_STATISTICS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mender:
    """Mends one metric's hours in a cube, where its statistics stand under `target`."""

    server: Prometheus
    metric: Metric
    target: str
    scale: Scale
    cube: Cube
    tally: Tally

    def mend(self, taken: Mapping[UsageKey, Floats], negative: Mapping[UsageKey, Ints]) -> None:
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
                self._mend_hour(key, hour)

    def _spoilt(self, taken: Mapping[UsageKey, Floats], negative: Mapping[UsageKey, Ints]) -> dict[UsageKey, Ints]:
        """Return by key the hours whose maximum, minimum or mean tells of a bad reading."""
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

    def _mend_hour(self, key: UsageKey, hour: int) -> None:
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


def bound_of(metric: Metric) -> float:
    """Return the largest value that a metric can have, in its canonical unit."""
    return 1.0 if metric.canonical in SHARES else _BOUNDS.get(metric.canonical, np.inf)


def sound_readings(readings: Floats, metric: Metric, tally: Tally) -> Floats:
    """Return the readings without sentinels, NaN and negatives, clamped to the bound; what was changed is counted."""
    bound = bound_of(metric)
    kept = np.isfinite(readings) & (readings >= 0.0) & (readings < SENTINEL_FLOOR * Unit.PERCENT.factor)
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
