"""`trimtab prices compare`: what a GPU costs across clouds and regions."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import click

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.cli.moments import parse_day
from trimtab.cli.output import Format, output_options, write_sheet
from trimtab.cli.price_compare import Comparison, boards_named, comparison_sheet
from trimtab.cli.price_options import prices_option
from trimtab.errors import MissingPrice, UnknownName

_TERMS = {
    "on-demand": BuyingOption.ON_DEMAND,
    "spot": BuyingOption.SPOT,
    "1y": BuyingOption.RESERVED_1Y,
    "3y": BuyingOption.RESERVED_3Y,
}
_SHOWN = 40
_FOR_PEOPLE = (Format.TABLE, Format.MARKDOWN)


@click.command("compare")
@click.argument("gpu")
@click.option("--term", type=click.Choice(list(_TERMS)), default="on-demand", show_default=True,
              help="The way of buying that the year is counted under.")  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), default=8, show_default=True, help="How many GPUs, for a year.")
@click.option("--provider", "providers", multiple=True, help="Only this provider; repeat it for several.")
@click.option("--region", "regions", multiple=True, help="Only this region; repeat it for several.")
@click.option("--at", callback=parse_day, default=lambda: date.today().isoformat(), show_default="today", metavar="DATE",
              help="The prices that held on this day.")  # fmt: skip
@prices_option("Your own rates, or those of a refresh; they go over the list.", parameter="own")
@click.option("--limit", type=click.IntRange(min=0), default=_SHOWN, show_default=True,
              help="Most places in a table; 0 for all.")  # fmt: skip
@output_options()
def command(
    gpu: str,
    term: str,
    count: int,
    providers: tuple[str, ...],
    regions: tuple[str, ...],
    at: date,
    own: Path | None,
    limit: int,
    output_format: Format,
    out: Path | None,
    fields: tuple[str, ...],
) -> None:
    """Compare what a GPU costs across clouds and regions: an hour of one, and a year of several.

    A name that leaves the memory open (A100) compares every such board. A rate that is not known is shown as missing.

    \b
    Examples:
      trimtab prices compare A100 --term 3y
      trimtab prices compare H100 --term spot --region us-east-1 --region us-central1
      trimtab prices compare L4 --provider aws --provider gcp --count 16 -o csv
    """
    catalog = load_catalog(own)
    for provider in providers:
        if provider not in catalog.providers:
            raise UnknownName("provider", provider, catalog.providers)
    asked = Comparison(
        gpus=boards_named(catalog, gpu),
        option=_TERMS[term],
        count=count,
        at=at,
        providers=providers,
        regions=regions,
    )
    sheet = comparison_sheet(catalog, asked, limit=limit, for_people=output_format in _FOR_PEOPLE)
    if not sheet.rows:
        where = ", ".join((*providers, *regions)) or "anywhere"
        raise MissingPrice(
            f"no price for {gpu} at {at} in {where}: drop a filter, or add your own rate with --prices FILE"
        )
    write_sheet(sheet, output_format, out=out, fields=fields)
