"""`trimtab commit`: how much of what to commit to, in layers, and what it returns."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import click

from trimtab.cli.output import Format, output_options
from trimtab.cli.price_options import at_option, prices_option

SECTIONS = ("steps", "rules", "returns", "plans", "inventory", "held-plans", "load")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("bundle", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--demo", is_flag=False, flag_value="two-hundred-k", metavar="[NAME]",
              help="A demonstration fleet; two-hundred-k where no name is given.")  # fmt: skip
@click.option("--as-it-was", is_flag=True,
              help="On the use as it was, in a second: not what the plan of `trimtab audit` buys.")  # fmt: skip
@click.option("--after-plan", is_flag=True, hidden=True, help="What is done anyway since 0.2.")
@click.option("--term", type=click.Choice(["1y", "3y", "any"]), default="1y", show_default=True,
              help="The terms that may be advised; the return table shows all.")  # fmt: skip
@click.option("--type", "instance_type", metavar="TYPE", help="Only this instance type: p4d.24xlarge.")
@click.option("--nodes", type=click.IntRange(min=1), help="Nodes in the return table, instead of those advised.")
@click.option("--hours-mo", type=click.FloatRange(0, 730), metavar="H",
              help="Hours a month that each is used in the return table, instead of what was measured.")  # fmt: skip
@click.option("--offer", "quotes", multiple=True, metavar="TYPE:TERM:UPFRONT_USD:USD_HR",
              help="A price per node that you were quoted: p4d.24xlarge:3y:230000:0.")  # fmt: skip
@click.option("--owned", type=_FILE, metavar="FILE",
              help="Commitments that you hold: a CSV, FOCUS contract commitments, or a cloud's JSON list.")  # fmt: skip
@click.option(
    "--owned-region", metavar="REGION", help="The region of a list that names none (AWS' reserved instances)."
)
@prices_option()
@at_option("Prices and commitments that hold on this day.")
@click.option("--section", type=click.Choice(SECTIONS), help="Only this part of the answer; CSV needs one.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, errors only.")
@click.option("-v", "--verbose", count=True, help="Log stages (-v) or every step (-vv) on stderr.")
@output_options()
def command(
    bundle: Path | None,
    demo: str | None,
    as_it_was: bool,
    after_plan: bool,
    term: str,
    instance_type: str | None,
    nodes: int | None,
    hours_mo: float | None,
    quotes: tuple[str, ...],
    owned: Path | None,
    owned_region: str | None,
    prices: Path | None,
    at: date | None,
    section: str | None,
    quiet: bool,
    verbose: int,
    output_format: Format,
    out: Path | None,
    fields: tuple[str, ...],
) -> None:
    """Say how much to commit to, in which layers, what it returns, and how other rules would have done.

    \b
    Examples:
      trimtab commit --demo                               a demonstration
      trimtab commit fleet/                               what the plan of `trimtab audit` buys, and when
      trimtab commit fleet/ --as-it-was                   as if nothing else were changed
      trimtab commit fleet/ --term any                    let 3-year terms be advised too
      trimtab commit fleet/ --type p4d.24xlarge --nodes 6 --hours-mo 500
      trimtab commit fleet/ --offer p4d.24xlarge:1y:118000:0 --owned held.csv
      trimtab commit fleet/ --owned reserved-instances.json --owned-region us-east-1
      trimtab commit fleet/ --prices mine.csv --section plans    savings plans, at rates of your own
      trimtab commit fleet/ --section returns -o csv      the return table for a spreadsheet
    """
    from trimtab.cli.commit.run import CommitRequest, run_commit

    run_commit(
        CommitRequest(
            bundle=bundle,
            demo=demo,
            as_it_was=as_it_was and not after_plan,
            term=term,
            instance_type=instance_type,
            nodes=nodes,
            hours_mo=hours_mo,
            quotes=quotes,
            owned=owned,
            owned_region=owned_region,
            prices=prices,
            at=at,
            section=section,
            quiet=quiet,
            verbose=verbose,
            output_format=output_format,
            out=out,
            fields=fields,
        )
    )
