"""`trimtab doctor`: what is missing, how that reduces certainty, and the fix to paste."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli import ExitCode
from trimtab.cli.options import (
    FILE,
    AnswerOptions,
    answer_options,
    at_option,
    bundle_argument,
    group,
    is_typed,
    option,
    options_from,
    prices_option,
)
from trimtab.cli.output import Format, Sheet, SheetColumn, write, write_answer
from trimtab.cli.server_options import ServerOptions
from trimtab.errors import UsageError

if TYPE_CHECKING:
    from trimtab.sources.prometheus.doctor import DoctorFinding

_MARKS = {"ok": ("✓", "green"), "weak": ("~", "yellow"), "missing": ("✗", "red")}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Arguments of `trimtab doctor`."""

    bundle: Path | None = bundle_argument()
    source: ServerOptions = group(ServerOptions)
    prices: Path | None = prices_option("Your own rates, to check whether every node of a bundle has one.")
    quotas: Path | None = option(
        "--quotas", type=FILE, metavar="FILE",
        help="Quotas that `trimtab quotas -o csv` wrote, to check whether they limit scaling up.",
    )  # fmt: skip
    at: date | None = at_option("Use the prices of this day, for a bundle.")
    answer: AnswerOptions = answer_options()


@click.command()
@options_from(DoctorOptions)
def command(options: DoctorOptions) -> None:
    """Check which data is missing, how that weakens the answer, and how to fix it.

    Reads the last hours of the window on a Prometheus server, or a bundle; changes nothing. Exits with 1 if a
    server has no GPU metrics, or if audit would reject the bundle.

    \b
    Examples:
      trimtab doctor --prometheus http://localhost:9090
      trimtab doctor -p http://localhost:9090 --focus bills/ -o json
      trimtab doctor fleet/ --prices owned.yaml
      trimtab doctor fleet/ --quotas quotas.csv
    """
    if (options.bundle is None and not options.source.url) or (options.bundle is not None and is_typed("urls")):
        raise UsageError("give the folder of a bundle (trimtab doctor fleet/) or a server (--prometheus URL)")
    if options.quotas is not None and options.bundle is None:
        raise UsageError("--quotas needs a bundle to compare with: trimtab doctor fleet/ --quotas quotas.csv")
    found, refused = _of_bundle(options.bundle, options) if options.bundle else _of_server(options.source)
    rows = [
        {
            "what": finding.what,
            "status": finding.status.value,
            "detail": finding.detail,
            "cost": finding.cost,
            "fix": finding.fix,
        }
        for finding in found
    ]
    if options.answer.output_format is Format.TABLE and not options.answer.fields:
        write(_page(rows), options.answer.out)
    else:
        write_answer(_sheet(rows), options.answer)
    if refused:
        raise click.exceptions.Exit(ExitCode.ERROR)


def _of_server(source: ServerOptions) -> tuple[list[DoctorFinding], bool]:
    """Return what a server lacks, and whether it has no GPU metrics."""
    from trimtab.catalog import load_catalog
    from trimtab.sources.prometheus.doctor import FindingStatus, probe, server_findings

    _, end = source.window()
    with source.server() as server:
        facts = probe(server, end)
    found = server_findings(facts, bills=len(source.bills), prices=load_catalog().prices, day=end.date())
    return found, any(finding.status is FindingStatus.MISSING and finding.what == "GPU metrics" for finding in found)


def _of_bundle(folder: Path, options: DoctorOptions) -> tuple[list[DoctorFinding], bool]:
    """Return what a bundle lacks, and whether audit would reject it."""
    from trimtab.catalog import load_catalog
    from trimtab.fleet.market import Market
    from trimtab.fleet.settings import Settings
    from trimtab.sources.bundle_doctor import bundle_findings, quota_findings, refuses
    from trimtab.sources.clouds import read_quotas
    from trimtab.tables.checks import checked_bundle

    bundle, catalog, settings = checked_bundle(folder), load_catalog(options.prices), Settings()
    day = options.at or bundle.end.date()
    market = Market(
        catalog=catalog,
        at=day,
        max_term_years=settings.planning.max_term_years,
        assumptions=settings.assumptions,
    )
    found = bundle_findings(bundle, market)
    if options.quotas is not None:
        found += quota_findings(bundle, read_quotas(options.quotas))
    return found, refuses(found)


def _sheet(rows: Sequence[dict[str, str]]) -> Sheet:
    titles = {"what": "what", "status": "status", "detail": "seen", "cost": "what it costs", "fix": "fix"}
    return Sheet(columns=[SheetColumn(key=key, title=title) for key, title in titles.items()], rows=rows)


def _page(rows: Sequence[dict[str, str]]) -> str:
    """Return the page for people: one line per finding; problems have their cost and fix below."""
    lines = []
    for row in rows:
        mark, colour = _MARKS[row["status"]]
        lines.append(f"{click.style(mark, fg=colour)} {row['what']:<18} {row['detail']}")
        if row["cost"]:
            lines.append(f"    costs: {row['cost']}")
        if row["fix"]:
            lines.append(f"    fix:   {row['fix']}")
    amiss = sum(row["status"] != "ok" for row in rows)
    lines.append("" if not amiss else f"\n{amiss} of {len(rows)} checks could be improved; the others are fine.")
    return "\n".join(lines)
