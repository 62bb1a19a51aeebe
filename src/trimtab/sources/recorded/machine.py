"""The machine that a trace is laid on: an instance type of the catalog, for traces do not say what a node was."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.catalog import BuyingOption, Catalog, load_catalog
from trimtab.errors import InputError, UnknownName


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One instance type in one region, and its boards."""

    provider: str
    instance_type: str
    region: str
    gpu: str
    gpu_count: int
    memory_gib: float

    @property
    def words(self) -> str:
        """Return what it is, for people."""
        return f"{self.provider} {self.instance_type} in {self.region} ({self.gpu_count} x {self.gpu})"


def machine_of(text: str, catalog: Catalog | None = None) -> Machine:
    """Return the machine that `TYPE` or `PROVIDER:TYPE[:REGION]` names; without a region the first that has a rate.

    Raises UnknownName with near matches, InputError where a type is no whole number of boards or has no rate on demand.
    """
    facts = catalog or load_catalog()
    parts = text.split(":")
    if not 1 <= len(parts) <= 3:
        raise InputError(f"{text!r} is no machine; write TYPE or PROVIDER:TYPE:REGION, as aws:p4d.24xlarge:us-east-1")
    provider, name = (parts[0], parts[1]) if len(parts) > 1 else (_provider_of(parts[0], facts), parts[0])
    instance = facts.instance_type(provider, name)
    if instance.gpu_frac < 1:
        raise InputError(f"{text!r} holds a part of a board; name a type with whole ones")
    regions = [key[2] for key in facts.prices.keys if key[:2] == (provider, name) and key[3] is BuyingOption.ON_DEMAND]
    region = parts[2] if len(parts) == 3 else next(iter(sorted(regions, key=lambda one: (one != "us-east-1", one))), "")
    if region not in regions:
        raise InputError(
            f"{text!r}: no rate on demand there; it has one in {', '.join(sorted(regions)) or 'no region'}"
        )
    gpu = facts.gpu_of(instance)
    return Machine(
        provider=provider,
        instance_type=name,
        region=region,
        gpu=gpu.name,
        gpu_count=instance.gpu_count,
        memory_gib=gpu.memory_gib,
    )


def _provider_of(name: str, facts: Catalog) -> str:
    owners = [provider for provider, other in facts.instance_table if other == name]
    if not owners:
        raise UnknownName("instance type", name, (other for _, other in facts.instance_table))
    return owners[0]
