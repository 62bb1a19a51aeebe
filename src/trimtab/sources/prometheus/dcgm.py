"""GPU telemetry as exporters spell it: metric names, label spellings, units. Facts, no queries.

Names: NVIDIA/dcgm-exporter etc/default-counters.csv (2026), NVIDIA/DCGM dcgmlib/dcgm_fields.h 4.6.0 (its field naming standard
of 2026-07-06), utkuozdemir/nvidia_gpu_exporter docs/METRICS.md, ROCm/device-metrics-exporter
docs/configuration/metricslist.md at 0778d3ab (AMD's GPU operator can put `amd_` in front of its names). A mixed fleet has both
the old and the new names, and both vendors'. AMD's `gpu_gfx_activity` is the share of time in which the shaders had any work,
as GPU_UTIL is; of its memory engine's use no source says what it is a share of, so that it is not read.

AWS: neuron-monitor-prometheus.py of aws-neuronx-tools (awsdocs-neuron.readthedocs-hosted.com v2.29.1,
tools/neuron-sys-tools/neuron-monitor-user-guide; a scrape of it is in open-telemetry/opentelemetry-collector-contrib,
receiver/awscontainerinsightreceiver/internal/neuron/neuron_monitor_scraper_test.go). It has a series a NeuronCore and no pod,
and none while no program runs. Google: pkg/metrics/prom_metrics.go of ai-on-gke/tpu-device-plugin at 4626a9f4, which runs on
GKE's nodes; duty cycle and memory are reported by a pod's own runtime, so that a chip which no pod uses has
`tensorcore_utilization_node` alone. Intel: rest/prometheus_exporter/prometheus_exporter.py of intel/xpumanager at 57e44f55 (a
series a tile beside the board's: the board's is read), and the Prometheus metric exporter of Gaudi 1.23 (docs.habana.ai,
Orchestration). Of Gaudi's `habanalabs_energy` no source says the unit, so that it is not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from trimtab.catalog.model_servers import first_label
from trimtab.units import BYTES_PER_GB, BYTES_PER_GIB, MIB_PER_GIB, MJ_PER_KWH, MS_PER_S, MW_PER_W


class MetricUnit(Enum):
    """How a metric's values are to be read."""

    PERCENT = "percent"
    SHARE = "share"
    """0..1, unless the data show percent: neither names nor help texts can be trusted."""
    MIB = "MiB"
    BYTES = "bytes"
    WATT = "W"
    MILLIWATT = "mW"
    MILLIJOULE = "mJ"
    JOULE = "J"
    CELSIUS = "C"
    MICROJOULE = "uJ"
    BYTES_PER_S = "bytes/s"
    BITS = "bits"
    """A mask: NVML's reasons of clock events."""
    DURATION = "duration"
    """A counter whose unit differs by version (us, ns): only whether it rises says something."""

    @property
    def factor(self) -> float:
        """Return what a value is multiplied with to have shares, GiB, GB/s, W or kWh."""
        return {
            MetricUnit.PERCENT: 0.01,
            MetricUnit.SHARE: 1.0,
            MetricUnit.MIB: 1.0 / MIB_PER_GIB,
            MetricUnit.BYTES: 1.0 / BYTES_PER_GIB,
            MetricUnit.BYTES_PER_S: 1.0 / BYTES_PER_GB,
            MetricUnit.WATT: 1.0,
            MetricUnit.MILLIWATT: 1.0 / MW_PER_W,
            MetricUnit.MILLIJOULE: 1.0 / MJ_PER_KWH,
            MetricUnit.JOULE: MS_PER_S / MJ_PER_KWH,
            MetricUnit.MICROJOULE: 1.0 / (MS_PER_S * MJ_PER_KWH),
        }.get(self, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedMetric:
    """One spelling of a canonical reading."""

    name: str
    canonical: str
    unit: MetricUnit
    uuid_label: str = "UUID"
    """The label that carries a board's UUID, or what stands for it."""
    number_label: str = "gpu"
    """The label that carries a board's number on its node."""
    labels: tuple[str, ...] = ()
    """Labels that its queries group by besides `KEPT_LABELS`."""
    only: tuple[str, ...] = ()
    """Matchers of the series that are of whole boards."""
    of_cores: bool = False
    """It has a series for each core of a board: they are joined."""
    of_unheld: bool = False
    """It tells every board beside the series of pods: it is read in hours in which no pod has any."""


def _metrics(canonical: str, **names: MetricUnit) -> tuple[ExportedMetric, ...]:
    return tuple(_nvidia(name, canonical, unit) for name, unit in names.items())


def _nvidia(name: str, canonical: str, unit: MetricUnit) -> ExportedMetric:
    if name.startswith("nvidia_smi"):  # its series name their node by `instance` alone
        return ExportedMetric(name=name, canonical=canonical, unit=unit, uuid_label="uuid", labels=("instance",))
    return ExportedMetric(name=name, canonical=canonical, unit=unit)


def _amd(canonical: str, unit: MetricUnit, *names: str) -> tuple[ExportedMetric, ...]:
    spelled = [prefix + name for name in names for prefix in ("", "amd_")]
    return tuple(
        ExportedMetric(name=name, canonical=canonical, unit=unit, uuid_label="gpu_uuid", number_label="gpu_id")
        for name in spelled
    )


_TPU_LABELS = ("accelerator_id", "model", "instance")
_XPU_LABELS = ("dev_name", "kube_pod", "kube_namespace")


def _tpu(name: str, canonical: str, unit: MetricUnit, *, of_unheld: bool = False) -> ExportedMetric:
    return ExportedMetric(
        name=name,
        canonical=canonical,
        unit=unit,
        uuid_label="accelerator_id",
        labels=_TPU_LABELS,
        only=('make="cloud-tpu"',),
        of_unheld=of_unheld,
    )


def _xpu(name: str, canonical: str, unit: MetricUnit) -> ExportedMetric:
    return ExportedMetric(
        name=name, canonical=canonical, unit=unit, uuid_label="uuid", labels=_XPU_LABELS, only=('sub_dev=""', 'card=""')
    )


def _gaudi(name: str, canonical: str, unit: MetricUnit) -> ExportedMetric:
    return ExportedMetric(name=name, canonical=canonical, unit=unit, labels=("instance",))


AMD_METRICS: tuple[ExportedMetric, ...] = (
    *_amd("gpu_util", MetricUnit.PERCENT, "gpu_gfx_activity"),
    *_amd("memory_used_gib", MetricUnit.MIB, "gpu_used_vram"),
    *_amd("memory_free_gib", MetricUnit.MIB, "gpu_free_vram"),
    *_amd("memory_total_gib", MetricUnit.MIB, "gpu_total_vram"),
    *_amd("power_w", MetricUnit.WATT, "gpu_power_usage", "gpu_package_power", "gpu_average_package_power"),
    *_amd("energy_kwh", MetricUnit.MICROJOULE, "gpu_energy_consumed"),
)
"""What AMD's device-metrics-exporter calls them."""

NEURON_METRICS = (
    ExportedMetric(
        name="neuroncore_utilization_ratio",
        canonical="gpu_util",
        unit=MetricUnit.SHARE,
        uuid_label="instance_id",
        labels=("instance_id", "instance_type", "neuroncore"),
        of_cores=True,
    ),
)
NEURON_HARDWARE = "neuron_hardware_info"
"""Its labels tell by `instance_id` how many NeuronCores a chip has (`neuroncore_per_device_count`)."""
_CORES_OF_TYPE = {"inf1": 4, "inf2": 2, "trn1": 2, "trn1n": 2, "trn2": 8, "trn2u": 8, "trn3": 8}
"""NeuronCores of a chip, by family of instance type (awsdocs-neuron v2.29.1, about-neuron/arch/neuron-hardware)."""

TPU_METRICS = (
    _tpu("duty_cycle", "gpu_util", MetricUnit.PERCENT),
    _tpu("tensorcore_utilization_node", "gpu_util", MetricUnit.PERCENT, of_unheld=True),
    _tpu("tensorcore_utilization", "tensor_active", MetricUnit.PERCENT),
    _tpu("memory_bandwidth_utilization", "dram_active", MetricUnit.PERCENT),
    _tpu("memory_used", "memory_used_gib", MetricUnit.BYTES),
    _tpu("memory_total", "memory_total_gib", MetricUnit.BYTES),
)

INTEL_METRICS = (
    _xpu("xpum_engine_ratio", "gpu_util", MetricUnit.SHARE),
    _xpu("xpum_memory_bandwidth_ratio", "dram_active", MetricUnit.SHARE),
    _xpu("xpum_memory_used_bytes", "memory_used_gib", MetricUnit.BYTES),
    _xpu("xpum_power_watts", "power_w", MetricUnit.WATT),
    _xpu("xpum_energy_joules_total", "energy_kwh", MetricUnit.JOULE),
    _gaudi("habanalabs_utilization", "gpu_util", MetricUnit.PERCENT),
    _gaudi("habanalabs_memory_used_bytes", "memory_used_gib", MetricUnit.BYTES),
    _gaudi("habanalabs_memory_free_bytes", "memory_free_gib", MetricUnit.BYTES),
    _gaudi("habanalabs_memory_total_bytes", "memory_total_gib", MetricUnit.BYTES),
    _gaudi("habanalabs_power_mW", "power_w", MetricUnit.MILLIWATT),
)

LINK_METRICS = (
    *_metrics("pcie_rx_gb_s", DCGM_FI_PROF_PCIE_RX_BYTES=MetricUnit.BYTES_PER_S),
    *_metrics("pcie_tx_gb_s", DCGM_FI_PROF_PCIE_TX_BYTES=MetricUnit.BYTES_PER_S),
)
"""What a board receives over PCIe and what it sends: rates, headers of packets included (DCGM, "Profiling Metrics": averaged
over the interval), although some lists of counters call them counters. DCGM_FI_DEV_PCIE_RX_THROUGHPUT and its sibling are not
read: NVML means them as KB/s of 20 ms, dcgm-exporter's help as a total in KB."""

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
    *LINK_METRICS,
    *AMD_METRICS,
    *NEURON_METRICS,
    *TPU_METRICS,
    *INTEL_METRICS,
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

OTHER_MAKERS: Mapping[str, tuple[ExportedMetric, ...]] = {
    "AMD's device-metrics-exporter": AMD_METRICS,
    "AWS's neuron-monitor": NEURON_METRICS,
    "GKE's TPU device plugin": TPU_METRICS,
    "Intel's exporters": INTEL_METRICS,
}
"""What exports readings besides NVIDIA's."""

SHARES = ("gpu_util", "sm_active", "tensor_active", "dram_active", "gr_engine_active")
"""Readings in 0..1."""

ANY_METRIC = "|".join(sorted({metric.name for metric in METRICS}))
"""A regular expression of every name."""

DEVICE_LABELS = (
    "UUID", "uuid", "gpu_uuid", "gpu", "gpu_id", "modelName", "model_name", "card_series", "card_model", "GPU_I_PROFILE",
    "GPU_I_ID",
)  # fmt: skip
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
_NODE_NAMES = ("exported_node", "node", "nodename", "Hostname", "hostname")
KEPT_LABELS = (*DEVICE_LABELS, *NODE_LABELS, *OWNER_LABELS)
"""What queries group by; everything else (driver version, bus address, scrape job) is dropped on the server."""

_EXPORTER_POD = re.compile(
    r"dcgm|nvidia.*exporter|metrics-exporter|gpu-operator|neuron-monitor|tpu-(device-plugin|metrics)|xpu-?m|metric-exporter",
    re.IGNORECASE,
)
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


def read_labels(labels: Mapping[str, str], cores_of: Mapping[str, int] | None = None) -> GpuLabels | None:
    """Return what the labels of a GPU series say, whatever their spelling; None where they name no device.

    A MIG instance is `UUID/instance id`: DCGM reports the UUID of the board. Where both `pod` and `exported_pod` exist, the
    exported one is the workload and the other the exporter's own pod. `cores_of` is how many NeuronCores a chip has, by EC2
    instance; a core stands for its chip.
    """
    if labels.get("neuroncore"):
        return _neuron_chip(labels, cores_of or {})
    uuid = first_label(labels, ("UUID", "uuid", "gpu_uuid", "accelerator_id"))
    node = _node(labels)
    number = first_label(labels, ("gpu", "gpu_id"))
    if not uuid and number and node:
        uuid = f"{node}/gpu{number}"
    if not uuid:
        return None
    instance = labels.get("GPU_I_ID", "")
    namespace, pod, pod_label = _owner(labels)
    return GpuLabels(
        device=f"{uuid}/{instance}" if instance else uuid,
        uuid=uuid,
        product=first_label(labels, ("modelName", "model_name", "card_series", "card_model", "dev_name", "model")),
        node=node,
        mig_profile=labels.get("GPU_I_PROFILE", ""),
        namespace=namespace,
        pod=pod,
        pod_label=pod_label if pod else "",
    )


def _neuron_chip(labels: Mapping[str, str], cores_of: Mapping[str, int]) -> GpuLabels | None:
    """Return the chip of a NeuronCore, known by its number on its EC2 instance; no pod is reported with it."""
    instance, family = labels.get("instance_id", ""), labels.get("instance_type", "").partition(".")[0]
    cores, number = cores_of.get(instance) or _CORES_OF_TYPE.get(family), labels["neuroncore"]
    if not instance or not cores or not number.isdigit():
        return None
    chip = f"{instance}/neuron{int(number) // cores}"
    node = first_label(labels, _NODE_NAMES) or instance
    return GpuLabels(device=chip, uuid=chip, product=family, node=node, mig_profile="", namespace="", pod="")


def neuron_cores(hardware: Iterable[Mapping[str, str]]) -> dict[str, int]:
    """Return how many NeuronCores a chip has by EC2 instance, from the labels of `neuron_hardware_info`."""
    told = ((labels.get("instance_id", ""), labels.get("neuroncore_per_device_count", "")) for labels in hardware)
    return {instance: int(cores) for instance, cores in told if instance and cores.isdigit() and int(cores)}


def _owner(labels: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the namespace and pod that held the device, and the label that says so."""
    if "kube_pod" in labels:
        return labels.get("kube_namespace", ""), labels["kube_pod"], "kube_pod"
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
    candidates = [labels.get(name, "") for name in _NODE_NAMES]
    named = [name for name in candidates if name]
    plain = [name for name in named if not _EXPORTER_POD.search(name)]
    if plain or named:
        return (plain or named)[0]
    return _ADDRESS.sub("", labels.get("instance", "")) or labels.get("instance", "")
