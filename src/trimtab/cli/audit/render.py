"""Writes an audit in the requested format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import assert_never

import yaml

from trimtab.cli.output import Format
from trimtab.emit.actions_csv import COLUMNS, render_csv
from trimtab.emit.audit_data import render_json, render_yaml
from trimtab.emit.audit_markdown import render_github_comment, render_markdown
from trimtab.emit.document import AuditDocument
from trimtab.emit.sections.audit import audit_page
from trimtab.emit.writers import html, terminal
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
