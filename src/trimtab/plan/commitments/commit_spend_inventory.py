"""Commitments to spend already held: what they cover, how well they are used, and when each ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.pools import Pool
from trimtab.fleet.market import Market
from trimtab.ledger import Bill, Commitment, SpendPlan, Usage, bill
from trimtab.units import HR_PER_DAY, HR_PER_YEAR, MICRO_PER_USD, S_PER_HR, micro_usd, per_month, usd

_LONG_DAYS = 2 * HR_PER_YEAR / HR_PER_DAY
"""Plans are sold for one year or three: one that runs longer than two is a 3-year plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spend:
    """A commitment to spend, on whatever its plan covers: dollars an hour, for the days `[start, end)`."""

    name: str
    provider: str
    usd_hr: float
    start: date
    end: date
    family: str = ""
    """The one instance family that it covers (AWS EC2 Instance Savings Plans), in `region`; empty: all."""
    region: str = ""

    @property
    def option(self) -> BuyingOption:
        """Return the buying option under whose rates it buys."""
        long = (self.end - self.start).days > _LONG_DAYS
        return BuyingOption.SAVINGS_PLAN_3Y if long else BuyingOption.SAVINGS_PLAN_1Y

    def runs_at(self, day: date) -> bool:
        """Tell whether it runs on a day."""
        return self.start <= day < self.end

    def may_cover(self, pool: Pool) -> bool:
        """Tell whether its terms cover a pool's nodes."""
        family = pool.instance_type.partition(".")[0]
        return pool.provider == self.provider and self.family in ("", family) and self.region in ("", pool.region)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSpend:
    """A running commitment to spend, judged on the window's use."""

    spend: Spend
    used_frac: float
    """Share of the spend that bought node time."""
    coverage_frac: float | None
    """Share of what the nodes that it may cover would cost on demand, reservations off, that it replaced; None without any."""
    unused_usd_mo: float
    """What it costs a month and buys nothing: sunk until it ends."""
    days_left: int


def running_plans(spend: Sequence[Spend], pools: Sequence[Pool], market: Market, day: date) -> dict[Spend, SpendPlan]:
    """Return the commitments to spend that run on a day as the ledger takes them, in the order in which they apply.

    Plans for one instance family before those for all (Savings Plans User Guide), then those that end first. Left out are
    those under whose option no rate is known for any pool that they may cover: what they would buy is unknown.
    """
    running = (one for one in spend if one.runs_at(day))
    plans = {}
    for one in sorted(running, key=lambda one: (one.family == "", one.end, one.name)):
        rates = market.plan_rates([pool for pool in pools if one.may_cover(pool)], one.option)
        if rates:
            plans[one] = SpendPlan(
                option=one.option, spend_micro_usd_hr=micro_usd(one.usd_hr), rates_micro_usd_hr=rates
            )
    return plans


def unpriced(one: Spend) -> str:
    """Say that what a commitment to spend covers is not known, and what to give."""
    return (
        f"{one.name}: {one.usd_hr:,.4f} USD an hour of spend until {one.end}; no {one.option.value} rate is known for what "
        "it may cover, so it is left out: give its rates with --prices"
    )


def spend_inventory(
    spend: Sequence[Spend], usage: Usage, market: Market, commitments: Sequence[Commitment], day: date
) -> tuple[HeldSpend, ...]:
    """Judge every commitment to spend that runs on a day and whose rates are known, by the one bill, as they apply."""
    plans = running_plans(spend, usage.pools, market, day)
    rates = market.rates(usage.pools)
    priced = bill(usage, rates, commitments, list(plans.values()))
    unused = priced.unused_spend().sum(axis=1).tolist()
    held = []
    for row, (one, plan) in enumerate(plans.items()):
        paid = plan.spend_micro_usd_hr * usage.hours
        held.append(
            HeldSpend(
                spend=one,
                used_frac=1 - unused[row] / paid if paid else 0.0,
                coverage_frac=_coverage(priced, row, one, [rates[pool] for pool in usage.pools]),
                unused_usd_mo=per_month(usd(unused[row]), usage.hours),
                days_left=(one.end - day).days,
            )
        )
    return tuple(held)


def _coverage(priced: Bill, row: int, spend: Spend, rates: Sequence[int]) -> float | None:
    """Return the share of what a commitment may cover that it did cover, both at on-demand rates."""
    mine = np.array([spend.may_cover(pool) for pool in priced.pools])
    weight = np.array(rates) / (S_PER_HR * MICRO_PER_USD)
    replaced = float(priced.plan_seconds[row].sum(axis=1) @ weight)
    metered = usd(int(priced.metered[mine].sum()))
    all_plans = float(priced.plan_seconds[:, mine].sum(axis=(0, 2)) @ weight[mine])
    return replaced / (metered + all_plans) if metered + all_plans else None
