"""One action explained in text: what it rests on, its arithmetic, how sure, what it must keep, how to try and undo it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from trimtab.emit.document import ActionPart, AuditDocument, EvidencePart, TargetPart
from trimtab.emit.money import dollars, dollars_and_cents, percent
from trimtab.emit.words import risk_meaning
from trimtab.levers.lever import Risk

WIDTH = 80
_BASIS_MEANING = {
    "measured": "read from the history itself",
    "calibrated": "a model fitted to the history",
    "modelled": "a model from published facts, not fitted to this fleet",
    "assumed": "an assumption of the settings",
}
_AMOUNT_COLUMN = 52


def explain_action(document: AuditDocument, action: ActionPart) -> str:
    """Return the explanation as plain text of at most 80 columns."""
    parts = (
        _title(action),
        _section("What changes", _changes(action)),
        _section("Why: the evidence", _evidence(action.evidence)),
        _section("Arithmetic, dollars a month", _arithmetic(document, action)),
        _section("How sure", _basis(action)),
        _section("What it must keep", _targets(action.targets)),
        _section("Effort and risk", _risk(action)),
        _section("Try it on a small part first", _numbered(action.canary)),
        _section("Rollback", _wrapped(action.rollback)),
    )
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def action_lines(document: AuditDocument) -> str:
    """Return one entry an action: its id, what it saves, what it is."""
    if not document.plan.actions:
        return f"The audit of {document.fleet} found no action that is worth doing.\n"
    lines = [f"The plan for {document.fleet}; `trimtab explain ID` says why:"]
    for action in document.plan.actions:
        head = f"  {action.id:<4}{dollars(action.saving_usd_mo):>9} a month  "
        words = f"{action.subject}: {action.effect}"
        lines += textwrap.wrap(words, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
    return "\n".join(lines) + "\n"


def _title(action: ActionPart) -> list[str]:
    return textwrap.wrap(f"{action.id}  {action.subject}: {action.effect}", WIDTH, subsequent_indent="    ")


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [title, *lines] if lines else []


def _wrapped(text: str, *, first: str = "  ", rest: str = "  ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest)


def _bulleted(lines: Sequence[str]) -> list[str]:
    return [part for line in lines for part in _wrapped(line, first="  - ", rest="    ")]


def _numbered(lines: Sequence[str]) -> list[str]:
    return [part for at, line in enumerate(lines, 1) for part in _wrapped(line, first=f"  {at}. ", rest="     ")]


def _changes(action: ActionPart) -> list[str]:
    return _bulleted([f"{change.subject}: {change.summary}" for change in action.changes])


def _evidence(rows: Sequence[EvidencePart]) -> list[str]:
    return [line for row in rows for line in _evidence_lines(row)]


def _evidence_lines(row: EvidencePart) -> Iterator[str]:
    held_against = f" (held against: {row.threshold})" if row.threshold else ""
    yield from _wrapped(f"{row.what}: {row.value}{held_against}", first="  - ", rest="    ")
    yield from _wrapped(f"from {row.query}, {row.window}", first="    ", rest="    ")


def _arithmetic(document: AuditDocument, action: ActionPart) -> list[str]:
    """Lay out before, alone, last in and share, and what the share is of the whole plan."""
    plan = document.plan
    lines = []
    if action.spend_usd_mo is not None:
        after = action.spend_usd_mo - action.standalone_usd_mo
        lines += [
            _sum("today's spend on what it touches", action.spend_usd_mo),
            _sum("- what it saves if it is the only action", action.standalone_usd_mo),
            _sum("= that spend with this action alone", after),
        ]
    else:
        lines.append(_sum("what it saves if it is the only action", action.standalone_usd_mo))
    lines += [
        _sum("what the plan loses if it alone is left out", action.last_in_usd_mo),
        _sum("its share of the joint saving", action.saving_usd_mo),
        _sum("the joint saving of all actions", plan.joint_saving_usd_mo),
    ]
    if action.moving_usd_mo:
        lines.append(_sum("moving and traffic, paid within these sums", action.moving_usd_mo))
    gloss = (
        f"Savings overlap, so stand-alone figures cannot be added up. The share ({plan.attribution}) is what the action "
        "adds on average over the orders in which the actions could be taken; the shares sum to the joint saving."
    )
    if action.enables:
        gloss += f" Without {action.id}, {', '.join(action.enables)} would miss a target."
    return [*lines, *_wrapped(gloss)]


def _sum(label: str, usd_mo: float) -> str:
    return f"  {label:<{_AMOUNT_COLUMN}}{dollars_and_cents(usd_mo):>14}"


def _basis(action: ActionPart) -> list[str]:
    meaning = _BASIS_MEANING[action.saving_basis]
    because = f": {action.saving_because}" if action.saving_because else ""
    return [
        *_wrapped(
            f"80% interval {dollars_and_cents(action.saving_low_usd_mo)} to "
            f"{dollars_and_cents(action.saving_high_usd_mo)} a month."
        ),
        *_wrapped(f"Basis: {action.saving_basis} ({meaning}){because}."),
    ]


def _targets(targets: Sequence[TargetPart]) -> list[str]:
    if not targets:
        return ["  No workload with a target is touched."]
    lines = []
    for target in targets:
        before = "" if target.before_frac is None else f"; before {percent(target.before_frac, 1)}"
        verdict = "kept" if target.kept else "MISSED"
        lines.append(
            f"{target.workload}: {target.target} ({target.because}). On the proof window: "
            f"{percent(target.attained_frac, 1)}, {verdict}{before}."
        )
    return _bulleted(lines)


def _risk(action: ActionPart) -> list[str]:
    weeks = f"{action.effort_weeks:g} engineer-week{'' if action.effort_weeks == 1 else 's'}"
    when = f"quarter {action.quarter}" if action.quarter else "later than a year"
    return [
        *_wrapped(f"{weeks}, planned for {when}; {dollars_and_cents(action.saving_per_week_usd_mo)} a month per week."),
        *_wrapped(f"Risk {action.risk}: {'; '.join(action.hazards) or risk_meaning(Risk(action.risk), action.lever)}."),
    ]
