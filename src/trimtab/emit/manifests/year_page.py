"""The year's page: a plan over four quarters, what is done when and by whom, and what it has saved by then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from trimtab.emit.manifests.decision_record import owner_words
from trimtab.emit.money import dollars
from trimtab.levers.registry import title_of
from trimtab.plan.model import Action, Plan, Schedule, ScheduledAction
from trimtab.units import HR_PER_MO

_QUARTERS, _MO_PER_QUARTER = 4, 3

Record = tuple[Action, str, Sequence[str]]
"""An action, the name of its decision record, and the teams whose workloads it changes."""


def year_page(records: Sequence[Record], plan: Plan, course: Schedule) -> str:
    """Return the page as Markdown, for `decisions/`; the course is the plan's own, month 0 the end of its window."""
    today, end = course.bill_usd_mo[0], course.bill_usd_mo[-1]
    whole = saved_by(course, _QUARTERS * _MO_PER_QUARTER)
    parts = [
        "# The year",
        f"From {_day(plan, 0)} to {_day(plan, _QUARTERS * _MO_PER_QUARTER)}: the bill goes from {dollars(today)} a month to "
        f"{dollars(end)}, and {_saved(whole)} by then, before what the work costs. Dates are those of the "
        "roadmap: one action after another as there are people, each done when its effort is. What fails its canary, or is not "
        "approved, moves all that stands below it.",
        *(_quarter(number, records, plan, course) for number in range(1, _QUARTERS + 1)),
    ]
    later = [step for step in course.steps if step.done_mo > _QUARTERS * _MO_PER_QUARTER]
    if later:
        parts += ["## Later than the year", _table(later, records, plan)]
    return "\n\n".join(parts) + "\n"


def saved_by(course: Schedule, month: float) -> float:
    """Return the dollars that a course has saved from today to a month: each bill stands from the end of its action on."""
    ended = sorted(course.steps, key=lambda step: step.done_mo)
    today, saved, bill, since = course.bill_usd_mo[0], 0.0, course.bill_usd_mo[0], 0.0
    for step in ended:
        if step.done_mo >= month:
            break
        saved += (today - bill) * (step.done_mo - since)
        bill, since = step.bill_usd_mo, step.done_mo
    return saved + (today - bill) * (month - since)


def _quarter(number: int, records: Sequence[Record], plan: Plan, course: Schedule) -> str:
    first, last = (number - 1) * _MO_PER_QUARTER, number * _MO_PER_QUARTER
    done = [step for step in course.steps if first < step.done_mo <= last or (number == 1 and step.done_mo == 0)]
    under_way = [step.action for step in course.steps if step.start_mo < last < step.done_mo]
    lines = [
        f"## Quarter {number}: {_day(plan, first)} to {_day(plan, last)}",
        _table(done, records, plan) if done else "Nothing ends in it.",
        f"At its end: {dollars(course.bill_usd_mo[last])} a month, {_saved(saved_by(course, last))} since today"
        + (f"; under way: {', '.join(under_way)}." if under_way else "."),
    ]
    return "\n\n".join(lines)


def _table(steps: Sequence[ScheduledAction], records: Sequence[Record], plan: Plan) -> str:
    head = "| from | done by | id | what | by | engineer-weeks | bill a month then |\n|---|---|---|---|---|---|---|\n"
    return head + "\n".join(_rows(steps, records, plan))


def _rows(steps: Sequence[ScheduledAction], records: Sequence[Record], plan: Plan) -> Iterator[str]:
    known = {action.id: (action, name, owners) for action, name, owners in records}
    for step in sorted(steps, key=lambda step: (step.done_mo, step.start_mo)):
        action, name, owners = known[step.action]
        yield (
            f"| {_day(plan, step.start_mo)} | {_day(plan, step.done_mo)} | {action.id} "
            f"| [{title_of(action.lever)}: {action.subject}]({name}.md) | {owner_words(owners)} "
            f"| {action.effort_weeks:g} | {dollars(step.bill_usd_mo)} |"
        )


def _saved(saved_usd: float) -> str:
    return f"{dollars(saved_usd)} saved" if saved_usd >= 0 else f"{dollars(-saved_usd)} more spent"


def _day(plan: Plan, month: float) -> date:
    return (plan.window.end + timedelta(hours=month * HR_PER_MO)).date()
