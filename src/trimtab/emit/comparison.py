"""Compares a scenario with the baseline, figure by figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, assert_never

from trimtab.emit.money import bill_left, dollars, percent
from trimtab.levers.registry import title_of

if TYPE_CHECKING:  # reports of a kept audit are written without the planner
    from trimtab.plan.model import Action
    from trimtab.plan.proof.scenario import ByDeadline, Outlook, WhatIf, WithinBudget

    Reached = WithinBudget | ByDeadline

PLAN, ACTIONS, LIMITS, BUDGET, DEADLINE = "the plan", "actions", "limits", "budget", "deadline"

BILL_TODAY, BILL_UNDER_PLAN, SAVING, WORK = (
    "bill as the fleet runs today", "bill under the plan", "saving", "engineer-weeks",
)  # fmt: skip
HEADLINE_FIGURES = (BILL_TODAY, BILL_UNDER_PLAN, SAVING, WORK)
"""The figures that matter most."""
_APART = ", "
_WHOLE_NODES_FRAC = 0.05
"""A bill that is further than this from the demand's multiple says more of whole nodes than of the demand."""
_SPAN = 3
"""Runs of at least this many consecutive ids are shown as a range."""

Value = float | str | None


class FigureUnit(Enum):
    """How to format a figure."""

    USD_MO = "usd_mo"
    FRAC = "frac"
    WEEKS = "weeks"
    COUNT = "count"
    ACTIONS = "actions"
    """Action ids, separated by commas."""
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One figure in both scenarios; None if a scenario has no value for it."""

    section: str
    what: str
    unit: FigureUnit
    base: Value
    scenario: Value

    @property
    def change(self) -> float | None:
        """Return the difference if both values are numbers."""
        base, scenario = self.base, self.scenario
        if base is None or scenario is None or isinstance(base, str) or isinstance(scenario, str):
            return None
        return scenario - base

    def plain(self) -> dict[str, Value]:
        """Return the raw figure for programs."""
        return {
            "section": self.section,
            "what": self.what,
            "unit": self.unit.value,
            "base": self.base,
            "scenario": self.scenario,
            "change": self.change,
        }


class ShownValues(NamedTuple):
    """A figure for display."""

    base: str
    scenario: str
    change: str
    """The signed difference; empty if there is none."""


def values_shown(figures: Sequence[ComparedFigure]) -> list[ShownValues]:
    """Format figures that stand together: the bill under the plan is today's less the saving, each as it is shown."""
    today = next((figure for figure in figures if figure.what == BILL_TODAY), None)
    found = []
    for figure in figures:
        if today is not None and figure.what == BILL_UNDER_PLAN:
            base, scenario = _left(today.base, figure.base), _left(today.scenario, figure.scenario)
            figure = replace(figure, base=base, scenario=scenario)
        change = figure.change
        signed = f"{'+' if change > 0 else '-'}{_shown(abs(change), figure.unit)}" if change else ""
        found.append(ShownValues(_shown(figure.base, figure.unit), _shown(figure.scenario, figure.unit), signed))
    return found


def _left(today: Value, then: Value) -> Value:
    return bill_left(today, then) if isinstance(today, float) and isinstance(then, float) else then


def _shown(value: Value, unit: FigureUnit) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return _spans(value.split(_APART)) if unit is FigureUnit.ACTIONS else value
    match unit:
        case FigureUnit.USD_MO:
            return dollars(value)
        case FigureUnit.FRAC:
            return percent(value, 1)
        case FigureUnit.WEEKS:
            return f"{value:.1f}"
        case FigureUnit.COUNT | FigureUnit.ACTIONS | FigureUnit.TEXT:
            return f"{value:g}"
    assert_never(unit)


def compared(what_if: WhatIf) -> tuple[ComparedFigure, ...]:
    """Return all figures of both scenarios."""
    base, other = what_if.base, what_if.other
    return (*_plans(base, other), *_actions(base, other), *_limits(base, other), *_answers(base, other))


def compared_notes(found: WhatIf) -> list[str]:
    """Describe the scenario; if no plan is possible in it, say why."""
    notes = [
        f"What if: {'; '.join(found.scenario.words())}. Dollars a month; both plans are billed hour by hour, exactly."
    ]
    if found.other is None:
        notes.append(f"No plan is possible in this scenario: {found.refused}.")
    elif found.scenario.demand != 1 and not found.scenario.prices and found.base.before_usd_mo:
        times = found.other.before_usd_mo / found.base.before_usd_mo
        if abs(times / found.scenario.demand - 1) > _WHOLE_NODES_FRAC:
            notes.append(
                f"As the fleet runs today, {found.scenario.demand:g} times the demand is {times:.3g} times the bill, because "
                "nodes are whole: compare the bills under the plans, not the savings."
            )
    return [*notes, *(f"{line}." for line in found.stays)]


def _plans(base: Outlook, other: Outlook | None) -> Iterator[ComparedFigure]:
    def row(what: str, unit: FigureUnit, figure: str) -> ComparedFigure:
        return ComparedFigure(
            section=PLAN,
            what=what,
            unit=unit,
            base=_rounded(getattr(base, figure), unit),
            scenario=None if other is None else _rounded(getattr(other, figure), unit),
        )

    yield row(BILL_TODAY, FigureUnit.USD_MO, "before_usd_mo")
    yield row(BILL_UNDER_PLAN, FigureUnit.USD_MO, "after_usd_mo")
    yield row("bill plus the amortized work of the plan", FigureUnit.USD_MO, "whole_usd_mo")
    yield row("lower bound of any plan's cost", FigureUnit.USD_MO, "bound_usd_mo")
    yield row(SAVING, FigureUnit.USD_MO, "saving_usd_mo")
    yield row("saving, share of the bill", FigureUnit.FRAC, "saving_frac")
    yield row(WORK, FigureUnit.WEEKS, "effort_weeks")
    yield row("commitments, paid whether used or not", FigureUnit.USD_MO, "committed_usd_mo")
    yield row("node-hours on spot", FigureUnit.FRAC, "spot_frac")
    yield row("saving on unseen history", FigureUnit.FRAC, "proof_saving_frac")
    yield ComparedFigure(
        section=PLAN,
        what="targets kept on unseen history",
        unit=FigureUnit.TEXT,
        base=f"{base.targets_kept} of {base.targets}",
        scenario=None if other is None else f"{other.targets_kept} of {other.targets}",
    )


def _actions(base: Outlook, other: Outlook | None) -> Iterator[ComparedFigure]:
    mine, theirs = _savings(base), _savings(other)
    for key in {**mine, **theirs}:
        yield ComparedFigure(
            section=ACTIONS, what=key, unit=FigureUnit.USD_MO, base=mine.get(key), scenario=theirs.get(key)
        )


def _savings(side: Outlook | None) -> dict[str, float]:
    found: dict[str, float] = {}
    for action in side.actions if side else ():
        found[_name(action)] = found.get(_name(action), 0.0) + round(action.saving_usd_mo.value, 2)
    return found


def _name(action: Action) -> str:
    """Name an action by what both scenarios share: the kind of commitment, not its quantity."""
    subject = action.subject
    if action.changes and action.lever == "commitment":
        subject = action.changes[0].subject
    return f"{title_of(action.lever)}: {subject}"


def _limits(base: Outlook, other: Outlook | None) -> Iterator[ComparedFigure]:
    sides = [
        {} if outlook is None else {limit.use.words: limit for limit in outlook.limits} for outlook in (base, other)
    ]
    for words in {**sides[0], **sides[1]}:
        costs: list[Value] = []
        for side in sides:
            limit = side.get(words)
            if limit is None:
                costs.append(None)
            elif not limit.use.binds:
                costs.append("not reached")
            elif limit.cost_usd_mo is None:
                costs.append("reached")
            else:
                costs.append(round(limit.cost_usd_mo, 2))
        yield ComparedFigure(
            section=LIMITS, what=f"{words} costs", unit=FigureUnit.USD_MO, base=costs[0], scenario=costs[1]
        )


def _answers(base: Outlook, other: Outlook | None) -> Iterator[ComparedFigure]:
    if base.budget is not None:
        budgets = [base.budget, other.budget if other else None]
        kept = [_budget_words(budget.short_usd_mo) if budget else None for budget in budgets]
        yield ComparedFigure(section=BUDGET, what=f"{dollars(base.budget.budget_usd_mo)} a month", unit=FigureUnit.TEXT,
                       base=kept[0], scenario=kept[1])  # fmt: skip
        any_keeps = any(budget.short_usd_mo == 0 for budget in budgets if budget)
        what = "least work that keeps it" if any_keeps else "least work that comes nearest"
        yield from _reached(BUDGET, what, budgets[0], budgets[1])
    if base.deadline is not None:
        days = [base.deadline, other.deadline if other else None]
        weeks = [round(deadline.weeks, 2) if deadline else None for deadline in days]
        yield ComparedFigure(section=DEADLINE, what=f"engineer-weeks until {base.deadline.day}", unit=FigureUnit.WEEKS,
                       base=weeks[0], scenario=weeks[1])  # fmt: skip
        yield from _reached(DEADLINE, "done by then", days[0], days[1])


def _budget_words(short_usd_mo: float) -> str:
    return "kept" if short_usd_mo == 0 else f"{dollars(short_usd_mo)} short"


def _reached(section: str, what: str, base: Reached | None, other: Reached | None) -> Iterator[ComparedFigure]:
    sides = (base, other)
    names = [None if side is None else _APART.join(side.actions) or "nothing" for side in sides]
    weeks = [None if side is None else round(side.effort_weeks, 2) for side in sides]
    bills = [None if side is None else round(side.bill_usd_mo, 2) for side in sides]
    yield ComparedFigure(section=section, what=what, unit=FigureUnit.ACTIONS, base=names[0], scenario=names[1])
    yield ComparedFigure(
        section=section, what="its engineer-weeks", unit=FigureUnit.WEEKS, base=weeks[0], scenario=weeks[1]
    )
    yield ComparedFigure(section=section, what="its bill", unit=FigureUnit.USD_MO, base=bills[0], scenario=bills[1])


def _spans(ids: Sequence[str]) -> str:
    """Return ids with consecutive numbers shortened to ranges: a1, a3-a6, a8."""
    runs: list[list[str]] = []
    for action_id in ids:
        number = action_id.removeprefix("a")
        follows = runs and number.isdecimal() and runs[-1][-1] == f"a{int(number) - 1}"
        if follows:
            runs[-1].append(action_id)
        else:
            runs.append([action_id])
    return _APART.join(f"{run[0]}-{run[-1]}" if len(run) >= _SPAN else _APART.join(run) for run in runs)


def _rounded(value: float, unit: FigureUnit) -> float:
    return round(value, 2 if unit is FigureUnit.USD_MO else 4)
