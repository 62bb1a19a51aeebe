"""Quotas of the clouds in whole nodes of each GPU type: the one shape that settings, doctor and people read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ValidationError

from trimtab.catalog import CapacityType
from trimtab.errors import InputError
from trimtab.inputs.files import read_csv_rows
from trimtab.safe_text import csv_text


class NodeQuota(BaseModel, frozen=True):
    """The most nodes of a type that a quota allows in a region, held one way, if no other type draws on it."""

    provider: str
    instance_type: str
    region: str
    capacity_type: CapacityType
    nodes: int
    limit: float
    """The quota as the cloud states it."""
    unit: str
    """What the cloud counts: vCPU, GPU."""
    per_node: float
    """How much of it one node takes."""
    used: float | None = None
    quota: str
    """Its name."""
    code: str
    """What it is called where one asks for more."""

    @property
    def key(self) -> str:
        """Return the pool as `limits.quotas` spells it."""
        held = "" if self.capacity_type is CapacityType.ON_DEMAND else f":{self.capacity_type.value}"
        return f"{self.instance_type}@{self.region}{held}"

    def more(self, nodes: int) -> str:
        """Return the command that asks for enough for so many nodes."""
        wanted = f"{nodes * self.per_node:g}"
        match self.provider:
            case "aws":
                return (
                    "aws service-quotas request-service-quota-increase --service-code ec2 "
                    f"--quota-code {self.code} --desired-value {wanted} --region {self.region}"
                )
            case "gcp":
                return (
                    "gcloud beta quotas preferences create --service=compute.googleapis.com "
                    f"--quota-id={self.code} --preferred-value={wanted} --dimensions=region={self.region} --project=PROJECT"
                )
            case _:
                return (
                    f"az quota update --resource-name {self.code} --resource-type dedicated --limit-object value={wanted} "
                    f"--scope /subscriptions/SUBSCRIPTION/providers/Microsoft.Compute/locations/{self.region}"
                )


@dataclass(slots=True)
class QuotaReading:
    """Quotas read, and what could not be used."""

    quotas: list[NodeQuota] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def settings_text(quotas: Iterable[NodeQuota]) -> str:
    """Return the section of `trimtab.toml` that makes plans keep the quotas; the tightest where two hold for one pool."""
    tightest: dict[str, NodeQuota] = {}
    for quota in quotas:
        held = tightest.get(quota.key)
        tightest[quota.key] = quota if held is None or quota.nodes < held.nodes else held
    lines = [
        f'"{key}" = {quota.nodes}  # {quota.limit:g} {quota.unit}: {quota.quota}'
        for key, quota in sorted(tightest.items())
    ]
    return "\n".join(["[limits.quotas]", *lines, ""])


def quotas_text(quotas: Iterable[NodeQuota]) -> str:
    """Return quotas as CSV, as `read_quotas` takes them."""
    names = list(NodeQuota.model_fields)
    plain = (quota.model_dump(mode="json") for quota in quotas)
    return csv_text(names, ([row[name] for name in names] for row in plain))


def read_quotas(path: Path) -> tuple[NodeQuota, ...]:
    """Read a file that `trimtab quotas` wrote. Raises InputError."""
    return tuple(_quota(row, f"{path} row {number}") for number, row in enumerate(read_csv_rows(path), start=2))


def _quota(row: Mapping[str, str], where: str) -> NodeQuota:
    try:
        return NodeQuota.model_validate({key: value or None for key, value in row.items()})
    except ValidationError as error:
        fault = error.errors()[0]
        column = ".".join(str(part) for part in fault["loc"])
        raise InputError(f"{where}: {column}: {fault['msg']}; write the file with trimtab quotas -o csv") from error
