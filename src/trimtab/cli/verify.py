"""`trimtab verify`: what the plan of the last audit has saved since, action by action."""

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
from trimtab.cli.output import (
    ROW_FORMATS,
    Cell,
    Format,
    Sheet,
    SheetColumn,
    fixed,
    percent,
    write,
    write_page,
    write_sheet,
    write_workbook,
)
from trimtab.cli.progress import progress_bar, set_verbosity

if TYPE_CHECKING:
    from trimtab.plan.verify.verification import ActionVerdict, Verification


COLUMNS = (
    SheetColumn(key="id", title="", whole=True),
    SheetColumn(key="lever", title="lever", whole=True),
    SheetColumn(key="subject", title="on"),
    SheetColumn(key="status", title="status", whole=True),
    SheetColumn(key="enacted_frac", title="enacted", show=percent(0), right=True, whole=True),
    SheetColumn(key="predicted_usd_mo", title="predicted $/mo", show=fixed(0), right=True, whole=True),
    SheetColumn(key="predicted_low_usd_mo", title="low", show=fixed(0), right=True, whole=True),
    SheetColumn(key="predicted_high_usd_mo", title="high", show=fixed(0), right=True, whole=True),
    SheetColumn(key="realised_usd_mo", title="realised $/mo", show=fixed(0), right=True, whole=True),
    SheetColumn(key="cause", title="why"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Arguments of `trimtab verify`."""

    bundle: Path = argument(type=FOLDER)
    number: str | None = option(
        "--audit", metavar="N", help="The kept audit to verify, by number as in `trimtab diff`.",
        show_default="the last one",
    )  # fmt: skip
    prices: Path | None = prices_option()
    at: date | None = at_option("Use the rates of this day as today's.")
    quiet: bool = quiet_option("No progress.")
    answer: AnswerOptions = answer_options(*ROW_FORMATS, Format.HTML, Format.GITHUB_COMMENT, Format.XLSX)


@click.command()
@options_from(VerifyOptions)
def command(options: VerifyOptions) -> None:
    """Show what the last audit's plan has saved since: each action on track, short (and why), or not enacted.

    BUNDLE is later history of the same fleet. A saving is the difference between running today's demand as before and as
    now, both at the rates of the plan. Effects of new rates and new demand on the bill are shown separately.

    It also shows what no longer holds (GPUs outgrown, commitments used too little), and every buying option for what is
    used, at today's rates. `-o html` and `-o markdown` write a report to keep each quarter, `-o github-comment` a comment.

    \b
    Examples:
      trimtab verify fleet-in-march/
      trimtab verify fleet-in-march/ --audit 3 -o json
      trimtab verify fleet-this-quarter/ -o html --out quarter.html
      trimtab verify fleet-this-quarter/ -o xlsx --out quarter.xlsx
      trimtab verify fleet-in-march/ --prices our-rates.csv --at 2027-03-31
    """
    from trimtab.catalog import load_catalog
    from trimtab.cli.kept_audits import find, recall_plan
    from trimtab.pipeline import open_fleet, verify_plan

    set_verbosity(0, options.quiet)
    options.answer.check()
    kept = recall_plan(find(options.number) if options.number else None)
    with progress_bar(quiet=options.quiet) as tell:
        tell("reading the later history", 0.0)
        found = verify_plan(kept, open_fleet(options.bundle), catalog=load_catalog(options.prices), at=options.at)
    _write(found, kept.fleet, options.answer.output_format, options.answer.out, options.answer.fields)


def _write(found: Verification, fleet: str, form: Format, out: Path | None, fields: tuple[str, ...]) -> None:
    from trimtab.emit.sections.verification import verification_page
    from trimtab.emit.verify_document import verify_document
    from trimtab.emit.writers.comment import page_comment

    actions = Sheet(columns=COLUMNS, rows=[_cells(verdict) for verdict in found.actions])
    if form is Format.XLSX:
        write_workbook({"actions": actions.only(fields) if fields else actions}, out)
    elif fields or form is Format.CSV:
        write_sheet(actions, form, out=out, fields=fields)
    elif form is Format.GITHUB_COMMENT:
        write(page_comment("verify", verification_page(found, fleet), opened="actions"), out)
    elif form in (Format.TABLE, Format.HTML, Format.MARKDOWN):
        write_page(verification_page(found, fleet), form, out)
    else:
        document = verify_document(found)
        dumped = yaml.safe_dump(document, sort_keys=False) if form is Format.YAML else json.dumps(document, indent=2)
        write(dumped, out)


def _cells(verdict: ActionVerdict) -> dict[str, Cell]:
    from trimtab.emit.verify_document import verdict_row

    return {key: value for key, value in verdict_row(verdict).items() if isinstance(value, str | int | float)}
