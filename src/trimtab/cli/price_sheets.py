"""The price list as sheets: a row a rate for programs, a row a shape for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from trimtab.catalog import BuyingOption, Catalog, Price, PriceBasis
from trimtab.cli.output import Cell, Column, Sheet, fixed
from trimtab.emit.blocks import Tone

_TITLES = {
    BuyingOption.ON_DEMAND: "on demand",
    BuyingOption.SPOT: "spot",
    BuyingOption.RESERVED_1Y: "1 year",
    BuyingOption.RESERVED_3Y: "3 years",
    BuyingOption.SAVINGS_PLAN_1Y: "plan 1 year",
    BuyingOption.SAVINGS_PLAN_3Y: "plan 3 years",
    BuyingOption.CAPACITY_BLOCK: "block",
    BuyingOption.OWNED: "owned",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What of the price book to show, and as of when."""

    at: date
    stale_days: int
    gpu: str | None = None
    provider: str | None = None
    region: str | None = None
    option: BuyingOption | None = None
    instance_type: str | None = None
    everything: bool = False
    """Also rates that a list states but nobody can buy."""

    def is_stale(self, price: Price) -> bool:
        """Tell whether a rate was last confirmed too long before the date asked for."""
        return price.as_of < self.at - timedelta(days=self.stale_days)


def selected(catalog: Catalog, chosen: Selection) -> tuple[Price, ...]:
    """Return the rates of a selection, the cheapest board-hour first."""
    found = (
        price
        for price in catalog.prices.offerings(
            gpu=chosen.gpu,
            provider=chosen.provider,
            region=chosen.region,
            option=chosen.option,
            at=chosen.at,
            purchasable_only=not chosen.everything,
        )
        if chosen.instance_type in (None, price.instance_type)
    )
    return tuple(sorted(found, key=lambda price: (usd_gpu_hr(catalog, price), price.key[:3], price.option.value)))


def first_day(catalog: Catalog, chosen: Selection) -> date | None:
    """Return the first day on which any rate of a selection is known; None where none ever is."""
    later = {price.key for price in selected(catalog, replace(chosen, at=date.max))}
    return min((price.as_of for price in catalog.prices.prices if price.key in later), default=None)


def long_sheet(catalog: Catalog, chosen: Selection, prices: Iterable[Price]) -> Sheet:
    """Return one row a rate, with all that is known of it: what programs read."""
    keys = (
        "provider", "instance_type", "region", "option", "gpu", "gpu_count", "gpu_frac", "usd_hr", "usd_gpu_hr", "usd_mo",
        "as_of", "stale", "basis", "source", "interruption", "purchasable", "note",
    )  # fmt: skip
    rows = [_long_row(catalog, chosen, price) for price in prices]
    return Sheet(columns=[Column(key=key, title=key) for key in keys], rows=rows)


def wide_sheet(catalog: Catalog, prices: Sequence[Price], limit: int) -> Sheet:
    """Return one row a shape and region, with a column a buying option: what people read.

    A trailing ~ marks a derived rate, ! one that nobody can buy; the date is that of the oldest rate. `limit` 0 shows all.
    """
    shapes: dict[tuple[str, str, str], dict[BuyingOption, Price]] = {}
    for price in prices:
        shapes.setdefault((price.provider, price.instance_type, price.region), {})[price.option] = price
    rows = [_wide_row(catalog, shape) for shape in list(shapes.values())[: limit or None]]
    rank = {gpu: i for i, gpu in reversed(list(enumerate(row["gpu"] for row in rows)))}
    rows.sort(key=lambda row: rank[row["gpu"]])
    columns = [
        Column(key="offering", title="instance type"),
        Column(key="gpu_count", title="GPUs", right=True),
        Column(key="region", title="region", whole=True),
        *(
            Column(key=option.value, title=title, right=True)
            for option, title in _TITLES.items()
            if any(option.value in row for row in rows)
        ),
        Column(key="usd_gpu_hr", title="GPU-h", right=True, show=fixed(3), strong=True),
        Column(key="as_of", title="as of", whole=True, tone=Tone.SOFT),
    ]
    return Sheet(columns=columns, rows=rows, section="gpu", notes=_wide_notes(rows, len(shapes)))


def _long_row(catalog: Catalog, chosen: Selection, price: Price) -> dict[str, Cell]:
    instance = catalog.instance_type(price.provider, price.instance_type)
    return {
        "provider": price.provider,
        "instance_type": price.instance_type,
        "region": price.region,
        "option": price.option.value,
        "gpu": instance.gpu,
        "gpu_count": instance.gpu_count,
        "gpu_frac": instance.gpu_frac,
        "usd_hr": price.usd_hr,
        "usd_gpu_hr": round(usd_gpu_hr(catalog, price), 6),
        "usd_mo": round(price.usd_mo, 2),
        "as_of": price.as_of.isoformat(),
        "stale": chosen.is_stale(price),
        "basis": price.basis.value,
        "source": price.source,
        "interruption": price.interruption.value if price.interruption else None,
        "purchasable": price.purchasable,
        "note": price.note,
    }


def _wide_row(catalog: Catalog, shape: dict[BuyingOption, Price]) -> dict[str, Cell]:
    some = next(iter(shape.values()))
    instance = catalog.instance_type(some.provider, some.instance_type)
    return {
        "gpu": instance.gpu,
        "offering": f"{some.provider} {some.instance_type}",
        "gpu_count": f"{instance.board_count:.3g}",
        "region": some.region,
        "usd_gpu_hr": min(usd_gpu_hr(catalog, price) for price in shape.values()),
        "as_of": min(price.as_of for price in shape.values()).strftime("%Y-%m"),
        **{option.value: _marked(price) for option, price in shape.items()},
    }


def _marked(price: Price) -> str:
    derived = "~" if price.basis is PriceBasis.DERIVED else ""
    return f"{price.usd_hr:.3f}{derived}{'' if price.purchasable else '!'}"


def _wide_notes(rows: Sequence[dict[str, Cell]], total: int) -> list[str]:
    notes = ["USD an hour of the whole instance; GPU-h: the cheapest hour of one GPU; as of: the oldest of the rates."]
    rates = [str(cell) for row in rows for key, cell in row.items() if key in {option.value for option in _TITLES}]
    if any("~" in rate for rate in rates):
        notes.append("~ derived from a published average saving, not observed.")
    if any("!" in rate for rate in rates):
        notes.append("! listed, but nobody can buy it.")
    if len(rows) < total:
        notes.append(
            f"{len(rows)} of {total} shapes, cheapest GPU-hour first: narrow with --gpu, --provider, or --limit 0."
        )
    return notes


def usd_gpu_hr(catalog: Catalog, price: Price) -> float:
    """Return the rate of one whole board; a slice counts as its share."""
    return price.usd_hr / catalog.instance_type(price.provider, price.instance_type).board_count
