"""What is read of a GPU, in which unit, and under which name it is reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from trimtab_runtime.units import BYTES_PER_GB, BYTES_PER_MIB, MIB_PER_GIB, MW_PER_W

PERCENT = 100
GPM_STEPS = 10
"""Steps of a tenth of a percent keep the profiling metrics as whole numbers."""


class Metric(StrEnum):
    """A reading by the name under which it is reported; a string, whose hash is not computed again at each look-up."""

    GPU_UTIL = "gpu_util_frac"
    MEMORY_BUSY = "memory_busy_frac"
    SM_ACTIVE = "sm_active_frac"
    SM_OCCUPANCY = "sm_occupancy_frac"
    TENSOR_ACTIVE = "tensor_active_frac"
    DRAM_ACTIVE = "dram_active_frac"
    MEMORY_USED = "memory_used_gib"
    POWER = "power_w"
    SM_CLOCK = "sm_clock_mhz"
    PCIE_RX = "pcie_rx_gb_s"
    PCIE_TX = "pcie_tx_gb_s"
    NVLINK_RX = "nvlink_rx_gb_s"
    NVLINK_TX = "nvlink_tx_gb_s"


PER_UNIT = {
    Metric.GPU_UTIL: PERCENT,
    Metric.MEMORY_BUSY: PERCENT,
    Metric.SM_ACTIVE: PERCENT * GPM_STEPS,
    Metric.SM_OCCUPANCY: PERCENT * GPM_STEPS,
    Metric.TENSOR_ACTIVE: PERCENT * GPM_STEPS,
    Metric.DRAM_ACTIVE: PERCENT * GPM_STEPS,
    Metric.MEMORY_USED: MIB_PER_GIB,
    Metric.POWER: MW_PER_W,
    Metric.SM_CLOCK: 1,
    Metric.PCIE_RX: BYTES_PER_GB,
    Metric.PCIE_TX: BYTES_PER_GB,
    Metric.NVLINK_RX: BYTES_PER_GB,
    Metric.NVLINK_TX: BYTES_PER_GB,
}
"""Whole steps in which a metric is kept, per unit in which it is reported."""
HIGHEST = {metric: steps for metric, steps in PER_UNIT.items() if metric.value.endswith("_frac")}
"""The most that a share can be, in steps; what drivers report above it is clamped and counted."""

Scale = Callable[[Sequence[float]], Sequence[int]]


def as_is(values: Sequence[float]) -> Sequence[int]:
    """Take whole numbers as they are: 32 and 64 bit counts come as Python's own."""
    return cast("Sequence[int]", values)


def mib_of_bytes(values: Sequence[float]) -> Sequence[int]:
    """Turn bytes into whole MiB."""
    return [value // BYTES_PER_MIB for value in as_is(values)]


def steps_of_percent(values: Sequence[float]) -> Sequence[int]:
    """Turn percent into whole tenths of a percent."""
    return [int(value * GPM_STEPS + 0.5) for value in values]


def bytes_of_mib(values: Sequence[float]) -> Sequence[int]:
    """Turn MiB a second into bytes a second."""
    return [int(value * BYTES_PER_MIB) for value in values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Where a reading lies in a device's block, and how it becomes whole steps of its metric.

    `kind` is a format of `memoryview.cast` (I, Q, d). `answer_at` holds the reading's own answer where it has one. A
    `counter` only ever grows: its rate per second is the reading, in `per_count` steps.
    """

    metric: Metric
    kind: str
    at: int
    scale: Scale = as_is
    answer_at: int | None = None
    counter: bool = False
    per_count: int = 1
