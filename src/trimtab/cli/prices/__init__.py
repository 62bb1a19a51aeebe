"""`trimtab prices`: lists and filters GPU prices, and shows the GPU matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click

from trimtab.catalog import BuyingOption, Catalog, load_catalog
from trimtab.catalog.prices import STALE_DAYS, Price
from trimtab.cli.options import (
    NEW_FILE,
    AnswerOptions,
    answer_options,
    completed_from,
    gpu_names,
    option,
    options_from,
    today_option,
)
from trimtab.cli.output import Format, Sheet, write_answer
from trimtab.cli.prices.compare import command as compare
from trimtab.cli.prices.refresh import command as refresh
from trimtab.cli.prices.tables import (
    Selection,
    first_day,
    long_sheet,
    matrix_sheet,
    selected,
    wide_sheet,
    with_doubt_shown,
    with_provenance,
)
from trimtab.errors import MissingPrice, UnknownName

SHOWN_SHAPES = 40
_FOR_PEOPLE = (Format.TABLE, Format.MARKDOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesOptions:
    """Arguments of `trimtab prices`."""

    gpu: str | None = option(
        "--gpu", shell_complete=completed_from(gpu_names),
        help="Only this GPU, under any of its names: H100, A100-40GB, 'Tesla T4'.",
    )  # fmt: skip
    provider: str | None = option("--provider", help="Only this provider: aws, gcp, azure, oci, lambda, ...")
    region: str | None = option("--region", help="Only this region, including rates that hold in any region.")
    instance_type: str | None = option("--type", help="Only this instance type: p5.48xlarge.")
    buying: str | None = option(
        "--option", type=click.Choice([option.value for option in BuyingOption]), help="Only this buying option."
    )
    at: date = today_option()
    matrix: bool = option("--gpus", help="Show the GPU matrix instead: rates, memory, links, price a month.")
    everything: bool = option("--all", help="Include listed rates that cannot be bought.")
    own: Path | None = option(
        "--prices",
        type=NEW_FILE,
        envvar="TRIMTAB_PRICES",
        help="Your own rates, CSV or YAML; they override the price list.",
    )
    stale_days: int = option(
        "--stale-days", type=click.IntRange(min=1), default=STALE_DAYS, show_default=True,
        help="Warn about rates last confirmed more than this many days ago.",
    )  # fmt: skip
    limit: int = option(
        "--limit", type=click.IntRange(min=0), default=SHOWN_SHAPES, show_default=True,
        help="Maximum number of shapes in a table; 0 for all.",
    )  # fmt: skip
    answer: AnswerOptions = answer_options()


@click.group(invoke_without_command=True)
@options_from(PricesOptions)
def command(options: PricesOptions) -> None:
    """List what GPUs cost, at a date, in a region, under a buying option.

    \b
    Examples:
      trimtab prices --gpu H100                         every H100 offering, cheapest GPU-hour first
      trimtab prices --provider aws --type p4d.24xlarge --at 2025-05-01
      trimtab prices --gpu A100-80GB --option spot -o csv
      trimtab prices --gpus                             the GPU matrix
      trimtab prices --prices own-rates.yaml --gpu L4   with negotiated rates
      trimtab prices compare A100 --term 3y             across clouds and regions, and a year of 8
      trimtab prices refresh --dry-run                  what the clouds' lists say today
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    catalog, chosen, prices = found_prices(options)
    for_people = options.answer.output_format in _FOR_PEOPLE
    sheet = _sheet(catalog, chosen, prices, matrix=options.matrix, limit=options.limit, for_people=for_people)
    write_answer(sheet, options.answer)
    _warn_of_stale(chosen, prices)
    if catalog.questions:
        asked = "".join(f"\n  - {question}" for question in catalog.questions)
        click.echo(f"warning: {len(catalog.questions)} question(s) about own rates, used unchanged:{asked}", err=True)


def found_prices(options: PricesOptions) -> tuple[Catalog, Selection, tuple[Price, ...]]:
    """Return the price list, the selection, and its rates, cheapest GPU-hour first. Raises TrimtabError."""
    catalog = load_catalog(options.own)
    chosen = Selection(
        at=options.at,
        stale_days=options.stale_days,
        gpu=catalog.gpu(options.gpu).name if options.gpu else None,
        provider=options.provider,
        region=options.region,
        option=BuyingOption(options.buying) if options.buying else None,
        instance_type=options.instance_type,
        everything=options.everything,
    )
    _check_names(catalog, chosen)
    prices = selected(catalog, chosen)
    if not prices and not options.matrix:
        raise MissingPrice(_nothing(catalog, chosen))
    return catalog, chosen, prices


command.add_command(compare)
command.add_command(refresh)


def _sheet(
    catalog: Catalog, chosen: Selection, prices: Sequence[Price], *, matrix: bool, limit: int, for_people: bool
) -> Sheet:
    if matrix:
        sheet = matrix_sheet(catalog, chosen)
        return with_doubt_shown(sheet) if for_people else with_provenance(sheet)
    return wide_sheet(catalog, prices, limit) if for_people else long_sheet(catalog, chosen, prices)


def _check_names(catalog: Catalog, chosen: Selection) -> None:
    """Raise UnknownName with near matches for an unknown provider, region or type."""
    known = [key for key in catalog.prices.keys if chosen.provider in (None, key[0])]
    if not known:
        raise UnknownName("provider", str(chosen.provider), sorted({key[0] for key in catalog.prices.keys}))
    where = chosen.provider or ""
    if chosen.instance_type and all(key[1] != chosen.instance_type for key in known):
        raise UnknownName("instance type", chosen.instance_type, sorted({key[1] for key in known}), where=where)
    if chosen.region and all(key[2] != chosen.region for key in known):
        raise UnknownName("region", chosen.region, sorted({key[2] for key in known}), where=where)


def _nothing(catalog: Catalog, chosen: Selection) -> str:
    """Say that no rate matches, and which date would have one."""
    asked = (chosen.gpu, chosen.provider, chosen.instance_type, chosen.region, chosen.option and chosen.option.value)
    what = f"no price for {', '.join(word for word in asked if word) or 'anything'} at {chosen.at}"
    first = first_day(catalog, chosen)
    if first is None:
        return f"{what}: not known to be sold that way; drop a filter, or add your own rate with --prices FILE"
    return f"{what}: the first known rate is of {first}; ask for a later date, or add your own rate with --prices FILE"


def _warn_of_stale(chosen: Selection, prices: Sequence[Price]) -> None:
    old = [price for price in prices if chosen.is_stale(price)]
    if old:
        oldest = min(price.as_of for price in old)
        click.echo(
            f"warning: {len(old)} of {len(prices)} rates were last confirmed more than {chosen.stale_days} days before "
            f"{chosen.at} (oldest {oldest}); update them with trimtab prices refresh, or override them with --prices FILE",
            err=True,
        )
