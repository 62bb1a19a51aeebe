"""The plan as CSV: one row per action, with units in the column names, for spreadsheets and ticket imports."""

from __future__ import annotations

from trimtab.emit.document import ActionPart, AuditDocument
from trimtab.emit.words import quick_wins
from trimtab.safe_text import csv_text

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
