"""Carry a measured workload to another GPU: split its time by what kept the device busy, scale each part.

One second on the source GPU is read as three parts. With D = DRAM activity, T = tensor activity, S = SM activity:

    memory    m = min(1, D / 0.92)          the bus at its achievable rate (STREAM-like kernels reach 92 % of the peak)
    compute   c = min(1, T / 0.80)          the tensor pipes at theirs (large cuBLAS products reach 75-85 %)
    other     o = 1 - max(m, c)             launches, latency, host, input, network; when m and c overlap fully

On the target m grows by the ratio of bandwidths, c by the ratio of dense tensor rates at the workload's precision. The other
part follows the host and the SM clock, which differ little between data-centre parts: it stays (its interval lets it improve
or worsen by the square root of the compute ratio). Memory and compute time overlap in part, so the time lies between
`o + max(m', c')` and `o' + m' + c'` with o' = 1 - m - c where that is positive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from trimtab.catalog import Gpu, Precision
from trimtab.errors import Unpredictable
from trimtab.provenance import Basis, Estimate

BANDWIDTH_REACH = 0.92
TENSOR_REACH = 0.80
SM_TO_TENSOR = (0.15, 0.45, 1.0)
"""Tensor time per SM-active time where the tensor counter is missing: low, middle, high."""
MODEL_SPREAD = 0.17
"""Standard deviation of ln(predicted / measured speed ratio) that the split leaves: assumed, between what a measured point
leaves on one GPU (0.12) and what pairs of GPUs leave without activity (0.21; docs/benchmarks/physics.md)."""
Z_80 = 1.2816
"""Normal quantile that leaves 10 % on each side."""


class Binding(Enum):
    """What limits a workload on a GPU."""

    COMPUTE = "compute"
    MEMORY = "memory bandwidth"
    NETWORK = "network"
    HOST = "host, input or latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
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


def binding_resource(activity: Activity) -> Binding:
    """Name what limits the workload; raises Unpredictable without DRAM, tensor or SM activity.

    Memory needs DRAM activity to prove it: low SM activity alone may be launches, input or network.
    """
    split = split_time(activity)
    if split.other_frac > 0.5:
        return Binding.HOST
    return Binding.MEMORY if split.memory_frac >= split.compute_frac else Binding.COMPUTE


def split_time(activity: Activity) -> TimeSplit:
    """Split measured time into compute and memory shares (middle assumption where the tensor counter is missing)."""
    return _split(activity, SM_TO_TENSOR[1])


def _split(activity: Activity, tensor_per_sm: float) -> TimeSplit:
    _demand_signal(activity)
    memory = min(1.0, (activity.dram_active or 0.0) / BANDWIDTH_REACH)
    if activity.tensor_active is not None:
        compute = min(1.0, activity.tensor_active / TENSOR_REACH)
    else:
        compute = min(1.0, (activity.sm_active or 0.0) * tensor_per_sm)
    return TimeSplit(compute, memory)


def _demand_signal(activity: Activity) -> None:
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
    for name in ("sm_active", "tensor_active", "dram_active"):
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
    for wanted in order:
        rate = gpu.tflops(wanted) if wanted is not None else None
        if rate:
            return rate
    raise Unpredictable(f"the catalog states no arithmetic rate for {gpu.name}")


def _scaled_times(split: TimeSplit, compute_ratio: float, memory_ratio: float) -> tuple[float, float]:
    """Return the target's time for one source second: with full overlap, and with none."""
    compute, memory = split.compute_frac / compute_ratio, split.memory_frac / memory_ratio
    overlapped = split.other_frac + max(compute, memory)
    busy = split.compute_frac + split.memory_frac
    stretch = min(1.0, 1 / busy) if busy > 0 else 1.0
    apart = max(0.0, 1 - busy) + (compute + memory) * stretch
    return overlapped, apart


def speed_ratio(*, observed: Activity, source: Gpu, target: Gpu, precision: Precision | None = None) -> Estimate:
    """Predict the speed of the same workload on `target` relative to `source`: above 1 is faster; an 80 % interval.

    `precision` is that of the matrix products; None means 16 bits. Raises Unpredictable when no activity counter was measured
    or the catalog lacks a rate. The basis is calibrated: it starts from a measurement on the source. The same GPU gives
    exactly 1.
    """
    _demand_signal(observed)
    if source.name == target.name:
        return Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED, because="the same GPU")
    compute_ratio, memory_ratio = _rate_ratios(source, target, precision)
    times: list[float] = []
    for tensor_per_sm in SM_TO_TENSOR if observed.tensor_active is None else SM_TO_TENSOR[1:2]:
        times.extend(_scaled_times(_split(observed, tensor_per_sm), compute_ratio, memory_ratio))
    middle = _scaled_times(split_time(observed), compute_ratio, memory_ratio)
    speed = 1 / math.sqrt(middle[0] * middle[1])
    spread = math.exp(Z_80 * _spread(observed, compute_ratio))
    return Estimate(
        value=speed,
        low=min(speed, 1 / max(times)) / spread,
        high=max(speed, 1 / min(times)) * spread,
        basis=Basis.CALIBRATED,
        because=_because(observed, compute_ratio, memory_ratio),
    )


def work_ratio(source: Gpu, target: Gpu, precision: Precision | None = None) -> Estimate:
    """Predict the speed on `target`, relative to `source`, of work that keeps the device itself busy, of unknown kind.

    It lies between the ratios of bandwidth and of tensor rates: their geometric mean, with both as the interval. What each
    further request of a batch adds is such work: launches and weights are paid once a batch.
    """
    if source.name == target.name:
        return Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED, because="the same GPU")
    ratios = _rate_ratios(source, target, precision)
    return Estimate(
        value=math.sqrt(ratios[0] * ratios[1]),
        low=min(ratios),
        high=max(ratios),
        basis=Basis.MODELLED,
        because=f"between tensor rate x{ratios[0]:.2f} and bandwidth x{ratios[1]:.2f}",
    )


def _spread(observed: Activity, compute_ratio: float) -> float:
    """Widen the model's own spread by what the unexplained share could gain or lose."""
    other = split_time(observed).other_frac * 0.5 * abs(math.log(compute_ratio)) * 0.5
    missing = 0.08 if observed.dram_active is None else 0.0
    return math.hypot(MODEL_SPREAD, other) + missing


def _because(observed: Activity, compute_ratio: float, memory_ratio: float) -> str:
    split = split_time(observed)
    return (
        f"time split: memory {split.memory_frac:.0%} (bandwidth x{memory_ratio:.2f}), compute {split.compute_frac:.0%} "
        f"(tensor rate x{compute_ratio:.2f}), other {split.other_frac:.0%}"
    )


def fits_memory(peak_gib: float, target: Gpu, *, margin_frac: float = 0.05) -> Fit:
    """Say whether a measured peak fits a GPU, keeping the context's share and a margin free.

    `peak_gib` is what nvidia-smi or DCGM `fb_used` showed, context included; `memory_gib` of the target is the visible memory.
    """
    usable = target.memory_gib * (1 - margin_frac)
    return Fit(fits=peak_gib <= usable, peak_gib=peak_gib, usable_gib=usable)
