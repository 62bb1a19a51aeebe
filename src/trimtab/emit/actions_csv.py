"""The plan as CSV: one row an action, keys that name their units, for a spreadsheet or a ticket import."""

from __future__ import annotations

import csv
import io

from trimtab.emit.document import ActionPart, AuditDocument

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
    "standalone_usd_mo",
    "last_in_usd_mo",
    "effort_weeks",
    "saving_per_week_usd_mo",
    "risk",
    "rollback",
)
_FORMULA_STARTS = ("=", "+", "-", "@", "\t")


def render_csv(document: AuditDocument) -> str:
    """Return the actions as CSV text with a header row."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for action in document.plan.actions:
        writer.writerow([_cell(action, column) for column in COLUMNS])
    return stream.getvalue()


def _cell(action: ActionPart, column: str) -> object:
    """Return one value; text that a spreadsheet would run as a formula is quoted with an apostrophe."""
    value: object = getattr(action, column)
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
