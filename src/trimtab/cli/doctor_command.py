"""`trimtab doctor`: what is missing, what that costs in certainty, and the fix to paste."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import click

from trimtab.cli.output import Column, Format, Sheet, output_options, write, write_sheet
from trimtab.cli.server_options import ServerOptions, server_options

_MARKS = {"ok": ("✓", "green"), "weak": ("~", "yellow"), "missing": ("✗", "red")}


@click.command()
@server_options(required=True)
@output_options()
def command(
    source: ServerOptions,
    output_format: Format,
    out: Path | None,
    fields: tuple[str, ...],
) -> None:
    """Say what is missing for a good answer, what that costs, and how to mend it.

    Looks at the last hours of the window on a Prometheus server; changes nothing. Exits with 1 where there are no GPU
    metrics.

    \b
    Examples:
      trimtab doctor --prometheus http://localhost:9090
      trimtab doctor -p http://localhost:9090 --focus bills/ -o json
    """
    from trimtab.catalog import load_catalog
    from trimtab.sources.doctor import Status, findings, look

    _, end = source.window()
    with source.server() as server:
        facts = look(server, end)
    newest = max(price.as_of for price in load_catalog().prices.prices)
    found = findings(facts, bills=len(source.bills), newest_price_days=_days_since(newest, end.date()))
    rows = [
        {"what": one.what, "status": one.status.value, "detail": one.detail, "cost": one.cost, "fix": one.fix}
        for one in found
    ]
    if output_format is Format.TABLE and not fields:
        write(_page(rows), out)
    else:
        write_sheet(_sheet(rows), output_format, out=out, fields=fields)
    if any(one.status is Status.MISSING and one.what == "GPU metrics" for one in found):
        raise click.exceptions.Exit(1)


def _days_since(day: date, today: date) -> int:
    return max(0, (today - day).days)


def _sheet(rows: Sequence[dict[str, str]]) -> Sheet:
    titles = {"what": "what", "status": "status", "detail": "seen", "cost": "what it costs", "fix": "fix"}
    return Sheet(columns=[Column(key=key, title=title) for key, title in titles.items()], rows=rows)


def _page(rows: Sequence[dict[str, str]]) -> str:
    """Return the page for people: a line a finding; what is amiss says its cost and its fix below."""
    lines = []
    for row in rows:
        mark, colour = _MARKS[row["status"]]
        lines.append(f"{click.style(mark, fg=colour)} {row['what']:<18} {row['detail']}")
        if row["cost"]:
            lines.append(f"    costs: {row['cost']}")
        if row["fix"]:
            lines.append(f"    fix:   {row['fix']}")
    amiss = sum(row["status"] != "ok" for row in rows)
    lines.append("" if not amiss else f"\n{amiss} of {len(rows)} could be better; the rest is in place.")
    return "\n".join(lines)
