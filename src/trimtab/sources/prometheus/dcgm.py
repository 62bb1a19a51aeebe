"""GPU telemetry as exporters spell it: metric names, label spellings, units. Facts, no queries.

Names: NVIDIA/dcgm-exporter etc/default-counters.csv (2026), NVIDIA/DCGM dcgmlib/dcgm_fields.h 4.6.0 (its field naming standard
of 2026-07-06), utkuozdemir/nvidia_gpu_exporter docs/METRICS.md. A mixed fleet has both the old and the new names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from trimtab.units import BYTES_PER_GIB, MIB_PER_GIB, MJ_PER_KWH, MS_PER_S


class MetricUnit(Enum):
    """How a metric's values are to be read."""

    PERCENT = "percent"
    SHARE = "share"
    """0..1, unless the data show percent: neither names nor help texts can be trusted."""
    MIB = "MiB"
    BYTES = "bytes"
    WATT = "W"
    MILLIJOULE = "mJ"
    JOULE = "J"
    CELSIUS = "C"
    BITS = "bits"
    """A mask: NVML's reasons of clock events."""
    DURATION = "duration"
    """A counter whose unit differs by version (us, ns): only whether it rises says something."""

    @property
    def factor(self) -> float:
        """Return what a value is multiplied with to have shares, GiB, W or kWh."""
        return {
            MetricUnit.PERCENT: 0.01,
            MetricUnit.SHARE: 1.0,
            MetricUnit.MIB: 1.0 / MIB_PER_GIB,
            MetricUnit.BYTES: 1.0 / BYTES_PER_GIB,
            MetricUnit.WATT: 1.0,
            MetricUnit.MILLIJOULE: 1.0 / MJ_PER_KWH,
            MetricUnit.JOULE: MS_PER_S / MJ_PER_KWH,
        }.get(self, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedMetric:
    """One spelling of a canonical reading."""

    name: str
    canonical: str
    unit: MetricUnit


def _metrics(canonical: str, **names: MetricUnit) -> tuple[ExportedMetric, ...]:
    return tuple(ExportedMetric(name=name, canonical=canonical, unit=unit) for name, unit in names.items())


METRICS: tuple[ExportedMetric, ...] = (
    *_metrics(
        "gpu_util",
        DCGM_FI_DEV_GPU_UTIL=MetricUnit.PERCENT,
        DCGM_FI_DEV_GPU_UTIL_RATIO=MetricUnit.SHARE,
        nvidia_smi_utilization_gpu_ratio=MetricUnit.SHARE,
    ),
    *_metrics(
        "sm_active",
        DCGM_FI_PROF_SM_ACTIVE=MetricUnit.SHARE,
        DCGM_FI_PROF_SM_UTIL_RATIO=MetricUnit.SHARE,
        nvidia_smi_mig_sm_activity_ratio=MetricUnit.SHARE,
    ),
    *_metrics(
        "tensor_active",
        DCGM_FI_PROF_PIPE_TENSOR_ACTIVE=MetricUnit.SHARE,
        DCGM_FI_PROF_TENSOR_UTIL_RATIO=MetricUnit.SHARE,
        nvidia_smi_mig_tensor_activity_ratio=MetricUnit.SHARE,
    ),
    *_metrics("dram_active", DCGM_FI_PROF_DRAM_ACTIVE=MetricUnit.SHARE, DCGM_FI_PROF_DRAM_UTIL_RATIO=MetricUnit.SHARE),
    *_metrics(
        "memory_used_gib",
        DCGM_FI_DEV_FB_USED=MetricUnit.MIB,
        nvidia_smi_memory_used_bytes=MetricUnit.BYTES,
        nvidia_smi_mig_memory_used_bytes=MetricUnit.BYTES,
    ),
    *_metrics(
        "power_w",
        DCGM_FI_DEV_POWER_USAGE=MetricUnit.WATT,
        DCGM_FI_DEV_BOARD_POWER_WATTS=MetricUnit.WATT,
        nvidia_smi_power_draw_watts=MetricUnit.WATT,
    ),
    *_metrics(
        "energy_kwh",
        DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION=MetricUnit.MILLIJOULE,
        nvidia_smi_energy_joules_total=MetricUnit.JOULE,
    ),
    *_metrics("memory_free_gib", DCGM_FI_DEV_FB_FREE=MetricUnit.MIB),
    *_metrics("memory_reserved_gib", DCGM_FI_DEV_FB_RESERVED=MetricUnit.MIB),
    *_metrics("memory_total_gib", DCGM_FI_DEV_FB_TOTAL=MetricUnit.MIB, nvidia_smi_memory_total_bytes=MetricUnit.BYTES),
    *_metrics(
        "gr_engine_active",
        DCGM_FI_PROF_GR_ENGINE_ACTIVE=MetricUnit.SHARE,
        DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO=MetricUnit.SHARE,
        nvidia_smi_mig_graphics_activity_ratio=MetricUnit.SHARE,
    ),
)
"""Every spelling known, the older first: where one device exports both, the first is taken."""

WATCHED_METRICS: tuple[ExportedMetric, ...] = (
    *_metrics(
        "sm_occupancy",
        DCGM_FI_PROF_SM_OCCUPANCY=MetricUnit.SHARE,
        DCGM_FI_PROF_SM_OCCUPANCY_RATIO=MetricUnit.SHARE,
        nvidia_smi_mig_sm_occupancy_ratio=MetricUnit.SHARE,
    ),
    *_metrics(
        "temperature_c",
        DCGM_FI_DEV_GPU_TEMP=MetricUnit.CELSIUS,
        DCGM_FI_DEV_GPU_TEMP_CELSIUS=MetricUnit.CELSIUS,
        nvidia_smi_temperature_gpu=MetricUnit.CELSIUS,
    ),
    *_metrics(
        "power_limit_w",
        DCGM_FI_DEV_ENFORCED_POWER_LIMIT=MetricUnit.WATT,
        DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS=MetricUnit.WATT,
        DCGM_FI_DEV_POWER_MGMT_LIMIT=MetricUnit.WATT,
        DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS=MetricUnit.WATT,
        nvidia_smi_enforced_power_limit_watts=MetricUnit.WATT,
    ),
    *_metrics(
        "clock_reasons",
        DCGM_FI_DEV_CLOCK_THROTTLE_REASONS=MetricUnit.BITS,
        DCGM_FI_DEV_CLOCKS_EVENT_REASONS=MetricUnit.BITS,
    ),
    *_metrics("thermal_violation", DCGM_FI_DEV_THERMAL_VIOLATION=MetricUnit.DURATION),
)
"""Readings that alerts and boards watch and that no bundle keeps (same sources)."""

SHARES = ("gpu_util", "sm_active", "tensor_active", "dram_active", "gr_engine_active")
"""Readings in 0..1."""

ANY_METRIC = "|".join(sorted({metric.name for metric in METRICS}))
"""A regular expression of every name."""

DEVICE_LABELS = ("UUID", "uuid", "gpu_uuid", "gpu", "modelName", "model_name", "GPU_I_PROFILE", "GPU_I_ID")
NODE_LABELS = ("Hostname", "hostname", "node", "nodename", "instance", "exported_node")
OWNER_LABELS = (
    "exported_namespace",
    "exported_pod",
    "pod_namespace",
    "pod_name",
    "namespace",
    "pod",
    "exported_container",
    "hpc_job",
)
KEPT_LABELS = (*DEVICE_LABELS, *NODE_LABELS, *OWNER_LABELS)
"""What queries group by; everything else (driver version, bus address, scrape job) is dropped on the server."""

_EXPORTER_POD = re.compile(r"dcgm|nvidia.*exporter|gpu-operator", re.IGNORECASE)
_ADDRESS = re.compile(r"^(\d{1,3}\.){3}\d{1,3}(:\d+)?$|:\d+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLabels:
    """What a series' labels say: the device, where it sits, and the pod that held it (empty = unallocated)."""

    device: str
    uuid: str
    product: str
    node: str
    mig_profile: str
    namespace: str
    pod: str
    pod_label: str = ""
    """The label that carries the pod; empty where no pod held the device."""


def read_labels(labels: Mapping[str, str]) -> GpuLabels | None:
    """Return what the labels of a GPU series say, whatever their spelling; None where they name no device.

    A MIG instance is `UUID/instance id`: DCGM reports the UUID of the board. Where both `pod` and `exported_pod` exist, the
    exported one is the workload and the other the exporter's own pod.
    """
    uuid = _first(labels, ("UUID", "uuid", "gpu_uuid"))
    node = _node(labels)
    if not uuid and labels.get("gpu") and node:
        uuid = f"{node}/gpu{labels['gpu']}"
    if not uuid:
        return None
    instance = labels.get("GPU_I_ID", "")
    namespace, pod, pod_label = _owner(labels)
    return GpuLabels(
        device=f"{uuid}/{instance}" if instance else uuid,
        uuid=uuid,
        product=_first(labels, ("modelName", "model_name")),
        node=node,
        mig_profile=labels.get("GPU_I_PROFILE", ""),
        namespace=namespace,
        pod=pod,
        pod_label=pod_label if pod else "",
    )


def _owner(labels: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the namespace and pod that held the device, and the label that says so."""
    if "exported_pod" in labels or "exported_namespace" in labels:
        return labels.get("exported_namespace", ""), labels.get("exported_pod", ""), "exported_pod"
    if "pod_name" in labels:
        return labels.get("pod_namespace", ""), labels["pod_name"], "pod_name"
    pod = labels.get("pod", "")
    if _EXPORTER_POD.search(pod):
        return "", "", ""
    return (labels.get("namespace", ""), pod, "pod") if pod else ("", "", "")


def _node(labels: Mapping[str, str]) -> str:
    """Return the node: an explicit `node` beats a host name that is the exporter's own pod, or an address."""
    candidates = [labels.get(name, "") for name in ("exported_node", "node", "nodename", "Hostname", "hostname")]
    named = [name for name in candidates if name]
    plain = [name for name in named if not _EXPORTER_POD.search(name)]
    if plain or named:
        return (plain or named)[0]
    return _ADDRESS.sub("", labels.get("instance", "")) or labels.get("instance", "")


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")
