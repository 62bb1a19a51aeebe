"""The tables of an audit, each defined once: shown with filters and order, and given as CSV and JSON.

Cells are raw values; how a person reads them is said by the column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import urlencode

from trimtab.emit.comparison import compared
from trimtab.emit.document import AuditDocument
from trimtab.emit.money import percent
from trimtab.emit.verify_document import verdict_row
from trimtab.emit.writers.xlsx import WorkbookSheet, write_workbook
from trimtab.levers.registry import title_of
from trimtab.plan.proof.scenario import WhatIf
from trimtab.plan.verify.verification import Verification
from trimtab.safe_text import csv_text

Value = str | float | int | bool | None
Row = Mapping[str, Value]

PAGE_ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFormat:
    """How a person reads the values of a column; numbers stand to the right."""

    show: Callable[[Value], str]
    right: bool = False
    in_workbook: str = "General"
    """The number format of a spreadsheet."""
    shown_in_workbook: bool = False
    """A workbook has the value as it is shown, since it is a key of programs."""


def _number(digits: int, *, dollars: bool = False) -> CellFormat:
    decimals = f".{'0' * digits}" if digits else ""
    return CellFormat(
        show=lambda value: f"{value:,.{digits}f}" if isinstance(value, int | float) else "–",
        right=True,
        in_workbook=f"{'[$$-409]' if dollars else ''}#,##0{decimals}",
    )


WORDS = CellFormat(show=lambda value: "" if value is None else str(value))
LEVER = CellFormat(show=lambda value: title_of(str(value)) if value else "", shown_in_workbook=True)
"""The title of a lever; CSV and JSON have its key."""
HEADLINE = CellFormat(show=lambda value: str(value or "").partition(";")[0])
"""What a verdict says first; the workload's page has all of it."""
KEPT = CellFormat(show=lambda value: "✓ kept" if value else "✗ missed")
SHARE = CellFormat(
    show=lambda value: percent(value, 1) if isinstance(value, int | float) else "–", right=True, in_workbook="0.0%"
)
CHANGE = CellFormat(
    show=lambda value: f"{value:+.1%}" if isinstance(value, int | float) else "–", right=True, in_workbook="0.0%"
)
WHOLE, DECIMAL = _number(0), _number(2)
MONEY, SMALL_MONEY, WHOLE_MONEY = _number(2, dollars=True), _number(3, dollars=True), _number(0, dollars=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataColumn:
    """A column: its key in CSV and JSON, its title, how a value is shown; `less` is left out on phones."""

    key: str
    title: str
    format: CellFormat = WORDS
    less: bool = False
    whole: bool = False
    """Its words are never broken over lines."""
    cut: bool = False
    """On a phone its words may be broken anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """A table's columns and rows."""

    key: str
    title: str
    columns: tuple[DataColumn, ...]
    rows: Sequence[Row]

    def only(self, *keys: str) -> DataTable:
        """Return the columns of some keys, those that there are."""
        columns = tuple(column for column in self.columns if column.key in keys)
        return replace(self, columns=columns)

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

    def sheet(self) -> WorkbookSheet:
        """Return the rows as a sheet of a workbook."""
        return WorkbookSheet(
            title=self.title,
            heads=[column.title or column.key for column in self.columns],
            formats=[column.format.in_workbook for column in self.columns],
            rows=[[_in_workbook(column, row) for column in self.columns] for row in self.rows],
        )

    def plain(self) -> dict[str, object]:
        """Return the rows for JSON, with what they are."""
        return {"table": self.key, "columns": [column.key for column in self.columns], "rows": self.plain_rows()}

    def plain_rows(self) -> list[dict[str, Value]]:
        """Return the rows for JSON."""
        return [{column.key: row[column.key] for column in self.columns} for row in self.rows]


def _in_workbook(column: DataColumn, row: Row) -> Value:
    value = row[column.key]
    return column.format.show(value) if column.format.shown_in_workbook else value


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationQuestion:
    """How a bill is to be split, in the words of `trimtab allocate`; an empty `--cost` is the usual one."""

    split: str = "team"
    basis: str = ""
    idle: str = "show"
    shared: str = "show"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedBill:
    """A bill that was split: a row per payer, and what is to be said of it."""

    table: DataTable
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuestion:
    """What of a table is wanted: a text that a row holds, a team, the order, the page (from 1)."""

    words: str = ""
    team: str = ""
    sort: str = ""
    down: bool = True
    page: int = 1

    def takes(self, row: Row) -> bool:
        """Return whether a row is wanted."""
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


def _table(
    key: str, title: str, columns: tuple[DataColumn, ...], items: Iterable[object], **attributes: str
) -> DataTable:
    """Return a table whose columns are attributes of its items, called as the column's key or as `attributes` say."""
    rows = [{column.key: getattr(item, attributes.get(column.key, column.key)) for column in columns} for item in items]
    return DataTable(key=key, title=title, columns=columns, rows=rows)


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
            DataColumn(key="usd_mo", title="$/month", format=MONEY),
            DataColumn(key="share_frac", title="share", format=SHARE, less=True),
            DataColumn(key="activity_frac", title="GPU active", format=SHARE),
            DataColumn(key="verdict", title="what its readings say", format=HEADLINE, less=True),
        ),
        rows=[
            {
                "workload": row.name,
                "team": row.team or (row.name if row.name in teams_known else None),
                "kind": row.kind,
                "usd_mo": row.usd_mo,
                "share_frac": row.share_frac,
                "activity_frac": row.activity_frac,
                "verdict": said.get(row.name, ""),
            }
            for row in document.spend.by_workload
        ],
    )


def teams(document: AuditDocument) -> DataTable:
    """Return what each team costs."""
    columns = (DataColumn(key="team", title="team"), *_SPEND)
    return _table("teams", "Teams", columns, document.spend.by_team, team="name")


def kinds(document: AuditDocument) -> DataTable:
    """Return what each type of workload costs."""
    columns = (DataColumn(key="type", title="type"), *_SPEND)
    return _table("types", "Workload types", columns, document.spend.by_kind, type="name")


_SPEND = (
    DataColumn(key="usd_mo", title="$/month", format=MONEY),
    DataColumn(key="share_frac", title="share", format=SHARE),
    DataColumn(key="gpu_hours", title="GPU-hours", format=WHOLE, less=True),
    DataColumn(key="activity_frac", title="GPU active", format=SHARE),
)


def waste(document: AuditDocument) -> DataTable:
    """Return what the bill buys."""
    columns = (
        DataColumn(key="kind", title="what"),
        DataColumn(key="usd_mo", title="$/month", format=MONEY),
        DataColumn(key="share_frac", title="share", format=SHARE),
        DataColumn(key="meaning", title="meaning", less=True),
    )
    return _table("waste", "What the bill buys", columns, document.waste)


def actions(document: AuditDocument) -> DataTable:
    """Return the plan's actions."""
    columns = (
        DataColumn(key="id", title="id"),
        DataColumn(key="subject", title="what"),
        DataColumn(key="effect", title="what to do"),
        DataColumn(key="saving_usd_mo", title="saves $/month", format=MONEY),
        DataColumn(key="saving_low_usd_mo", title="low end (80%)", format=MONEY, less=True),
        DataColumn(key="saving_high_usd_mo", title="high end (80%)", format=MONEY, less=True),
        DataColumn(key="standalone_usd_mo", title="alone", format=MONEY, less=True),
        DataColumn(key="last_in_usd_mo", title="last in", format=MONEY, less=True),
        DataColumn(key="effort_weeks", title="engineer-weeks", format=DECIMAL, less=True),
        DataColumn(key="quarter", title="quarter", format=WHOLE, less=True),
        DataColumn(key="risk", title="risk"),
        DataColumn(key="lever", title="lever", format=LEVER, less=True),
    )
    return _table("actions", "Actions", columns, document.plan.actions)


def targets(document: AuditDocument) -> DataTable:
    """Return what each target attains in the proof."""
    columns = (
        DataColumn(key="workload", title="workload"),
        DataColumn(key="target", title="target"),
        DataColumn(key="before_frac", title="before", format=SHARE, less=True),
        DataColumn(key="required_frac", title="required", format=SHARE),
        DataColumn(key="attained_frac", title="attained", format=SHARE),
        DataColumn(key="kept", title="", format=KEPT),
    )
    return _table("targets", "Targets in the proof", columns, document.proof.targets)


def hours(document: AuditDocument) -> DataTable:
    """Return the proof window's bill by hour."""
    bill = document.pictures.bill_by_hour
    return DataTable(
        key="hours",
        title="Bill by hour",
        columns=(
            DataColumn(key="hour", title="hour from the start", format=WHOLE),
            DataColumn(key="start", title="starts at (UTC)"),
            DataColumn(key="before_usd", title="before, $", format=MONEY),
            DataColumn(key="after_usd", title="with the plan, $", format=MONEY),
        ),
        rows=[
            {
                "hour": hour,
                "start": f"{bill.start + timedelta(hours=hour):%Y-%m-%d %H:%M}",
                "before_usd": before,
                "after_usd": after,
            }
            for hour, (before, after) in enumerate(zip(bill.before_usd, bill.after_usd, strict=True))
        ],
    )


def verified(found: Verification) -> DataTable:
    """Return a plan's actions, predicted against realised, as `trimtab verify` has them."""
    columns = (
        DataColumn(key="id", title="id", less=True),
        DataColumn(key="subject", title="what"),
        DataColumn(key="lever", title="lever", format=LEVER, less=True),
        DataColumn(key="status", title="status", less=True, whole=True),
        DataColumn(key="enacted_frac", title="enacted", format=SHARE, less=True),
        DataColumn(key="predicted_usd_mo", title="predicted", format=WHOLE_MONEY),
        DataColumn(key="predicted_low_usd_mo", title="low", format=WHOLE_MONEY, less=True),
        DataColumn(key="predicted_high_usd_mo", title="high", format=WHOLE_MONEY, less=True),
        DataColumn(key="realised_usd_mo", title="realised", format=WHOLE_MONEY),
        DataColumn(key="cause", title="why", less=True),
    )
    keys = [column.key for column in columns]
    rows = []
    for action in found.actions:
        raw = verdict_row(action)
        rows.append({key: value for key in keys if isinstance(value := raw[key], str | int | float | None)})
    return DataTable(key="verified", title="Predicted against realised", columns=columns, rows=rows)


def scenario_figures(found: WhatIf) -> DataTable:
    """Return every figure of both worlds, raw, as `trimtab what-if -o json` has them."""
    columns = tuple(
        DataColumn(key=key, title=title)
        for key, title in (
            ("section", "section"),
            ("unit", "unit"),
            ("what", "what"),
            ("base", "as it is"),
            ("scenario", "what if"),
            ("change", "change"),
        )
    )
    return DataTable(key="what-if", title="What if", columns=columns, rows=[row.plain() for row in compared(found)])


def undeclared(document: AuditDocument) -> DataTable:
    """Return what owners did not declare, and what the plan would save if they did."""
    columns = (
        DataColumn(key="workloads", title="workload"),
        DataColumn(key="permits", title="if declared"),
        DataColumn(key="saves_usd_mo", title="saves $/month", format=MONEY),
        DataColumn(key="saves_once_bought_usd_mo", title="with commitments bought", format=MONEY, less=True),
        DataColumn(key="gives_up", title="what it gives up", less=True),
        DataColumn(key="known", title="what history says", less=True),
        DataColumn(key="permission", title="field", less=True),
    )
    rows = [
        {
            **{column.key: getattr(part, column.key) for column in columns[1:]},
            "workloads": ", ".join(part.workloads),
        }
        for part in document.undeclared
    ]
    return DataTable(key="undeclared", title="Not declared", columns=columns, rows=rows)


def not_worth(document: AuditDocument) -> DataTable:
    """Return what was judged and refused, and why."""
    columns = (
        DataColumn(key="lever", title="lever", format=LEVER),
        DataColumn(key="subject", title="on"),
        DataColumn(key="saving_usd_mo", title="would save $/month", format=MONEY),
        DataColumn(key="reason", title="why not", less=True),
    )
    return _table("not-worth", "Judged and refused", columns, document.plan.not_worth_doing)


TABLES: Mapping[str, Callable[[AuditDocument], DataTable]] = {
    "workloads": workloads,
    "teams": teams,
    "types": kinds,
    "waste": waste,
    "actions": actions,
    "targets": targets,
    "hours": hours,
    "undeclared": undeclared,
    "not-worth": not_worth,
}
"""By the name in addresses."""


def summary(document: AuditDocument) -> DataTable:
    """Return the figures that head an audit, a row each."""
    plan, proof, window = document.plan, document.proof, document.coverage.window
    money = (
        ("bill today, $ a month", document.bill_usd_mo),
        ("bill under the plan, $ a month", plan.objective_usd_mo),
        ("saving, $ a month", plan.joint_saving_usd_mo),
        ("saving, low end of its 80% interval", plan.joint_saving_low_usd_mo),
        ("saving, high end", plan.joint_saving_high_usd_mo),
    )
    words = (
        ("fleet", document.fleet),
        ("history from", f"{window.start:%Y-%m-%d %H:%M} UTC"),
        ("history to", f"{window.end:%Y-%m-%d %H:%M} UTC"),
        ("seen", document.coverage.summary),
        ("saving on unseen history, share of the bill", percent(proof.saving_frac, 1)),
        ("targets kept there", f"{proof.targets_kept} of {len(proof.targets)}"),
        ("trimtab", document.trimtab_version),
    )
    none: Row = {"usd_mo": None, "words": None}
    rows: list[Row] = [{**none, "figure": figure, "usd_mo": usd_mo} for figure, usd_mo in money]
    rows += [{**none, "figure": figure, "words": text} for figure, text in words]
    columns = (
        DataColumn(key="figure", title="figure"),
        DataColumn(key="usd_mo", title="$/month", format=MONEY),
        DataColumn(key="words", title="in words"),
    )
    return DataTable(key="summary", title="Summary", columns=columns, rows=rows)


def audit_workbook(document: AuditDocument) -> bytes:
    """Return an audit as a workbook with one sheet per table; raises UsageError where XlsxWriter is not installed."""
    return write_workbook([summary(document).sheet(), *(make(document).sheet() for make in TABLES.values())])
