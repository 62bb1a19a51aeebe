"""What Compute Engine knows of machines that Cloud Monitoring named: type, zone, and whether they are Spot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import BaseModel, Field, ValidationError

from trimtab.catalog import CapacityType
from trimtab.errors import CredentialsError, SourceError
from trimtab.sources.clouds.readings import CloudReading, Machine
from trimtab.sources.web_server import WebServer

DEFAULT_URL = "https://compute.googleapis.com"
_FIELDS = "nextPageToken,items/*/instances(id,name,zone,machineType,scheduling(provisioningModel,preemptible),labels)"
_GROUP_LABELS = ("goog-k8s-node-pool-name", "goog-k8s-cluster-name", "team")


class _Scheduling(BaseModel):
    model: str = Field("STANDARD", alias="provisioningModel")
    preemptible: bool = False


class _Instance(BaseModel):
    id: str
    name: str
    zone: str
    machine_type: str = Field(alias="machineType")
    scheduling: _Scheduling = Field(default_factory=lambda: _Scheduling.model_validate({}))
    labels: dict[str, str] = Field(default_factory=dict)


class _Scope(BaseModel):
    instances: list[_Instance] = Field(default_factory=list)


class _Page(BaseModel):
    items: dict[str, _Scope] = Field(default_factory=dict)
    next_token: str = Field("", alias="nextPageToken")


def describe(url: str, headers: Mapping[str, str], project: str, reading: CloudReading) -> None:
    """Complete a reading's machines with what Compute Engine says; those that it no longer knows stay as they are, counted."""
    try:
        with WebServer(url, headers=headers) as server:
            known = {name: one for one in _instances(server, project) for name in (one.id, one.name)}
    except CredentialsError:
        reading.notes.append("compute.instances.list was refused: machines count as on demand, types may be unknown")
        return
    for name, machine in reading.machines.items():
        if name in known:
            reading.machines[name] = _with(machine, known[name])
        else:
            reading.counts["machines that Compute Engine no longer knows: on demand assumed"] += 1


def _instances(server: WebServer, project: str) -> Iterator[_Instance]:
    path, asked = f"/compute/v1/projects/{project}/aggregated/instances", {"fields": _FIELDS, "maxResults": "500"}
    while True:
        try:
            page = _Page.model_validate_json(server.get(path, asked))
        except ValidationError as error:
            raise SourceError(f"{server.url}{path}: no page of instances: {error.errors()[0]['msg']}") from error
        for scope in page.items.values():
            yield from scope.instances
        if not page.next_token or page.next_token == asked.get("pageToken"):
            return
        asked = {**asked, "pageToken": page.next_token}


def _with(machine: Machine, instance: _Instance) -> Machine:
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
