"""`trimtab doctor`: what is missing, what that costs in certainty, and the fix to paste."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.output import Column, Format, Sheet, output_options, write, write_sheet
from trimtab.cli.price_options import at_option, prices_option
from trimtab.cli.server_options import ServerOptions, is_typed, server_options
from trimtab.errors import UsageError

if TYPE_CHECKING:
    from trimtab.sources.prometheus.doctor import DoctorFinding

_MARKS = {"ok": ("✓", "green"), "weak": ("~", "yellow"), "missing": ("✗", "red")}


@click.command()
@click.argument("bundle", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@server_options(required=False)
@prices_option("Your own rates, to see whether every node of a bundle has one.")
@click.option("--quotas", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Quotas that `trimtab quotas -o csv` wrote, to see whether a bundle may scale up.")  # fmt: skip
@at_option("Prices that held on this day, for a bundle.")
@output_options()
def command(
    bundle: Path | None,
    source: ServerOptions,
    prices: Path | None,
    quotas: Path | None,
    at: date | None,
    output_format: Format,
    out: Path | None,
    fields: tuple[str, ...],
) -> None:
    """Say what is missing for a good answer, what that costs, and how to mend it.

    Looks at the last hours of the window on a Prometheus server, or at a bundle; changes nothing. Exits with 1 where a
    server has no GPU metrics, or where audit would refuse the bundle.

    \b
    Examples:
      trimtab doctor --prometheus http://localhost:9090
      trimtab doctor -p http://localhost:9090 --focus bills/ -o json
      trimtab doctor fleet/ --prices owned.yaml
      trimtab doctor fleet/ --quotas quotas.csv
    """
    if (bundle is None and not source.url) or (bundle is not None and is_typed("urls")):
        raise UsageError("give the folder of a bundle (trimtab doctor fleet/) or a server (--prometheus URL)")
    if quotas is not None and bundle is None:
        raise UsageError("--quotas are held against the nodes of a bundle: trimtab doctor fleet/ --quotas quotas.csv")
    found, refused = _of_bundle(bundle, prices, quotas, at) if bundle else _of_server(source)
    rows = [
        {"what": one.what, "status": one.status.value, "detail": one.detail, "cost": one.cost, "fix": one.fix}
        for one in found
    ]
    if output_format is Format.TABLE and not fields:
        write(_page(rows), out)
    else:
        write_sheet(_sheet(rows), output_format, out=out, fields=fields)
    if refused:
        raise click.exceptions.Exit(1)


def _of_server(source: ServerOptions) -> tuple[list[DoctorFinding], bool]:
    """Return what a server lacks, and whether it has no GPU metrics."""
    from trimtab.catalog import load_catalog
    from trimtab.sources.prometheus.doctor import FindingStatus, probe, server_findings

    _, end = source.window()
    with source.server() as server:
        facts = probe(server, end)
    newest = max(price.as_of for price in load_catalog().prices.prices)
    found = server_findings(facts, bills=len(source.bills), newest_price_days=_days_since(newest, end.date()))
    return found, any(one.status is FindingStatus.MISSING and one.what == "GPU metrics" for one in found)


def _of_bundle(
    folder: Path, prices: Path | None, quotas: Path | None, at: date | None
) -> tuple[list[DoctorFinding], bool]:
    """Return what a bundle lacks, and whether audit would refuse it."""
    from trimtab.catalog import load_catalog
    from trimtab.fleet.market import Market
    from trimtab.fleet.settings import Settings
    from trimtab.sources.bundle_doctor import bundle_findings, quota_findings, refuses
    from trimtab.sources.clouds.quotas import read_quotas
    from trimtab.tables.checks import checked_bundle

    bundle, catalog, settings = checked_bundle(folder), load_catalog(prices), Settings()
    day = at or bundle.end.date()
    market = Market(
        catalog=catalog,
        at=day,
        max_term_years=settings.planning.max_term_years,
        assumptions=settings.assumptions,
    )
    newest = max(price.as_of for price in catalog.prices.prices)
    found = bundle_findings(bundle, market, _days_since(newest, day))
    if quotas is not None:
        found += quota_findings(bundle, read_quotas(quotas))
    return found, refuses(found)


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
