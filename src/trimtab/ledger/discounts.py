"""Commitment discounts as FOCUS has them, by usage (nodes of one type) and by spend, as one value that bills take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.catalog.pools import Pool
from trimtab.ledger.bill import Commitment
from trimtab.ledger.spend import SpendPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Discounts:
    """Commitments to nodes and to spend, held or bought, each in the order in which they apply."""

    commitments: tuple[Commitment, ...] = ()
    spend_plans: tuple[SpendPlan, ...] = ()

    def __add__(self, later: Discounts) -> Discounts:
        """Return both; nodes cover before spend whichever was held first, and these before `later` ones of their kind."""
        return Discounts(
            commitments=(*self.commitments, *later.commitments), spend_plans=(*self.spend_plans, *later.spend_plans)
        )

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self.commitments or self.spend_plans)

    @property
    def plan_rates(self) -> tuple[Mapping[Pool, int], ...]:
        """Return each spend plan's rates."""
        return tuple(plan.rates_micro_usd_hr for plan in self.spend_plans)

    @property
    def micro_usd_hr(self) -> int:
        """Return what they cost an hour, used or not."""
        nodes = sum(one.count * one.rate_micro_usd_hr for one in self.commitments)
        return nodes + sum(plan.spend_micro_usd_hr for plan in self.spend_plans)


NO_DISCOUNTS = Discounts()
