"""`trimtab allocate`: what each team, workload, namespace, kind, model or label costs, and per request and token."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click

from trimtab.cli.options import (
    FILE,
    ROW_FORMATS,
    AnswerOptions,
    answer_options,
    at_option,
    bundle_argument,
    demo_option,
    group,
    option,
    options_from,
    prices_option,
    quiet_option,
)
from trimtab.cli.output import Format
from trimtab.cli.server_options import ServerOptions

_RULES = click.Choice(["show", "spread", "even"])


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateOptions:
    """Arguments of `trimtab allocate`."""

    bundle: Path | None = bundle_argument()
    demo: str | None = demo_option("A demonstration fleet; two-hundred-k by default.")
    source: ServerOptions = group(ServerOptions)
    split: str = option(
        "--by", default="team", show_default=True, metavar="WHAT",
        help="What to split the bill by: team, workload, namespace, kind, model or label:KEY.",
    )  # fmt: skip
    basis: str | None = option(
        "--cost", type=click.Choice(["effective", "billed", "list"]),
        show_default="effective if there is a bill, else list",
        help="Charges of the bill with commitments amortised, as invoiced, or list prices.",
    )  # fmt: skip
    idle: str = option(
        "--idle", type=_RULES, default="show", show_default=True,
        help="Idle nodes and unused commitments: show them, or spread them by usage, or evenly.",
    )  # fmt: skip
    shared: str = option(
        "--shared", type=_RULES, default="show", show_default=True,
        help="The same for tax, credits, untagged charges and machines without telemetry.",
    )  # fmt: skip
    show_tokens: bool = option("--tokens", help="Show the cost of a million input, output and cached tokens instead.")
    token_use: Path | None = option(
        "--token-use", type=FILE, metavar="FILE",
        help="With --tokens: tokens by consumer, CSV of service,consumer,input_tokens,output_tokens,cached_tokens.",
    )  # fmt: skip
    show_months: bool = option("--months", help="Show what each month's invoice consists of instead.")
    invoices: tuple[str, ...] = option(
        "--invoice", metavar="MONTH=USD", help="The invoiced amount of a month, to compare with: 2026-09=12345.67."
    )
    rates: tuple[str, ...] = option("--fx", metavar="CURRENCY=USD", help="Dollars per unit of a currency: EUR=1.08.")
    budgets: Path | None = option(
        "--budgets", type=FILE, metavar="FILE",
        help="Budgets, CSV of name,usd_mo: compared with the forecast for the month's end.",
    )  # fmt: skip
    prices: Path | None = prices_option()
    at: date | None = at_option("Use the list prices of this day.", "those of each day")
    quiet: bool = quiet_option("No progress.")
    answer: AnswerOptions = answer_options(*ROW_FORMATS, Format.HTML, Format.XLSX)


@click.command()
@options_from(AllocateOptions)
def command(options: AllocateOptions) -> None:
    """Show what each team, workload, namespace, kind or model costs, in total and per request and token.

    The rows sum to the bill to the cent. A bill in the bundle (or --focus) is split if there is one, otherwise list prices.

    \b
    Examples:
      trimtab allocate --demo
      trimtab allocate fleet/ --by workload --idle spread
      trimtab allocate fleet/ --by workload --tokens
      trimtab allocate fleet/ --tokens --token-use tenants.csv
      trimtab allocate fleet/ --focus bills/ --by label:cost-center --shared spread
      trimtab allocate fleet/ --focus bills/ --months --invoice 2026-09=184210.33
      trimtab allocate fleet/ --budgets budgets.csv -o html --out charges.html
      trimtab allocate fleet/ -o xlsx --out charges.xlsx       a workbook with one sheet per table
    """
    from trimtab.cli.allocate.run import run_allocate

    run_allocate(options)
