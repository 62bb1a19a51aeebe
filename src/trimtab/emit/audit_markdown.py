"""The audit as GitHub-flavoured Markdown: a full page for a wiki or ticket, and a shorter comment for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trimtab.emit.blocks import Block, Bullets, Folded, Paragraph, Table
from trimtab.emit.document import AuditDocument
from trimtab.emit.sections.audit import audit_page
from trimtab.emit.writers.comment import write_comment
from trimtab.emit.writers.markdown import write_page

_SHOWN_IN_COMMENT = 10
"""Rows of each table shown in a comment."""
_FOLDED = ("buys", "proof", "not-worth", "unjudged")
"""Sections of a comment in addition to the plan."""


def render_markdown(document: AuditDocument) -> str:
    """Return the whole audit as a page."""
    return write_page(audit_page(document))


def render_github_comment(document: AuditDocument) -> str:
    """Return a comment for a pull request: headline and plan visible, the rest collapsed, long tables truncated."""
    page = audit_page(document)
    (plan,) = (section for section in page.sections if section.name == "plan")
    table = [block for block in plan.blocks if isinstance(block, Table)]
    left_out = len(document.plan.actions) - _SHOWN_IN_COMMENT
    more = [Paragraph(words=f"{left_out} more actions are in the full report.")] if left_out > 0 else []
    rest = [
        Folded(title=section.title, blocks=tuple(_short(section.blocks)))
        for section in page.sections
        if section.name in _FOLDED
    ]
    return write_comment(
        "audit",
        page.heading,
        [*_short(table or plan.blocks), *more, *rest],
        headline=page.headline,
        foot=f"{document.coverage.summary}. Tables show at most {_SHOWN_IN_COMMENT} rows. trimtab {document.trimtab_version}",
    )


def _short(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield blocks with tables and lists truncated to the first rows, and without collapsed details."""
    for block in blocks:
        match block:
            case Table():
                yield replace(block, rows=block.rows[:_SHOWN_IN_COMMENT])
            case Bullets():
                yield replace(block, items=block.items[:_SHOWN_IN_COMMENT])
            case Paragraph():
                yield block
            case _:
                continue
