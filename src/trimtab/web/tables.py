"""The tables of an audit, each defined once: shown with filters and order, and given as CSV and JSON.

Cells are raw values; how a person reads them is said by the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from trimtab.emit.document import AuditDocument, SpendPart
from trimtab.emit.money import percent
from trimtab.safe_text import csv_text

Value = str | float | int | bool | None
Row = Mapping[str, Value]

PAGE_ROWS = 50


def _plain(value: Value) -> str:
    return "" if value is None else str(value)


def _money(value: Value) -> str:
    return f"{value:,.2f}" if isinstance(value, int | float) else ""


def _share(value: Value) -> str:
    return percent(value, 1) if isinstance(value, int | float) else "–"


def _hours(value: Value) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else ""


def _headline(value: Value) -> str:
    """Return what a verdict says first; the workload's page has all of it."""
    return str(value or "").partition(";")[0]


def _kept(value: Value) -> str:
    return "✓ kept" if value else "✗ missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataColumn:
    """A column: its key in CSV and JSON, its title, how a value is shown; `less` is left out on phones."""

    key: str
    title: str
    show: Callable[[Value], str] = _plain
    less: bool = False

    @property
    def right(self) -> bool:
        """Tell whether it holds numbers."""
        return self.show in (_money, _share, _hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """A table's columns and rows."""

    key: str
    title: str
    columns: tuple[DataColumn, ...]
    rows: Sequence[Row]

    def asked(self, question: TableQuestion) -> DataTable:
        """Return the rows that a question wants, in its order."""
        rows = [row for row in self.rows if question.takes(row)]
        keys = [column.key for column in self.columns]
        if question.sort in keys:
            rows.sort(key=lambda row: _order(row[question.sort]), reverse=question.down)
        return replace(self, rows=rows)

    def csv(self) -> str:
        """Return the rows as CSV that no spreadsheet runs."""
        return csv_text(
            [column.key for column in self.columns], [[row[column.key] for column in self.columns] for row in self.rows]
        )

    def plain(self) -> dict[str, object]:
        """Return the rows for JSON, with what they are."""
        return {"table": self.key, "columns": [column.key for column in self.columns], "rows": self.plain_rows()}

    def plain_rows(self) -> list[dict[str, Value]]:
        """Return the rows for JSON."""
        return [{column.key: row[column.key] for column in self.columns} for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuestion:
    """What of a table is wanted: a text that a row holds, a team, the order, the page (from 1)."""

    words: str = ""
    team: str = ""
    sort: str = ""
    down: bool = True
    page: int = 1

    def takes(self, row: Row) -> bool:
        """Tell whether a row is wanted."""
        if self.team and row.get("team") != self.team:
            return False
        wanted = self.words.casefold()
        return not wanted or any(isinstance(value, str) and wanted in value.casefold() for value in row.values())


def _order(value: Value) -> tuple[int, float, str]:
    """Return what values of one column are put in order by: what is missing first, numbers, then words."""
    if value is None:
        return 0, 0.0, ""
    return (2, 0.0, value.casefold()) if isinstance(value, str) else (1, float(value), "")


def query(**parts: str) -> str:
    """Return parts of an address's query, those that are empty left out."""
    return urlencode({key: value for key, value in parts.items() if value})


def workloads(document: AuditDocument) -> DataTable:
    """Return the workloads with what they cost and what their readings say."""
    said = {verdict.workload: verdict.headline for verdict in document.verdicts}
    teams_known = {row.name for row in document.spend.by_team}
    return DataTable(
        key="workloads",
        title="Workloads",
        columns=(
            DataColumn(key="workload", title="workload"),
            DataColumn(key="team", title="team", less=True),
            DataColumn(key="kind", title="type", less=True),
            DataColumn(key="usd_mo", title="$/month", show=_money),
            DataColumn(key="share_frac", title="share", show=_share, less=True),
            DataColumn(key="activity_frac", title="GPU active", show=_share),
            DataColumn(key="verdict", title="what its readings say", show=_headline, less=True),
        ),
        rows=[
            {
                **_spend(row),
                "workload": row.name,
                "team": row.team or (row.name if row.name in teams_known else None),
                "kind": row.kind,
                "verdict": said.get(row.name, ""),
            }
            for row in document.spend.by_workload
        ],
    )


def teams(document: AuditDocument) -> DataTable:
    """Return what each team costs."""
    return _spend_table("teams", "Teams", "team", document.spend.by_team)


def kinds(document: AuditDocument) -> DataTable:
    """Return what each type of workload costs."""
    return _spend_table("types", "Workload types", "type", document.spend.by_kind)


def _spend_table(key: str, title: str, what: str, rows: Sequence[SpendPart]) -> DataTable:
    return DataTable(
        key=key,
        title=title,
        columns=(
            DataColumn(key=what, title=what),
            DataColumn(key="usd_mo", title="$/month", show=_money),
            DataColumn(key="share_frac", title="share", show=_share),
            DataColumn(key="gpu_hours", title="GPU-hours", show=_hours, less=True),
            DataColumn(key="activity_frac", title="GPU active", show=_share),
        ),
        rows=[{**_spend(row), what: row.name} for row in rows],
    )


def _spend(row: SpendPart) -> dict[str, Value]:
    return {
        "usd_mo": row.usd_mo,
        "share_frac": row.share_frac,
        "gpu_hours": row.gpu_hours,
        "activity_frac": row.activity_frac,
    }


def waste(document: AuditDocument) -> DataTable:
    """Return what the bill buys."""
    return DataTable(
        key="waste",
        title="What the bill buys",
        columns=(
            DataColumn(key="kind", title="what"),
            DataColumn(key="usd_mo", title="$/month", show=_money),
            DataColumn(key="share_frac", title="share", show=_share),
            DataColumn(key="meaning", title="meaning", less=True),
        ),
        rows=[
            {"kind": row.kind, "usd_mo": row.usd_mo, "share_frac": row.share_frac, "meaning": row.meaning}
            for row in document.waste
        ],
    )


def actions(document: AuditDocument) -> DataTable:
    """Return the plan's actions."""
    return DataTable(
        key="actions",
        title="Actions",
        columns=(
            DataColumn(key="id", title="id"),
            DataColumn(key="subject", title="on"),
            DataColumn(key="effect", title="what to do"),
            DataColumn(key="saving_usd_mo", title="saves $/month", show=_money),
            DataColumn(key="standalone_usd_mo", title="alone", show=_money, less=True),
            DataColumn(key="last_in_usd_mo", title="last in", show=_money, less=True),
            DataColumn(key="effort_weeks", title="weeks", show=_hours, less=True),
            DataColumn(key="risk", title="risk"),
            DataColumn(key="lever", title="lever", less=True),
        ),
        rows=[
            {
                "id": action.id,
                "subject": action.subject,
                "effect": action.effect,
                "saving_usd_mo": action.saving_usd_mo,
                "standalone_usd_mo": action.standalone_usd_mo,
                "last_in_usd_mo": action.last_in_usd_mo,
                "effort_weeks": action.effort_weeks,
                "risk": action.risk,
                "lever": action.lever,
            }
            for action in document.plan.actions
        ],
    )


def targets(document: AuditDocument) -> DataTable:
    """Return what each target attains in the proof."""
    return DataTable(
        key="targets",
        title="Targets in the proof",
        columns=(
            DataColumn(key="workload", title="workload"),
            DataColumn(key="target", title="target"),
            DataColumn(key="before_frac", title="before", show=_share, less=True),
            DataColumn(key="required_frac", title="required", show=_share),
            DataColumn(key="attained_frac", title="attained", show=_share),
            DataColumn(key="kept", title="", show=_kept),
        ),
        rows=[
            {
                "workload": target.workload,
                "target": target.target,
                "before_frac": target.before_frac,
                "required_frac": target.required_frac,
                "attained_frac": target.attained_frac,
                "kept": target.kept,
            }
            for target in document.proof.targets
        ],
    )


def hours(document: AuditDocument) -> DataTable:
    """Return the proof window's bill by hour."""
    bill = document.pictures.bill_by_hour
    return DataTable(
        key="hours",
        title="Bill by hour",
        columns=(
            DataColumn(key="hour", title="hour from the start", show=_hours),
            DataColumn(key="before_usd", title="before, $", show=_money),
            DataColumn(key="after_usd", title="with the plan, $", show=_money),
        ),
        rows=[
            {"hour": hour, "before_usd": before, "after_usd": after}
            for hour, (before, after) in enumerate(zip(bill.before_usd, bill.after_usd, strict=True))
        ],
    )


TABLES: Mapping[str, Callable[[AuditDocument], DataTable]] = {
    "workloads": workloads,
    "teams": teams,
    "types": kinds,
    "waste": waste,
    "actions": actions,
    "targets": targets,
    "hours": hours,
}
"""By the name in addresses."""
