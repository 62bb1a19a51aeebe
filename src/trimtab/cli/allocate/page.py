"""The charge-back as a page of sections."""

from __future__ import annotations

from dataclasses import replace

from trimtab.cli.allocate.tables import BUDGET, MONTHS, WHO, ChargeBack, months_sheet, who_sheet
from trimtab.cli.sheet import Cell, Sheet
from trimtab.emit.blocks import Block, Page, Section, Table, bullets


def charge_page(title: str, answer: ChargeBack) -> Page:
    """Return the page: who pays what, budgets where there are some, and each month's invoice."""
    who = who_sheet(answer)
    charged: list[Block] = [_with_bars(replace(who, columns=WHO)), bullets(answer.notes)]
    sections = [Section(name="who", title="Who pays", blocks=tuple(charged))]
    if answer.budgets_usd_mo:
        sections.append(
            Section(
                name="budgets",
                title="Budgets",
                gloss="the forecast: what was spent this month, and for the days left the mean of the same weekdays before",
                blocks=(replace(who, columns=(WHO[0], *BUDGET)).table(),),
            )
        )
    if answer.months:
        months = months_sheet(answer)
        notes = bullets([str(note) for note in months.notes])
        table = replace(months, columns=MONTHS).table()
        sections.append(Section(name="months", title="Month close", blocks=(table, notes)))
    return Page(brand="trimtab allocate", title="GPU charge-back", subject=title, sections=tuple(sections))


def _with_bars(sheet: Sheet) -> Table:
    """Return the table with a bar by each payer, the longest for who pays most."""
    table = sheet.table()
    shares = [_share(row.get("share_frac")) for row in sheet.rows]
    most = max(shares, default=0.0)
    if most <= 0:
        return table
    rows = (replace(row, bar_frac=share / most) for row, share in zip(table.rows, shares, strict=True))
    return replace(table, rows=tuple(rows))


def _share(cell: Cell) -> float:
    return max(0.0, cell) if isinstance(cell, float) else 0.0
