"""What a savings plan would add to the plan's bill: on what its reservations leave, or in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.fleet.market import Market
from trimtab.ledger import Commitment, Usage, bill
from trimtab.plan.commit_spend import SpendAdvice, advise_spend
from trimtab.units import per_month, usd


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendSums:
    """The better of the two, against the plan's bill."""

    advice: SpendAdvice
    sums_usd_mo: tuple[float, float, float]
    """Saved by the first layer alone, by all layers, and by the spend that would have been best, known afterwards."""


def spend_sums(
    usage: Usage, owned: Sequence[Commitment], bought: Sequence[Commitment], market: Market
) -> SpendSums | None:
    """Return what the best savings plan of an allowed term saves; None where no rate below on demand is known.

    In the place of reservations it has to earn what they save as well.
    """
    terms = tuple(range(1, market.max_term_years + 1))
    found = advise_spend(usage, market, terms, reserved=owned, advised=bought)
    rates = market.rates(usage.pools)
    reserved_micro_usd = bill(usage, rates, owned).total - bill(usage, rates, (*owned, *bought)).total
    reserved_usd_mo = per_month(usd(reserved_micro_usd), usage.hours)
    return max(
        (_against(one, 0.0 if one.beside_reservations else reserved_usd_mo) for one in found),
        key=lambda one: one.sums_usd_mo[1],
        default=None,
    )


def _against(advice: SpendAdvice, given_up_usd_mo: float) -> SpendSums:
    first, whole, best = (
        saved - given_up_usd_mo
        for saved in (advice.first_saving_usd_mo, advice.saving_usd_mo, advice.best_saving_usd_mo)
    )
    low, high = sorted((first, best))
    return SpendSums(advice=advice, sums_usd_mo=(min(low, whole), whole, max(high, whole)))
