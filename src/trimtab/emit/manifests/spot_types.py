"""Other instance types that a spot pool may start where the planned one has no capacity.

A pool of one type waits, or goes on demand, whenever spot has none of that type; one of several types finds more. They change
neither what was proved nor what it may cost at worst:

- A type has the same GPUs, as many to a node, joined the same way, so that pods are as fast there and nodes as many. More of
  them to a node would not do: Karpenter fills a node that it is about to start while one of the types still has room for the
  next pod, and so starts the big ones of its own accord (kubernetes-sigs/karpenter v1.9.1, scheduling/nodeclaim.go, `CanAdd`).
- It has at least as much CPU and memory, so that whatever fits on the planned type fits there.
- On spot it costs no less than the planned type, which is therefore the one that is billed, and no more than the planned type
  on demand: with any of them the work costs no more than without spot. Karpenter holds launches to that bound at the prices of
  the moment (aws/karpenter-provider-aws, pkg/providers/instance/filter/filter.go, `SpotInstanceFilter`).

Which one is started is the provider's choice. EC2 weighs spare capacity against the price ("price-capacity-optimized", Amazon
EC2 user guide, "Allocation strategies for Spot Instances"), so it may start a more expensive one although the cheapest has some
left.
"""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.emit.manifests.facts import SpotType
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.reach import quota_of_pools, quotas_of

_BARE_METAL = ".metal"
"""The size of AWS's machines without a hypervisor: they start later than the cold start that was replayed."""


def spot_types(pool: Pool, market: Market) -> tuple[SpotType, ...]:
    """Return the types that a pool of spot nodes may start, its own first, then by price; none where there is no other."""
    if pool.capacity_type is not CapacityType.SPOT:
        return ()
    offered = market.offerings(pool.provider, pool.region)
    planned = next((offering for offering in offered if offering.pool == pool.nodes), None)
    if planned is None or planned.spot is None:
        return ()
    own = _priced(planned, market)
    bounds = range(own.rate_micro_usd_hr, own.on_demand_micro_usd_hr + 1)
    others = [known for known in _alike(planned, offered, market) if known.rate_micro_usd_hr in bounds]
    others.sort(key=lambda known: (known.rate_micro_usd_hr, known.instance_type))
    return (own, *others) if others else ()


def _priced(offering: Offering, market: Market) -> SpotType:
    return SpotType(
        instance_type=offering.pool.instance_type,
        rate_micro_usd_hr=market.rate(offering.pool.held_as(CapacityType.SPOT)),
        on_demand_micro_usd_hr=market.rate(offering.pool),
    )


def _alike(planned: Offering, offered: tuple[Offering, ...], market: Market) -> Iterator[SpotType]:
    """Yield the types on spot whose nodes do for whatever runs on the planned one."""
    held = [offering.pool.held_as(CapacityType.SPOT) for offering in offered]
    quotas = quota_of_pools(quotas_of(market.limits.quotas), held)
    for offering, spot in zip(offered, held, strict=True):
        if offering.spot is not None and quotas.get(spot) != 0 and _does_for(offering, planned, market):
            yield _priced(offering, market)


def _does_for(other: Offering, planned: Offering, market: Market) -> bool:
    """Return whether a node does for another one's pods, as fast; unknown sizes do for nothing."""
    there, here = (
        market.catalog.instance_type(offering.pool.provider, offering.pool.instance_type)
        for offering in (other, planned)
    )
    if there.name == here.name or there.name.endswith(_BARE_METAL):
        return False
    if None in (there.vcpus, here.vcpus, there.memory_gib, here.memory_gib):
        return False
    return (
        (there.gpu, there.gpu_count, there.cpu_arch) == (here.gpu, here.gpu_count, here.cpu_arch)
        and (there.gpu_count == 1 or there.interconnect == here.interconnect)
        and (there.vcpus or 0) >= (here.vcpus or 0)
        and (there.memory_gib or 0.0) >= (here.memory_gib or 0.0)
    )
