"""`trimtab prices compare`: what a GPU costs across clouds and regions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import click

from trimtab.catalog import ANY_REGION, BuyingOption, Catalog, Precision, Price, PriceBasis, load_catalog
from trimtab.catalog.prices import STALE_DAYS
from trimtab.cli.options import (
    AnswerOptions,
    answer_options,
    argument,
    option,
    options_from,
    prices_option,
    today_option,
)
from trimtab.cli.output import Cell, Format, Sheet, SheetColumn, fixed, percent, write_answer
from trimtab.cli.prices.tables import usd_gpu_hr
from trimtab.emit.blocks import Tone
from trimtab.errors import MissingPrice, UnknownName
from trimtab.units import BYTES_PER_GB, HR_PER_MO, HR_PER_YEAR

_OPTIONS = (BuyingOption.ON_DEMAND, BuyingOption.SPOT, BuyingOption.RESERVED_1Y, BuyingOption.RESERVED_3Y)
_TITLES = {
    BuyingOption.ON_DEMAND: "on demand",
    BuyingOption.SPOT: "spot",
    BuyingOption.RESERVED_1Y: "1 year",
    BuyingOption.RESERVED_3Y: "3 years",
}
_CENTS = 2

_rate = fixed(3)
_rate_two = fixed(2)
_dollars = fixed(0)
_TERMS = {
    "on-demand": BuyingOption.ON_DEMAND,
    "spot": BuyingOption.SPOT,
    "1y": BuyingOption.RESERVED_1Y,
    "3y": BuyingOption.RESERVED_3Y,
}
_SHOWN = 40
_FOR_PEOPLE = (Format.TABLE, Format.MARKDOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceComparison:
    """What to compare: GPUs, the buying option, how many, when and where."""

    gpus: tuple[str, ...]
    option: BuyingOption
    count: int
    at: date
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """An instance type in a region with its rates, one per buying option."""

    gpu: str
    boards: float
    rates: dict[BuyingOption, Price]

    def usd_year(self, option: BuyingOption, count: int) -> float | None:
        """Return the cost of this many GPUs for a year, in whole nodes; None if there is no rate."""
        price = self.rates.get(option)
        return None if price is None else math.ceil(count / self.boards) * price.usd_hr * HR_PER_YEAR


def boards_named(catalog: Catalog, name: str) -> tuple[str, ...]:
    """Return the GPUs that a name matches: one exactly, or every memory size and form factor of a name such as A100.

    Raises UnknownName with near matches.
    """
    try:
        return (catalog.gpu(name).name,)
    except UnknownName:
        begin = f"{name.casefold()}-"
        found = tuple(gpu.name for gpu in catalog.gpus if gpu.name.casefold().startswith(begin))
        if not found:
            raise
        return found


def comparison_sheet(catalog: Catalog, asked: PriceComparison, *, limit: int, for_people: bool) -> Sheet:
    """Return one row per provider, region and GPU: the shape that gives this many GPUs at the lowest cost.

    Places without a rate under the requested buying option come last, with the rate shown as missing.
    """
    best = _best(catalog, asked)
    rows = [_row(catalog, shape, asked, for_people) for shape in best]
    shown = rows[: limit or None] if for_people else rows
    columns = [
        SheetColumn(key="provider", title="cloud", whole=True),
        SheetColumn(key="region", title="region", whole=True, repeat=True),
        SheetColumn(key="instance_type", title="instance type", whole=True, repeat=True),
        *(SheetColumn(key=_key(option), title=_TITLES[option], right=True, show=_rate) for option in _OPTIONS),
        SheetColumn(key="usd_year", title=f"{asked.count} GPUs, a year", right=True, show=_dollars, strong=True),
        SheetColumn(key="saving_frac", title="off", right=True, show=percent(0)),
        SheetColumn(key="usd_mo_per_tflops", title="$ per TFLOPS, a month", right=True, show=_rate_two),
        SheetColumn(key="usd_mo_per_gb_s", title="$ per GB/s, a month", right=True, show=_rate_two),
        SheetColumn(key="interconnect", title="GPUs linked by"),
        SheetColumn(key="network_gbit_s", title="network Gbit/s", right=True, show=_dollars),
        SheetColumn(key="network_kind", title="by"),
        SheetColumn(key="as_of", title="as of", whole=True, tone=Tone.SOFT),
    ]
    if not for_people:
        more = ("gpu", "gpu_count", "nodes", "network_source", "option", "basis", "source", "note")
        columns = [*columns, *(SheetColumn(key=key, title=key) for key in more)]
    return Sheet(columns=columns, rows=shown, section="gpu" if for_people else "", notes=_notes(shown, rows, asked))


def _best(catalog: Catalog, asked: PriceComparison) -> list[_Shape]:
    """Return the cheapest shape of each provider, region and GPU, cheapest first per GPU."""
    by_place: dict[tuple[str, str, str], list[_Shape]] = {}
    for shape in _shapes(catalog, asked):
        some = next(iter(shape.rates.values()))
        by_place.setdefault((some.provider, some.region, shape.gpu), []).append(shape)
    best = [min(shapes, key=lambda shape: _rank(shape, asked)) for shapes in by_place.values()]
    order = {gpu: place for place, gpu in enumerate(asked.gpus)}
    return sorted(best, key=lambda shape: (order[shape.gpu], *_rank(shape, asked)))


def _shapes(catalog: Catalog, asked: PriceComparison) -> Iterable[_Shape]:
    rates: dict[tuple[str, str, str], dict[BuyingOption, Price]] = {}
    for gpu in asked.gpus:
        for price in catalog.prices.offerings(gpu=gpu, at=asked.at):
            wanted = not asked.providers or price.provider in asked.providers
            if (
                wanted
                and price.option in _OPTIONS
                and (not asked.regions or price.region in (*asked.regions, ANY_REGION))
            ):
                rates.setdefault(price.key[:3], {})[price.option] = price
    for (provider, name, _), found in rates.items():
        instance = catalog.instance_type(provider, name)
        yield _Shape(gpu=instance.gpu, boards=instance.board_count, rates=found)


def _rank(shape: _Shape, asked: PriceComparison) -> tuple[bool, float, float, tuple[str, str, str]]:
    """Sort key of shapes: those with the requested rate, cheapest year first; then the others by their cheapest rate."""
    year = shape.usd_year(asked.option, asked.count)
    least = min(price.usd_hr / shape.boards for price in shape.rates.values())
    some = next(iter(shape.rates.values()))
    return (year is None, year or 0.0, least, some.key[:3])


def _row(catalog: Catalog, shape: _Shape, asked: PriceComparison, for_people: bool) -> dict[str, Cell]:
    some = next(iter(shape.rates.values()))
    taken, listed = shape.rates.get(asked.option), shape.rates.get(BuyingOption.ON_DEMAND)
    year = shape.usd_year(asked.option, asked.count)
    saving = 1 - taken.usd_hr / listed.usd_hr if taken and listed and taken is not listed else None
    rates = {_key(option): _gpu_hr(catalog, shape.rates.get(option), for_people) for option in _OPTIONS}
    oldest = taken.as_of if taken else min(price.as_of for price in shape.rates.values())
    return {
        "provider": some.provider,
        "region": some.region,
        "instance_type": some.instance_type,
        **rates,
        "usd_year": None if year is None else round(year, _CENTS),
        "saving_frac": None if saving is None else round(saving, 4),
        **_per_unit(catalog, shape, taken),
        **_links(catalog, some),
        "as_of": oldest.strftime("%Y-%m") if for_people else oldest.isoformat(),
        "gpu": shape.gpu,
        "gpu_count": shape.boards,
        "nodes": math.ceil(asked.count / shape.boards),
        "option": asked.option.value,
        "basis": taken.basis.value if taken else None,
        "source": taken.source if taken else None,
        "note": taken.note if taken else None,
    }


def _per_unit(catalog: Catalog, shape: _Shape, price: Price | None) -> dict[str, Cell]:
    """Return what a month of one dense 16-bit TFLOPS and of one GB/s of memory costs; None where there is no rate."""
    gpu = catalog.gpu(shape.gpu)
    tflops = gpu.tflops(Precision.BF16) or gpu.tflops(Precision.FP16)
    month = None if price is None else usd_gpu_hr(catalog, price) * HR_PER_MO
    return {
        "usd_mo_per_tflops": None if month is None or not tflops else round(month / tflops, 4),
        "usd_mo_per_gb_s": None if month is None else round(month / gpu.mem_bw_gb_s, 4),
    }


def _links(catalog: Catalog, price: Price) -> dict[str, Cell]:
    """Return what connects the GPUs of a node and the node to others; None where no figure is published."""
    # loads NumPy, which nothing else of `trimtab prices` needs
    from trimtab.physics.fabrics import BITS_PER_BYTE, published_fabric

    instance = catalog.instance_type(price.provider, price.instance_type)
    fabric = published_fabric(price.provider, price.instance_type)
    return {
        "interconnect": instance.interconnect or None,
        "network_gbit_s": None if fabric is None else round(fabric.node_byte_s * BITS_PER_BYTE / BYTES_PER_GB, 1),
        "network_kind": None if fabric is None else fabric.kind or None,
        "network_source": None if fabric is None else fabric.source,
    }


def _gpu_hr(catalog: Catalog, price: Price | None, for_people: bool) -> Cell:
    """Return the rate of one GPU an hour; for people, derived rates are marked."""
    if price is None:
        return None
    rate = usd_gpu_hr(catalog, price)
    return f"{rate:.3f}~" if for_people and price.basis is PriceBasis.DERIVED else round(rate, 6)


def _key(option: BuyingOption) -> str:
    return f"{option.value.replace('-', '_')}_usd_gpu_hr"


def _notes(shown: Sequence[dict[str, Cell]], rows: Sequence[dict[str, Cell]], asked: PriceComparison) -> list[str]:
    term = _TITLES[asked.option]
    priced = sum(row["usd_year"] is not None for row in rows)
    notes = [
        f"USD an hour of one GPU; the year is of {asked.count} GPUs in whole nodes, {term}; off: compared with on demand "
        "there.",
        "TFLOPS (dense, 16 bit) and GB/s of memory: what a month of one costs; network: of a whole node, where published.",
        f"{priced} of {len(rows)} places have a known rate for {term}; – is missing: not sold, or not in our price lists.",
    ]
    if any(str(row[_key(option)]).endswith("~") for row in shown for option in _OPTIONS):
        notes.append("~ derived from a published average saving, not observed.")
    old = asked.at - timedelta(days=STALE_DAYS)
    stale = sum(str(row["as_of"]) < old.isoformat()[: len(str(row["as_of"]))] for row in shown)
    if stale:
        notes.append(f"{stale} of the rates shown are older than {STALE_DAYS} days: run trimtab prices refresh.")
    if len(shown) < len(rows):
        notes.append(f"{len(shown)} of {len(rows)} places shown: narrow with --provider, --region, or --limit 0.")
    return notes


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesCompareOptions:
    """Arguments of `trimtab prices compare`."""

    gpu: str = argument()
    term: str = option(
        "--term", type=click.Choice(list(_TERMS)), default="on-demand", show_default=True,
        help="The buying option for the year's cost.",
    )  # fmt: skip
    count: int = option(
        "--count", type=click.IntRange(min=1), default=8, show_default=True, help="How many GPUs, for a year."
    )
    providers: tuple[str, ...] = option("--provider", help="Only this provider; repeat for several.")
    regions: tuple[str, ...] = option("--region", help="Only this region; repeat for several.")
    at: date = today_option()
    own: Path | None = prices_option("Your own rates, or those of a refresh; they override the price list.")
    limit: int = option(
        "--limit", type=click.IntRange(min=0), default=_SHOWN, show_default=True,
        help="Maximum number of places in a table; 0 for all.",
    )  # fmt: skip
    answer: AnswerOptions = answer_options()


@click.command("compare")
@options_from(PricesCompareOptions)
def command(options: PricesCompareOptions) -> None:
    """Compare what a GPU costs across clouds and regions: an hour of one, and a year of several.

    A name that leaves the memory open (A100) compares every such board. A rate that is not known is shown as missing.

    \b
    Examples:
      trimtab prices compare A100 --term 3y
      trimtab prices compare H100 --term spot --region us-east-1 --region us-central1
      trimtab prices compare L4 --provider aws --provider gcp --count 16 -o csv
    """
    catalog = load_catalog(options.own)
    for provider in options.providers:
        if provider not in catalog.providers:
            raise UnknownName("provider", provider, catalog.providers)
    asked = PriceComparison(
        gpus=boards_named(catalog, options.gpu),
        option=_TERMS[options.term],
        count=options.count,
        at=options.at,
        providers=options.providers,
        regions=options.regions,
    )
    sheet = comparison_sheet(
        catalog, asked, limit=options.limit, for_people=options.answer.output_format in _FOR_PEOPLE
    )
    if not sheet.rows:
        where = ", ".join((*options.providers, *options.regions)) or "anywhere"
        raise MissingPrice(
            f"no price for {options.gpu} at {options.at} in {where}: drop a filter, or add your own rate with --prices FILE"
        )
    write_answer(sheet, options.answer)
