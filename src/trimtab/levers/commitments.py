"""Commit to what is left after everything else: the pools for which a commitment is sold, and its rate."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.catalog.kinds import CapacityType
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
