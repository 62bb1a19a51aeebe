"""Everything `trimtab commit` answers for a fleet: advice by pool, the return table, the inventory, and what to ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.fleet.market import Market
from trimtab.fleet.model import Window
from trimtab.ledger import Usage, bill, nodes_committed
from trimtab.levers.commit_advice import Advice, Layer, advise
from trimtab.levers.commit_table import CommitmentPrice, Return, listed_offer, return_of
from trimtab.plan.commitments.commit_spend import SpendAdvice, advise_spend
from trimtab.plan.commitments.inventory import CommitmentUse, Owned, inventory, running, unpriced
from trimtab.units import HR_PER_MO, MICRO_PER_USD

TERMS_YEARS = (1, 3)
AS_IT_WAS = (
    "use as it was: what the plan's other actions would take away is not taken off, so it is not what the plan buys"
)
AFTER_PLAN = "what the plan of `trimtab audit` buys, on the use that its other actions leave"
AFTER_PLAN_QUOTED = "use after the plan's other actions, with the offers that you gave and the plan does not know"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    """The answer for one fleet over one window."""

    window: Window
    basis: str
    advice: tuple[Advice, ...]
    returns: tuple[Return, ...]
    held: tuple[CommitmentUse, ...]
    spend: tuple[SpendAdvice, ...]
    wanted_rates: tuple[str, ...]
    """Rates that no table has and that a person is asked for."""
    held_beside: tuple[str, ...] = ()
    """What is held beside commitments to machines, and what of an inventory was left out, with why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: the terms allowed, one instance type or all, and the size of the return table where it is stated."""

    terms_years: tuple[int, ...] = (1,)
    instance_type: str | None = None
    nodes: int | None = None
    hours_mo: float | None = None


def commit_report(
    usage: Usage,
    window: Window,
    market: Market,
    question: Question,
    *,
    basis: str,
    day: date,
    owned: Sequence[Owned],
    quotes: Sequence[CommitmentPrice],
    held_beside: Sequence[str] = (),
    seen: Usage | None = None,
    cover_most_frac: float = 1.0,
    ordered: Mapping[Pool, tuple[Layer, ...]] | None = None,
) -> CommitReport:
    """Return what to commit to on a day, given a fleet's use over a window; raises MissingPrice for a pool without a rate.

    What commitments to spend that are held already cover is no demand for reservations. What is held is judged on the use
    `seen` where that is another. `ordered` is what a plan orders, by pool: then that is the answer, and nothing else is bought.
    """
    pools = [
        pool
        for pool in usage.pools
        if pool.capacity_type is CapacityType.ON_DEMAND and question.instance_type in (None, pool.instance_type)
    ]
    rates = market.rates(usage.pools)
    held = [commitment for _, commitment in running(owned, usage.pools, market, day)]
    have = nodes_committed(held)
    priced = bill(usage, rates, held)
    spent = priced.covered_seconds[[commitment.offer.is_spend for commitment in priced.commitments]].sum(axis=0)
    row_of = {pool: row for row, pool in enumerate(usage.pools)}
    advice, returns = [], []
    for pool in pools:
        offers = offers_for(pool, market, quotes)
        usd_hr = rates[pool] / MICRO_PER_USD
        allowed = [offer for offer in offers if offer.term_years in question.terms_years]
        demand = usage.node_seconds[row_of[pool]] - spent[row_of[pool]]
        found = advise(pool, demand, usd_hr, allowed, owned=have.get(pool, 0), cover_most_frac=cover_most_frac)
        if found:
            if ordered is not None:
                found = replace(found, layers=ordered.get(pool, ()))
            advice.append(found)
            returns += [_return(offer, found, question) for offer in offers]
    return CommitReport(
        window=window,
        basis=basis,
        advice=tuple(advice),
        returns=tuple(returns),
        held=inventory(owned, seen or usage, market, day),
        spend=advise_spend(
            usage,
            market,
            question.terms_years,
            held=held,
            advised=[row.bought for row in advice if row.buy],
            pools=pools,
            cover_most_frac=cover_most_frac,
        ),
        wanted_rates=wanted_rates(pools, market, quotes),
        held_beside=(*unpriced(owned, usage.pools, market, day), *held_beside),
    )


def offers_for(pool: Pool, market: Market, quotes: Sequence[CommitmentPrice]) -> tuple[CommitmentPrice, ...]:
    """Return every commitment known for a pool, list rates first, then what a person was quoted."""
    listed = market.catalog.prices.options(pool.provider, pool.instance_type, pool.region, at=market.at)
    return (
        *(listed_offer(pool, price) for price in listed if price.option.commits_nodes),
        *(offer for offer in quotes if offer.pool == pool),
    )


def wanted_rates(pools: Sequence[Pool], market: Market, quotes: Sequence[CommitmentPrice]) -> tuple[str, ...]:
    """Name the rates that are not known: a term of a pool, its price with something paid upfront, or under a savings plan."""
    wanted = []
    for pool in pools:
        known = offers_for(pool, market, quotes)
        terms = {offer.term_years for offer in known}
        missing = [f"{years} year{'s' if years > 1 else ''}" for years in TERMS_YEARS if years not in terms]
        if not any(offer.upfront_usd > 0 for offer in known):
            missing.append("anything paid upfront")
        if not any(market.plan_rates([pool], option) for option in BuyingOption if option.commits_spend):
            missing.append("a savings plan")
        if missing:
            wanted.append(f"{pool.instance_type} in {pool.region} ({pool.provider}): {', '.join(missing)}")
    return tuple(wanted)


def _return(offer: CommitmentPrice, advice: Advice, question: Question) -> Return:
    """Return a row for the nodes and hours asked about, or else for the nodes advised and the hours they were in use."""
    nodes = question.nodes or max(advice.hold, 1)
    hours_mo = question.hours_mo
    if hours_mo is None:
        hours_mo = advice.used_frac(0, nodes) * HR_PER_MO
    return return_of(offer, advice.on_demand_usd_hr, nodes=nodes, hours_mo=min(hours_mo, HR_PER_MO))


def pools_by_type(usage: Usage) -> Mapping[str, Pool]:
    """Return the on-demand pools in use by instance type; of two regions the one used more."""
    hours = dict(zip(usage.pools, usage.node_seconds.sum(axis=1).tolist(), strict=True))
    on_demand = [pool for pool in usage.pools if pool.capacity_type is CapacityType.ON_DEMAND]
    return {pool.instance_type: pool for pool in sorted(on_demand, key=lambda pool: hours[pool])}
