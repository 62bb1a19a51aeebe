"""`trimtab commit`: how much of what to commit to, in layers, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click

from trimtab.cli.options import (
    AnswerOptions,
    answer_options,
    at_option,
    bundle_argument,
    demo_option,
    option,
    options_from,
    prices_option,
    quiet_option,
    verbose_option,
)

SECTIONS = ("steps", "rules", "returns", "plans", "inventory", "held-plans", "load")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """Arguments of `trimtab commit`."""

    bundle: Path | None = bundle_argument()
    demo: str | None = demo_option("A demonstration fleet; two-hundred-k by default.")
    as_it_was: bool = option(
        "--as-it-was",
        help="Use the history unchanged (fast) instead of the demand that is left after the plan of `trimtab audit`.",
    )
    after_plan: bool = option("--after-plan", hidden=True, help="No effect: this is the default since 0.2.")
    term: str = option(
        "--term", type=click.Choice(["1y", "3y", "any"]), default="1y", show_default=True,
        help="The terms that may be recommended; the return table shows all.",
    )  # fmt: skip
    instance_type: str | None = option("--type", metavar="TYPE", help="Only this instance type: p4d.24xlarge.")
    nodes: int | None = option(
        "--nodes",
        type=click.IntRange(min=1),
        help="Number of nodes in the return table, instead of the recommended one.",
    )
    hours_mo: float | None = option(
        "--hours-mo", type=click.FloatRange(0, 730), metavar="H",
        help="Hours of use a month in the return table, instead of what was measured.",
    )  # fmt: skip
    quotes: tuple[str, ...] = option(
        "--offer", metavar="TYPE:TERM:UPFRONT_USD:USD_HR",
        help="A quoted price per node: p4d.24xlarge:3y:230000:0.",
    )  # fmt: skip
    owned: Path | None = option(
        "--owned", type=_FILE, metavar="FILE",
        help="Commitments that you hold: a CSV, FOCUS contract commitments, or a cloud's JSON list.",
    )  # fmt: skip
    owned_region: str | None = option(
        "--owned-region",
        metavar="REGION",
        help="The region of a list that does not give one (AWS' reserved instances).",
    )
    prices: Path | None = prices_option()
    at: date | None = at_option("Use the prices and commitments of this day.")
    section: str | None = option(
        "--section", type=click.Choice(SECTIONS), help="Only this part of the answer; CSV needs one."
    )
    quiet: bool = quiet_option()
    verbose: int = verbose_option()
    answer: AnswerOptions = answer_options()


@click.command()
@options_from(CommitOptions)
def command(options: CommitOptions) -> None:
    """Recommend how much to commit to and when, what it returns, and how other rules would have done.

    \b
    Examples:
      trimtab commit --demo                               a demonstration
      trimtab commit fleet/                               what the plan of `trimtab audit` buys, and when
      trimtab commit fleet/ --as-it-was                   without the other changes of the plan
      trimtab commit fleet/ --term any                    allow 3-year terms too
      trimtab commit fleet/ --type p4d.24xlarge --nodes 6 --hours-mo 500
      trimtab commit fleet/ --offer p4d.24xlarge:1y:118000:0 --owned held.csv
      trimtab commit fleet/ --owned reserved-instances.json --owned-region us-east-1
      trimtab commit fleet/ --prices mine.csv --section plans    savings plans, at rates of your own
      trimtab commit fleet/ --section returns -o csv      the return table for a spreadsheet
    """
    from trimtab.cli.commit.run import run_commit

    run_commit(options)
