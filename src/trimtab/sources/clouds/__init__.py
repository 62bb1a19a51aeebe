"""What the monitors of the clouds report of GPUs, whichever cloud it is: boards, machines, hourly values; quotas in nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from pydantic import BaseModel, ValidationError

from trimtab.catalog import CapacityType
from trimtab.errors import InputError
from trimtab.inputs.files import read_csv_rows
from trimtab.safe_text import csv_text
from trimtab.sources.hour_grid import HourGrid
from trimtab.sources.kubernetes.nodes import UNKNOWN
from trimtab.sources.prometheus.client import Floats
from trimtab.units import MS_PER_S, S_PER_HR


class NodeQuota(BaseModel, frozen=True):
    """The most nodes of a type that a quota allows in a region, held one way, if no other type draws on it."""

    provider: str
    instance_type: str
    region: str
    capacity_type: CapacityType
    nodes: int
    limit: float
    """The quota as the cloud states it."""
    unit: str
    """What the cloud counts: vCPU, GPU."""
    per_node: float
    """How much of it one node takes."""
    used: float | None = None
    quota: str
    """Its name."""
    code: str
    """What it is called where one asks for more."""

    @property
    def key(self) -> str:
        """Return the pool as `limits.quotas` spells it."""
        held = "" if self.capacity_type is CapacityType.ON_DEMAND else f":{self.capacity_type.value}"
        return f"{self.instance_type}@{self.region}{held}"

    def more(self, nodes: int) -> str:
        """Return the command that asks for enough for so many nodes."""
        wanted = f"{nodes * self.per_node:g}"
        match self.provider:
            case "aws":
                return (
                    "aws service-quotas request-service-quota-increase --service-code ec2 "
                    f"--quota-code {self.code} --desired-value {wanted} --region {self.region}"
                )
            case "gcp":
                return (
                    "gcloud beta quotas preferences create --service=compute.googleapis.com "
                    f"--quota-id={self.code} --preferred-value={wanted} --dimensions=region={self.region} --project=PROJECT"
                )
            case _:
                return (
                    f"az quota update --resource-name {self.code} --resource-type dedicated --limit-object value={wanted} "
                    f"--scope /subscriptions/SUBSCRIPTION/providers/Microsoft.Compute/locations/{self.region}"
                )


@dataclass(slots=True)
class QuotaReading:
    """Quotas read, and what could not be used."""

    quotas: list[NodeQuota] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def settings_text(quotas: Iterable[NodeQuota]) -> str:
    """Return the section of `trimtab.toml` that makes plans keep the quotas; the tightest where two hold for one pool."""
    tightest: dict[str, NodeQuota] = {}
    for quota in quotas:
        held = tightest.get(quota.key)
        tightest[quota.key] = quota if held is None or quota.nodes < held.nodes else held
    lines = [
        f'"{key}" = {quota.nodes}  # {quota.limit:g} {quota.unit}: {quota.quota}'
        for key, quota in sorted(tightest.items())
    ]
    return "\n".join(["[limits.quotas]", *lines, ""])


def quotas_text(quotas: Iterable[NodeQuota]) -> str:
    """Return quotas as CSV, as `read_quotas` takes them."""
    names = list(NodeQuota.model_fields)
    plain = (quota.model_dump(mode="json") for quota in quotas)
    return csv_text(names, ([row[name] for name in names] for row in plain))


def read_quotas(path: Path) -> tuple[NodeQuota, ...]:
    """Read a file that `trimtab quotas` wrote. Raises InputError."""
    return tuple(_quota(row, f"{path} row {number}") for number, row in enumerate(read_csv_rows(path), start=2))


def _quota(row: Mapping[str, str], where: str) -> NodeQuota:
    try:
        return NodeQuota.model_validate({key: value or None for key, value in row.items()})
    except ValidationError as error:
        fault = error.errors()[0]
        column = ".".join(str(part) for part in fault["loc"])
        raise InputError(f"{where}: {column}: {fault['msg']}; write the file with trimtab quotas -o csv") from error


Tell = Callable[[str, float], None]
"""Called with the stage and its share done, in 0..1."""
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
    """All that a monitor reported for a window."""

    grid: HourGrid
    source: str
    machines: dict[str, CloudMachine] = field(default_factory=dict)
    gpus: dict[str, CloudGpu] = field(default_factory=dict)
    holders: dict[str, Holder] = field(default_factory=dict)
    """Device -> the pod that held it, where the monitor names one."""
    memory_gib: dict[str, float] = field(default_factory=dict)
    """Device -> its memory, where the monitor states it."""
    values: dict[tuple[str, str], Floats] = field(default_factory=dict)
    """(device, column of `gpu_usage` or `samples`) -> value by hour (n_hours,), NaN where none was reported."""
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
        """Return a device's values by hour, NaN where none was reported."""
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
        """Return what it reported for the hours of a grid. Raises SourceError, CredentialsError, UsageError."""
