"""Azure's quotas of GPU machines in one location: cores of a family, and cores of all spot machines.

Which family a size counts in is asked of the resource SKUs, because the names of families follow no rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, Field, ValidationError

from trimtab.catalog import CapacityType, Catalog
from trimtab.errors import SourceError
from trimtab.sources.clouds.quotas import NodeQuota, QuotaReading
from trimtab.sources.web_server import WebServer

DEFAULT_URL = "https://management.azure.com"
SCOPE = "https://management.azure.com/.default"
_USAGES, _SKUS = "2024-07-01", "2021-07-01"
_SPOT = "lowPriorityCores"


class _Name(BaseModel):
    value: str
    shown: str = Field("", alias="localizedValue")


class _Usage(BaseModel):
    name: _Name
    limit: float
    used: float = Field(0.0, alias="currentValue")


class _Usages(BaseModel):
    value: list[_Usage]
    next_link: str | None = Field(None, alias="nextLink")


class _Sku(BaseModel):
    name: str = ""
    family: str = ""
    kind: str = Field("", alias="resourceType")


class _Skus(BaseModel):
    value: list[_Sku]
    next_link: str | None = Field(None, alias="nextLink")


def azure_quotas(
    url: str, headers: Mapping[str, str], subscription: str, location: str, catalog: Catalog
) -> QuotaReading:
    """Return the quotas of Azure's GPU types in a location. Raises SourceError, CredentialsError."""
    reading = QuotaReading()
    try:
        with WebServer(url, headers=headers) as server:
            usages = {one.name.value.casefold(): one for one in _usages(server, subscription, location)}
            families = {
                one.name: one.family for one in _skus(server, subscription, location) if one.kind == "virtualMachines"
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


def _usages(server: WebServer, subscription: str, location: str) -> Iterator[_Usage]:
    path = (
        f"/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{location}/usages?api-version={_USAGES}"
    )
    while path:
        page = _Usages.model_validate_json(server.get(path))
        yield from page.value
        path = server.path_of(page.next_link) if page.next_link else ""


def _skus(server: WebServer, subscription: str, location: str) -> Iterator[_Sku]:
    wanted = f"api-version={_SKUS}&$filter=location eq '{location}'"
    path = f"/subscriptions/{subscription}/providers/Microsoft.Compute/skus?{wanted}"
    while path:
        page = _Skus.model_validate_json(server.get(path))
        yield from page.value
        path = server.path_of(page.next_link) if page.next_link else ""
