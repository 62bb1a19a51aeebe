"""Where a workload may run: limits stated by people, and the nodes that levers may choose from.

At home always. In other regions of its cloud where workloads.yaml names them (`regions`), and in other clouds where the
settings ask for them (`limits.providers`): data has gravity, so nothing moves by default, and nothing moves whose data
and traffic are not declared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from trimtab.catalog.kinds import CapacityType, Isolation
from trimtab.catalog.pools import Pool
from trimtab.catalog.prices import ANY_REGION
from trimtab.catalog.providers import continent_of
from trimtab.errors import InputError, UnknownName, near_matches
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import Fleet, Workload
from trimtab.fleet.settings import Limits
from trimtab.tables.workloads import WorkloadSpec

_QUOTA = re.compile(r"(?P<type>[^@:=\s]+)(?:@(?P<region>[^:=\s]+))?(?::(?P<capacity>[^=\s]+))?\s*=\s*(?P<nodes>\d+)")
_QUOTA_FORM = "write TYPE[@REGION][:CAPACITY]=NODES, as p5.48xlarge=16 or g6.xlarge@us-east-1:spot=40"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Maximum number of nodes of a type at once, in one region or (None) in each, for one capacity type."""

    instance_type: str
    region: str | None
    capacity: CapacityType
    nodes: int

    def holds_for(self, pool: Pool) -> bool:
        """Return whether it limits a pool."""
        return (
            pool.instance_type == self.instance_type
            and pool.capacity_type is self.capacity
            and self.region in (None, pool.region)
        )


@cache
def quotas_of(text: str) -> tuple[Quota, ...]:
    """Read quotas apart by commas. Raises InputError."""
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
    """Parse an isolation requirement between workloads. Raises InputError."""
    known = [isolation.value for isolation in Isolation]
    if text not in known:
        near = near_matches(text, known)
        hint = f", did you mean {near[0]}?" if near else ""
        raise InputError(f"no isolation {text!r}{hint}; write one of {', '.join(known)}")
    return Isolation(text)


def asked_isolation(spec: WorkloadSpec, stated: str) -> Isolation:
    """Return the isolation that a workload requires: as it declares, else the fleet's setting."""
    return isolation_of(spec.isolation or stated)


def _quota(text: str) -> Quota:
    found = _QUOTA.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r} is not a quota; {_QUOTA_FORM}")
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


_REGION_FORM = "write REGION or PROVIDER/REGION, as us-west-2 or gcp/us-central1"


@dataclass(frozen=True, slots=True, order=True)
class Region:
    """One region of one provider."""

    provider: str
    name: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.name}"


@dataclass(frozen=True, slots=True)
class NamedRegion:
    """A region as people write it: of any provider that has it, or (with a slash) of one."""

    provider: str | None
    name: str

    def means(self, region: Region) -> bool:
        """Return whether it names a region."""
        return self.name == region.name and self.provider in (None, region.provider)


def named_regions(texts: Iterable[str]) -> tuple[NamedRegion, ...]:
    """Read regions as people write them. Raises InputError."""
    found = []
    for text in texts:
        provider, slash, name = text.strip().rpartition("/")
        if not name or (slash and not provider) or "/" in provider:
            raise InputError(f"{text!r} is no region; {_REGION_FORM}")
        found.append(NamedRegion(provider or None, name))
    return tuple(found)


def listed(text: str) -> tuple[str, ...]:
    """Return the parts of a setting that lists names apart by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def home_of(workload: Workload) -> Region:
    """Return the region where a workload runs now."""
    return Region(workload.pool.provider, workload.pool.region)


def reach_of(workload: Workload, market: Market) -> tuple[Region, ...] | str:
    """Return the other regions that a workload may move to, or why there are none; empty if none was requested."""
    spec, home = workload.spec, home_of(workload)
    declared = None if spec.regions is None else named_regions(spec.regions)
    others = [provider for provider in listed(market.limits.providers) if provider != home.provider]
    wanted = [
        region
        for provider in (home.provider, *others)
        for region in _of_provider(provider, declared, home, market)
        if region != home
    ]
    if not wanted:
        unasked = [named for named in declared or () if named.provider not in (None, home.provider, *others)]
        return f"{_names(unasked)}: another cloud, which limits.providers does not ask for" if unasked else ()
    allowed = named_regions(listed(market.limits.regions))
    kept = tuple(region for region in wanted if not allowed or any(permitted.means(region) for permitted in allowed))
    if not kept:
        return f"limits.regions allows none of {', '.join(str(region) for region in wanted)}"
    unstated = [name for name in ("data_gib", "traffic_gib_mo") if getattr(spec, name) is None]
    if unstated:
        return f"what a move costs is unknown: state {' and '.join(unstated)} in workloads.yaml, 0 where there is none"
    return kept


def _of_provider(
    provider: str, declared: Sequence[NamedRegion] | None, home: Region, market: Market
) -> tuple[Region, ...]:
    """Return a provider's regions that a workload names; of another cloud, where it names none, those that are near."""
    known = market.regions(provider)
    if declared is not None:
        return tuple(
            region for name in known if any(permitted.means(region := Region(provider, name)) for permitted in declared)
        )
    if provider == home.provider:
        return ()
    limits = named_regions(listed(market.limits.regions))
    said = tuple(region for name in known if any(limit.means(region := Region(provider, name)) for limit in limits))
    return said or _near(provider, known, home)


def _near(provider: str, known: Sequence[str], home: Region) -> tuple[Region, ...]:
    """Return a provider's regions on the home continent; the only one of a cloud that names none.

    Raises InputError if it is not known which ones are near.
    """
    if tuple(known) == (ANY_REGION,):
        return (Region(provider, ANY_REGION),)
    continent = continent_of(home.provider, home.name)
    found = tuple(Region(provider, name) for name in known if continent_of(provider, name) == continent)
    if continent is None or not found:
        raise InputError(
            f"limits.providers asks for {provider}, but it is not known which of its regions are near {home}: name them in "
            f"limits.regions ({', '.join(f'{provider}/{name}' for name in known)})"
        )
    return found


def offerings_for(workload: Workload, market: Market) -> tuple[Offering, ...]:
    """Return the nodes on offer to a workload on demand: at home, and wherever else it may run."""
    return (*offerings_at_home(workload, market), *offerings_elsewhere(workload, market))


def offerings_at_home(workload: Workload, market: Market) -> tuple[Offering, ...]:
    """Return the nodes on offer to a workload in the region where it runs now."""
    home = home_of(workload)
    return market.offerings(home.provider, home.name)


def offerings_elsewhere(workload: Workload, market: Market) -> tuple[Offering, ...]:
    """Return the nodes on offer to a workload outside its region.

    If a cloud's regions are not named, each instance type is taken in the cheapest of those that are near.
    """
    reach = reach_of(workload, market)
    if isinstance(reach, str):
        return ()
    found = [offering for region in reach for offering in market.offerings(region.provider, region.name)]
    if workload.spec.regions is not None or market.limits.regions:
        return tuple(found)
    cheapest: dict[tuple[str, str], Offering] = {}
    for offering in found:
        known = cheapest.setdefault((offering.pool.provider, offering.pool.instance_type), offering)
        if offering.rate_micro_usd_hr < known.rate_micro_usd_hr:
            cheapest[offering.pool.provider, offering.pool.instance_type] = offering
    return tuple(cheapest.values())


def is_near(home: Region, other: Region) -> bool:
    """Return whether two regions are known to lie on one continent."""
    continent = continent_of(home.provider, home.name)
    return continent is not None and continent == continent_of(other.provider, other.name)


def with_other_regions(fleet: Fleet, regions: Sequence[str]) -> Fleet:
    """Return the fleet whose workloads may move to these regions too; the very same fleet where there are none."""
    if not regions:
        return fleet
    return replace(fleet, workloads=tuple(_with_other_regions(workload, regions) for workload in fleet.workloads))


def _with_other_regions(workload: Workload, regions: Sequence[str]) -> Workload:
    known = workload.spec.regions or ()
    return replace(workload, spec=workload.spec.model_copy(update={"regions": (*known, *regions)}))


def kept_at_home(workloads: Sequence[Workload], market: Market) -> tuple[str, ...]:
    """Say how many workloads may not move to any of the places that are asked for, by reason."""
    refused = Counter(reason for workload in workloads if isinstance(reason := reach_of(workload, market), str))
    return tuple(
        f"{count} of {len(workloads)} workloads stay where they are: {reason}" for reason, count in refused.items()
    )


def check_reach(workloads: Iterable[Workload], market: Market, asked: Iterable[str] = ()) -> None:
    """Refuse names of providers and regions that the price book does not know. Raises UnknownName with near matches.

    `asked` are regions of a scenario.
    """
    limits: Limits = market.limits
    _check(named_regions(asked), market, "the scenario's region")
    for provider in listed(limits.providers):
        if provider not in market.catalog.providers:
            raise UnknownName("provider", provider, market.catalog.providers, where="limits.providers")
    _check(named_regions(listed(limits.regions)), market, "limits.regions")
    for workload in workloads:
        _check(named_regions(workload.spec.regions or ()), market, f"workloads.yaml: {workload.name}: regions")


def _check(regions: Iterable[NamedRegion], market: Market, where: str) -> None:
    for region in regions:
        if region.provider is not None and region.provider not in market.catalog.providers:
            raise UnknownName("provider", region.provider, market.catalog.providers, where=where)
        providers = market.catalog.providers if region.provider is None else (region.provider,)
        known = sorted({name for provider in providers for name in market.regions(provider)})
        if region.name not in known:
            raise UnknownName("region", region.name, known, where=where)


def _names(regions: Iterable[NamedRegion]) -> str:
    return ", ".join(f"{region.provider}/{region.name}" for region in regions)
