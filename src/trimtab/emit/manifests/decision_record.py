"""A decision record for each action: context, evidence, decision, saving with its interval, files, canary, rollback."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta

from trimtab.deployment.effects import SetSchedule
from trimtab.emit.manifests.week import held_stretches, hours_in_words
from trimtab.emit.money import dollars_and_cents
from trimtab.emit.rollout import canary_steps
from trimtab.emit.words import risk_meaning
from trimtab.levers.registry import title_of
from trimtab.plan.model import Action, Change, Plan

_QUARTER_DAYS = 91
_LATER_DAYS = 365
"""When an action that is planned for later than a year is looked at again."""


def decision_record(
    action: Action, plan: Plan, *, written: Sequence[str], withheld: Sequence[str], owners: Sequence[str] = ()
) -> str:
    """Return the record as Markdown; `written` are the paths that enact the action, `withheld` what no file could carry.

    `owners` are the teams whose workloads it changes.
    """
    parts = (
        f"# {action.id}: {title_of(action.lever)} ({action.subject})",
        _head(action, plan, owners),
        "## Context",
        _context(action, plan),
        "## Evidence",
        _bullets(_evidence(action)),
        "## Decision",
        _bullets(_decided(change) for change in action.changes),
        "## Saving",
        _saving(action),
        "## Alternatives",
        _bullets(_alternatives(action, plan)),
        "## Enacted by",
        _bullets([f"`{path}`" for path in written]) or "No file: a person does it (below).",
        *(["## Left to a person", _bullets(withheld)] if withheld else []),
        "## Canary",
        "\n".join(f"{number}. {step}" for number, step in enumerate(canary_steps(action), start=1)),
        "## Rollback",
        f"{action.rollback[:1].upper()}{action.rollback[1:]}.",
    )
    return "\n\n".join(parts) + "\n"


def _decided(change: Change) -> str:
    """Return a change in words; a timetable with its hours, which whoever keeps it by hand needs."""
    hours = ""
    if isinstance(change.effect, SetSchedule):
        hours = f": {hours_in_words(held_stretches(change.effect.hours_of_week))} (UTC)"
    return f"`{change.subject}`: {change.effect.describe()}{hours}"


def _head(action: Action, plan: Plan, owners: Sequence[str]) -> str:
    quarter = f"quarter {action.quarter}" if action.quarter else "later than a year"
    return (
        "| status | owner | risk | effort | planned for | review by |\n|---|---|---|---|---|---|\n"
        f"| proposed | {owner_words(owners)} | {action.risk.value}: {risk_meaning(action.risk, action.lever)} "
        f"| {action.effort_weeks:g} engineer-weeks | {quarter} | {review_date(action, plan).isoformat()} |"
    )


def owner_words(owners: Sequence[str]) -> str:
    """Return who owns a decision; nobody known is said, for somebody must be named before it is done."""
    return ", ".join(owners) or "to be named"


def review_date(action: Action, plan: Plan) -> date:
    """Return the day by which to hold an action against its claim (`trimtab verify`): the end of the quarter planned for it."""
    days = action.quarter * _QUARTER_DAYS if action.quarter else _LATER_DAYS
    return (plan.window.end + timedelta(days=days)).date()


def _alternatives(action: Action, plan: Plan) -> Iterable[str]:
    """Yield what else could be done with the same workloads, and what each costs beside the plan."""
    yield f"Leave it as it is: {dollars_and_cents(action.last_in_usd_mo)} a month more than with the rest of the plan done."
    yield f"Do it and nothing else: it saves {dollars_and_cents(action.standalone_usd_mo)} a month by itself."
    subjects = {action.subject, *(change.subject for change in action.changes)}
    for other in plan.not_worth_doing:
        if subjects & {other.subject, *other.subject.split(", ")}:
            price = "no price" if other.saving_usd_mo is None else f"{_signed(other.saving_usd_mo)} a month"
            yield f"{title_of(other.lever)} ({price}): {other.reason}."


def _signed(saving_usd_mo: float) -> str:
    verb = "saves" if saving_usd_mo >= 0 else "costs"
    return f"{verb} {dollars_and_cents(abs(saving_usd_mo))}"


def decision_index(rows: Sequence[tuple[Action, str, Sequence[str]]], plan: Plan) -> str:
    """Return the page that lists the records: each action, the path of its record beside the page, and its owners."""
    lines = [
        "# Decisions",
        "",
        "Names stay from audit to audit; ids are those of this plan (`trimtab explain a1`). When each is due: `year.md`, where "
        "the whole plan was emitted.",
        "",
        "| record | id | decision | saves a month | risk | owner | review by |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| [{name}]({name}.md) | {action.id} | {title_of(action.lever)}: {action.subject} "
            f"| {dollars_and_cents(action.saving_usd_mo.value)} | {action.risk.value} | {owner_words(owners)} "
            f"| {review_date(action, plan).isoformat()} |"
            for action, name, owners in rows
        ),
    ]
    return "\n".join(lines) + "\n"


def _context(action: Action, plan: Plan) -> str:
    return (
        f"The fleet cost {dollars_and_cents(plan.usd_mo(plan.before_micro_usd))} a month over {plan.window}. The plan brings "
        f"that to {dollars_and_cents(plan.usd_mo(plan.after_micro_usd))}, and {action.id} carries "
        f"{dollars_and_cents(action.saving_usd_mo.value)} of the difference ({plan.attribution})."
    )


def _evidence(action: Action) -> Iterable[str]:
    for row in action.evidence:
        against = f" (compared with {row.threshold})" if row.threshold else ""
        yield f"{row.what}: {row.value}{against}. From `{row.query}`, {row.window}."


def _saving(action: Action) -> str:
    saving = action.saving_usd_mo
    because = f": {saving.because}" if saving.because else ""
    return (
        f"**{dollars_and_cents(saving.value)} a month**, 80% interval {dollars_and_cents(saving.low)} to "
        f"{dollars_and_cents(saving.high)} ({saving.basis.value}{because}). Alone it would save "
        f"{dollars_and_cents(action.standalone_usd_mo)}; left out of the plan it would cost "
        f"{dollars_and_cents(action.last_in_usd_mo)}."
    )


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
