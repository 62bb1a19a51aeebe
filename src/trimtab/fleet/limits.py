"""Limits as people state them: quotas and the pools that they hold for, and what must keep workloads apart."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from trimtab.catalog.kinds import CapacityType, Isolation
from trimtab.catalog.pools import Pool
from trimtab.errors import InputError, near_matches
from trimtab.tables.workloads import WorkloadSpec

_QUOTA = re.compile(r"(?P<type>[^@:=\s]+)(?:@(?P<region>[^:=\s]+))?(?::(?P<capacity>[^=\s]+))?\s*=\s*(?P<nodes>\d+)")
_FORM = "write TYPE[@REGION][:CAPACITY]=NODES, as p5.48xlarge=16 or g6.xlarge@us-east-1:spot=40"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Most nodes of a type at once, in one region or (None) in each, held one way."""

    instance_type: str
    region: str | None
    capacity: CapacityType
    nodes: int

    def holds_for(self, pool: Pool) -> bool:
        """Tell whether it limits a pool."""
        return (
            pool.instance_type == self.instance_type
            and pool.capacity_type is self.capacity
            and self.region in (None, pool.region)
        )


@cache
def quotas_of(text: str) -> tuple[Quota, ...]:
    """Read quotas apart by commas; raises InputError."""
    return tuple(_quota(part.strip()) for part in text.split(",") if part.strip())


def quota_of_pools(quotas: Iterable[Quota], pools: Iterable[Pool]) -> dict[Pool, int]:
    """Return the tightest quota of each pool that has one."""
    stated = tuple(quotas)
    tightest = {}
    for pool in pools:
        nodes = [quota.nodes for quota in stated if quota.holds_for(pool)]
        if nodes:
            tightest[pool] = min(nodes)
    return tightest


def without_quota(text: str, pool: Pool, regions: Iterable[str]) -> str:
    """Return quotas less those that hold for a pool; one for all regions stays in force in the other `regions`."""
    rows = []
    for quota in quotas_of(text):
        places = [quota.region]
        if quota.holds_for(pool):
            places = [region for region in sorted(regions) if region != pool.region] if quota.region is None else []
        rows += [
            f"{quota.instance_type}{'' if place is None else f'@{place}'}:{quota.capacity.value}={quota.nodes}"
            for place in places
        ]
    return ",".join(rows)


def isolation_of(text: str) -> Isolation:
    """Read what must keep workloads apart; raises InputError."""
    known = [isolation.value for isolation in Isolation]
    if text not in known:
        near = near_matches(text, known)
        hint = f", did you mean {near[0]}?" if near else ""
        raise InputError(f"no isolation {text!r}{hint}; write one of {', '.join(known)}")
    return Isolation(text)


def asked_isolation(spec: WorkloadSpec, stated: str) -> Isolation:
    """Return what must keep a workload apart from others: what it declares, else what is stated for the fleet."""
    return isolation_of(spec.isolation or stated)


def _quota(text: str) -> Quota:
    found = _QUOTA.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r} is no quota; {_FORM}")
    capacity = found["capacity"] or CapacityType.ON_DEMAND.value
    known = [capacity_type.value for capacity_type in CapacityType if not capacity_type.paid_anyway]
    if capacity not in known:
        raise InputError(f"{text!r}: no capacity type {capacity!r}; write one of {', '.join(known)}")
    return Quota(
        instance_type=found["type"],
        region=found["region"],
        capacity=CapacityType(capacity),
        nodes=int(found["nodes"]),
    )
