"""EC2's quotas of GPU instances, from Service Quotas: vCPUs of a family, on demand and spot.

A quota's name says what it is of: "Running On-Demand P instances", "All P5 Spot Instance Requests". A quota that names a type's
generation (P5) goes before one that names its letter (P). All types of a quota draw on it together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pydantic import BaseModel, Field, ValidationError

from trimtab.catalog import CapacityType, Catalog, InstanceType
from trimtab.sources.cloud_clients import aws_client, aws_items
from trimtab.sources.clouds.quotas import NodeQuota, QuotaReading

_NAMES = {
    CapacityType.ON_DEMAND: re.compile(r"Running On-Demand (?P<families>.+?) instances", re.IGNORECASE),
    CapacityType.SPOT: re.compile(r"All (?P<families>.+?) Spot Instance Requests", re.IGNORECASE),
}
_BETWEEN = re.compile(r"\s*,\s*|\s+and\s+|\s*&\s*")
_FAMILY = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d+)")


class _Quota(BaseModel):
    code: str = Field(alias="QuotaCode")
    name: str = Field(alias="QuotaName")
    value: float = Field(alias="Value")


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


def _by_family(entries: Iterable[object]) -> Mapping[CapacityType, Mapping[str, _Quota]]:
    """Return the quotas by way of holding and by family, as the names spell them in lower case."""
    found: dict[CapacityType, dict[str, _Quota]] = {capacity: {} for capacity in _NAMES}
    for raw in entries:
        try:
            quota = _Quota.model_validate(raw)
        except ValidationError:
            continue
        for capacity, pattern in _NAMES.items():
            matched = pattern.fullmatch(quota.name)
            for family in _BETWEEN.split(matched["families"]) if matched else ():
                found[capacity][family.casefold()] = quota
    return found


def _quota_of(machine: InstanceType, quotas: Mapping[str, _Quota]) -> _Quota | None:
    matched = _FAMILY.match(machine.name)
    if matched is None:
        return None
    return quotas.get(matched[0]) or quotas.get(matched["letters"])


def _in_nodes(machine: InstanceType, region: str, capacity: CapacityType, quota: _Quota) -> NodeQuota:
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
