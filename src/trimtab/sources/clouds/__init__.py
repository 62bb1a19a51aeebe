"""What the monitors of the clouds tell of GPUs, whichever cloud it is: GPUs, the machines that hold them, hourly values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from trimtab.catalog import CapacityType
from trimtab.sources.hour_grid import HourGrid
from trimtab.sources.kubernetes.nodes import UNKNOWN
from trimtab.sources.prometheus.client import Floats
from trimtab.units import MS_PER_S, S_PER_HR

Tell = Callable[[str, float], None]
"""Told the stage and its share done, in 0..1."""
STATISTICS = ("mean", "p50", "p95", "max")
MOST_SAMPLES = S_PER_HR * MS_PER_S
"""Of an hour: one each millisecond. No exporter has more."""
SHARES = ("gpu_util", "sm_active", "tensor_active", "dram_active")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudMachine:
    """A machine that holds GPUs; what the monitor does not say is `unknown`."""

    name: str
    provider: str
    instance_type: str = UNKNOWN
    region: str = UNKNOWN
    zone: str | None = None
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    instance: str | None = None
    """What the cloud calls it, where that is not its name."""
    group: str | None = None
    """What machines of one kind of work share: an Auto Scaling group, an instance group, a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudGpu:
    """One board as a monitor names it."""

    device: str
    machine: str
    product: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The pod that held a board."""

    namespace: str
    pod: str
    workload: str


@dataclass(slots=True, kw_only=True)
class CloudReading:
    """All that a monitor told of a window."""

    grid: HourGrid
    source: str
    machines: dict[str, CloudMachine] = field(default_factory=dict)
    gpus: dict[str, CloudGpu] = field(default_factory=dict)
    holders: dict[str, Holder] = field(default_factory=dict)
    """Device -> the pod that held it, where the monitor names one."""
    memory_gib: dict[str, float] = field(default_factory=dict)
    """Device -> its memory, where the monitor states it."""
    values: dict[tuple[str, str], Floats] = field(default_factory=dict)
    """(device, column of `gpu_usage` or `samples`) -> value by hour (n_hours,), NaN where none was told."""
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def put(self, device: str, column: str, hours: Sequence[int], values: Sequence[float]) -> None:
        """Note the values of some hours; hours outside the window, and what is not a number, are left out and counted."""
        at, told = np.asarray(hours, dtype=np.int64), np.asarray(values, dtype=np.float64)
        good = (at >= 0) & (at < self.grid.hours) & np.isfinite(told)
        if column == "samples":
            good &= (told >= 0) & (told <= MOST_SAMPLES)
        self.counts["values outside the window, or no numbers"] += int(len(good) - good.sum())
        row = self.values.setdefault((device, column), np.full(self.grid.hours, np.nan))
        row[at[good]] = told[good]

    def of(self, device: str, column: str) -> Floats:
        """Return a device's values by hour, NaN where none was told."""
        found = self.values.get((device, column))
        return np.full(self.grid.hours, np.nan) if found is None else found

    def put_shares(self, device: str, column: str, hours: Sequence[int], shares: Sequence[float]) -> None:
        """Note shares of 0..1 of some hours; those outside are clamped and counted."""
        told = np.asarray(shares, dtype=np.float64)
        self.counts["shares outside 0..1, clamped"] += int(np.sum((told < 0.0) | (told > 1.0)))
        self.put(device, column, hours, np.clip(told, 0.0, 1.0).tolist())


class CloudMonitor(Protocol):
    """A cloud's monitor."""

    def read(self, grid: HourGrid, tell: Tell) -> CloudReading:
        """Return what it told of the hours of a grid. Raises SourceError, CredentialsError, UsageError."""
