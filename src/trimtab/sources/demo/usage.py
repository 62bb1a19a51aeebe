"""Minute readings of GPUs, and their rollup to the device-hours of the `gpu_usage` table.

Readings are arrays of shape `(n_devices, n_minutes)`: one sample a minute, as a scrape of DCGM once a minute gives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import numpy.typing as npt

from trimtab.sources.demo.demand import MIN_PER_HR
from trimtab.sources.demo.machines import Machine
from trimtab.tables.schemas import HISTOGRAM_BINS
from trimtab.units import S_PER_HR, W_PER_KW

Readings = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int64]

NOBODY = -1
"""Owner of a device without a holder."""
SAMPLE_LOSS_FRAC = 0.003
"""Share of scrapes that fail."""
_SIGNALS = ("gpu_util", "sm_active", "tensor_active", "dram_active")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuActivity:
    """What the sensors of some GPUs read, minute by minute; shares in 0..1, memory in GiB."""

    sm_active: Readings
    gpu_util: Readings
    tensor_active: Readings
    dram_active: Readings
    memory_gib: Readings


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageBlock:
    """GPUs of one machine type over a stretch of whole hours: readings, and who held each GPU in each minute.

    `owner` indexes `workloads`, or is `NOBODY`. `unseen` marks minutes whose sample is lost; `unprofiled` lists the devices
    (by position) whose profiling counters are off, so that only gpu_util is known.
    """

    machine: Machine
    devices: tuple[str, ...]
    start: datetime
    workloads: tuple[str, ...]
    owner: Codes
    activity: GpuActivity
    unseen: npt.NDArray[np.bool_] | None = None
    unprofiled: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRows:
    """Device-hours as columns, ready for the `gpu_usage` table; `histogram` is `(n_rows, 101)`."""

    device: list[str]
    workload: list[str | None]
    hour_s: Codes
    start: datetime
    columns: dict[str, npt.NDArray[np.float64]]
    histogram: Codes = field(default_factory=lambda: np.zeros((0, HISTOGRAM_BINS), dtype=np.int64))


def idle(n_devices: int, n_minutes: int) -> GpuActivity:
    """Return the readings of GPUs that run nothing; the arrays may be written to."""
    names = (*_SIGNALS, "memory_gib")
    return GpuActivity(**{name: np.zeros((n_devices, n_minutes), dtype=np.float32) for name in names})


def from_sm(
    sm_active: Readings,
    gpu_util: Readings,
    memory_gib: Readings,
    *,
    tensor_of_sm: float,
    dram_of_sm: float,
    rng: np.random.Generator,
) -> GpuActivity:
    """Complete readings from SM activity: tensor and DRAM activity follow it with their own noise."""
    return GpuActivity(
        sm_active=sm_active,
        gpu_util=np.maximum(gpu_util, sm_active),
        tensor_active=_clip(sm_active * tensor_of_sm * jitter(sm_active.shape, 0.05, rng)),
        dram_active=_clip(sm_active * dram_of_sm * jitter(sm_active.shape, 0.05, rng)),
        memory_gib=memory_gib,
    )


def serving(
    rho: npt.NDArray[np.float64],
    n_devices: int,
    *,
    memory_gib: float,
    tensor_of_sm: float,
    dram_of_sm: float,
    rng: np.random.Generator,
) -> GpuActivity:
    """Return the readings of replicas that share a load rho `(n_minutes,)` almost evenly.

    SM activity is almost proportional to load and reaches 0.9 at 1. A kernel runs whenever any of about four requests in
    flight is on the GPU, so gpu_util is about 1 - (1 - rho)^4.
    """
    share = rng.normal(1.0, 0.03, (n_devices, 1))
    load = np.clip(rho[None, :] * share, 0.0, 1.0).astype(np.float32)
    load = _clip(load * jitter(load.shape, 0.08, rng))
    sm_active = _clip(1.05 * load / (1 + np.float32(0.167) * load))
    gpu_util = _clip(1 - (1 - load) ** 4)
    memory = np.full_like(load, memory_gib) * rng.normal(1.0, 0.004, (n_devices, 1)).astype(np.float32)
    return from_sm(sm_active, gpu_util, memory, tensor_of_sm=tensor_of_sm, dram_of_sm=dram_of_sm, rng=rng)


def steady(
    on: npt.NDArray[np.bool_],
    *,
    sm_frac: float,
    busy_frac: float,
    memory_gib: npt.NDArray[np.float64],
    tensor_of_sm: float,
    dram_of_sm: float,
    noise_frac: float,
    rng: np.random.Generator,
) -> GpuActivity:
    """Return the readings of GPUs that work at one level while `on` `(n_devices, n_minutes)`, and rest otherwise."""
    sm_active = _clip(on * sm_frac * jitter(on.shape, noise_frac, rng))
    gpu_util = _clip(on * busy_frac * jitter(on.shape, noise_frac / 2, rng))
    memory = np.broadcast_to(memory_gib, on.shape).astype(np.float32)
    return from_sm(sm_active, gpu_util, memory, tensor_of_sm=tensor_of_sm, dram_of_sm=dram_of_sm, rng=rng)


def jitter(shape: tuple[int, ...], sd_frac: float, rng: np.random.Generator) -> Readings:
    """Draw independent factors around 1, never negative."""
    normal = rng.standard_normal(shape, dtype=np.float32)
    return np.asarray(np.maximum(1 + np.float32(sd_frac) * normal, 0.0), dtype=np.float32)


def hourly(block: UsageBlock, rng: np.random.Generator) -> UsageRows:
    """Roll minutes up to hours: one row for each device, workload and hour that has a sample."""
    n_devices, n_minutes = block.owner.shape
    n_hours = n_minutes // MIN_PER_HR
    owner = block.owner.reshape(n_devices * n_hours, MIN_PER_HR)
    seen = rng.random(owner.shape, dtype=np.float32) >= SAMPLE_LOSS_FRAC
    if block.unseen is not None:
        seen &= ~block.unseen.reshape(owner.shape)
    row, code = _device_hours(owner)
    mask = (owner[row] == code[:, None]) & seen[row]
    kept = mask.any(axis=1)
    row, code, mask = row[kept], code[kept], mask[kept]
    device = row // n_hours
    profiled = ~np.isin(device, block.unprofiled)
    return UsageRows(
        device=[block.devices[i] for i in device],
        workload=[None if i == NOBODY else block.workloads[i] for i in code],
        hour_s=(row % n_hours) * S_PER_HR,
        start=block.start,
        columns=_statistics(block, row, mask, profiled),
        histogram=_histogram(block.activity, row, mask, profiled),
    )


def gaps(
    n_devices: int, n_minutes: int, *, count: int, hours: tuple[int, int], rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Draw sensor gaps: stretches of whole hours in which a device reports nothing."""
    unseen = np.zeros((n_devices, n_minutes), dtype=np.bool_)
    for _ in range(count):
        first = int(rng.integers(n_minutes // MIN_PER_HR)) * MIN_PER_HR
        unseen[rng.integers(n_devices), first : first + int(rng.integers(*hours)) * MIN_PER_HR] = True
    return unseen


def _device_hours(owner: Codes) -> tuple[Codes, Codes]:
    """List the (device-hour, owner) pairs; an hour that changes hands gives one pair for each owner."""
    mixed = np.flatnonzero((owner != owner[:, :1]).any(axis=1))
    whole = np.setdiff1d(np.arange(len(owner)), mixed, assume_unique=True)
    width = int(owner.max()) + 2
    pairs = np.unique((mixed[:, None] * width + owner[mixed] + 1).ravel())
    row = np.concatenate([whole, pairs // width])
    code = np.concatenate([owner[whole, 0], pairs % width - 1])
    order = np.argsort(row, kind="stable")
    return row[order], code[order]


def _statistics(
    block: UsageBlock, row: Codes, mask: npt.NDArray[np.bool_], profiled: npt.NDArray[np.bool_]
) -> dict[str, npt.NDArray[np.float64]]:
    """Summarise the readings of each device-hour."""
    count = mask.sum(axis=1)
    columns: dict[str, npt.NDArray[np.float64]] = {"samples": count.astype(np.float64)}
    for name in _SIGNALS:
        values = _rows(getattr(block.activity, name), row)
        known = np.ones_like(profiled) if name == "gpu_util" else profiled
        columns |= {key: np.where(known, column, np.nan) for key, column in _summary(name, values, mask, count).items()}
    memory = _rows(block.activity.memory_gib, row)
    columns["memory_used_gib_mean"] = _round(np.where(mask, memory, 0.0).sum(axis=1) / count, 3)
    columns["memory_used_gib_max"] = _round(np.where(mask, memory, 0.0).max(axis=1), 3)
    power = _power_w(block, row, mask, count)
    columns["power_w_mean"] = _round(power, 1)
    columns["energy_kwh"] = _round(power * count / MIN_PER_HR / W_PER_KW, 6)
    return columns


def _summary(
    name: str, values: Readings, mask: npt.NDArray[np.bool_], count: Codes
) -> dict[str, npt.NDArray[np.float64]]:
    """Return mean, nearest-rank median and 95th percentile, and maximum over the masked samples of each row."""
    ordered = np.sort(np.where(mask, values, np.float32(np.inf)), axis=1)
    each = np.arange(len(count))

    def rank(quantile: float) -> npt.NDArray[np.float64]:
        return _round(ordered[each, np.ceil(quantile * count).astype(np.int64) - 1], 4)

    return {
        f"{name}_mean": _round(np.where(mask, values, 0.0).sum(axis=1) / count, 5),
        f"{name}_p50": rank(0.5),
        f"{name}_p95": rank(0.95),
        f"{name}_max": rank(1.0),
    }


def _power_w(block: UsageBlock, row: Codes, mask: npt.NDArray[np.bool_], count: Codes) -> npt.NDArray[np.float64]:
    """Estimate mean board power: idle power, a step for an awake GPU, and the rest in proportion to SM activity."""
    machine = block.machine
    sm_active = np.where(mask, _rows(block.activity.sm_active, row), 0.0).sum(axis=1) / count
    awake = np.where(mask, _rows(block.activity.gpu_util, row), 0.0).sum(axis=1) / count
    dynamic = machine.board_w - machine.idle_w
    return np.asarray(machine.idle_w + dynamic * (0.12 * awake + 0.8 * sm_active), dtype=np.float64)


def _histogram(
    activity: GpuActivity, row: Codes, mask: npt.NDArray[np.bool_], profiled: npt.NDArray[np.bool_]
) -> Codes:
    """Count the samples of the best signal in 101 bins."""
    best = np.where(profiled[:, None], _rows(activity.sm_active, row), _rows(activity.gpu_util, row))
    bins = np.rint(best * (HISTOGRAM_BINS - 1)).astype(np.int64)
    flat = (np.arange(len(row))[:, None] * HISTOGRAM_BINS + bins)[mask]
    counts = np.bincount(flat, minlength=len(row) * HISTOGRAM_BINS)
    return np.asarray(counts.reshape(len(row), HISTOGRAM_BINS), dtype=np.int64)


def _rows(readings: Readings, row: Codes) -> Readings:
    return readings.reshape(-1, MIN_PER_HR)[row]


def _round(values: npt.NDArray[np.floating], decimals: int) -> npt.NDArray[np.float64]:
    return np.asarray(np.round(values.astype(np.float64), decimals), dtype=np.float64)


def _clip(values: npt.NDArray[np.floating]) -> Readings:
    return np.asarray(np.clip(values, 0.0, 1.0), dtype=np.float32)
