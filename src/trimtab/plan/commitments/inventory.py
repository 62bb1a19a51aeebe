"""Commitments already held, to nodes and to spend: what they cover, how well they are used, and when each ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import date

import numpy as np

from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.pools import Pool
from trimtab.fleet.market import Market
from trimtab.ledger import Bill, Commitment, CommitmentOffer, Usage, bill, nodes_committed
from trimtab.levers.commit_advice import CommitmentPrice
from trimtab.units import HR_PER_DAY, HR_PER_YEAR, MICRO_PER_USD, S_PER_HR, micro_usd, per_month, usd

_NAMED = 5
"""So many commitments of a kind are named in a remark."""
_LONG_DAYS = 2 * HR_PER_YEAR / HR_PER_DAY
"""Commitments to spend are sold for one year or three: one that runs longer than two is a 3-year plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedNodes:
    """What a commitment to nodes is to: `count` nodes under `offer`."""

    offer: CommitmentPrice
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedSpend:
    """What a commitment to spend is to: dollars an hour with a provider, on whatever the price book has a plan rate for."""

    provider: str
    usd_hr: float
    family: str = ""
    """The one instance family that it covers (AWS EC2 Instance Savings Plans), in `region`; empty: all."""
    region: str = ""

    def may_cover(self, pool: Pool) -> bool:
        """Return whether its terms cover a pool's nodes."""
        family = pool.instance_type.partition(".")[0]
        return pool.provider == self.provider and self.family in ("", family) and self.region in ("", pool.region)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A commitment that is held, for the days `[start, end)`."""

    name: str
    scope: OwnedNodes | OwnedSpend
    start: date
    end: date

    @property
    def option(self) -> BuyingOption:
        """Return the buying option that it was sold under."""
        if isinstance(self.scope, OwnedNodes):
            return self.scope.offer.option
        long = (self.end - self.start).days > _LONG_DAYS
        return BuyingOption.SAVINGS_PLAN_3Y if long else BuyingOption.SAVINGS_PLAN_1Y

    def runs_at(self, day: date) -> bool:
        """Return whether it runs on a day."""
        return self.start <= day < self.end

    def commitment(self, pools: Sequence[Pool], market: Market) -> Commitment | None:
        """Return it as the ledger takes it; None where no rate is known for any of the pools that its spend may cover."""
        rates: Mapping[Pool, int]
        match self.scope:
            case OwnedNodes(offer=offer, count=count):
                rates, quantity = {offer.pool: micro_usd(offer.effective_usd_hr)}, count
            case OwnedSpend(usd_hr=usd_hr) as spend:
                rates = market.plan_rates([pool for pool in pools if spend.may_cover(pool)], self.option)
                quantity = micro_usd(usd_hr)
        if not rates:
            return None
        return Commitment(offer=CommitmentOffer(option=self.option, rates_micro_usd_hr=rates), quantity=quantity)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentUse:
    """A running commitment, judged on the window's use."""

    owned: Owned
    used_frac: float
    """Share of what it pays for that was in use: of its nodes' time, or of its spend."""
    coverage_frac: float | None
    """Share that it covered of the pool's node time; of spend, of what the nodes that it may cover would cost on demand,
    reservations off. None where nothing of that was used."""
    unused_usd_mo: float
    """What it costs a month and buys nothing: sunk until it ends."""
    days_left: int
    held_after: int
    """Nodes of the same pool that other running commitments still cover when it has ended; 0 for spend."""


def running(
    owned: Sequence[Owned], pools: Sequence[Pool], market: Market, day: date
) -> tuple[tuple[Owned, Commitment], ...]:
    """Return those that run on a day, each as the ledger takes it, in the order in which they apply.

    Nodes before spend, the first to end first; of spend, plans for one instance family before those for all (Savings Plans
    User Guide). Those that `unpriced` names are left out: what they would buy is unknown.
    """
    ordered = sorted((entry for entry in owned if entry.runs_at(day)), key=_order)
    known = ((entry, entry.commitment(pools, market)) for entry in ordered)
    return tuple((entry, commitment) for entry, commitment in known if commitment is not None)


def _order(owned: Owned) -> tuple[bool, bool, date, tuple[str, ...], str]:
    match owned.scope:
        case OwnedNodes(offer=offer):
            return False, False, owned.end, astuple(offer.pool), owned.name
        case OwnedSpend(family=family):
            return True, family == "", owned.end, (), owned.name


def not_running(owned: Sequence[Owned], day: date) -> tuple[str, ...]:
    """Name and count the commitments, to nodes and to spend, that count for nothing on a day: over, or not yet begun."""
    over = [entry.name for entry in owned if entry.end <= day]
    ahead = [entry.name for entry in owned if entry.start > day]
    return tuple(
        f"not counted, {why} {day}: {', '.join(names[:_NAMED])}{' and others' if len(names) > _NAMED else ''} ({len(names)})"
        for why, names in (("over by", over), ("not begun by", ahead))
        if names
    )


def unpriced(owned: Sequence[Owned], pools: Sequence[Pool], market: Market, day: date) -> tuple[str, ...]:
    """Name the commitments to spend that run on a day and cover nothing whose rate is known, and say what to give."""
    return tuple(
        f"{entry.name}: {entry.scope.usd_hr:,.4f} USD an hour of spend until {entry.end}; no {entry.option.value} rate is "
        "known for what it may cover, so it is left out: give its rates with --prices"
        for entry in owned
        if isinstance(entry.scope, OwnedSpend) and entry.runs_at(day) and entry.commitment(pools, market) is None
    )


def inventory(owned: Sequence[Owned], usage: Usage, market: Market, day: date) -> tuple[CommitmentUse, ...]:
    """Judge every commitment that runs on a day and whose rates are known, by the one bill, in the order of application."""
    held = running(owned, usage.pools, market, day)
    rates = market.rates(usage.pools)
    priced = bill(usage, rates, [commitment for _, commitment in held])
    unused = priced.unused_commitment().sum(axis=1).tolist()
    found = []
    for row, (entry, commitment) in enumerate(held):
        match entry.scope:
            case OwnedNodes(offer=offer, count=count):
                covered, paid_for = int(priced.covered_seconds[row].sum()), count * usage.hours * S_PER_HR
                in_use = int(priced.use_of(offer.pool).sum())
                used_frac = covered / paid_for if paid_for else 0.0
                coverage = covered / in_use if in_use else None
                later = nodes_committed(other for owner, other in held if owner.runs_at(entry.end))
                held_after = later.get(offer.pool, 0)
            case OwnedSpend() as spend:
                paid = commitment.micro_usd_hr * usage.hours
                used_frac = 1 - unused[row] / paid if paid else 0.0
                coverage, held_after = _coverage(priced, row, spend, rates), 0
        found.append(
            CommitmentUse(
                owned=entry,
                used_frac=used_frac,
                coverage_frac=coverage,
                unused_usd_mo=per_month(usd(unused[row]), usage.hours),
                days_left=(entry.end - day).days,
                held_after=held_after,
            )
        )
    return tuple(found)


def _coverage(priced: Bill, row: int, spend: OwnedSpend, rates: Mapping[Pool, int]) -> float | None:
    """Return the share of what a commitment to spend may cover that it did cover, both at on-demand rates."""
    mine = np.array([spend.may_cover(pool) for pool in priced.pools])
    plans = [at for at, plan in enumerate(priced.commitments) if plan.offer.is_spend]
    weight = np.array([rates[pool] for pool in priced.pools]) / (S_PER_HR * MICRO_PER_USD)
    replaced = float(priced.covered_seconds[row].sum(axis=1) @ weight)
    metered = usd(int(priced.metered[mine].sum()))
    all_plans = float(priced.covered_seconds[plans][:, mine].sum(axis=(0, 2)) @ weight[mine])
    return replaced / (metered + all_plans) if metered + all_plans else None
