"""What EC2 knows of machines that CloudWatch named: type, zone, and how they are held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import BaseModel, Field, ValidationError

from trimtab.catalog import CapacityType
from trimtab.errors import CredentialsError
from trimtab.sources.cloud_clients import AwsClient, aws_items
from trimtab.sources.clouds.readings import CloudReading, Machine

_IDS_PER_CALL = 100
_LIFECYCLES = {"spot": CapacityType.SPOT, "capacity-block": CapacityType.CAPACITY_BLOCK}
_GROUP_TAGS = ("aws:autoscaling:groupName", "eks:nodegroup-name", "karpenter.sh/nodepool", "Name")


class _Placement(BaseModel):
    zone: str | None = Field(None, alias="AvailabilityZone")


class _Tag(BaseModel):
    key: str = Field(alias="Key")
    value: str = Field(alias="Value")


class _Instance(BaseModel):
    name: str = Field(alias="InstanceId")
    instance_type: str = Field(alias="InstanceType")
    lifecycle: str = Field("", alias="InstanceLifecycle")
    placement: _Placement = Field(default_factory=lambda: _Placement.model_validate({}), alias="Placement")
    tags: list[_Tag] = Field(default_factory=list, alias="Tags")


class _Reservation(BaseModel):
    instances: list[_Instance] = Field(default_factory=list, alias="Instances")


def described(client: AwsClient, reading: CloudReading) -> dict[str, Machine]:
    """Return the machines of a reading with what EC2 says of them; those it no longer knows stay, on demand, counted."""
    try:
        found = {one.name: one for one in _instances(client, sorted(_id(one) for one in reading.machines.values()))}
    except CredentialsError:
        reading.notes.append("ec2:DescribeInstances was refused: machines count as on demand, their zones are unknown")
        return {}
    known = {name: one for name, one in reading.machines.items() if _id(one) in found}
    lost = len(reading.machines) - len(known)
    if lost:
        reading.counts["machines that EC2 no longer knows: on demand assumed"] += lost
    return {name: _with(machine, found[_id(machine)]) for name, machine in known.items()}


def _id(machine: Machine) -> str:
    return machine.instance or machine.name


def _instances(client: AwsClient, names: list[str]) -> Iterator[_Instance]:
    for first in range(0, len(names), _IDS_PER_CALL):
        filters = [{"Name": "instance-id", "Values": names[first : first + _IDS_PER_CALL]}]
        for raw in aws_items(client, "describe_instances", "Reservations", Filters=filters):
            try:
                yield from _Reservation.model_validate(raw).instances
            except ValidationError:
                continue


def _with(machine: Machine, instance: _Instance) -> Machine:
    tags = {tag.key: tag.value for tag in instance.tags}
    group = machine.group or next((tags[key] for key in _GROUP_TAGS if key in tags), None)
    return replace(
        machine,
        instance_type=instance.instance_type,
        zone=instance.placement.zone,
        capacity_type=_LIFECYCLES.get(instance.lifecycle, CapacityType.ON_DEMAND),
        group=group,
    )
