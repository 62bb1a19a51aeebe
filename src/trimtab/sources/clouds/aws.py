"""Amazon CloudWatch (metrics of its agent and of Container Insights), what EC2 knows of the machines, and its GPU quotas.

Asked by the hour: ListMetrics says which boards there are, GetMetricData gives mean, median, p95 and maximum, 500 questions a
call, page by page. Metric names and dimensions: amazon-cloudwatch-agent's translator; memory is in MiB (agent) or bytes.

A quota's name says what it is of: "Running On-Demand P instances", "All P5 Spot Instance Requests". A quota that names a type's
generation (P5) goes before one that names its letter (P). All types of a quota draw on it together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from trimtab.catalog import CapacityType, Catalog, InstanceType
from trimtab.errors import CredentialsError
from trimtab.sources.clouds import SHARES, CloudGpu, CloudMachine, CloudReading, NodeQuota, QuotaReading, Tell
from trimtab.sources.clouds.clients import AwsClient, aws_client, aws_items
from trimtab.sources.hour_grid import HourGrid, moment
from trimtab.units import BYTES_PER_GIB, MIB_PER_GIB, S_PER_HR

_IDS_PER_CALL = 100
_LIFECYCLES = {"spot": CapacityType.SPOT, "capacity-block": CapacityType.CAPACITY_BLOCK}
_GROUP_TAGS = ("aws:autoscaling:groupName", "eks:nodegroup-name", "karpenter.sh/nodepool", "Name")


class _Ec2Placement(BaseModel):
    zone: str | None = Field(None, alias="AvailabilityZone")


class _Tag(BaseModel):
    key: str = Field(alias="Key")
    value: str = Field(alias="Value")


class _Ec2Instance(BaseModel):
    name: str = Field(alias="InstanceId")
    instance_type: str = Field(alias="InstanceType")
    lifecycle: str = Field("", alias="InstanceLifecycle")
    placement: _Ec2Placement = Field(default_factory=lambda: _Ec2Placement.model_validate({}), alias="Placement")
    tags: list[_Tag] = Field(default_factory=list, alias="Tags")


class _Reservation(BaseModel):
    instances: list[_Ec2Instance] = Field(default_factory=list, alias="Instances")


def described(client: AwsClient, reading: CloudReading) -> dict[str, CloudMachine]:
    """Return the machines of a reading with what EC2 says of them; those it no longer knows stay, on demand, counted."""
    try:
        found = {
            instance.name: instance
            for instance in _instances(client, sorted(_id(instance) for instance in reading.machines.values()))
        }
    except CredentialsError:
        reading.notes.append("ec2:DescribeInstances was refused: machines count as on demand, their zones are unknown")
        return {}
    known = {name: machine for name, machine in reading.machines.items() if _id(machine) in found}
    lost = len(reading.machines) - len(known)
    if lost:
        reading.counts["machines that EC2 no longer knows: on demand assumed"] += lost
    return {name: _described(machine, found[_id(machine)]) for name, machine in known.items()}


def _id(machine: CloudMachine) -> str:
    return machine.instance or machine.name


def _instances(client: AwsClient, names: list[str]) -> Iterator[_Ec2Instance]:
    for first in range(0, len(names), _IDS_PER_CALL):
        filters = [{"Name": "instance-id", "Values": names[first : first + _IDS_PER_CALL]}]
        for raw in aws_items(client, "describe_instances", "Reservations", Filters=filters):
            try:
                yield from _Reservation.model_validate(raw).instances
            except ValidationError:
                continue


def _described(machine: CloudMachine, instance: _Ec2Instance) -> CloudMachine:
    tags = {tag.key: tag.value for tag in instance.tags}
    group = machine.group or next((tags[key] for key in _GROUP_TAGS if key in tags), None)
    return replace(
        machine,
        instance_type=instance.instance_type,
        zone=instance.placement.zone,
        capacity_type=_LIFECYCLES.get(instance.lifecycle, CapacityType.ON_DEMAND),
        group=group,
    )


QUESTIONS_PER_CALL = 500
"""GetMetricData takes that many at most."""
_STATISTICS = {"Average": "mean", "p50": "p50", "p95": "p95", "Maximum": "max", "SampleCount": "samples"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _CloudWatchMetric:
    """One metric: its column of ours, what divides it, the dimension that tells boards apart."""

    namespace: str
    name: str
    column: str
    divisor: float
    board: str
    machine: str

    @property
    def statistics(self) -> tuple[str, ...]:
        """Return the statistics worth asking for."""
        if self.column == "memory_total_gib":
            return ("Maximum",)
        return ("Average", "Maximum") if self.column == "memory_used_gib" else tuple(_STATISTICS)


def _agent(name: str, column: str, divisor: float) -> _CloudWatchMetric:
    return _CloudWatchMetric(
        namespace="CWAgent", name=name, column=column, divisor=divisor, board="index", machine="InstanceId"
    )


def _insights(name: str, column: str, divisor: float) -> _CloudWatchMetric:
    return _CloudWatchMetric(
        namespace="ContainerInsights",
        name=name,
        column=column,
        divisor=divisor,
        board="GpuDevice",
        machine="InstanceId",
    )


METRICS = (
    _agent("nvidia_smi_utilization_gpu", "gpu_util", 100),
    _agent("nvidia_smi_power_draw", "power_w", 1),
    _agent("nvidia_smi_memory_used", "memory_used_gib", MIB_PER_GIB),
    _agent("nvidia_smi_memory_total", "memory_total_gib", MIB_PER_GIB),
    _insights("node_gpu_utilization", "gpu_util", 100),
    _insights("node_gpu_tensor_core_utilization", "tensor_active", 100),
    _insights("node_gpu_power_draw", "power_w", 1),
    _insights("node_gpu_memory_used", "memory_used_gib", BYTES_PER_GIB),
    _insights("node_gpu_memory_total", "memory_total_gib", BYTES_PER_GIB),
)


class _MetricDimension(BaseModel):
    name: str = Field(alias="Name")
    value: str = Field(alias="Value")


class _Listed(BaseModel):
    dimensions: list[_MetricDimension] = Field(alias="Dimensions")


class _Result(BaseModel):
    key: str = Field(alias="Id")
    times: list[AwareDatetime] = Field(default_factory=list, alias="Timestamps")
    values: list[float] = Field(default_factory=list, alias="Values")
    status: str = Field("Complete", alias="StatusCode")


@dataclass(frozen=True, slots=True, kw_only=True)
class _MetricQuery:
    metric: _CloudWatchMetric
    dimensions: tuple[tuple[str, str], ...]
    device: str
    statistic: str

    def as_asked(self, key: str) -> dict[str, object]:
        """Return the question as GetMetricData takes it."""
        metric = {
            "Namespace": self.metric.namespace,
            "MetricName": self.metric.name,
            "Dimensions": [{"Name": name, "Value": value} for name, value in self.dimensions],
        }
        return {"Id": key, "MetricStat": {"Metric": metric, "Period": S_PER_HR, "Stat": self.statistic}}


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudWatch:
    """CloudWatch of one region. `endpoint` replaces AWS's own address."""

    region: str
    endpoint: str | None = None

    def read(self, grid: HourGrid, tell: Tell) -> CloudReading:
        """Return what the agents reported for the hours of a grid. Raises SourceError, CredentialsError, UsageError."""
        client = aws_client("cloudwatch", self.region, self.endpoint)
        reading = CloudReading(grid=grid, source=f"CloudWatch {self.region}")
        tell("CloudWatch metrics", 0.0)
        questions = [question for metric in METRICS for question in _questions(client, metric, self.region, reading)]
        for first in range(0, len(questions), QUESTIONS_PER_CALL):
            _ask(client, questions[first : first + QUESTIONS_PER_CALL], reading)
            tell("CloudWatch metrics", min(1.0, (first + QUESTIONS_PER_CALL) / len(questions)))
        reading.notes.append(f"CloudWatch was asked for {len(questions):,} metrics, which AWS bills")
        reading.machines.update(described(aws_client("ec2", self.region, self.endpoint), reading))
        return reading


def _questions(
    client: AwsClient, metric: _CloudWatchMetric, region: str, reading: CloudReading
) -> Iterator[_MetricQuery]:
    """Yield what to ask of every board that a metric is listed for, noting board and machine."""
    for raw in aws_items(client, "list_metrics", "Metrics", Namespace=metric.namespace, MetricName=metric.name):
        try:
            listed = _Listed.model_validate(raw)
        except ValidationError:
            reading.counts["metrics of CloudWatch without dimensions"] += 1
            continue
        pairs = tuple((dimension.name, dimension.value) for dimension in listed.dimensions)
        told = dict(pairs)
        if metric.board not in told or metric.machine not in told:
            reading.counts["metrics rolled up over boards or machines: not used"] += 1
            continue
        device = _note(metric, told, region, reading)
        for statistic in metric.statistics:
            yield _MetricQuery(metric=metric, dimensions=pairs, device=device, statistic=statistic)


def _note(metric: _CloudWatchMetric, told: Mapping[str, str], region: str, reading: CloudReading) -> str:
    """Note the board and the machine that dimensions name; return the board's name."""
    machine = told.get("NodeName") or told[metric.machine]
    device = f"{machine}:{told[metric.board].removeprefix('nvidia')}"
    known = reading.gpus.get(device)
    product = told.get("name") or (known.product if known else None)
    reading.gpus[device] = CloudGpu(device=device, machine=machine, product=product)
    group = told.get("AutoScalingGroupName") or told.get("ClusterName")
    reading.machines.setdefault(
        machine,
        CloudMachine(
            name=machine,
            instance=told[metric.machine],
            provider="aws",
            instance_type=told.get("InstanceType", "unknown"),
            region=region,
            group=group,
        ),
    )
    return device


def _ask(client: AwsClient, questions: Sequence[_MetricQuery], reading: CloudReading) -> None:
    by_key = {f"q{number}": question for number, question in enumerate(questions)}
    answers = aws_items(
        client,
        "get_metric_data",
        "MetricDataResults",
        MetricDataQueries=[question.as_asked(key) for key, question in by_key.items()],
        StartTime=moment(reading.grid.start_s),
        EndTime=moment(reading.grid.end_s),
    )
    for raw in answers:
        _take(raw, by_key, reading)


def _take(raw: object, by_key: Mapping[str, _MetricQuery], reading: CloudReading) -> None:
    """Note the values of one result; a question's answer may come in parts."""
    try:
        result = _Result.model_validate(raw)
    except ValidationError:
        reading.counts["answers of CloudWatch that are no series"] += 1
        return
    question = by_key.get(result.key)
    if question is None or len(result.values) != len(result.times):
        reading.counts["answers of CloudWatch to no question, or with values without a time"] += 1
        return
    if result.status not in ("Complete", "PartialData"):
        reading.counts[f"series that CloudWatch could not read ({result.status})"] += 1
    start_s = reading.grid.start_s
    hours = [int(time.timestamp() - start_s) // S_PER_HR for time in result.times]
    _put(reading, question, hours, result.values)


def _put(reading: CloudReading, question: _MetricQuery, hours: Sequence[int], values: Sequence[float]) -> None:
    metric, statistic = question.metric, _STATISTICS[question.statistic]
    if statistic == "samples":
        if metric.column in (*SHARES, "power_w"):
            reading.put(question.device, "samples", hours, values)
        return
    scaled = [value / metric.divisor for value in values]
    if metric.column == "memory_total_gib":
        reading.memory_gib[question.device] = max([*scaled, reading.memory_gib.get(question.device, 0.0)])
    elif metric.column in SHARES:
        reading.put_shares(question.device, f"{metric.column}_{statistic}", hours, scaled)
    else:
        reading.put(question.device, f"{metric.column}_{statistic}", hours, scaled)


_NAMES = {
    CapacityType.ON_DEMAND: re.compile(r"Running On-Demand (?P<families>.+?) instances", re.IGNORECASE),
    CapacityType.SPOT: re.compile(r"All (?P<families>.+?) Spot Instance Requests", re.IGNORECASE),
}
_BETWEEN = re.compile(r"\s*,\s*|\s+and\s+|\s*&\s*")
_FAMILY = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d+)")


class _ServiceQuota(BaseModel):
    code: str = Field(alias="QuotaCode")
    name: str = Field(alias="QuotaName")
    value: float = Field(alias="Value", allow_inf_nan=False)


def aws_quotas(region: str, endpoint: str | None, catalog: Catalog) -> QuotaReading:
    """Return the quotas of every GPU type of the catalog in a region. Raises SourceError, CredentialsError, UsageError."""
    entries = aws_items(
        aws_client("service-quotas", region, endpoint), "list_service_quotas", "Quotas", ServiceCode="ec2"
    )
    by_family, reading = _by_family(entries), QuotaReading()
    for machine in catalog.instance_types:
        if machine.provider != "aws" or not machine.vcpus:
            continue
        for capacity, quotas in by_family.items():
            found = _quota_of(machine, quotas)
            if found is not None:
                reading.quotas.append(_in_nodes(machine, region, capacity, found))
    if reading.quotas:
        reading.notes.append(
            "EC2 counts vCPUs of a family: types of one quota share it, so their nodes together are fewer"
        )
    return reading


def _by_family(entries: Iterable[object]) -> Mapping[CapacityType, Mapping[str, _ServiceQuota]]:
    """Return the quotas by way of holding and by family, as the names spell them in lower case."""
    found: dict[CapacityType, dict[str, _ServiceQuota]] = {capacity: {} for capacity in _NAMES}
    for raw in entries:
        try:
            quota = _ServiceQuota.model_validate(raw)
        except ValidationError:
            continue
        for capacity, pattern in _NAMES.items():
            matched = pattern.fullmatch(quota.name)
            for family in _BETWEEN.split(matched["families"]) if matched else ():
                found[capacity][family.casefold()] = quota
    return found


def _quota_of(machine: InstanceType, quotas: Mapping[str, _ServiceQuota]) -> _ServiceQuota | None:
    matched = _FAMILY.match(machine.name)
    if matched is None:
        return None
    return quotas.get(matched[0]) or quotas.get(matched["letters"])


def _in_nodes(machine: InstanceType, region: str, capacity: CapacityType, quota: _ServiceQuota) -> NodeQuota:
    vcpus = float(machine.vcpus or 1)
    return NodeQuota(
        provider="aws",
        instance_type=machine.name,
        region=region,
        capacity_type=capacity,
        nodes=int(quota.value // vcpus),
        limit=quota.value,
        unit="vCPU",
        per_node=vcpus,
        quota=quota.name,
        code=quota.code,
    )
