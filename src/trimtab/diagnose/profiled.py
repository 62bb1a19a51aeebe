"""The verdict on one run: its phases, where it lies under the roofline, and why it does not do more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from trimtab.catalog import Gpu, Precision
from trimtab.diagnose.verdicts import CauseFinding, Signs, causes_of
from trimtab.tables.profile_file import ProfileDevice, ProfileFile
from trimtab.units import BYTES_PER_GB, FLOPS_PER_TFLOPS

IDLE_FRAC = 0.02
WORK_FRAC = 0.60
SHORTEST_FRAC = 0.02
"""A phase shorter than this share of the run belongs to the one before it."""


class PhaseKind(Enum):
    """What a stretch of the run does."""

    IDLE = "idle"
    LIGHT = "light work"
    MEMORY = "bound by memory bandwidth"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStretch:
    """A stretch of the run, seconds from its start."""

    kind: PhaseKind
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """Where the run lies: tensor arithmetic done over bytes moved, from the activity of pipes and DRAM.

    The arithmetic is an upper bound: a pipe that is active need not be full.
    """

    tflops: float
    dram_gb_s: float
    flop_per_byte: float | None
    ridge_flop_per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSigns:
    """What a trace shows, as shares 0..1 of its length; None where it holds no such events."""

    length_s: float
    gap_frac: float | None
    h2d_exposed_frac: float | None
    loader_wait_frac: float | None
    kernels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """The whole verdict."""

    phases: tuple[RunStretch, ...]
    roofline: RooflinePoint | None
    findings: tuple[CauseFinding, ...]
    signs: Signs


def judge(profile: ProfileFile, gpu: Gpu | None, trace: TraceSigns | None = None) -> RunVerdict:
    """Judge the devices that the program used, over the time in which they worked; set-up and tail are phases of their own."""
    phases = phases_of(profile)
    start_s, end_s = _working(phases)
    seen = {name: _mean_between(profile.used, name, start_s, end_s) for name in _METRICS}
    peaks = [_peak_memory(device) for device in profile.used]
    cpus = profile.program.cpu_limit * profile.wall_s
    signs = Signs(
        gpu_util_frac=seen["gpu_util_frac"],
        sm_frac=seen["sm_active_frac"],
        tensor_frac=seen["tensor_active_frac"],
        dram_frac=seen["dram_active_frac"],
        memory_peak_frac=max((peak for peak in peaks if peak is not None), default=None),
        pcie_rx_frac=_link(profile.used, seen["pcie_rx_gb_s"]),
        h2d_exposed_frac=trace.h2d_exposed_frac if trace else None,
        loader_wait_frac=trace.loader_wait_frac if trace else None,
        gap_frac=trace.gap_frac if trace else None,
        cpu_frac=profile.program.cpu_s / cpus if cpus > 0 and profile.program.cpu_s > 0 else None,
    )
    return RunVerdict(phases=phases, roofline=_point(signs, gpu), findings=causes_of(signs), signs=signs)


_METRICS = ("gpu_util_frac", "sm_active_frac", "tensor_active_frac", "dram_active_frac", "pcie_rx_gb_s")


TimelineRow = Mapping[str, float | None]


def timeline_of(profile: ProfileFile) -> dict[float, list[TimelineRow]]:
    """Return the timeline's rows of the GPUs that the program used by the second that they start at, in order."""
    slots: dict[float, list[TimelineRow]] = {}
    for device in profile.used:
        for row in device.timeline:
            slots.setdefault(row["start_s"] or 0.0, []).append(row)
    return dict(sorted(slots.items()))


def phases_of(profile: ProfileFile) -> tuple[RunStretch, ...]:
    """Return the run's phases by the mean of its devices; stretches shorter than 2 % join their neighbour."""
    slots = timeline_of(profile)
    found: list[RunStretch] = []
    for start_s, next_s in pairwise([*slots, profile.wall_s]):
        kind = _kind(slots[start_s])
        if kind is None or next_s <= start_s:
            continue
        if found and found[-1].kind is kind:
            found[-1] = RunStretch(kind=kind, start_s=found[-1].start_s, end_s=next_s)
        else:
            found.append(RunStretch(kind=kind, start_s=start_s, end_s=next_s))
    return _joined(found, profile.wall_s * SHORTEST_FRAC)


def _joined(phases: Sequence[RunStretch], least_s: float) -> tuple[RunStretch, ...]:
    kept: list[RunStretch] = []
    for phase in phases:
        if kept and (phase.end_s - phase.start_s < least_s or kept[-1].kind is phase.kind):
            kept[-1] = RunStretch(kind=kept[-1].kind, start_s=kept[-1].start_s, end_s=phase.end_s)
        else:
            kept.append(phase)
    return tuple(kept)


def _kind(rows: Sequence[TimelineRow]) -> PhaseKind | None:
    util, sm = mean_of(rows, "gpu_util_frac"), mean_of(rows, "sm_active_frac")
    dram = mean_of(rows, "dram_active_frac")
    best = sm if sm is not None else util
    if best is None:
        return None
    if max(best, util or 0.0) < IDLE_FRAC:
        return PhaseKind.IDLE
    if dram is not None and dram >= WORK_FRAC:
        return PhaseKind.MEMORY
    return PhaseKind.COMPUTE if best >= WORK_FRAC else PhaseKind.LIGHT


def mean_of(rows: Sequence[TimelineRow], metric: str) -> float | None:
    """Return the mean of a metric over rows; None where none of them has it."""
    values = [value for row in rows if (value := row.get(metric)) is not None]
    return sum(values) / len(values) if values else None


def _working(phases: Sequence[RunStretch]) -> tuple[float, float]:
    busy = [phase for phase in phases if phase.kind is not PhaseKind.IDLE]
    return (busy[0].start_s, busy[-1].end_s) if busy else (0.0, float("inf"))


def _mean_between(devices: Sequence[ProfileDevice], metric: str, start_s: float, end_s: float) -> float | None:
    rows = [row for device in devices for row in device.timeline if start_s <= (row["start_s"] or 0.0) < end_s]
    return mean_of(rows, metric)


def _peak_memory(device: ProfileDevice) -> float | None:
    spread = device.metrics.get("memory_used_gib")
    return None if spread is None or not device.memory_gib else spread.max / device.memory_gib


def _link(devices: Sequence[ProfileDevice], rx_gb_s: float | None) -> float | None:
    links = [device.pcie_gb_s for device in devices if device.pcie_gb_s]
    return None if rx_gb_s is None or not links else min(1.0, rx_gb_s / (sum(links) / len(links)))


def _point(signs: Signs, gpu: Gpu | None) -> RooflinePoint | None:
    """Place the run under its board's 16-bit roof; None without tensor and DRAM activity, or an unknown board."""
    ridge = None if gpu is None else gpu.flop_per_byte(Precision.BF16) or gpu.flop_per_byte(Precision.FP16)
    rate = None if gpu is None else gpu.tflops(Precision.BF16) or gpu.tflops(Precision.FP16)
    if gpu is None or ridge is None or rate is None or signs.tensor_frac is None or signs.dram_frac is None:
        return None
    tflops, dram_gb_s = signs.tensor_frac * rate, signs.dram_frac * gpu.mem_bw_gb_s
    moved = dram_gb_s * BYTES_PER_GB
    return RooflinePoint(
        tflops=tflops,
        dram_gb_s=dram_gb_s,
        flop_per_byte=tflops * FLOPS_PER_TFLOPS / moved if moved > 0 else None,
        ridge_flop_per_byte=ridge,
    )
