"""`trimtab verify`: what the plan of the last audit saved since, action by action."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click
import yaml

from trimtab.cli.options import (
    FOLDER,
    AnswerOptions,
    answer_options,
    argument,
    at_option,
    option,
    options_from,
    prices_option,
    quiet_option,
)
from trimtab.cli.output import ROW_FORMATS, Cell, Column, Format, Sheet, fixed, write, write_sheet
from trimtab.cli.progress import progress_bar, set_verbosity

if TYPE_CHECKING:
    from trimtab.plan.verify.verification import ActionVerdict, Verification


def _percent(cell: Cell) -> str:
    return f"{cell:.0%}" if isinstance(cell, int | float) else str(cell)


COLUMNS = (
    Column(key="id", title="", whole=True),
    Column(key="lever", title="lever", whole=True),
    Column(key="subject", title="on"),
    Column(key="status", title="status", whole=True),
    Column(key="enacted_frac", title="enacted", show=_percent, right=True, whole=True),
    Column(key="predicted_usd_mo", title="predicted $/mo", show=fixed(0), right=True, whole=True),
    Column(key="predicted_low_usd_mo", title="low", show=fixed(0), right=True, whole=True),
    Column(key="predicted_high_usd_mo", title="high", show=fixed(0), right=True, whole=True),
    Column(key="realised_usd_mo", title="realised $/mo", show=fixed(0), right=True, whole=True),
    Column(key="cause", title="why"),
)
TABLE_FIELDS = ("id", "lever", "subject", "status", "predicted_usd_mo", "realised_usd_mo", "cause")
"""What fits a terminal; machines get every column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """What was asked of `trimtab verify`."""

    bundle: Path = argument(type=FOLDER)
    number: str | None = option(
        "--audit", metavar="N", help="The kept audit whose plan it was, as `trimtab diff` counts them.",
        show_default="the last one",
    )  # fmt: skip
    prices: Path | None = prices_option()
    at: date | None = at_option("Today's rates are those that held on this day.")
    quiet: bool = quiet_option("No progress.")
    answer: AnswerOptions = answer_options(*ROW_FORMATS, Format.HTML)


@click.command()
@options_from(VerifyOptions)
def command(options: VerifyOptions) -> None:
    """Say what the plan of the last audit saved since: per action on track, short (and why), or not enacted.

    BUNDLE is later history of the same fleet. What counts as saved is the difference to the former way of running at today's
    demand, both at the rates of the plan; what new rates and new demand do to the bill is told apart from it.

    Beside it: what no longer holds (GPUs outgrown, commitments used too little), and every way of buying what is used, at
    today's rates. `-o html` and `-o markdown` make a report of it to keep each quarter.

    \b
    Examples:
      trimtab verify fleet-in-march/
      trimtab verify fleet-in-march/ --audit 3 -o json
      trimtab verify fleet-this-quarter/ -o html --out quarter.html
      trimtab verify fleet-in-march/ --prices our-rates.csv --at 2027-03-31
    """
    from trimtab.catalog import load_catalog
    from trimtab.cli.kept_audits import find, recall_plan
    from trimtab.pipeline import open_fleet, verify_plan

    set_verbosity(0, options.quiet)
    kept = recall_plan(find(options.number).plan if options.number else None)
    with progress_bar(quiet=options.quiet) as tell:
        tell("reading the later history", 0.0)
        found = verify_plan(kept, open_fleet(options.bundle), catalog=load_catalog(options.prices), at=options.at)
    _write(found, kept.fleet, options.answer.output_format, options.answer.out, options.answer.fields)


def _write(found: Verification, fleet: str, form: Format, out: Path | None, fields: tuple[str, ...]) -> None:
    from trimtab.emit.html.verify_page import render_verify_html, render_verify_markdown
    from trimtab.emit.verify_document import verify_document

    if fields or form in (Format.TABLE, Format.CSV):
        shown = fields or (TABLE_FIELDS if form is Format.TABLE else ())
        write_sheet(_sheet(found), form, out=out, fields=shown)
    elif form is Format.HTML:
        write(render_verify_html(found, fleet), out)
    elif form is Format.MARKDOWN:
        write(render_verify_markdown(found, fleet), out)
    else:
        document = verify_document(found)
        dumped = yaml.safe_dump(document, sort_keys=False) if form is Format.YAML else json.dumps(document, indent=2)
        write(dumped, out)


def _sheet(found: Verification) -> Sheet:
    from trimtab.emit.html.verify_page import drift_line, purchase_line

    parts = (
        ("the bill then", found.then_usd_mo),
        ("demand since", found.demand_usd_mo),
        ("saved", -found.saved_usd_mo),
        ("new rates", found.rates_usd_mo),
    )
    bridge = " ".join(f"{name} {amount:+,.0f}," for name, amount in parts).rstrip(",")
    notes = [
        f"$/month: {bridge} = {found.now_usd_mo:,.0f} now. Predicted to save {found.predicted_usd_mo:,.0f}; "
        f"{found.outside_usd_mo:,.0f} of what was saved is of no action of the plan.",
        *found.notes,
        *(f"Drift: {drift_line(one)}" for one in found.drifts),
        *(f"Buying: {purchase_line(one)}" for one in found.purchases),
    ]
    return Sheet(columns=COLUMNS, rows=[_cells(one) for one in found.actions], notes=notes)


def _cells(verdict: ActionVerdict) -> dict[str, Cell]:
    from trimtab.emit.verify_document import verdict_row

    return {key: value for key, value in verdict_row(verdict).items() if isinstance(value, str | int | float)}
