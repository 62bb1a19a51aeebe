"""Carry a measured workload to another GPU: split its time by what kept the device busy, scale each part.

One second on the source GPU is read as three parts. With D = DRAM activity, T = tensor activity:

    memory    m = min(1, D / 0.92)          the bus at its achievable rate (STREAM-like kernels reach 92 % of the peak)
    compute   c = min(1, T / 0.80)          the tensor pipes at theirs (large cuBLAS products reach 75-85 %)
    other     o = 1 - max(m, c)             when m and c overlap fully
      small   k = min(o, U - max(m, c))     a kernel ran (U = GPU_UTIL) that filled neither: too few blocks, latency
      host    o - k                         no kernel ran: launches, host, input, network

On the target m grows by the ratio of bandwidths, c by the ratio of dense tensor rates at the workload's precision. The host's
part differs little between data-centre parts: it stays (its interval lets it improve or worsen by the square root of the
compute ratio). Small kernels may gain nothing, or as much as large ones, the geometric mean of both ratios: the interval spans
both, and the prediction is the middle of nothing and half of that, as exponents go. Of 1,402 measured pairs, most of those
with little of either activity went by that mean to a power between 0 and 1 (docs/benchmarks/physics.md). Memory and compute
time overlap in part, so the time lies between `o + max(m', c')` and `o' + m' + c'` with o' = 1 - m - c where that is positive.

A counter that is missing is not zero. D may have been anything up to the share of time in which a kernel ran (GPU_UTIL; all of
it where that is missing too), T anything up to SM activity (a pipe is active on an active SM): the interval spans every such
reading, and the prediction is the geometric mean of its slowest and fastest, whose worst error as a ratio is the least.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from trimtab.catalog import Gpu, Precision
from trimtab.errors import Unpredictable
from trimtab.provenance import Basis, Estimate

BANDWIDTH_REACH = 0.92
TENSOR_REACH = 0.80
MODEL_SPREAD = 0.17
"""Standard deviation of ln(predicted / measured speed ratio) that the split leaves: assumed, between what a measured point
leaves on one GPU (0.12) and what pairs of GPUs leave without activity (0.21); what it covers: docs/benchmarks/physics.md."""
_SMALL_POWER = 0.5
"""Small kernels are predicted to gain between nothing and so much, as an exponent of the ratio by which large ones gain."""
Z_80 = 1.2816
"""Normal quantile that leaves 10 % on each side."""
SAME_SPEED = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED, because="the same GPU")


class Binding(Enum):
    """What limits a workload on a GPU."""

    COMPUTE = "compute"
    MEMORY = "memory bandwidth"
    NETWORK = "network"
    HOST = "host, input or latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceActivity:
    """Mean activity of a device while the workload held it, as shares 0..1; None where it was not measured."""

    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    gpu_util: float | None = None


class TimeSplit(NamedTuple):
    """Shares of one second on the source GPU; compute and memory may overlap."""

    compute_frac: float
    memory_frac: float

    @property
    def other_frac(self) -> float:
        """Return the share that neither resource explains, when both overlap fully."""
        return max(0.0, 1 - max(self.compute_frac, self.memory_frac))


class TimeSplits(NamedTuple):
    """The splits that what was measured leaves possible: each share between its least and its most, alone of the other."""

    least: TimeSplit
    most: TimeSplit

    def clip(self, compute_frac: float, memory_frac: float) -> TimeSplit:
        """Return the possible split that is nearest in each share."""
        return TimeSplit(
            *(min(max(frac, low), high) for frac, low, high in zip((compute_frac, memory_frac), *self, strict=True))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether a peak of memory fits a GPU, and by how much."""

    fits: bool
    peak_gib: float
    usable_gib: float

    @property
    def headroom_frac(self) -> float:
        """Return the share of the usable memory that stays free; negative when it does not fit."""
        return 1 - self.peak_gib / self.usable_gib


CONTEXT_GIB = 0.6
"""What a CUDA context and the driver keep from the visible memory (0.5-0.9 GiB on A100 and H100; stas00/ml-engineering)."""


def split_time(activity: DeviceActivity) -> TimeSplits:
    """Split measured time into compute and memory shares; raises Unpredictable without DRAM, tensor or SM activity.

    Least and most agree where both counters were measured.
    """
    _demand_signal(activity)
    ran = _ran(activity)
    tensor = _possible(activity.tensor_active, ran if activity.sm_active is None else activity.sm_active)
    dram = _possible(activity.dram_active, ran)
    return TimeSplits(
        *(
            # shares of what kernels achieve, not of the peak: a bus at 92 % is a bus in use all the time
            TimeSplit(min(1.0, pipes / TENSOR_REACH), min(1.0, bus / BANDWIDTH_REACH))
            for pipes, bus in zip(tensor, dram, strict=True)
        )
    )


def _ran(activity: DeviceActivity, *, most: bool = True) -> float:
    """Return the share of the time in which a kernel ran; where that was not measured, the `most` or the least it may be."""
    seen = (activity.gpu_util, activity.sm_active, activity.tensor_active, activity.dram_active)
    # a counter above GPU_UTIL shows that more ran than it says
    return 1.0 if activity.gpu_util is None and most else max(share for share in seen if share is not None)


def _possible(reading: float | None, most: float) -> tuple[float, float]:
    """Return the least and the most that a counter may have read."""
    return (0.0, most) if reading is None else (reading, reading)


def _demand_signal(activity: DeviceActivity) -> None:
    if activity.dram_active is None and activity.tensor_active is None and activity.sm_active is None:
        seen = (
            "only GPU_UTIL, which says that a kernel ran and not how hard"
            if activity.gpu_util is not None
            else "nothing"
        )
        raise Unpredictable(
            f"cannot split the workload's time into compute and memory: {seen} was measured; "
            "collect DCGM's DRAM-active and tensor-active (or SM-active) counters"
        )
    for name in ("sm_active", "tensor_active", "dram_active", "gpu_util"):
        share = getattr(activity, name)
        if share is not None and not 0 <= share <= 1:
            raise Unpredictable(f"{name} must be a share between 0 and 1, got {share}")


def _rate_ratios(source: Gpu, target: Gpu, precision: Precision | None) -> tuple[float, float]:
    """Return target over source of the dense tensor rate at the precision, and of the bandwidth.

    A precision that a GPU lacks runs at its best 16-bit rate (weights are widened before the product).
    """
    ours, theirs = (_rate(gpu, precision) for gpu in (source, target))
    return theirs / ours, target.mem_bw_gb_s / source.mem_bw_gb_s


def _rate(gpu: Gpu, precision: Precision | None) -> float:
    order = (precision, Precision.BF16, Precision.FP16, Precision.TF32, Precision.FP32)
    for rated in order:
        rate = gpu.tflops(rated) if rated is not None else None
        if rate:
            return rate
    raise Unpredictable(f"the catalog states no arithmetic rate for {gpu.name}")


def _scaled_times(
    split: TimeSplit, ran_frac: float, compute_ratio: float, memory_ratio: float, most_power: float
) -> Iterator[float]:
    """Yield the target's time for one source second: parts overlap or do not, small kernels go as before or by `most_power`."""
    compute, memory = split.compute_frac / compute_ratio, split.memory_frac / memory_ratio
    busy = split.compute_frac + split.memory_frac
    # shares that sum to more than the second overlapped on the source: apart they fill it once
    stretch = min(1.0, 1 / busy) if busy > 0 else 1.0
    small_ratio = math.sqrt(compute_ratio * memory_ratio) ** most_power
    for explained, there in (
        (max(split.compute_frac, split.memory_frac), max(compute, memory)),
        (min(1.0, busy), (compute + memory) * stretch),
    ):
        small = max(0.0, ran_frac - explained)
        for ratio in (1.0, small_ratio):
            yield 1 - explained - small + small / ratio + there


@lru_cache(maxsize=4096)
def speed_ratio(*, observed: DeviceActivity, source: Gpu, target: Gpu, precision: Precision | None = None) -> Estimate:
    """Predict the speed of the same workload on `target` relative to `source`: above 1 is faster; an 80 % interval.

    `precision` is that of the matrix products; None means 16 bits. Raises Unpredictable when no activity counter was measured,
    the catalog lacks a rate, or a board has no law of its speed. The basis is calibrated: it starts from a measurement on the
    source. The same GPU gives exactly 1.
    """
    splits, ran = split_time(observed), _ran(observed)
    # the formula need not be trusted here: the answer is known exactly
    if source.name == target.name:
        return SAME_SPEED
    if not (source.has_speed_law and target.has_speed_law):
        raise Unpredictable(f"no measured runs compare {source.name} with {target.name}")
    compute_ratio, memory_ratio = _rate_ratios(source, target, precision)
    turning_points = _turning_points(splits, ran, compute_ratio, memory_ratio)
    usual, all_times = (
        [
            time
            for split in turning_points
            for time in _scaled_times(split, ran, compute_ratio, memory_ratio, most_power)
        ]
        for most_power in (_SMALL_POWER, 1.0)
    )
    spread = math.exp(Z_80 * _spread(1 - _ran(observed, most=False), compute_ratio))
    return Estimate(
        # the geometric mean has the least worst error as a ratio, and favours neither reading
        value=1 / math.sqrt(min(usual) * max(usual)),
        low=1 / max(all_times) / spread,
        high=1 / min(all_times) * spread,
        basis=Basis.CALIBRATED,
        because=_because(splits, compute_ratio, memory_ratio),
    )


def _turning_points(splits: TimeSplits, ran_frac: float, compute_ratio: float, memory_ratio: float) -> set[TimeSplit]:
    """Return possible splits among which are those of the least and of the most time on the target.

    Between the lines m = c, m' = c', m + c = 1 and those on which no time is left to small kernels (m, c or m + c is what ran),
    all times are linear, or a ratio of linear terms, in the shares: they are least and most where such a line meets another, or
    the rim of what is possible.
    """
    # m' = c' is the line m = slope * c
    slope = memory_ratio / compute_ratio
    found = {splits.clip(ran_frac, ran_frac), splits.clip(ran_frac, 1 - ran_frac), splits.clip(1 - ran_frac, ran_frac)}
    for busy in (1.0, ran_frac):
        found |= {splits.clip(busy / 2, busy / 2), splits.clip(busy / (1 + slope), busy * slope / (1 + slope))}
    found |= {splits.clip(ran_frac, ran_frac * slope), splits.clip(ran_frac / slope, ran_frac)}
    # rims of what is possible, against each of the lines on which the formula changes
    for edge in splits:
        c, m = edge
        found.update(splits.clip(c, other) for other in (0.0, 1.0, c, c * slope, 1 - c, ran_frac, ran_frac - c))
        found.update(splits.clip(other, m) for other in (0.0, 1.0, m, m / slope, 1 - m, ran_frac, ran_frac - m))
    return found


def work_ratio(source: Gpu, target: Gpu, precision: Precision | None = None) -> Estimate:
    """Predict the speed on `target`, relative to `source`, of work that keeps the device itself busy, of unknown kind.

    It lies between the ratios of bandwidth and of tensor rates: their geometric mean, with both as the interval. What each
    further request of a batch adds is such work: launches and weights are paid once a batch.
    """
    if source.name == target.name:
        return SAME_SPEED
    ratios = _rate_ratios(source, target, precision)
    return Estimate(
        value=math.sqrt(ratios[0] * ratios[1]),
        low=min(ratios),
        high=max(ratios),
        basis=Basis.MODELLED,
        because=f"between tensor rate x{ratios[0]:.2f} and bandwidth x{ratios[1]:.2f}",
    )


def _spread(host_frac: float, compute_ratio: float) -> float:
    """Widen the model's own spread by what the time in which no kernel ran could gain or lose."""
    # independent errors add up in squares
    return math.hypot(MODEL_SPREAD, host_frac * 0.5 * abs(math.log(compute_ratio)) * 0.5)


def _because(splits: TimeSplits, compute_ratio: float, memory_ratio: float) -> str:
    (compute, memory), (most_compute, most_memory) = splits
    return (
        f"time split: memory {_share(memory, most_memory)} (bandwidth x{memory_ratio:.2f}), "
        f"compute {_share(compute, most_compute)} (tensor rate x{compute_ratio:.2f}), "
        f"other {_share(splits.most.other_frac, splits.least.other_frac)}" + _unmeasured(splits)
    )


def _share(least: float, most: float) -> str:
    return f"{least:.0%}" if least == most else f"{least:.0%} to {most:.0%}"


def _unmeasured(splits: TimeSplits) -> str:
    names = ("tensor activity", "DRAM activity")
    missing = [name for name, least, most in zip(names, *splits, strict=True) if least < most]
    return f"; not measured: {', '.join(missing)}" if missing else ""


def fits_memory(peak_gib: float, target: Gpu, *, margin_frac: float = 0.05) -> Fit:
    """Say whether a measured peak fits a GPU, keeping the context's share and a margin free.

    `peak_gib` is what nvidia-smi or DCGM `fb_used` showed, context included; `memory_gib` of the target is the visible memory.
    """
    usable = target.memory_gib * (1 - margin_frac)
    return Fit(fits=peak_gib <= usable, peak_gib=peak_gib, usable_gib=usable)
