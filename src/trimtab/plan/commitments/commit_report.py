"""Everything `trimtab commit` answers for a fleet: advice by pool and on spend, load-duration curves, the return table.

The spend that would cover each hour's use at the plan's rates is a series like any other, so the rules that its own history
chose back it as they back nodes. One dollar of spend replaces more on demand where the discount is higher, and a provider
starts there; the rules take the mean, so what they back is held to what would have been best over the recent weeks, where
every dollar is priced by the pool that it would have replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.fleet.market import Market
from trimtab.fleet.model import Window
from trimtab.ledger import Commitment, CommitmentOffer, Usage, best_spend, bill, nodes_committed, spend_needed
from trimtab.ledger.arrays import FloatArray
from trimtab.levers.commit_advice import (
    RECENT_HR,
    Advice,
    CommitmentPrice,
    Layer,
    Return,
    advise,
    backing,
    layers,
    return_of,
)
from trimtab.levers.commitments import plan_rates_by_provider
from trimtab.plan.commitments.inventory import CommitmentUse, Owned, inventory, running, unpriced
from trimtab.plan.commitments.known_rates import KnownRates, known_rates, offers_for, on_demand_pools, wanted_rates
from trimtab.units import HR_PER_MO, HR_PER_YEAR, MICRO_PER_USD, MO_PER_YEAR, S_PER_HR, per_month, usd


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """The load at one share of the hours, busiest first; the parts sum to `load` and `unused` comes on top of it."""

    hours_frac: float
    load: float
    owned: float
    first_layer: float
    later_layers: float
    on_demand: float
    unused: float
    """Nodes paid for and not used at this load, once all layers are held."""


def load_duration(nodes: FloatArray, *, owned: float, first: float, later: float, points: int) -> tuple[LoadPoint, ...]:
    """Return the curve of hourly nodes (n_hours,) at evenly spread shares of the hours.

    `owned`, `first` and `later` are the nodes of each layer, stacked from the bottom in that order.
    """
    # the middle of each of the equal parts
    shares = (np.arange(points) + 0.5) / points
    order = np.sort(nodes)[::-1]
    loads = order[np.minimum((shares * len(order)).astype(int), len(order) - 1)]
    held = owned + first + later
    return tuple(
        LoadPoint(
            hours_frac=float(share),
            load=float(load),
            owned=float(min(load, owned)),
            first_layer=float(np.clip(load - owned, 0, first)),
            later_layers=float(np.clip(load - owned - first, 0, later)),
            on_demand=float(max(load - held, 0.0)),
            unused=float(max(held - load, 0.0)),
        )
        for share, load in zip(shares, loads, strict=True)
    )


_STEP_MICRO_USD_HR = MICRO_PER_USD // 100
"""Layers are whole cents an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendLayer:
    """One purchase: `buy_usd_hr` an hour `day` days from now, which brings the spend to `hold_usd_hr`."""

    day: int
    buy_usd_hr: float
    hold_usd_hr: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendAdvice:
    """What to commit to spend with one provider for one term, and what it returns on the use of the recent weeks."""

    provider: str
    option: BuyingOption
    beside_reservations: bool
    """On what the reservations advised leave; otherwise instead of them."""
    on_demand_usd_mo: float
    """What the covered types' use costs a month on demand, commitments off."""
    discount_frac: float
    """Off that, were all of it covered."""
    layers: tuple[SpendLayer, ...]
    best_usd_hr: float
    """What would have been best over the recent weeks, known afterwards."""
    used_frac: float
    """Share of the spend bought that would have bought node time."""
    replaced_usd_mo: float
    """What it would have replaced on demand."""

    @property
    def usd_hr(self) -> float:
        """Return the spend after the last layer."""
        return self.layers[-1].hold_usd_hr if self.layers else 0.0

    @property
    def term_usd(self) -> float:
        """Return what it costs over its term, used or not."""
        return self.usd_hr * self.option.term_years * HR_PER_YEAR

    @property
    def saving_usd_mo(self) -> float:
        """Return what it would have saved a month on the recent use; negative where it loses."""
        return self.replaced_usd_mo - self.usd_hr * HR_PER_MO

    @property
    def break_even_mo(self) -> float | None:
        """Return the month in which on demand will have cost as much as the whole plan; None where not within the term."""
        even = self.term_usd / self.replaced_usd_mo if self.replaced_usd_mo > 0 else None
        return even if even is not None and even <= self.option.term_years * MO_PER_YEAR else None

    @property
    def loses_below_frac(self) -> float:
        """Return the share of the spend that must be used for it to pay, at the discount of all covered use."""
        return 1 - self.discount_frac


def advise_spend(
    usage: Usage,
    market: Market,
    terms_years: Sequence[int],
    *,
    held: Sequence[Commitment],
    advised: Sequence[Commitment],
    pools: Sequence[Pool] | None = None,
    cover_most_frac: float = 1.0,
) -> tuple[SpendAdvice, ...]:
    """Return one answer per provider and term with rates below on demand, alone and beside what is advised.

    `held` run already and come first. `pools` narrows what may be covered. Nothing is returned where no rate
    is known or no use is left.
    """
    found = []
    for option in BuyingOption:
        if not option.commits_spend or option.term_years not in terms_years:
            continue
        for provider, rates in plan_rates_by_provider(usage.pools if pools is None else pools, market, option).items():
            for more in ((), tuple(advised)) if advised else ((),):
                left = uncovered(usage, market, (*held, *more))
                advice = _advice(provider, option, rates, left, market, cover_most_frac, beside=bool(more))
                if advice is not None:
                    found.append(advice)
    return tuple(
        sorted(found, key=lambda answer: (answer.provider, answer.option.term_years, not answer.beside_reservations))
    )


def uncovered(usage: Usage, market: Market, commitments: Sequence[Commitment]) -> Usage:
    """Return the use that commitments leave on demand."""
    priced = bill(usage, market.rates(usage.pools), commitments)
    return Usage(pools=usage.pools, node_seconds=usage.node_seconds - priced.covered_seconds.sum(axis=0))


def _advice(
    provider: str,
    option: BuyingOption,
    rates: Mapping[Pool, int],
    left: Usage,
    market: Market,
    cover_most_frac: float,
    *,
    beside: bool,
) -> SpendAdvice | None:
    pools, on_demand = left.pools, market.rates(rates)
    needed = spend_needed(rates, pools, left.node_seconds)
    if not needed.any():
        return None
    recent = Usage(pools=pools, node_seconds=left.node_seconds[:, -RECENT_HR:])
    covered = [pools.index(pool) for pool in rates if pool in pools]
    list_usd_hr = sum(usd(on_demand[pools[row]]) * left.node_seconds[row].mean() / S_PER_HR for row in covered)
    discount = 1 - usd(int(needed.sum())) / left.hours / list_usd_hr
    best = best_spend(rates, pools, recent.node_seconds, on_demand)
    step_usd = usd(_STEP_MICRO_USD_HR)
    backed = backing(needed / MICRO_PER_USD, discount, option.term_years * HR_PER_YEAR, cover_most_frac=cover_most_frac)
    backed = replace(backed, most_units=min(backed.most_units, usd(best)))
    steps = layers(backed, step_units=step_usd)
    whole = Commitment(
        offer=CommitmentOffer(option=option, rates_micro_usd_hr=rates),
        quantity=(steps[-1].hold if steps else 0) * _STEP_MICRO_USD_HR,
    )
    used_frac, replaced_usd_mo = _returned(recent, whole, market)
    return SpendAdvice(
        provider=provider,
        option=option,
        beside_reservations=beside,
        on_demand_usd_mo=list_usd_hr * HR_PER_MO,
        discount_frac=discount,
        layers=tuple(
            SpendLayer(day=step.day, buy_usd_hr=step.buy * step_usd, hold_usd_hr=step.hold * step_usd) for step in steps
        ),
        best_usd_hr=usd(best),
        used_frac=used_frac,
        replaced_usd_mo=replaced_usd_mo,
    )


def _returned(recent: Usage, plan: Commitment, market: Market) -> tuple[float, float]:
    """Return the share of a plan's spend that would have bought node time, and what it would have replaced a month."""
    rates = market.rates(recent.pools)
    priced = bill(recent, rates, [plan])
    paid, replaced = int(priced.committed.sum()), bill(recent, rates).total - int(priced.metered.sum())
    return 1 - priced.unused / paid if paid else 0.0, per_month(usd(replaced), recent.hours)


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
    known: KnownRates
    """How much of the use could not be judged for lack of a rate."""
    held_beside: tuple[str, ...] = ()
    """What is held beside commitments to machines, and what of an inventory was left out, with why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked: on which day, for which terms, with which quotes, how much to cover, and the size of the return table."""

    day: date
    terms_years: tuple[int, ...] = (1,)
    instance_type: str | None = None
    """None: every one."""
    quotes: tuple[CommitmentPrice, ...] = ()
    """Offers beside the list's."""
    cover_most_frac: float = 1.0
    """Of the use, the most that may be committed to."""
    nodes: int | None = None
    """Nodes of the return table, and their hours below; None: those advised, and the hours that these were in use."""
    hours_mo: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedUse:
    """The use that commitments would cover, over a window: as history had it, or as a plan leaves it."""

    usage: Usage
    window: Window
    basis: str
    """Which of them it is, in words."""
    as_it_was: Usage
    """By which commitments that are held already are judged."""
    ordered: Mapping[Pool, tuple[Layer, ...]] | None = None
    """What a plan orders, by pool: then that is the answer, and nothing else is bought."""


def commit_report(
    use: CommittedUse, market: Market, question: Question, owned: Sequence[Owned], *, held_beside: Sequence[str] = ()
) -> CommitReport:
    """Return what to commit to for a fleet's use; raises MissingPrice for a pool without a rate.

    What commitments to spend that are held already cover is no demand for reservations.
    """
    usage, day, cover_most_frac = use.usage, question.day, question.cover_most_frac
    pools = on_demand_pools(usage, question.instance_type)
    rates = market.rates(usage.pools)
    held = [commitment for _, commitment in running(owned, usage.pools, market, day)]
    have = nodes_committed(held)
    priced = bill(usage, rates, held)
    spent = priced.covered_seconds[[commitment.offer.is_spend for commitment in priced.commitments]].sum(axis=0)
    row_of = {pool: row for row, pool in enumerate(usage.pools)}
    advice, returns = [], []
    for pool in pools:
        offers = offers_for(pool, market, question.quotes)
        usd_hr = rates[pool] / MICRO_PER_USD
        allowed = [offer for offer in offers if offer.term_years in question.terms_years]
        demand = usage.node_seconds[row_of[pool]] - spent[row_of[pool]]
        found = advise(pool, demand, usd_hr, allowed, owned=have.get(pool, 0), cover_most_frac=cover_most_frac)
        if found:
            if use.ordered is not None:
                found = replace(found, layers=use.ordered.get(pool, ()))
            advice.append(found)
            returns += [_return(offer, found, question) for offer in offers]
    return CommitReport(
        window=use.window,
        basis=use.basis,
        advice=tuple(advice),
        returns=tuple(returns),
        held=inventory(owned, use.as_it_was, market, day),
        spend=advise_spend(
            usage,
            market,
            question.terms_years,
            held=held,
            advised=[row.bought for row in advice if row.buy],
            pools=pools,
            cover_most_frac=cover_most_frac,
        ),
        wanted_rates=wanted_rates(pools, market, question.quotes),
        known=known_rates(usage, market, question.quotes, instance_type=question.instance_type),
        held_beside=(*unpriced(owned, usage.pools, market, day), *held_beside),
    )


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
