"""What is rented: GPU specifications under their many names, and the instance types that carry them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

from trimtab.catalog.kinds import Lifecycle, Precision
from trimtab.catalog.rows import CatalogRow, items, number, packaged_rows, whole
from trimtab.errors import UnknownName
from trimtab.units import BYTES_PER_GB, FLOPS_PER_TFLOPS, MIB_PER_GIB, PCIE_LANE_GB_S

RATE_COLUMNS: Mapping[Precision, str] = {
    Precision.FP32: "fp32_tflops",
    Precision.TF32: "tf32_tflops",
    Precision.FP16: "fp16_tflops",
    Precision.BF16: "bf16_tflops",
    Precision.FP8: "fp8_tflops",
    Precision.INT8: "int8_tops",
    Precision.FP4: "fp4_tflops",
}

_GPU_VENDORS = frozenset({"NVIDIA", "AMD", "Intel"})
_LABEL_PREFIX = "nvidia-"
"""How GKE's accelerator labels begin; no other alias does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One board. Rates are dense: never the figure for 2:4 sparsity, which vendors print beside it."""

    name: str
    vendor: str
    architecture: str
    compute_capability: float | None
    """CUDA's; None for boards of other vendors."""
    memory_gb: float
    """What is on the box; size models with `memory_gib`."""
    memory_gib: float
    """What the driver reports (nvidia-smi's MiB / 1024)."""
    memory_type: str
    mem_bw_gb_s: float
    rates_tflops: Mapping[Precision, float] = field(hash=False)
    tdp_w: float
    """NaN where the maker tells none."""
    nvlink_gb_s: float
    """Both directions, one GPU to its peers; AMD's link and TPUs' are counted here too. 0 where none is known."""
    pcie_gen: int | None
    pcie_lanes: int | None
    """Of its connector; None where no source tells them, or its host is reached by another link (NVLink-C2C)."""
    c2c_gb_s: float | None
    """NVLink-C2C to the Grace beside it, both directions; None for boards in a slot."""
    mig_capable: bool
    mig_board: str
    """The family of MIG profiles; empty where the board has none."""
    l2_mb: float | None
    sm_count: int | None
    release_year: int
    nvidia_smi_name: str
    aliases: tuple[str, ...]
    sources: tuple[str, ...]
    as_of: date
    unverified_fields: frozenset[str]
    """Columns that hold a datasheet figure which no second source confirmed."""
    notes: str = field(default="", repr=False)

    def tflops(self, precision: Precision) -> float | None:
        """Return the dense rate at a precision (tera-operations for integers); None where the board has no such path."""
        return self.rates_tflops.get(precision)

    @property
    def pcie_gb_s(self) -> float | None:
        """Return what its PCIe link carries in one direction, headers of packets included; None where that is not known."""
        lane_gb_s = PCIE_LANE_GB_S.get(self.pcie_gen or 0)
        return None if lane_gb_s is None or self.pcie_lanes is None else lane_gb_s * self.pcie_lanes

    @property
    def fp32_tflops(self) -> float:
        """Return the rate of the ordinary FP32 units, which is not the tensor rate; NaN where the maker tells none."""
        return self.rates_tflops.get(Precision.FP32, math.nan)

    @property
    def has_speed_law(self) -> bool:
        """Return whether measured runs stand behind predictions of its speed: behind GPUs', not NeuronCores' and TPUs'.

        Programs for these are compiled for them, so that no workload is moved onto one or off one either.
        """
        return self.vendor in _GPU_VENDORS

    def flop_per_byte(self, precision: Precision = Precision.FP16) -> float | None:
        """Return the arithmetic intensity above which the board is bound by compute (the roofline's ridge)."""
        rate_tflops = self.tflops(precision)
        if rate_tflops is None:
            return None
        return rate_tflops * FLOPS_PER_TFLOPS / (self.mem_bw_gb_s * BYTES_PER_GB)


@dataclass(frozen=True, eq=False)
class GpuTable:
    """All boards, found under any of their names."""

    gpus: tuple[Gpu, ...]

    @cached_property
    def _by_alias(self) -> dict[str, Gpu]:
        return {alias.casefold(): gpu for gpu in self.gpus for alias in (gpu.name, gpu.nvidia_smi_name, *gpu.aliases)}

    @cached_property
    def _by_key(self) -> dict[str, Gpu]:
        """Boards by reduced name, without cluster labels: nvidia-tesla-a100 means the 40 GB board, A100 alone does not."""
        return {_key(alias): gpu for alias, gpu in self._by_alias.items() if not alias.startswith(_LABEL_PREFIX)}

    def find(self, name: str) -> Gpu:
        """Return the board that a catalog name, product name, cluster label or price-list name means.

        Raises UnknownName with near matches; a name that leaves the memory size open (A100) is unknown too.
        """
        plain = _without_sharing(name.strip())
        found = self._by_alias.get(plain.casefold()) or self._by_key.get(_key(plain))
        if found is None:
            raise UnknownName("GPU", name, (gpu.name for gpu in self.gpus))
        return found


def load_gpus(rows: Iterable[CatalogRow] | None = None) -> GpuTable:
    """Read the packaged GPU table."""
    return GpuTable(tuple(_gpu(row) for row in (packaged_rows("gpus.csv") if rows is None else rows)))


def _key(name: str) -> str:
    """Reduce a name to what tells boards apart: the vendor's words, punctuation and case go."""
    words = re.split(r"[^a-z0-9+]+", name.casefold())
    return "".join(
        word
        for word in words
        if word not in {"nvidia", "tesla", "geforce", "amd", "instinct", "oam", "generation", "intel", "r"}
    )


def _without_sharing(name: str) -> str:
    """Cut what Kubernetes' feature discovery appends to a product: -SHARED, -MIG-1g.5gb."""
    return re.sub(r"(-SHARED|-MIG-.*)$", "", name)


def _gpu(row: CatalogRow) -> Gpu:
    rates = {precision: number(row[column]) for precision, column in RATE_COLUMNS.items()}
    capability = row["compute_capability"]
    return Gpu(
        name=row["name"],
        vendor=row["vendor"],
        architecture=row["architecture"],
        compute_capability=float(capability) if row["vendor"] == "NVIDIA" else None,
        memory_gb=float(row["memory_gb"]),
        memory_gib=float(row["memory_mib"]) / MIB_PER_GIB,
        memory_type=row["memory_type"],
        mem_bw_gb_s=float(row["mem_bw_gb_s"]),
        rates_tflops={precision: rate for precision, rate in rates.items() if rate is not None},
        tdp_w=number(row["tdp_w"]) or math.nan,
        nvlink_gb_s=float(row["nvlink_gb_s"]),
        pcie_gen=whole(row["pcie_gen"]),
        pcie_lanes=whole(row["pcie_lanes"]),
        c2c_gb_s=number(row["c2c_gb_s"]),
        mig_capable=row["mig_capable"] == "yes",
        mig_board=row["mig_board"],
        l2_mb=number(row["l2_mb"]),
        sm_count=whole(row["sm_count"]),
        release_year=int(row["release_year"]),
        nvidia_smi_name=row["nvidia_smi_name"],
        aliases=items(row["aliases"]),
        sources=items(row["sources"]),
        as_of=date.fromisoformat(row["as_of"]),
        unverified_fields=frozenset(items(row["unverified_fields"])),
        notes=row["notes"],
    )


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


def load_instance_types() -> tuple[InstanceType, ...]:
    """Read the packaged instance types."""
    return tuple(_instance_type(row) for row in packaged_rows("instances.csv"))


def _instance_type(row: CatalogRow) -> InstanceType:
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
