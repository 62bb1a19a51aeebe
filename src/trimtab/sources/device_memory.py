"""Memory of each device: used + free + reserved, since a total is not exported by default."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.sources.dcgm import Metric, read_labels
from trimtab.sources.gpu_series import grouped, selector
from trimtab.sources.gpu_usage import GpuMetrics
from trimtab.sources.hours import HourGrid
from trimtab.sources.lives import by_day
from trimtab.sources.promql import Prometheus

_LAST = "max by ({group}) (last_over_time({name}[1d]))"
_MOST_GIB = 1024.0


def collect_memory(server: Prometheus, metrics: GpuMetrics, grid: HourGrid) -> dict[str, float]:
    """Return visible memory in GiB by device; a device that exports too little for it is left out."""
    used, free, reserved, total = (
        _by_device(server, metrics.of(f"memory_{part}_gib"), grid) for part in ("used", "free", "reserved", "total")
    )
    found = {device: max(days.values()) for device, days in total.items()}
    for device in used.keys() & free.keys() - found.keys():
        days = used[device].keys() & free[device].keys()
        if days:
            last = max(days)
            found[device] = used[device][last] + free[device][last] + reserved.get(device, {}).get(last, 0.0)
    return found


def _by_device(server: Prometheus, spellings: Sequence[Metric], grid: HourGrid) -> dict[str, dict[int, float]]:
    """Return the last reading of each day by device; the parts of one day belong together."""
    found: dict[str, dict[int, float]] = {}
    for metric in spellings:
        for series in by_day(server, grouped(_LAST, metric, selector(server, metric)), grid):
            labels = read_labels(series.labels)
            if labels is None:
                continue
            for at, value in zip(series.times_ms.tolist(), series.values.tolist(), strict=True):
                if 0.0 <= value * metric.unit.factor <= _MOST_GIB:
                    found.setdefault(labels.device, {})[at] = value * metric.unit.factor
    return found
