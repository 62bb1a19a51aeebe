"""Sections on what was broken and what is untidy, offender by offender."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.emit.blocks import Amount, Block, Cell, Noted, Paragraph, Table, TableColumn, TableRow, soft, strong
from trimtab.emit.document import AuditDocument, HygienePart
from trimtab.emit.money import dollars, dollars_and_cents

_BRIEF_ROWS = 8
_PAGE_ROWS = 50
_NAMED = 4
_MONEY = TableColumn(title="$/month", right=True)
BROKEN_NOTE = (
    "Measured over the whole history and scaled to a month. The part that falls into the days the plan is made from is also in "
    "“What it buys”, under its own two kinds only."
)
HYGIENE_NOTE = (
    "These dollars are already part of the waste in “What it buys”, under the kind named on each line: do not add them "
    "to it. `trimtab emit` writes the patches to the folder `hygiene`, separate from the plan's."
)


def broken_blocks(document: AuditDocument) -> list[Block]:
    """Return what was broken, and who to contact."""
    if not document.broken:
        return []
    rows = [
        TableRow(
            cells=(
                _name(row.subject, row.what),
                Amount(row.usd_mo),
                Noted(words=f"{row.evidence}{_now(row.usd_hr)}. Call: {row.call}", beneath=row.retried),
            )
        )
        for row in document.broken
    ]
    kept = len(rows) if len(rows) <= _BRIEF_ROWS else _BRIEF_ROWS - 1
    rest = (f"{len(rows) - kept} more", Amount(sum(row.usd_mo for row in document.broken[kept:])), "")
    table = Table(
        columns=(TableColumn(title="what", readable=30), _MONEY, TableColumn(title="evidence", readable=30)),
        rows=tuple(rows),
        brief_rows=kept,
        rest=TableRow(cells=rest),
        page_rows=_PAGE_ROWS,
        of="broken things",
    )
    return [table, Paragraph(words=soft(BROKEN_NOTE))]


def hygiene_blocks(document: AuditDocument) -> list[Block]:
    """Return the offenders by kind: first each with its cost, then one by one with the evidence."""
    if not document.hygiene:
        return []
    kinds: dict[str, list[HygienePart]] = {}
    for row in document.hygiene:
        kinds.setdefault(row.kind, []).append(row)
    by_kind = Table(
        columns=(
            TableColumn(title="what is untidy", readable=26),
            _MONEY,
            TableColumn(title="who, $/month each", readable=26),
            TableColumn(title="counted in", optional=1),
        ),
        rows=tuple(_kind_row(kind, rows) for kind, rows in kinds.items()),
    )
    one_by_one = Table(
        columns=(TableColumn(title="who", readable=30), _MONEY, TableColumn(title="evidence", readable=40)),
        rows=tuple(
            TableRow(
                cells=(
                    _name(row.subject, row.kind),
                    Amount(row.usd_mo),
                    Noted(words=_words(row), beneath=_beneath(row)),
                )
            )
            for row in document.hygiene
        ),
        title="One by one",
        brief_rows=0,
        page_rows=_PAGE_ROWS,
        of="offenders",
    )
    return [by_kind, one_by_one, Paragraph(words=soft(HYGIENE_NOTE))]


def _kind_row(kind: str, rows: Sequence[HygienePart]) -> TableRow:
    who = [f"{row.subject}{_cost(row.usd_mo)}{_now(row.usd_hr)}" for row in rows[:_NAMED]]
    if len(rows) > _NAMED:
        who.append(f"{len(rows) - _NAMED} more{_cost(sum(row.usd_mo for row in rows[_NAMED:]))}")
    counted = dict.fromkeys(row.counted_in for row in rows if row.counted_in)
    return TableRow(
        cells=(strong(kind), Amount(sum(row.usd_mo for row in rows)), "; ".join(who), ", ".join(counted)),
    )


def _words(row: HygienePart) -> str:
    counted = f"; counted in “{row.counted_in}”" if row.counted_in else ""
    return f"{row.evidence}{_now(row.usd_hr)}{counted}. Call: {row.call}"


def _beneath(row: HygienePart) -> str:
    return "; ".join(_notes(row))


def _notes(row: HygienePart) -> Iterator[str]:
    if row.unschedulable:
        yield f"a taint keeps off until they tolerate it: {_few(row.unschedulable)}"
    if row.daemons:
        yield f"DaemonSets that belong there: {_few(row.daemons)}"


def _name(subject: str, what: str) -> Cell:
    return (strong(subject), f": {what}")


def _cost(usd_mo: float) -> str:
    return f" {dollars(usd_mo)}" if usd_mo else ""


def _now(usd_hr: float | None) -> str:
    return "" if usd_hr is None else f", {dollars_and_cents(usd_hr)} an hour while it lasts"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
