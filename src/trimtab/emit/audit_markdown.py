"""The audit as GitHub-flavoured Markdown: a page for a wiki or a ticket, and a shorter body for a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trimtab.emit.blocks import Block, Bullets, Paragraph, Table
from trimtab.emit.document import AuditDocument
from trimtab.emit.sections.audit import audit_page
from trimtab.emit.writers.markdown import folded, join, markdown_text, words_text, write_blocks, write_page

COMMENT_MARKER = "<!-- trimtab audit -->"
"""First line of a comment, by which a later run finds the one to update."""
_SHOWN_IN_COMMENT = 10
"""Rows of each table in a comment: GitHub takes 65,536 characters."""
_FOLDED = ("buys", "proof", "not-worth", "unjudged")
"""Sections of a comment besides the plan."""


def render_markdown(document: AuditDocument) -> str:
    """Return the whole audit as a page."""
    return write_page(audit_page(document))


def render_github_comment(document: AuditDocument) -> str:
    """Return a comment for a pull request: headline and plan, the rest folded away, long tables cut short."""
    page = audit_page(document)
    (plan,) = (section for section in page.sections if section.name == "plan")
    table = [block for block in plan.blocks if isinstance(block, Table)]
    left_out = len(document.plan.actions) - _SHOWN_IN_COMMENT
    parts = [
        COMMENT_MARKER,
        f"### {markdown_text(page.heading)}",
        words_text(page.headline),
        write_blocks(_short(table or plan.blocks)),
        f"{left_out} more actions are in the full report." if left_out > 0 else "",
        *(
            folded(section.title, write_blocks(_short(section.blocks)))
            for section in page.sections
            if section.name in _FOLDED
        ),
        f"<sub>{markdown_text(document.coverage.summary)}. Tables show {_SHOWN_IN_COMMENT} rows at most. "
        f"trimtab {document.trimtab_version}</sub>",
    ]
    return join(parts)


def _short(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield blocks with the first rows of their tables and lists, without what is folded away in them."""
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
