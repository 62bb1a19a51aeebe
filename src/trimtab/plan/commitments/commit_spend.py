"""How much an hour to commit to spend: savings plans beside the reservations advised, and instead of them.

The spend that would cover each hour's use at the plan's rates is a series like any other, so the rules that its own history
chose back it as they back nodes. One dollar of spend replaces more on demand where the discount is higher, and a provider
starts there; the rules take the mean, so what they back is held to what would have been best over the recent weeks, where
every dollar is priced by the pool that it would have replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.pools import Pool
from trimtab.fleet.market import Market
from trimtab.ledger import Commitment, CommitmentOffer, Usage, best_spend, bill, spend_needed
from trimtab.levers.commit_advice import RECENT_HR, backing, layers
from trimtab.levers.commitments import plan_rates_by_provider
from trimtab.units import HR_PER_MO, HR_PER_YEAR, MICRO_PER_USD, MO_PER_YEAR, S_PER_HR, per_month, usd

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
    backed_usd_hr: float
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
        backed_usd_hr=backed.units,
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
