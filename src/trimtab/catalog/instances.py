"""Instance types: what a provider sells as one node, with the exact board it carries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from trimtab.catalog.kinds import Lifecycle
from trimtab.catalog.rows import Row, number, packaged_rows, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """A node as it is sold. `gpu` is a name of the GPU table, form factor included."""

    provider: str
    name: str
    gpu: str
    gpu_count: int
    """Devices that the operating system sees."""
    gpu_frac: float = 1.0
    """The share of a physical board that each device is; below 1 for vGPU slices (AWS g6f, Azure NVads A10)."""
    vcpus: int | None = None
    memory_gib: float | None = None
    cpu_arch: str = "x86_64"
    """The host's architecture; arm64 on Graviton (T4G) and Grace (GH200, GB200, GB300): images must be built for it."""
    interconnect: str = ""
    lifecycle: Lifecycle = Lifecycle.CURRENT
    source: str = ""
    as_of: date | None = None
    note: str = ""

    @property
    def board_count(self) -> float:
        """Return the number of physical boards, counting slices as their share."""
        return self.gpu_count * self.gpu_frac


def load_instance_types(rows: Iterable[Row] | None = None) -> tuple[InstanceType, ...]:
    """Read the packaged instance types."""
    return tuple(_instance_type(row) for row in (packaged_rows("instances.csv") if rows is None else rows))


def _instance_type(row: Row) -> InstanceType:
    return InstanceType(
        provider=row["provider"],
        name=row["instance_type"],
        gpu=row["gpu"],
        gpu_count=int(row["gpu_count"]),
        gpu_frac=float(row["gpu_frac"]),
        vcpus=whole(row["vcpus"]),
        memory_gib=number(row["memory_gib"]),
        cpu_arch=row["cpu_arch"],
        interconnect=row["interconnect"],
        lifecycle=Lifecycle(row["lifecycle"]),
        source=row["source"],
        as_of=date.fromisoformat(row["as_of"]),
        note=row["note"],
    )
