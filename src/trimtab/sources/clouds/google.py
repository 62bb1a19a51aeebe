"""Google Cloud Monitoring (Ops Agent, GKE, DCGM), what Compute Engine knows of the machines, and its quotas of GPUs.

Asked through the REST API v3 (`timeSeries.list`), aligned to the hour on Google's side, page by page. Names and labels: Google
Cloud's lists of agent and Kubernetes metrics. A percentile that an aligner refuses is missing, and the mean stands alone.

`compute.regions.list` states GPUs by model (`NVIDIA_L4_GPUS`, `PREEMPTIBLE_NVIDIA_L4_GPUS`). Newer models (H100 and later) have
quotas by family in the Cloud Quotas API only; they are not read, and a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from trimtab.catalog import CapacityType, Catalog, InstanceType
from trimtab.errors import CredentialsError, SourceError
from trimtab.sources.clouds import SHARES, CloudGpu, CloudMachine, CloudReading, Holder, NodeQuota, QuotaReading, Tell
from trimtab.sources.clouds.clients import GooglePage, google_pages
from trimtab.sources.hour_grid import HourGrid, moment
from trimtab.sources.http import WebServer
from trimtab.units import BYTES_PER_GIB, MIB_PER_GIB, S_PER_HR

COMPUTE_URL = "https://compute.googleapis.com"
_FIELDS = "nextPageToken,items/*/instances(id,name,zone,machineType,scheduling(provisioningModel,preemptible),labels)"
_GROUP_LABELS = ("goog-k8s-node-pool-name", "goog-k8s-cluster-name", "team")


class _Scheduling(BaseModel):
    model: str = Field("STANDARD", alias="provisioningModel")
    preemptible: bool = False


class _ComputeInstance(BaseModel):
    id: str
    name: str
    zone: str
    machine_type: str = Field(alias="machineType")
    scheduling: _Scheduling = Field(default_factory=lambda: _Scheduling.model_validate({}))
    labels: dict[str, str] = Field(default_factory=dict)


class _ZoneInstances(BaseModel):
    instances: list[_ComputeInstance] = Field(default_factory=list)


class _InstancePage(GooglePage):
    items: dict[str, _ZoneInstances] = Field(default_factory=dict)


def describe(url: str, headers: Mapping[str, str], project: str, reading: CloudReading) -> None:
    """Complete a reading's machines with what Compute Engine says; those that it no longer knows stay as they are, counted."""
    try:
        with WebServer(url, headers=headers) as server:
            known = {
                name: instance for instance in _instances(server, project) for name in (instance.id, instance.name)
            }
    except CredentialsError:
        reading.notes.append("compute.instances.list was refused: machines count as on demand, types may be unknown")
        return
    for name, machine in reading.machines.items():
        if name in known:
            reading.machines[name] = _with(machine, known[name])
        else:
            reading.counts["machines that Compute Engine no longer knows: on demand assumed"] += 1


def _instances(server: WebServer, project: str) -> Iterator[_ComputeInstance]:
    path, asked = f"/compute/v1/projects/{project}/aggregated/instances", {"fields": _FIELDS, "maxResults": "500"}
    for page in google_pages(server, path, asked, _InstancePage, "instances"):
        for scope in page.items.values():
            yield from scope.instances


def _with(machine: CloudMachine, instance: _ComputeInstance) -> CloudMachine:
    zone = instance.zone.rpartition("/")[2]
    spot = instance.scheduling.model == "SPOT" or instance.scheduling.preemptible
    return replace(
        machine,
        instance_type=instance.machine_type.rpartition("/")[2],
        zone=zone,
        region=zone.rpartition("-")[0],
        capacity_type=CapacityType.SPOT if spot else CapacityType.ON_DEMAND,
        group=machine.group or next((instance.labels[key] for key in _GROUP_LABELS if key in instance.labels), None),
    )


MONITORING_URL = "https://monitoring.googleapis.com"
_PAGE = "10000"
_ALIGNERS = {"ALIGN_MEAN": "mean", "ALIGN_MAX": "max", "ALIGN_PERCENTILE_50": "p50", "ALIGN_PERCENTILE_95": "p95",
             "ALIGN_COUNT": "samples"}  # fmt: skip
_REPLICA = re.compile(r"-[0-9a-f]{6,10}-[a-z0-9]{5}$|-[a-z0-9]{5}$|-\d+$")
"""What a ReplicaSet, a Job or a StatefulSet puts behind the name of its pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _MonitoredMetric:
    """One metric: its column of ours, what divides it, and a further filter."""

    name: str
    column: str
    divisor: float = 1
    only: str = ""

    @property
    def aligners(self) -> tuple[str, ...]:
        """Return the statistics worth asking for."""
        if self.column == "memory_total_gib":
            return ("ALIGN_MAX",)
        return ("ALIGN_MEAN", "ALIGN_MAX") if self.column == "memory_used_gib" else tuple(_ALIGNERS)


def _prometheus(name: str, column: str, divisor: float = 1) -> _MonitoredMetric:
    return _MonitoredMetric(name=f"prometheus.googleapis.com/{name}/gauge", column=column, divisor=divisor)


METRICS = (
    _MonitoredMetric(name="agent.googleapis.com/gpu/utilization", column="gpu_util", divisor=100),
    _MonitoredMetric(name="agent.googleapis.com/gpu/memory/bytes_used", column="memory_used_gib", divisor=BYTES_PER_GIB,
            only='metric.label.memory_state="used"'),
    _MonitoredMetric(name="kubernetes.io/container/accelerator/duty_cycle", column="gpu_util", divisor=100),
    _MonitoredMetric(name="kubernetes.io/container/accelerator/memory_used", column="memory_used_gib", divisor=BYTES_PER_GIB),
    _MonitoredMetric(name="kubernetes.io/container/accelerator/memory_total", column="memory_total_gib", divisor=BYTES_PER_GIB),
    _prometheus("DCGM_FI_DEV_GPU_UTIL", "gpu_util", 100),
    _prometheus("DCGM_FI_PROF_SM_ACTIVE", "sm_active"),
    _prometheus("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "tensor_active"),
    _prometheus("DCGM_FI_PROF_DRAM_ACTIVE", "dram_active"),
    _prometheus("DCGM_FI_DEV_POWER_USAGE", "power_w"),
    _prometheus("DCGM_FI_DEV_FB_USED", "memory_used_gib", MIB_PER_GIB),
)  # fmt: skip


class _SeriesLabels(BaseModel):
    labels: dict[str, str] = Field(default_factory=dict)


class _System(BaseModel):
    labels: dict[str, object] = Field(default_factory=dict, alias="systemLabels")
    user: dict[str, str] = Field(default_factory=dict, alias="userLabels")


class _Value(BaseModel):
    double: float | None = Field(None, alias="doubleValue")
    whole: int | None = Field(None, alias="int64Value", ge=-(2**63), lt=2**63)


class _Interval(BaseModel):
    end: AwareDatetime = Field(alias="endTime")


class _SeriesPoint(BaseModel):
    interval: _Interval
    value: _Value


class _TimeSeries(BaseModel):
    metric: _SeriesLabels
    resource: _SeriesLabels
    metadata: _System = Field(default_factory=lambda: _System.model_validate({}))
    points: list[_SeriesPoint] = Field(default_factory=list)


class _SeriesPage(GooglePage):
    series: list[dict[str, object]] = Field(default_factory=list, alias="timeSeries")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleMonitoring:
    """Cloud Monitoring of one project."""

    project: str
    headers: Mapping[str, str]
    url: str = MONITORING_URL
    compute_url: str = COMPUTE_URL

    def read(self, grid: HourGrid, tell: Tell) -> CloudReading:
        """Return what the project's metrics reported for the hours of a grid. Raises SourceError, CredentialsError."""
        reading = CloudReading(grid=grid, source=f"Google Cloud Monitoring {self.project}")
        with WebServer(self.url, headers=self.headers) as server:
            for number, metric in enumerate(METRICS):
                tell("Google Cloud Monitoring", number / len(METRICS))
                self._metric(server, metric, reading)
            reading.counts["answers that said we ask too often, asked again"] += server.throttled
        describe(self.compute_url, self.headers, self.project, reading)
        tell("Google Cloud Monitoring", 1.0)
        return reading

    def _metric(self, server: WebServer, metric: _MonitoredMetric, reading: CloudReading) -> None:
        for aligner in metric.aligners:
            try:
                told = 0
                for series in self._series(server, metric, aligner, reading):
                    told += 1
                    _take(series, metric, _ALIGNERS[aligner], reading)
            except SourceError as error:
                if not aligner.startswith("ALIGN_PERCENTILE") or "HTTP 400" not in str(error):
                    raise
                reading.counts[f"statistics that Google does not make of {metric.name}"] += 1
                continue
            if not told and aligner == metric.aligners[0]:
                return

    def _series(
        self, server: WebServer, metric: _MonitoredMetric, aligner: str, reading: CloudReading
    ) -> Iterator[_TimeSeries]:
        wanted = " AND ".join(part for part in (f'metric.type="{metric.name}"', metric.only) if part)
        asked = {
            "filter": wanted,
            "interval.startTime": moment(reading.grid.start_s).isoformat().replace("+00:00", "Z"),
            "interval.endTime": moment(reading.grid.end_s).isoformat().replace("+00:00", "Z"),
            "aggregation.alignmentPeriod": f"{S_PER_HR}s",
            "aggregation.perSeriesAligner": aligner,
            "pageSize": _PAGE,
        }
        path = f"/v3/projects/{self.project}/timeSeries"
        for page in google_pages(server, path, asked, _SeriesPage, "time series"):
            yield from _valid(page.series, reading)


def _valid(raw: Sequence[dict[str, object]], reading: CloudReading) -> Iterator[_TimeSeries]:
    for series in raw:
        try:
            yield _TimeSeries.model_validate(series)
        except ValidationError:
            reading.counts["time series of Google that cannot be understood"] += 1


def _take(series: _TimeSeries, metric: _MonitoredMetric, statistic: str, reading: CloudReading) -> None:
    """Note the values of a series, with its board, machine and pod."""
    device = _note(series, reading)
    if device is None:
        reading.counts["time series of Google that name no board"] += 1
        return
    for point in series.points:
        value = point.value.double if point.value.double is not None else point.value.whole
        if value is None:
            continue
        # an aligned value stands at the end of its hour
        hour = (int(point.interval.end.timestamp()) - reading.grid.start_s - 1) // S_PER_HR
        _put(reading, metric, statistic, device, hour, float(value))


def _put(reading: CloudReading, metric: _MonitoredMetric, statistic: str, device: str, hour: int, value: float) -> None:
    if statistic == "samples":
        if metric.column in (*SHARES, "power_w"):
            reading.put(device, "samples", [hour], [value])
        return
    scaled = value / metric.divisor
    if metric.column == "memory_total_gib":
        reading.memory_gib[device] = max(scaled, reading.memory_gib.get(device, 0.0))
    elif metric.column in SHARES:
        reading.put_shares(device, f"{metric.column}_{statistic}", [hour], [scaled])
    else:
        reading.put(device, f"{metric.column}_{statistic}", [hour], [scaled])


def _note(series: _TimeSeries, reading: CloudReading) -> str | None:
    """Note the board, machine and pod that a series names; return the board's name."""
    labels, place = series.metric.labels, series.resource.labels
    system = {name: str(value) for name, value in series.metadata.labels.items()}
    host = labels.get("Hostname") or labels.get("hostname") or system.get("node_name") or place.get("node_name")
    machine = host or system.get("name") or place.get("instance_id") or place.get("instance")
    board = labels.get("UUID") or labels.get("uuid") or labels.get("accelerator_id") or labels.get("gpu_number")
    if machine is None and board is not None and "pod_name" in place:
        machine = f"{place.get('cluster_name', 'cluster')}:{place['pod_name']}"
    if machine is None or board is None:
        return None
    device = board if board.startswith(("GPU-", "MIG-")) else f"{machine}:{board}"
    product = labels.get("modelName") or labels.get("model")
    reading.gpus.setdefault(device, CloudGpu(device=device, machine=machine, product=product))
    reading.machines.setdefault(machine, _machine(machine, place, system))
    _note_holder(device, labels, place, reading)
    return device


def _machine(name: str, place: Mapping[str, str], system: Mapping[str, str]) -> CloudMachine:
    zone = place.get("zone") or place.get("location") or ""
    regional = zone.count("-") < 2
    return CloudMachine(
        name=name,
        provider="gcp",
        instance_type=system.get("machine_type", "unknown"),
        region=(zone if regional else zone.rpartition("-")[0]) or "unknown",
        zone=None if regional else zone,
        group=system.get("instance_group") or place.get("cluster_name"),
    )


def _note_holder(device: str, labels: Mapping[str, str], place: Mapping[str, str], reading: CloudReading) -> None:
    """Note the pod that held a board; where DCGM names none, the pod is the exporter's own, which is no holder."""
    pod = labels.get("exported_pod") or labels.get("pod") or place.get("pod_name")
    namespace = labels.get("exported_namespace") or place.get("namespace_name") or labels.get("namespace")
    if not pod or not namespace or "dcgm" in pod or device in reading.holders:
        return
    workload = f"{namespace}/{_REPLICA.sub('', pod)}"
    reading.holders[device] = Holder(namespace=namespace, pod=pod, workload=workload)
    reading.counts["pods whose owner was guessed from their name"] += 1


_ALL_REGIONS = "GPUS_ALL_REGIONS"
_METRICS = {
    "T4": "NVIDIA_T4_GPUS",
    "L4": "NVIDIA_L4_GPUS",
    "A100-SXM4-40GB": "NVIDIA_A100_GPUS",
    "A100-SXM4-80GB": "NVIDIA_A100_80GB_GPUS",
    "H100-SXM5-80GB": "NVIDIA_H100_GPUS",
}
"""Board -> its regional quota. Source: Compute Engine, allocation quotas, GPU quota."""


class _RegionQuota(BaseModel):
    metric: str
    limit: float = Field(allow_inf_nan=False)
    usage: float | None = Field(None, allow_inf_nan=False)


class _ComputeRegion(BaseModel):
    name: str
    quotas: list[_RegionQuota] = Field(default_factory=list)


class _Regions(GooglePage):
    items: list[_ComputeRegion] = Field(default_factory=list)


class _Project(BaseModel):
    quotas: list[_RegionQuota] = Field(default_factory=list)


def google_quotas(url: str, headers: Mapping[str, str], project: str, catalog: Catalog) -> QuotaReading:
    """Return the quotas of Google's GPU types in every region. Raises SourceError, CredentialsError."""
    reading = QuotaReading()
    machines = [machine for machine in catalog.instance_types if machine.provider == "gcp"]
    try:
        with WebServer(url, headers=headers) as server:
            whole = _Project.model_validate_json(server.get(f"/compute/v1/projects/{project}"))
            for page in google_pages(server, f"/compute/v1/projects/{project}/regions", {}, _Regions, "regions"):
                for region in page.items:
                    for machine in machines:
                        reading.quotas.extend(_of_region(machine, region, whole))
    except ValidationError as error:
        raise SourceError(f"{url}: no quotas of project {project}: {error.errors()[0]['msg']}") from error
    unread = sorted({machine.gpu for machine in machines} - _METRICS.keys())
    reading.notes.append(f"quotas by GPU family are not read (Cloud Quotas API): {', '.join(unread)}")
    return reading


def _of_region(machine: InstanceType, region: _ComputeRegion, whole: _Project) -> Iterator[NodeQuota]:
    metric = _METRICS.get(machine.gpu)
    stated = {quota.metric: quota for quota in region.quotas}
    over_all = next((quota for quota in whole.quotas if quota.metric == _ALL_REGIONS), None)
    for capacity, name in ((CapacityType.ON_DEMAND, metric), (CapacityType.SPOT, f"PREEMPTIBLE_{metric}")):
        found = stated.get(name or "")
        if metric is None or found is None:
            continue
        tight = min((found, *([over_all] if over_all else [])), key=lambda quota: quota.limit)
        yield NodeQuota(
            provider="gcp",
            instance_type=machine.name,
            region=region.name,
            capacity_type=capacity,
            nodes=int(tight.limit // machine.gpu_count),
            limit=tight.limit,
            unit="GPU",
            per_node=float(machine.gpu_count),
            used=tight.usage,
            quota=tight.metric,
            code=_quota_id(tight.metric),
        )


def _quota_id(metric: str) -> str:
    """Return a quota's name in the Cloud Quotas API, as Google derives it: words by dashes, then its scope."""
    scope = "per-project" if metric == _ALL_REGIONS else "per-project-region"
    return f"{metric.replace('_', '-')}-{scope}"
