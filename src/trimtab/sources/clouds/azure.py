"""Azure Monitor: GPU metrics of container insights in a Log Analytics workspace; and quotas of GPU machines in a location.

Asked in KQL through the Log Analytics query API, summed up by the hour on Azure's side. There is no power among these
metrics; clusters with Azure's managed Prometheus are better read with `--prometheus`. Names: the container insights agent.

Which family a size counts in is asked of the resource SKUs, because the names of families follow no rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from trimtab.catalog import CapacityType, Catalog
from trimtab.errors import SourceError
from trimtab.sources.clouds import CloudGpu, CloudMachine, CloudReading, NodeQuota, QuotaReading, Tell
from trimtab.sources.hour_grid import HourGrid, moment
from trimtab.sources.http import WebServer
from trimtab.units import BYTES_PER_GIB, HR_PER_DAY, S_PER_HR

LOGS_URL = "https://api.loganalytics.azure.com"
LOGS_SCOPE = "https://api.loganalytics.io/.default"
_SPAN_HR = 7 * HR_PER_DAY
"""Hours asked at a time: an answer holds 500,000 rows at most."""
_QUERY = """
InsightMetrics
| where Namespace == "container.azm.ms/gpu"
| where Name in ("containerGpuDutyCycle", "containerGpumemoryUsedBytes", "containerGpumemoryTotalBytes")
| extend tags = parse_json(Tags)
| extend gpu = tostring(tags.gpuId), model = tostring(tags.gpuModel), cluster = tostring(tags["container.azm.ms/clusterName"])
| summarize mean = avg(Val), p50 = percentile(Val, 50), p95 = percentile(Val, 95), most = max(Val), samples = count()
    by hour = bin(TimeGenerated, 1h), Name, Computer, gpu, model, cluster
"""


class _QueryColumn(BaseModel):
    name: str


class _QueryTable(BaseModel):
    columns: list[_QueryColumn]
    rows: list[list[object]]


class _QueryAnswer(BaseModel):
    tables: list[_QueryTable]
    error: dict[str, object] | None = None


class _InsightRow(BaseModel):
    hour: AwareDatetime
    name: str = Field(alias="Name")
    computer: str = Field(alias="Computer")
    gpu: str
    model: str
    cluster: str
    mean: float
    p50: float
    p95: float
    most: float
    samples: int = Field(ge=0, lt=2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureMonitor:
    """Azure Monitor of one Log Analytics workspace."""

    workspace: str
    headers: Mapping[str, str]
    url: str = LOGS_URL

    def read(self, grid: HourGrid, tell: Tell) -> CloudReading:
        """Return what the workspace holds of the hours of a grid. Raises SourceError, CredentialsError."""
        reading = CloudReading(grid=grid, source=f"Azure Monitor workspace {self.workspace}")
        done_hr = 0
        with WebServer(self.url, headers=self.headers) as server:
            for piece in grid.chunks(_SPAN_HR):
                tell("Azure Monitor", done_hr / grid.hours)
                for row in self._rows(server, piece, reading):
                    _take(row, reading)
                done_hr += piece.hours
            reading.counts["answers that said we ask too often, asked again"] += server.throttled
        return reading

    def _rows(self, server: WebServer, piece: HourGrid, reading: CloudReading) -> Iterator[_InsightRow]:
        span = f"{moment(piece.start_s).isoformat()}/{moment(piece.end_s).isoformat()}"
        body = server.post(f"/v1/workspaces/{self.workspace}/query", {"query": _QUERY, "timespan": span})
        try:
            answer = _QueryAnswer.model_validate_json(body)
        except ValidationError as error:
            raise SourceError(f"{server.url}: no answer to a query: {error.errors()[0]['msg']}") from error
        if answer.error is not None:
            reading.notes.append(
                f"Azure Monitor gave a part of the answer only: {answer.error.get('message', 'no reason')}"
            )
        for table in answer.tables[:1]:
            names = [column.name for column in table.columns]
            for cells in table.rows:
                try:
                    yield _InsightRow.model_validate(dict(zip(names, cells, strict=True)))
                except (ValidationError, ValueError):
                    reading.counts["rows of Azure Monitor that cannot be understood"] += 1


def _take(row: _InsightRow, reading: CloudReading) -> None:
    """Note the values of an hour of a board."""
    if not row.gpu:
        reading.counts["rows of Azure Monitor that name no board"] += 1
        return
    device = row.gpu if row.gpu.startswith("GPU-") else f"{row.computer}:{row.gpu}"
    reading.gpus.setdefault(device, CloudGpu(device=device, machine=row.computer, product=row.model or None))
    reading.machines.setdefault(
        row.computer, CloudMachine(name=row.computer, provider="azure", group=row.cluster or None)
    )
    hour = (int(row.hour.timestamp()) - reading.grid.start_s) // S_PER_HR
    match row.name:
        case "containerGpumemoryTotalBytes":
            reading.memory_gib[device] = row.most / BYTES_PER_GIB
        case "containerGpumemoryUsedBytes":
            reading.put(device, "memory_used_gib_mean", [hour], [row.mean / BYTES_PER_GIB])
            reading.put(device, "memory_used_gib_max", [hour], [row.most / BYTES_PER_GIB])
        case _:
            statistics = {"mean": row.mean, "p50": row.p50, "p95": row.p95, "max": row.most}
            for statistic, value in statistics.items():
                reading.put_shares(device, f"gpu_util_{statistic}", [hour], [value / 100])
            reading.put(device, "samples", [hour], [row.samples])


MANAGEMENT_URL = "https://management.azure.com"
MANAGEMENT_SCOPE = "https://management.azure.com/.default"
_USAGES, _SKUS = "2024-07-01", "2021-07-01"
_SPOT = "lowPriorityCores"
_MOST_PAGES = 1000


class _Name(BaseModel):
    value: str
    shown: str = Field("", alias="localizedValue")


class _CoreUsage(BaseModel):
    name: _Name
    limit: float = Field(allow_inf_nan=False)
    used: float = Field(0.0, alias="currentValue", allow_inf_nan=False)


class _Usages(BaseModel):
    value: list[_CoreUsage]
    next_link: str | None = Field(None, alias="nextLink")


class _ComputeSku(BaseModel):
    name: str = ""
    family: str = ""
    kind: str = Field("", alias="resourceType")


class _Skus(BaseModel):
    value: list[_ComputeSku]
    next_link: str | None = Field(None, alias="nextLink")


def azure_quotas(
    url: str, headers: Mapping[str, str], subscription: str, location: str, catalog: Catalog
) -> QuotaReading:
    """Return the quotas of Azure's GPU types in a location. Raises SourceError, CredentialsError."""
    reading = QuotaReading()
    try:
        with WebServer(url, headers=headers) as server:
            usages = {cores.name.value.casefold(): cores for cores in _usages(server, subscription, location)}
            families = {
                sku.name: sku.family for sku in _skus(server, subscription, location) if sku.kind == "virtualMachines"
            }
    except ValidationError as error:
        raise SourceError(f"{url}: no usages of {location}: {error.errors()[0]['msg']}") from error
    for machine in catalog.instance_types:
        if machine.provider != "azure" or not machine.vcpus or machine.name not in families:
            continue
        for capacity, name in ((CapacityType.ON_DEMAND, families[machine.name]), (CapacityType.SPOT, _SPOT)):
            usage = usages.get(name.casefold())
            if usage is not None:
                reading.quotas.append(
                    NodeQuota(
                        provider="azure",
                        instance_type=machine.name,
                        region=location,
                        capacity_type=capacity,
                        nodes=int(usage.limit // machine.vcpus),
                        limit=usage.limit,
                        unit="vCPU",
                        per_node=float(machine.vcpus),
                        used=usage.used,
                        quota=usage.name.shown or usage.name.value,
                        code=usage.name.value,
                    )
                )
    return reading


def _usages(server: WebServer, subscription: str, location: str) -> Iterator[_CoreUsage]:
    path = (
        f"/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{location}/usages?api-version={_USAGES}"
    )
    followed = set[str]()
    while path:
        page = _Usages.model_validate_json(server.get(path))
        yield from page.value
        path = _next(server, page.next_link, followed)


def _skus(server: WebServer, subscription: str, location: str) -> Iterator[_ComputeSku]:
    wanted = f"api-version={_SKUS}&$filter=location eq '{location}'"
    path = f"/subscriptions/{subscription}/providers/Microsoft.Compute/skus?{wanted}"
    followed = set[str]()
    while path:
        page = _Skus.model_validate_json(server.get(path))
        yield from page.value
        path = _next(server, page.next_link, followed)


def _next(server: WebServer, link: str | None, followed: set[str]) -> str:
    """Return the path of the next page, empty where there is none; raises SourceError where pages go round in a ring."""
    path = server.path_of(link) if link else ""
    if path in followed or len(followed) > _MOST_PAGES:
        raise SourceError(f"{server.url}: pages do not end ({path} again)")
    followed.add(path)
    return path
