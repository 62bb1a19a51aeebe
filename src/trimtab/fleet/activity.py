"""GPU activity of each workload: device-hours of `gpu_usage`, and readings while there was work.

A GPU that serves one request in ten minutes reads 1 % on average and may be full while it serves it: how fast it would be on
a smaller GPU, or on part of one, follows from the second figure. Of a run the whole time counts: what it spends waiting for its
input is part of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trimtab.fleet.columns import coded, numbers, seconds_from, text
from trimtab.fleet.model import RUN_KINDS, Activity, Window, Workload
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.units import S_PER_HR

_FEWEST_HOURS = 5
"""Fewer hours than this may be due to chance."""
_BUSIEST_FRAC = 0.05
METRICS = ("sm_active", "tensor_active", "dram_active", "gpu_util")
USAGE_COLUMNS = (
    "device",
    "workload",
    "hour",
    *(f"{metric}_mean" for metric in METRICS),
    "sm_active_max",
    "gpu_util_max",
    *(f"{metric}_{statistic}" for metric in ("sm_active", "gpu_util") for statistic in ("p50", "p95")),
    "memory_used_gib_max",
    "cpu_used_frac_mean",
    "pcie_rx_gb_s_mean",
    "pcie_tx_gb_s_mean",
    "of_pods",
)
_Column = npt.NDArray[Any]
_OF_DEVICES = ("names", "memory_total_gib", "gpu")
"""Fields of `DeviceHours` that have one entry for each device, not for each row."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceHours:
    """The usage table as arrays (n_rows,): workload index (-1 = unallocated), hour, readings with NaN where absent."""

    owner: IntArray
    hour: IntArray
    means: Mapping[str, FloatArray]
    peak: FloatArray
    """Maximum of the best signal present."""
    median: FloatArray
    """Median of the hour of the same signal."""
    p95: FloatArray
    """95th percentile of the hour of the same signal."""
    memory_gib: FloatArray
    cpu: FloatArray
    """CPU that the owner's pods used in the hour, of what they may use."""
    pcie_rx_gb_s: FloatArray
    pcie_tx_gb_s: FloatArray
    device: IntArray
    """Index into `names`."""
    names: tuple[str, ...]
    memory_total_gib: FloatArray
    """Of each device (n_devices,); NaN if unknown."""
    gpu: np.ndarray[tuple[int], np.dtype[np.object_]]
    """Type of each device (n_devices,); None if unknown."""
    of_pods: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Whether a row's readings are of its owner's own processes, as shares of the whole device."""

    @property
    def best(self) -> FloatArray:
        """Return the hourly mean of the best signal present in each row."""
        return np.where(np.isnan(self.means["sm_active"]), self.means["gpu_util"], self.means["sm_active"])


def by_owner(rows: DeviceHours, owners: int) -> Iterator[DeviceHours]:
    """Yield the rows of each owner (0 to `owners` - 1), in their order: sorted once, where a look at all for each adds up."""
    order = np.argsort(rows.owner, kind="stable")
    ends = np.searchsorted(rows.owner[order], np.arange(owners + 1))
    for first, end in pairwise(ends.tolist()):
        mine = order[first:end]
        taken = {
            field.name: getattr(rows, field.name) for field in fields(rows) if field.name not in ("means", *_OF_DEVICES)
        }
        yield replace(
            rows,
            means={metric: means[mine] for metric, means in rows.means.items()},
            **{name: values[mine] for name, values in taken.items()},
        )


def distinct_hours(rows: DeviceHours, seen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    """Return how many device-hours some rows (n_rows,) cover."""
    covered = np.zeros((len(rows.names), rows.hour.max(initial=0) + 1), dtype=np.bool_)
    covered[rows.device[seen], rows.hour[seen]] = True
    return int(np.count_nonzero(covered))


def device_hours(
    usage: Iterable[pa.Table], devices: pa.Table, workloads: Mapping[str, int], window: Window
) -> DeviceHours:
    """Read the usage rows that fall into the window, of a table that comes in pieces."""
    number: dict[str, int] = {}
    parts: dict[str, list[_Column]] = defaultdict(list)
    for piece in usage:
        for name, values in _columns(piece, number, workloads, window):
            parts[name].append(_without_blanks(values))

    def joined(name: str) -> _Column:
        return _without_blanks(np.concatenate(parts.pop(name)))

    total = dict(zip(text(devices["device"]), numbers(devices["memory_gib"]), strict=True))
    type_of = dict(zip(text(devices["device"]), text(devices["gpu"]), strict=True))
    return DeviceHours(
        owner=joined("owner"),
        hour=joined("hour"),
        means={metric: joined(metric) for metric in METRICS},
        peak=joined("peak"),
        median=joined("median"),
        p95=joined("p95"),
        memory_gib=joined("memory"),
        cpu=joined("cpu"),
        pcie_rx_gb_s=joined("pcie_rx"),
        pcie_tx_gb_s=joined("pcie_tx"),
        of_pods=joined("of_pods"),
        device=joined("device"),
        names=tuple(number),
        memory_total_gib=np.array([total.get(name, np.nan) for name in number], dtype=np.float64),
        gpu=np.array([type_of.get(name) for name in number], dtype=object),
    )


def _columns(
    usage: pa.Table, number: dict[str, int], workloads: Mapping[str, int], window: Window
) -> Iterator[tuple[str, _Column]]:
    """Yield the columns of the rows that fall into the window; a device that has no number yet gets the next one."""
    hour = np.floor(seconds_from(usage["hour"], window) / S_PER_HR).astype(np.int64)
    inside = (hour >= 0) & (hour < window.hours)
    (device, names), (owner, owners) = coded(usage["device"]), coded(usage["workload"])
    yield "owner", np.array([workloads.get(name, -1) for name in owners], dtype=np.int64)[owner[inside]]
    yield "hour", hour[inside]
    yield from ((metric, numbers(usage[f"{metric}_mean"])[inside]) for metric in METRICS)
    sm_max, util_max = numbers(usage["sm_active_max"]), numbers(usage["gpu_util_max"])
    yield "peak", np.where(np.isnan(sm_max), util_max, sm_max)[inside]
    yield "median", _of_best(usage, "p50")[inside]
    yield "p95", _of_best(usage, "p95")[inside]
    yield "memory", numbers(usage["memory_used_gib_max"])[inside]
    yield "cpu", numbers(usage["cpu_used_frac_mean"])[inside]
    yield "pcie_rx", numbers(usage["pcie_rx_gb_s_mean"])[inside]
    yield "pcie_tx", numbers(usage["pcie_tx_gb_s_mean"])[inside]
    yield "of_pods", np.asarray(usage["of_pods"].fill_null(False), dtype=np.bool_)[inside]
    yield "device", np.array([number.setdefault(name, len(number)) for name in names], dtype=np.int64)[device[inside]]


def _without_blanks(values: _Column) -> _Column:
    """Return the values of a column; of one that was never measured, without memory for each row."""
    blank = values.dtype == np.float64 and np.isnan(values).all()
    return np.broadcast_to(np.float64(np.nan), values.shape) if blank else values


def _of_best(usage: pa.Table, statistic: str) -> FloatArray:
    """Return a statistic of each hour of the best signal that has one."""
    sm, util = numbers(usage[f"sm_active_{statistic}"]), numbers(usage[f"gpu_util_{statistic}"])
    return np.where(np.isnan(numbers(usage["sm_active_mean"])), util, sm)


def activity_of(
    rows: DeviceHours, owner: int, gpu_seconds: FloatArray, active_frac: float, gpu: str | None = None
) -> Activity:
    """Sum up one workload's device-hours; `gpu_seconds` (n_hours,) is what it held.

    Of several GPU types only the readings of `gpu` count, as if all that it held were of that type: a share of one type's time
    is another amount of work than that of another's. Where that type was never read, all count. What pods on a shared board did
    of it counts as a share of what they held of it; they may have used more than that.
    """
    any_type = rows.owner == owner
    of_type = any_type & (rows.gpu[rows.device] == gpu)
    mine = of_type if of_type.any() else any_type
    hours = len(gpu_seconds)
    signal = _signal(rows, mine)
    hour, held_gpus = rows.hour[mine], gpu_seconds / S_PER_HR
    scale = _to_holding(rows.of_pods[mine], hour, held_gpus)
    used = (rows.best[mine] if signal == "none" else rows.means[signal][mine]) * scale
    best = np.minimum(used, 1.0)
    seen = ~np.isnan(best)
    devices = np.bincount(hour[seen], minlength=hours)
    busy_share = _hourly_mean(best, hour, hours)
    held_hours = held_gpus.sum()
    memory, total = rows.memory_gib[mine], rows.memory_total_gib[rows.device[mine]]
    top = int(np.nanargmax(memory)) if np.any(~np.isnan(memory)) else None
    measured = busy_share[~np.isnan(busy_share)]
    return Activity(
        signal=signal,
        mean_frac=mean_of_known(best),
        p95_frac=float(np.quantile(measured, 0.95)) if len(measured) else None,
        sm_frac=mean_of_known(np.minimum(rows.means["sm_active"][mine] * scale, 1.0)),
        tensor_frac=mean_of_known(np.minimum(rows.means["tensor_active"][mine] * scale, 1.0)),
        dram_frac=mean_of_known(np.minimum(rows.means["dram_active"][mine] * scale, 1.0)),
        gpu_util_frac=mean_of_known(np.minimum(rows.means["gpu_util"][mine] * scale, 1.0)),
        cpu_frac=mean_of_known(rows.cpu[mine]),
        pcie_rx_gb_s=mean_of_known(rows.pcie_rx_gb_s[mine]),
        pcie_tx_gb_s=mean_of_known(rows.pcie_tx_gb_s[mine]),
        memory_peak_gib=None if top is None else float(memory[top]),
        memory_total_gib=None if top is None or np.isnan(total[top]) else float(total[top]),
        busy_gpus=np.where(
            held_gpus > 0, _hourly_mean(used, hour, hours) * held_gpus, np.where(devices > 0, np.nan, 0.0)
        ),
        median_gpus=_hourly_mean(rows.median[mine] * scale, hour, hours) * held_gpus,
        p95_gpus=_hourly_mean(rows.p95[mine] * scale, hour, hours) * held_gpus,
        active_devices_frac=_active_devices(rows.peak[mine], hour, active_frac),
        measured_frac=float(min((~np.isnan(rows.best[any_type])).sum() / held_hours, 1.0)) if held_hours > 0 else 0.0,
        uneven=_uneven(rows, mine, busy_share) if signal == "sm_active" else None,
    )


def _to_holding(
    of_pods: np.ndarray[tuple[int], np.dtype[np.bool_]], hour: IntArray, held_gpus: FloatArray
) -> FloatArray:
    """Return what readings (n_rows,) are multiplied with to be shares of what was held: 1 where they are of whole devices.

    A workload that used 0.3 of each of two boards and held half a board in all used 1.2 times what it held.
    """
    devices = np.bincount(hour[of_pods], minlength=len(held_gpus))
    held = held_gpus[hour]
    apart = of_pods & (held > 0)
    return np.where(apart, devices[hour] / np.where(apart, held, 1.0), 1.0)


def _signal(rows: DeviceHours, mine: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> str:
    """Name one signal for all of a workload's devices, since the two do not mix: SM_ACTIVE if most device-hours carry it."""
    sm, util = (~np.isnan(rows.means[metric][mine]) for metric in ("sm_active", "gpu_util"))
    if sm.any() and sm.sum() >= (util & ~sm).sum():
        return "sm_active"
    return "gpu_util" if util.any() else "none"


def _hourly_mean(values: FloatArray, hour: IntArray, hours: int) -> FloatArray:
    """Return the mean of the readings of each hour (n_hours,); NaN if there is none."""
    seen = ~np.isnan(values)
    count = np.bincount(hour[seen], minlength=hours)
    total = np.bincount(hour[seen], weights=values[seen], minlength=hours)
    return np.asarray(np.divide(total, count, out=np.full(hours, np.nan), where=count > 0), dtype=np.float64)


def _uneven(
    rows: DeviceHours, mine: np.ndarray[tuple[int], np.dtype[np.bool_]], busy_share: FloatArray
) -> float | None:
    """Return how far the second busiest device was above the mean of all, for three minutes of an hour (`Activity.uneven`).

    The busiest one may be a device that somebody else used; one hour may be that of a restart, hence the median of hours.
    """
    share, hour = busy_share[rows.hour[mine]], rows.hour[mine]
    known = np.isfinite(rows.means["sm_active"][mine]) & np.isfinite(rows.p95[mine]) & (share > 0)
    hours = np.unique(hour[known])
    if len(hours) < _FEWEST_HOURS:
        return None
    most = max(_FEWEST_HOURS, round(_BUSIEST_FRAC * len(hours)))
    busiest = hours[np.argsort(-busy_share[hours], kind="stable")[:most]]
    known &= np.isin(hour, busiest)
    above, device = (rows.p95[mine] / np.maximum(share, 1e-12))[known], rows.device[mine][known]
    usual = sorted(
        float(np.median(above[device == name]))
        for name in np.unique(device)
        if 2 * (device == name).sum() >= len(busiest)
    )
    return usual[-min(2, len(usual))] if usual else None


def mean_of_known(values: FloatArray) -> float | None:
    """Return the mean without NaN, None where nothing else is there."""
    seen = values[~np.isnan(values)]
    return float(seen.mean()) if len(seen) else None


def _active_devices(peak: FloatArray, hour: IntArray, active_frac: float) -> float | None:
    """Return the share of devices that did anything, over the hours in which any did; the 95th percentile of hours."""
    seen = ~np.isnan(peak)
    if not seen.any():
        return None
    held = np.bincount(hour[seen])
    active = np.bincount(hour[seen & (peak >= active_frac)], minlength=len(held))
    busy_hours = active > 0
    if not busy_hours.any():
        return 0.0
    return float(np.quantile(active[busy_hours] / held[busy_hours], 0.95))


def working_frac(workload: Workload) -> float:
    """Return the share of the time in which a GPU of the workload had work, on the low side.

    From requests in work where they were counted: with r of them a replica on average, arrivals without memory leave a replica
    idle for exp(-r) of the time (M/G/infinity). GPU_UTIL, the share of the time in which a kernel ran, where that is less.
    Where neither was measured, the GPU is assumed to have been full whenever it worked.
    """
    activity = workload.activity
    known = [share for share in (_with_requests(workload), activity.gpu_util_frac) if share is not None]
    full = max((share for share in (activity.sm_frac, activity.dram_frac, activity.tensor_frac) if share), default=1.0)
    return min(1.0, max(full, min(known, default=full)))


def _with_requests(workload: Workload) -> float | None:
    service = workload.service
    if service is None:
        return None
    seen = ~np.isnan(service.running) & (service.replicas > 0)
    if not seen.any():
        return None
    return float(1 - np.exp(-service.running[seen] / service.replicas[seen]).mean())


def activity_in_work(workload: Workload) -> Activity:
    """Return the activity of the workload's GPUs while they had work: requests or cells, or any hour of a run."""
    activity = workload.activity
    working = 1.0 if workload.kind in RUN_KINDS else working_frac(workload)

    def scaled(share: float | None) -> float | None:
        return None if share is None else min(1.0, share / working)

    return replace(
        activity,
        sm_frac=scaled(activity.sm_frac),
        tensor_frac=scaled(activity.tensor_frac),
        dram_frac=scaled(activity.dram_frac),
        gpu_util_frac=scaled(activity.gpu_util_frac),
    )


def busiest_hour_frac(workload: Workload, replicas: FloatArray | None = None) -> float:
    """Return the share of its busiest hour in which a replica is busy on a GPU of its own; 1 if nothing was measured.

    `replicas` (n_hours,) are those among whom its work is divided; None: as many as history held. A replica may be busy,
    with requests that leave most of the GPU idle, for longer than its activity says: longer by as much as on average.
    """
    held = workload.gpu_seconds / S_PER_HR
    busy = workload.activity.busy_gpus
    known = np.isfinite(busy) & (held > 0)
    if not known.any() or busy[known].sum() <= 0:
        return 1.0
    stretch = max(1.0, working_frac(workload) * float(held[known].sum() / busy[known].sum()))
    among = held if replicas is None else replicas * workload.gpus_per_pod
    served = known & (among > 0)
    return float((busy[served] / among[served]).max(initial=0.0)) * stretch
