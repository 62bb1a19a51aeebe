"""Compute Engine's quotas of GPUs: those of regions, and the one over all regions.

`compute.regions.list` states GPUs by model (`NVIDIA_L4_GPUS`, `PREEMPTIBLE_NVIDIA_L4_GPUS`). Newer models (H100 and later) have
quotas by family in the Cloud Quotas API only; they are not read, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, Field, ValidationError

from trimtab.catalog import CapacityType, Catalog, InstanceType
from trimtab.errors import SourceError
from trimtab.sources.clouds.quotas import NodeQuota, QuotaReading
from trimtab.sources.web_server import WebServer

_ALL_REGIONS = "GPUS_ALL_REGIONS"
_METRICS = {
    "T4": "NVIDIA_T4_GPUS",
    "L4": "NVIDIA_L4_GPUS",
    "A100-SXM4-40GB": "NVIDIA_A100_GPUS",
    "A100-SXM4-80GB": "NVIDIA_A100_80GB_GPUS",
    "H100-SXM5-80GB": "NVIDIA_H100_GPUS",
}
"""Board -> its regional quota. Source: Compute Engine, allocation quotas, GPU quota."""


class _Quota(BaseModel):
    metric: str
    limit: float
    usage: float | None = None


class _Region(BaseModel):
    name: str
    quotas: list[_Quota] = Field(default_factory=list)


class _Regions(BaseModel):
    items: list[_Region] = Field(default_factory=list)
    next_token: str = Field("", alias="nextPageToken")


class _Project(BaseModel):
    quotas: list[_Quota] = Field(default_factory=list)


def google_quotas(url: str, headers: Mapping[str, str], project: str, catalog: Catalog) -> QuotaReading:
    """Return the quotas of Google's GPU types in every region. Raises SourceError, CredentialsError."""
    reading = QuotaReading()
    machines = [one for one in catalog.instance_types if one.provider == "gcp"]
    try:
        with WebServer(url, headers=headers) as server:
            whole = _Project.model_validate_json(server.get(f"/compute/v1/projects/{project}"))
            for region in _regions(server, project):
                for machine in machines:
                    reading.quotas.extend(_of_region(machine, region, whole))
    except ValidationError as error:
        raise SourceError(f"{url}: no quotas of project {project}: {error.errors()[0]['msg']}") from error
    unread = sorted({one.gpu for one in machines} - _METRICS.keys())
    reading.notes.append(f"quotas by GPU family are not read (Cloud Quotas API): {', '.join(unread)}")
    return reading


def _regions(server: WebServer, project: str) -> Iterator[_Region]:
    asked: dict[str, str] = {}
    while True:
        page = _Regions.model_validate_json(server.get(f"/compute/v1/projects/{project}/regions", asked))
        yield from page.items
        if not page.next_token or page.next_token == asked.get("pageToken"):
            return
        asked = {"pageToken": page.next_token}


def _of_region(machine: InstanceType, region: _Region, whole: _Project) -> Iterator[NodeQuota]:
    metric = _METRICS.get(machine.gpu)
    stated = {one.metric: one for one in region.quotas}
    over_all = next((one for one in whole.quotas if one.metric == _ALL_REGIONS), None)
    for capacity, name in ((CapacityType.ON_DEMAND, metric), (CapacityType.SPOT, f"PREEMPTIBLE_{metric}")):
        found = stated.get(name or "")
        if metric is None or found is None:
            continue
        tight = min((found, *([over_all] if over_all else [])), key=lambda one: one.limit)
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
