"""The charge-back as one HTML page without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.cli.allocate.tables import BUDGET, MONTHS, WHO, ChargeBack, months_sheet, who_sheet
from trimtab.cli.sheet import Column, Sheet
from trimtab.emit.html.markup import Html, join, tag
from trimtab.emit.html.sections import bullets, number, scroll, section, table
from trimtab.emit.html.style import STYLE

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(title: str, answer: ChargeBack) -> str:
    """Return the page: who pays what, budgets where there are some, and each month's invoice."""
    who = who_sheet(answer)
    parts = [section("who", "Who pays", "", scroll(_table(who, WHO, bars=True)), bullets(answer.notes))]
    if answer.budgets_usd_mo:
        lead = "The forecast: what was spent this month, and for the days left the mean of the same weekdays before."
        parts.append(section("budgets", "Budgets", lead, scroll(_table(who, (WHO[0], *BUDGET)))))
    if answer.months:
        months = months_sheet(answer)
        parts.append(section("months", "Month close", str(months.notes[0]), scroll(_table(months, MONTHS))))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", f"GPU charge-back: {title}"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(STYLE)),
    )
    header = tag("header", tag("div", "trimtab", class_="brand"), tag("h1", f"GPU charge-back: {title}"))
    return f"<!doctype html>\n{tag('html', head, tag('body', header, tag('main', *parts)), lang='en')}\n"


def _table(sheet: Sheet, columns: Sequence[Column], *, bars: bool = False) -> Html:
    heads = tuple(f"#{column.title}" if column.right else column.title for column in columns)
    most = max((_share(row.get("share_frac")) for row in sheet.rows), default=0.0)
    rows = []
    for row in sheet.rows:
        cells = [number(column.text(row.get(column.key))) for column in columns]
        if bars and most > 0:
            width = 100 * _share(row.get("share_frac")) / most
            cells[0] = join([str(row["name"]), tag("span", class_="bar", style=f"width:{width:.1f}%")])
        rows.append(tuple(cells))
    return table("", heads, rows)


def _share(cell: object) -> float:
    return max(0.0, cell) if isinstance(cell, float) else 0.0
