"""`trimtab allocate`: what each team, workload, namespace, kind, model or label costs, and per request and token."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import click

from trimtab.cli.output import Format, output_options
from trimtab.cli.price_options import at_option, prices_option
from trimtab.cli.server_options import ServerOptions, server_options

_RULES = click.Choice(["show", "spread", "even"])


@click.command()
@click.argument("bundle", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--demo", is_flag=False, flag_value="two-hundred-k", metavar="[NAME]",
              help="A demonstration fleet; two-hundred-k where no name is given.")  # fmt: skip
@server_options(required=False)
@click.option("--by", "split", default="team", show_default=True, metavar="WHAT",
              help="What the bill is split by: team, workload, namespace, kind, model or label:KEY.")  # fmt: skip
@click.option("--cost", "basis", type=click.Choice(["effective", "billed", "list"]),
              show_default="effective where there is a bill, else list",
              help="Charges of the bill with commitments amortised, as invoiced, or list prices.")  # fmt: skip
@click.option("--idle", type=_RULES, default="show", show_default=True,
              help="Idle nodes and unused commitments: shown, or laid on all by what they held, or alike.")  # fmt: skip
@click.option("--shared", type=_RULES, default="show", show_default=True,
              help="The same for tax, credits, untagged charges and machines without telemetry.")  # fmt: skip
@click.option("--months", "show_months", is_flag=True, help="What each month's invoice is made of, instead.")
@click.option("--invoice", "invoices", multiple=True, metavar="MONTH=USD",
              help="What the invoice of a month says, to close it: 2026-09=12345.67.")  # fmt: skip
@click.option("--fx", "rates", multiple=True, metavar="CURRENCY=USD", help="Dollars per unit of a currency: EUR=1.08.")
@click.option("--budgets", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Budgets, CSV of name,usd_mo: held against where the month will end.")  # fmt: skip
@prices_option()
@at_option("List prices that held on this day.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@output_options(Format.TABLE, Format.JSON, Format.YAML, Format.CSV, Format.MARKDOWN, Format.HTML)
def command(
    bundle: Path | None,
    demo: str | None,
    source: ServerOptions,
    split: str,
    basis: str | None,
    idle: str,
    shared: str,
    show_months: bool,
    invoices: tuple[str, ...],
    rates: tuple[str, ...],
    budgets: Path | None,
    prices: Path | None,
    at: date | None,
    quiet: bool,
    output_format: Format,
    out: Path | None,
    fields: tuple[str, ...],
) -> None:
    """Say what each team, workload, namespace, kind or model costs, and per request and token.

    The rows sum to the bill to the cent. With a bill in the bundle (or --focus) its own charges are split, else list prices.

    \b
    Examples:
      trimtab allocate --demo
      trimtab allocate fleet/ --by workload --idle spread
      trimtab allocate fleet/ --focus bills/ --by label:cost-center --shared spread
      trimtab allocate fleet/ --focus bills/ --months --invoice 2026-09=184210.33
      trimtab allocate fleet/ --budgets budgets.csv -o html --out charges.html
    """
    from trimtab.cli.allocate.run import AllocateRequest, parse_invoices, parse_rates, run_allocate
    from trimtab.cli.history import Named
    from trimtab.diagnose.bill_split import Basis
    from trimtab.diagnose.charges import Rules, SharedRule
    from trimtab.diagnose.split import Split

    at_list = basis == "list"
    run_allocate(
        AllocateRequest(
            named=Named(bundle=bundle, demo=demo, demo_trace=None, source=source),
            split=Split.parse(split),
            basis=Basis(basis) if basis is not None and not at_list else None,
            at_list=at_list,
            rules=Rules(idle=SharedRule(idle), shared=SharedRule(shared)),
            usd_per=parse_rates(rates),
            invoices=parse_invoices(invoices),
            budgets=budgets,
            show_months=show_months,
            prices=prices,
            at=at,
            quiet=quiet,
            output_format=output_format,
            out=out,
            fields=fields,
        )
    )
