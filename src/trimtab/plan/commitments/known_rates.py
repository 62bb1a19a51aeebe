"""Which committed rates are known: the offers for a pool, what to ask a provider for, and the use that cannot be judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.fleet.market import Market
from trimtab.ledger import Usage
from trimtab.levers.commit_advice import CommitmentPrice, listed_offer
from trimtab.units import S_PER_HR, per_month, usd

TERMS_YEARS = (1, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRates:
    """How much of the use on demand has a committed rate that is known."""

    on_demand_usd_mo: float
    """What the use would cost on demand."""
    unjudged_usd_mo: float
    """The part of that on pools of which no committed rate is known, neither of nodes nor of spend: nothing is said of it."""
    unjudged_pools: tuple[Pool, ...]
    """Those pools, the most expensive first."""


def known_rates(
    usage: Usage, market: Market, quotes: Sequence[CommitmentPrice] = (), *, instance_type: str | None = None
) -> KnownRates:
    """Return what the on-demand nodes of a usage cost, and the part without any committed rate; quotes are rates too.

    `instance_type` narrows both to one type. Raises MissingPrice for a pool without a rate.
    """
    hours = dict(zip(usage.pools, (usage.node_seconds.sum(axis=1) / S_PER_HR).tolist(), strict=True))
    pools = on_demand_pools(usage, instance_type)
    rates = market.rates(pools)
    usd_mo = {pool: per_month(hours[pool] * usd(rates[pool]), usage.hours) for pool in pools}
    # a pool that the window has no hour of is no use that could be judged
    unknown = [
        pool
        for pool in pools
        if usd_mo[pool] > 0 and not offers_for(pool, market, quotes) and not _has_plan(pool, market)
    ]
    return KnownRates(
        on_demand_usd_mo=sum(usd_mo.values()),
        unjudged_usd_mo=sum(usd_mo[pool] for pool in unknown),
        unjudged_pools=tuple(sorted(unknown, key=lambda pool: (-usd_mo[pool], pool))),
    )


def on_demand_pools(usage: Usage, instance_type: str | None = None) -> list[Pool]:
    """Return the on-demand pools of a usage; `instance_type` narrows them to one type."""
    return [
        pool
        for pool in usage.pools
        if pool.capacity_type is CapacityType.ON_DEMAND and instance_type in (None, pool.instance_type)
    ]


def offers_for(pool: Pool, market: Market, quotes: Sequence[CommitmentPrice]) -> tuple[CommitmentPrice, ...]:
    """Return every commitment known for a pool, list rates first, then what a person was quoted."""
    listed = market.catalog.prices.options(pool.provider, pool.instance_type, pool.region, at=market.at)
    return (
        *(listed_offer(pool, price) for price in listed if price.option.commits_nodes),
        *(offer for offer in quotes if offer.pool == pool),
    )


def _has_plan(pool: Pool, market: Market) -> bool:
    """Return whether the rate of a pool under a commitment to spend is known."""
    return any(market.plan_rates([pool], option) for option in BuyingOption if option.commits_spend)


def wanted_rates(pools: Sequence[Pool], market: Market, quotes: Sequence[CommitmentPrice]) -> tuple[str, ...]:
    """Name the rates that are not known: a term of a pool, its price with something paid upfront, or under a savings plan."""
    wanted = []
    for pool in pools:
        known = offers_for(pool, market, quotes)
        terms = {offer.term_years for offer in known}
        missing = [f"{years} year{'s' if years > 1 else ''}" for years in TERMS_YEARS if years not in terms]
        if not any(offer.upfront_usd > 0 for offer in known):
            missing.append("anything paid upfront")
        if not _has_plan(pool, market):
            missing.append("a savings plan")
        if missing:
            wanted.append(f"{pool.instance_type} in {pool.region} ({pool.provider}): {', '.join(missing)}")
    return tuple(wanted)
