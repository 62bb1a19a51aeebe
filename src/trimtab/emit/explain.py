"""Explains an action (evidence, arithmetic, certainty, how to try and undo it) or a workload (verdict, cause, why not more)
as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.emit.blocks import Block, Bullets, DetailLevel, ListItem, Paragraph, Section, bullets, soft, strong
from trimtab.emit.document import AuditDocument
from trimtab.emit.document.bill import SpendPart
from trimtab.emit.document.plan import ActionPart, NotWorthPart
from trimtab.emit.money import dollars, percent
from trimtab.emit.sections.actions import action_sections, evidence_item, target_line
from trimtab.emit.sections.plan import saves_words
from trimtab.emit.words import law_line, undeclared_line
from trimtab.emit.writers.terminal import Screen, write_lines, write_sections
from trimtab.errors import UnknownName
from trimtab.levers.registry import title_of


def workload_sections(document: AuditDocument, name: str) -> tuple[Section, ...]:
    """Return the parts of the explanation that have content; none if the audit does not know the workload."""
    if name not in workload_names(document):
        return ()
    row = next(row for row in document.spend.by_workload if row.name == name)
    parts: tuple[tuple[str, str, Sequence[Block]], ...] = (
        ("cost", "What it costs", [Paragraph(words=_cost(row))]),
        ("readings", "What its readings say", list(_verdict(document, name))),
        ("actions", "What the plan does to it", list(_done(document, name))),
        ("refused", "Why not more", list(_refused(document, name))),
        ("targets", "Its targets in the proof", list(_targets(document, name))),
        ("laws", "How it answers under load", list(_law(document, name))),
        ("undeclared", "What declaring would save", list(_undeclared(document, name))),
    )
    return tuple(Section(title=title, name=key, blocks=tuple(blocks)) for key, title, blocks in parts if blocks)


def workload_names(document: AuditDocument) -> tuple[str, ...]:
    """Return the names of the workloads on the bill, without unheld rows."""
    # documents made by earlier versions have no kinds
    judged = {verdict.workload for verdict in document.verdicts} | {row.workload for row in document.unjudged}
    return tuple(row.name for row in document.spend.by_workload if row.kind is not None or row.name in judged)


def _cost(row: SpendPart) -> str:
    what = ", ".join(part for part in (row.kind, f"team {row.team}" if row.team else None) if part)
    active = "no activity measured" if row.activity_frac is None else f"{percent(row.activity_frac)} GPU active"
    return (
        f"{dollars(row.usd_mo)} a month, {percent(row.share_frac, 1)} of the bill: {what}{', ' if what else ''}"
        f"{row.gpu_hours:,.0f} GPU-hours held, {active}."
    )


def _verdict(document: AuditDocument, name: str) -> Iterator[Block]:
    for verdict in document.verdicts:
        if verdict.workload == name:
            yield Paragraph(words=strong(f"{verdict.headline}."))
            yield Bullets(items=tuple(map(evidence_item, verdict.evidence)))
    for row in document.unjudged:
        if row.workload == name:
            yield Paragraph(words=f"Could not be judged, and stays unchanged: {row.reason}.")


def _done(document: AuditDocument, name: str) -> Iterator[Block]:
    shown = document.plan.shown_savings_usd_mo()
    items = [
        ListItem(
            words=(strong(action.id), f" {action.subject}: {summary}"),
            beneath=f"saves {dollars(shown[action.id])} a month together with everything it changes",
        )
        for action in document.plan.actions
        if (summary := "; ".join(change.summary for change in action.changes if change.subject == name))
    ]
    yield Bullets(items=tuple(items)) if items else Paragraph(words="No change.")


def _refused(document: AuditDocument, name: str) -> Iterator[Block]:
    lines = [_refusal(row) for row in document.plan.not_worth_doing if name in row.subject.split(", ")]
    if lines:
        yield bullets(lines)


def _refusal(row: NotWorthPart) -> str:
    saves = saves_words(row.saving_usd_mo)
    return f"{title_of(row.lever)}{f' ({saves})' if saves else ''}: {row.reason}"


def _targets(document: AuditDocument, name: str) -> Iterator[Block]:
    lines = [target_line(target) for target in document.proof.targets if target.workload == name]
    if lines:
        yield bullets(lines)


def _law(document: AuditDocument, name: str) -> Iterator[Block]:
    lines = [law_line(law) for law in document.laws if law.workload == name]
    if lines:
        yield bullets(lines)


def _undeclared(document: AuditDocument, name: str) -> Iterator[Block]:
    items = [
        ListItem(words=undeclared_line(part), code=part.declaration)
        for part in document.undeclared
        if name in part.workloads
    ]
    if items:
        yield Bullets(items=tuple(items))


WIDTH = 80


def explained(document: AuditDocument, name: str, *, colour: bool = False) -> str:
    """Return the explanation of an action id or a workload. Raises UnknownName."""
    action = document.action(name)
    if action is not None:
        return explain_action(document, action, colour=colour)
    found = explain_workload(document, name, colour=colour)
    if found is None:
        actions = [action.id for action in document.plan.actions]
        raise UnknownName(
            "action or workload",
            name,
            [*actions, *workload_names(document)],
            where=f"the audit of {document.fleet} (`trimtab explain` lists the actions)",
        )
    return found


def explain_action(document: AuditDocument, action: ActionPart, *, colour: bool = False) -> str:
    """Return the explanation as text of at most 80 columns."""
    screen = Screen(width=WIDTH, colour=colour, level=DetailLevel.FULL)
    title = write_lines((strong(action.id), f"  {action.subject}: {action.effect}"), screen, hang=4)
    return "\n".join([*title, *write_sections(action_sections(document, action), screen)]) + "\n"


def explain_workload(document: AuditDocument, name: str, *, colour: bool = False) -> str | None:
    """Return what is known about a workload, as text of at most 80 columns; None if the audit does not know it."""
    sections = workload_sections(document, name)
    if not sections:
        return None
    screen = Screen(width=WIDTH, colour=colour, level=DetailLevel.FULL)
    return "\n".join([*write_lines(strong(name), screen), *write_sections(sections, screen)]) + "\n"


def action_lines(document: AuditDocument, *, colour: bool = False) -> str:
    """Return one entry per action: its id, what it saves, what it does."""
    if not document.plan.actions:
        return f"The audit of {document.fleet} found nothing worth changing.\n"
    shown = document.plan.shown_savings_usd_mo()
    screen = Screen(width=WIDTH, colour=colour)
    lines = write_lines(f"The plan for {document.fleet}; `trimtab explain ID` explains an action:", screen)
    for action in document.plan.actions:
        head = f"  {action.id:<4}{dollars(shown[action.id]):>9} a month  "
        lines += write_lines((soft(head), f"{action.subject}: {action.effect}"), screen, hang=len(head))
    return "\n".join(lines) + "\n"
