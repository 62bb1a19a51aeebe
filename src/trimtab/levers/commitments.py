"""Commit to what is left after everything else: to nodes of the pools for which that is sold, and to spend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.fleet.effects import BuyCommitment
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Lever
from trimtab.units import micro_usd

LEVER = Lever.COMMITMENT


def propose(pools: Iterable[Pool], market: Market) -> dict[Pool, BuyCommitment]:
    """Return, for each on-demand pool for which one is sold, a commitment to one node at its best allowed rate."""
    offers = {}
    for pool in pools:
        if pool.capacity_type is not CapacityType.ON_DEMAND:
            continue
        price = market.commitment(pool)
        on_demand = market.rate(pool)
        if price is not None and micro_usd(price.usd_hr) < on_demand:
            offers[pool] = BuyCommitment(
                pool=pool,
                option=price.option,
                count=1,
                rate_micro_usd_hr=micro_usd(price.usd_hr),
                on_demand_micro_usd_hr=on_demand,
            )
    return offers


PlanRates = Mapping[Pool, int]


def propose_spend(pools: Iterable[Pool], market: Market) -> tuple[tuple[BuyingOption, PlanRates], ...]:
    """Return the spend plans on offer: the option, and by pool what an hour of its nodes takes of the spend.

    One per provider and allowed term, those with the highest discount first; left out are plans that another beats
    on every pool that they cover. Only rates below on demand are in them.
    """
    known = sorted(pools)
    found = [
        (option, rates)
        for option in BuyingOption
        if option.commits_spend and option.term_years <= market.max_term_years
        for rates in plan_rates_by_provider(known, market, option).values()
    ]
    kept = [one for at, one in enumerate(found) if not any(_beats(other, one[1], at) for other in enumerate(found))]
    return tuple(sorted(kept, key=lambda one: (min(one[1]).provider, _best_ratio(one[1], market), one[0].value)))


def plan_rates_by_provider(pools: Iterable[Pool], market: Market, option: BuyingOption) -> dict[str, dict[Pool, int]]:
    """Return the rates under a spend plan that lie below on demand, by provider."""
    rates: dict[str, dict[Pool, int]] = {}
    for pool, rate in market.plan_rates(pools, option).items():
        if rate < market.rate(pool):
            rates.setdefault(pool.provider, {})[pool] = rate
    return rates


def _beats(one: tuple[int, tuple[BuyingOption, PlanRates]], rates: PlanRates, at: int) -> bool:
    """Tell whether a plan at another place is no dearer on any pool; of equal ones the first stays."""
    place, (_, mine) = one
    if place == at or not all(pool in mine and mine[pool] <= rate for pool, rate in rates.items()):
        return False
    return mine != rates or place < at


def _best_ratio(rates: PlanRates, market: Market) -> Fraction:
    return min(Fraction(rate, market.rate(pool)) for pool, rate in rates.items())
