"""One action explained in text: what it rests on, its arithmetic, how sure, what it must keep, how to try and undo it."""

from __future__ import annotations

from trimtab.emit.blocks import DetailLevel, soft, strong
from trimtab.emit.document import ActionPart, AuditDocument
from trimtab.emit.money import dollars
from trimtab.emit.sections.actions import action_sections
from trimtab.emit.writers.terminal import Screen, write_lines, write_sections

WIDTH = 80


def explain_action(document: AuditDocument, action: ActionPart, *, colour: bool = False) -> str:
    """Return the explanation as text of at most 80 columns."""
    screen = Screen(width=WIDTH, colour=colour, level=DetailLevel.FULL)
    title = write_lines((strong(action.id), f"  {action.subject}: {action.effect}"), screen, hang=4)
    return "\n".join([*title, *write_sections(action_sections(document, action), screen)]) + "\n"


def action_lines(document: AuditDocument, *, colour: bool = False) -> str:
    """Return one entry an action: its id, what it saves, what it is."""
    if not document.plan.actions:
        return f"The audit of {document.fleet} found no action that is worth doing.\n"
    screen = Screen(width=WIDTH, colour=colour)
    lines = write_lines(f"The plan for {document.fleet}; `trimtab explain ID` says why:", screen)
    for action in document.plan.actions:
        head = f"  {action.id:<4}{dollars(action.saving_usd_mo):>9} a month  "
        lines += write_lines((soft(head), f"{action.subject}: {action.effect}"), screen, hang=len(head))
    return "\n".join(lines) + "\n"
