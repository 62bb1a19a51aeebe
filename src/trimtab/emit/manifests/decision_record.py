"""A decision record for each action: context, evidence, decision, saving with its interval, files, canary, rollback."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.deployment.effects import SetSchedule
from trimtab.emit.manifests.week import held_stretches, hours_in_words
from trimtab.emit.money import dollars_and_cents
from trimtab.emit.rollout import canary_steps
from trimtab.emit.words import risk_meaning
from trimtab.levers.registry import title_of
from trimtab.plan.model import Action, Change, Plan


def decision_record(action: Action, plan: Plan, *, written: Sequence[str], withheld: Sequence[str]) -> str:
    """Return the record as Markdown; `written` are the paths that enact the action, `withheld` what no file could carry."""
    parts = (
        f"# {action.id}: {title_of(action.lever)} ({action.subject})",
        _head(action),
        "## Context",
        _context(action, plan),
        "## Evidence",
        _bullets(_evidence(action)),
        "## Decision",
        _bullets(_decided(change) for change in action.changes),
        "## Saving",
        _saving(action),
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


def _head(action: Action) -> str:
    quarter = f"quarter {action.quarter}" if action.quarter else "later than a year"
    return (
        "| status | risk | effort | planned for |\n|---|---|---|---|\n"
        f"| proposed | {action.risk.value}: {risk_meaning(action.risk, action.lever)} "
        f"| {action.effort_weeks:g} engineer-weeks | {quarter} |"
    )


def _context(action: Action, plan: Plan) -> str:
    return (
        f"The fleet cost {dollars_and_cents(plan.usd_mo(plan.before_micro_usd))} a month over {plan.window}. The plan brings "
        f"that to {dollars_and_cents(plan.usd_mo(plan.after_micro_usd))}, and {action.id} carries "
        f"{dollars_and_cents(action.saving_usd_mo.value)} of the difference ({plan.attribution})."
    )


def _evidence(action: Action) -> Iterable[str]:
    for row in action.evidence:
        against = f" (held against {row.threshold})" if row.threshold else ""
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
