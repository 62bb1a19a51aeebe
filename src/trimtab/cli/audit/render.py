"""Writes an audit in the requested format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

import yaml

from trimtab.cli.output import Format
from trimtab.emit.audit_data import render_json, render_yaml
from trimtab.emit.blocks import Block, Bullets, Folded, Paragraph, Table
from trimtab.emit.document import ActionPart, AuditDocument
from trimtab.emit.sections.audit import audit_page
from trimtab.emit.words import quick_wins
from trimtab.emit.writers import html, terminal
from trimtab.emit.writers.comment import write_comment
from trimtab.emit.writers.markdown import write_page
from trimtab.errors import UnknownName, UsageError
from trimtab.safe_text import csv_text

_VERSION_KEY = "schema_version"


def render_audit(
    document: AuditDocument,
    form: Format,
    *,
    width: int,
    colour: bool,
    fields: Sequence[str] = (),
    next_steps: Sequence[tuple[str, str]] = (),
) -> str:
    """Return an audit as text. `fields` are top-level keys of JSON and YAML, or columns of CSV."""
    check_fields(form, fields)
    match form:
        case Format.TABLE:
            return terminal.write_page(audit_page(document, next_steps=next_steps), width=width, colour=colour)
        case Format.JSON:
            text = render_json(document)
            return json.dumps(_keys(json.loads(text), fields), indent=2, ensure_ascii=False) if fields else text
        case Format.YAML:
            text = render_yaml(document)
            return yaml.safe_dump(_keys(yaml.safe_load(text), fields), sort_keys=False) if fields else text
        case Format.CSV:
            text = render_csv(document)
            return _columns(text, fields) if fields else text
        case Format.MARKDOWN:
            return render_markdown(document)
        case Format.HTML:
            return html.write_page(audit_page(document))
        case Format.GITHUB_COMMENT:
            return render_github_comment(document)
        case Format.XLSX:
            raise UsageError("a workbook is not text; give it a file with --out")
    assert_never(form)


def check_fields(form: Format, fields: Sequence[str]) -> None:
    """Raise UsageError if the format has no fields to choose from, UnknownName for an unknown one."""
    if fields and form not in (Format.JSON, Format.YAML, Format.CSV):
        raise UsageError(f"--fields goes with -o json, yaml or csv, not with {form.value}")
    known = COLUMNS if form is Format.CSV else tuple(AuditDocument.model_fields)
    for name in fields:
        if name not in known:
            raise UnknownName("field", name, known)


def _keys(whole: Mapping[str, object], fields: Sequence[str]) -> dict[str, object]:
    return {key: whole[key] for key in dict.fromkeys((_VERSION_KEY, *fields))}


def _columns(text: str, fields: Sequence[str]) -> str:
    rows = csv.DictReader(io.StringIO(text))
    return csv_text(fields, ([row[name] for name in fields] for row in rows))


COLUMNS = (
    "id",
    "quarter",
    "lever",
    "subject",
    "effect",
    "saving_usd_mo",
    "saving_low_usd_mo",
    "saving_high_usd_mo",
    "saving_basis",
    "share_low_usd_mo",
    "share_high_usd_mo",
    "standalone_usd_mo",
    "last_in_usd_mo",
    "moving_usd_mo",
    "effort_weeks",
    "saving_per_week_usd_mo",
    "risk",
    "quick_win",
    "rollback",
)


def render_csv(document: AuditDocument) -> str:
    """Return the actions as CSV text with a header row."""
    return csv_text(
        COLUMNS, ([_cell(document, action, column) for column in COLUMNS] for action in document.plan.actions)
    )


def _cell(document: AuditDocument, action: ActionPart, column: str) -> object:
    """Format one value for CSV."""
    if column == "quick_win":
        return "yes" if action.id in quick_wins(document) else "no"
    value: object = getattr(action, column)
    return value


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
