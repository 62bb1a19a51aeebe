"""Which of a plan's actions to take: the least work that keeps within a monthly budget, and what fits before a day.

Both walk the plan's own order. Any set of actions is billed exactly; what is bought follows the use that the set leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from trimtab.fleet.settings import Settings
from trimtab.plan.actions.roadmap import efforts
from trimtab.plan.planner import Planned
from trimtab.units import DAYS_PER_WEEK, per_month, usd

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinBudget:
    """The least work found that brings the monthly bill to a budget; or, where nothing does, by how much the best misses it."""

    budget_usd_mo: float
    actions: tuple[str, ...]
    effort_weeks: float
    bill_usd_mo: float
    short_usd_mo: float
    """0 where the budget is kept."""
    surely_short_usd_mo: float
    """By how much the certified bound alone exceeds the budget: no mix of the options considered comes nearer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByDeadline:
    """What fits before a day, done one after another by the team, and the bill from that day on."""

    day: date
    weeks: float
    """Engineer-weeks from the end of the history to that day."""
    actions: tuple[str, ...]
    effort_weeks: float
    bill_usd_mo: float
    left_out: tuple[str, ...]


def within_budget(planned: Planned, budget_usd_mo: float, settings: Settings) -> WithinBudget:
    """Take actions in order until the bill is within the budget; then drop, dearest work first, what is not needed for that."""
    reach = _Reach(planned, settings)
    taken: list[int] = []
    for number in planned.order:
        if reach.bill_usd_mo(taken) <= budget_usd_mo:
            break
        taken.append(number)
    bill = reach.bill_usd_mo(taken)
    if bill <= budget_usd_mo:
        for number in sorted(taken, key=lambda action: -reach.weeks([action])):
            rest = [action for action in taken if action != number]
            if not reach.needed_by(number) & {*rest} and reach.bill_usd_mo(rest) <= budget_usd_mo:
                taken = rest
    bound_usd_mo = per_month(usd(planned.plan.bound_micro_usd), planned.plan.window.hours)
    return WithinBudget(
        budget_usd_mo=budget_usd_mo,
        actions=reach.names(taken),
        effort_weeks=reach.weeks(taken),
        bill_usd_mo=reach.bill_usd_mo(taken),
        short_usd_mo=max(0.0, reach.bill_usd_mo(taken) - budget_usd_mo),
        surely_short_usd_mo=max(0.0, bound_usd_mo - budget_usd_mo),
    )


def by_deadline(planned: Planned, start: date, day: date, settings: Settings) -> ByDeadline:
    """Take actions in order while their work fits; one that does not is passed over, and so is what must wait for it."""
    reach = _Reach(planned, settings)
    weeks = max(0.0, (day - start).days / DAYS_PER_WEEK) * settings.planning.engineers
    taken: list[int] = []
    for number in planned.order:
        if reach.waits_for(number) <= {*taken} and reach.weeks([*taken, number]) <= weeks + _ROUNDING:
            taken.append(number)
    return ByDeadline(
        day=day,
        weeks=weeks,
        actions=reach.names(taken),
        effort_weeks=reach.weeks(taken),
        bill_usd_mo=reach.bill_usd_mo(taken),
        left_out=reach.names([number for number in planned.order if number not in taken]),
    )


class _Reach:
    """Bills and effort of some of a plan's actions, by their numbers in the draft."""

    def __init__(self, planned: Planned, settings: Settings) -> None:
        self._planned = planned
        self._settings = settings
        self._needed_by = planned.drafted.needed_first()

    def needed_by(self, number: int) -> frozenset[int]:
        """Return the actions that would miss a target without this one."""
        return self._needed_by.get(number, frozenset())

    def waits_for(self, number: int) -> set[int]:
        """Return the actions that must be done before this one; two that need each other may go in any order."""
        mine = self.needed_by(number)
        return {first for first, others in self._needed_by.items() if number in others and first not in mine}

    def bill_usd_mo(self, some: Sequence[int]) -> float:
        """Return the monthly bill with some actions."""
        cost = self._planned.drafted.cost(frozenset(some))
        return per_month(usd(cost), self._planned.plan.window.hours)

    def weeks(self, some: Sequence[int]) -> float:
        """Return the engineer-weeks of some actions; what is paid once is counted once."""
        return sum(efforts([self._planned.drafted.actions[number] for number in some], self._settings))

    def names(self, some: Sequence[int]) -> tuple[str, ...]:
        """Return the actions' ids, in order."""
        return tuple(
            action.id
            for action, number in zip(self._planned.plan.actions, self._planned.order, strict=True)
            if number in some
        )
