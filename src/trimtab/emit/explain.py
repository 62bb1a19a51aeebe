"""Explains an action (evidence, arithmetic, certainty, how to try and undo it) or a workload (verdict, cause, why not more)
as text."""

from __future__ import annotations

from trimtab.emit.blocks import DetailLevel, soft, strong
from trimtab.emit.document import ActionPart, AuditDocument
from trimtab.emit.money import dollars
from trimtab.emit.sections.actions import action_sections
from trimtab.emit.sections.workload import workload_names, workload_sections
from trimtab.emit.writers.terminal import Screen, write_lines, write_sections
from trimtab.errors import UnknownName

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
    screen = Screen(width=WIDTH, colour=colour)
    lines = write_lines(f"The plan for {document.fleet}; `trimtab explain ID` explains an action:", screen)
    for action in document.plan.actions:
        head = f"  {action.id:<4}{dollars(action.saving_usd_mo):>9} a month  "
        lines += write_lines((soft(head), f"{action.subject}: {action.effect}"), screen, hang=len(head))
    return "\n".join(lines) + "\n"
