"""The price list as tables: one row per rate for programs, one row per shape for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from trimtab.catalog import BuyingOption, Catalog, Gpu, Precision, Price, PriceBasis
from trimtab.catalog.gpus import RATE_COLUMNS
from trimtab.cli.output import Cell, Sheet, SheetColumn, fixed
from trimtab.emit.blocks import Tone
from trimtab.units import HR_PER_MO

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

_WAYS = {
    "on_demand": (BuyingOption.ON_DEMAND,),
    "spot": (BuyingOption.SPOT,),
    "committed": (BuyingOption.RESERVED_1Y, BuyingOption.RESERVED_3Y),
}
"""The buying options that the GPU matrix prices."""
_NOTES = (
    "FP32 ... FP4: dense TFLOPS (INT8: TOPS), never the figure for 2:4 sparsity; FP32 is the rate outside tensor cores.",
    "GiB: what the driver reports. NVLink: GB/s of one GPU, both directions. MIG: most instances of one GPU.",
    "FLOP/B: FP16 rate over bandwidth. ?: a datasheet figure without a second source.",
    "Prices: USD a month (730 h) of one GPU from the seller that is cheapest on demand; ~: derived. Others may be cheaper "
    "on spot or committed: trimtab prices --gpu NAME.",
    "$/TFLOPS, $/(GB/s): the month on demand over the dense FP16 rate, and over memory bandwidth.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which part of the price book to show, and for which date."""

    at: date
    stale_days: int
    gpu: str | None = None
    provider: str | None = None
    region: str | None = None
    option: BuyingOption | None = None
    instance_type: str | None = None
    everything: bool = False
    """Include listed rates that cannot be bought."""

    def is_stale(self, price: Price) -> bool:
        """Return whether a rate was last confirmed too long before the requested date."""
        return price.as_of < self.at - timedelta(days=self.stale_days)


def selected(catalog: Catalog, chosen: Selection) -> tuple[Price, ...]:
    """Return the rates of a selection, cheapest GPU-hour first."""
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
    """Return the first day with any known rate of a selection; None if there is none."""
    later = {price.key for price in selected(catalog, replace(chosen, at=date.max))}
    return min((price.as_of for price in catalog.prices.prices if price.key in later), default=None)


def long_sheet(catalog: Catalog, chosen: Selection, prices: Iterable[Price]) -> Sheet:
    """Return one row per rate, with everything known about it, for programs."""
    keys = (
        "provider", "instance_type", "region", "option", "gpu", "gpu_count", "gpu_frac", "usd_hr", "usd_gpu_hr", "usd_mo",
        "as_of", "stale", "basis", "source", "interruption", "purchasable", "note",
    )  # fmt: skip
    rows = [_long_row(catalog, chosen, price) for price in prices]
    return Sheet(columns=[SheetColumn(key=key, title=key) for key in keys], rows=rows)


def wide_sheet(catalog: Catalog, prices: Sequence[Price], limit: int) -> Sheet:
    """Return one row per shape and region, with a column per buying option, for people.

    A trailing ~ marks a derived rate, ! one that cannot be bought; the date is that of the oldest rate. `limit` 0 shows all.
    """
    shapes: dict[tuple[str, str, str], dict[BuyingOption, Price]] = {}
    for price in prices:
        shapes.setdefault((price.provider, price.instance_type, price.region), {})[price.option] = price
    rows = [_wide_row(catalog, shape) for shape in list(shapes.values())[: limit or None]]
    rank = {gpu: i for i, gpu in reversed(list(enumerate(row["gpu"] for row in rows)))}
    rows.sort(key=lambda row: rank[row["gpu"]])
    columns = [
        SheetColumn(key="offering", title="instance type", whole=True, repeat=True),
        SheetColumn(key="gpu_count", title="GPUs", right=True),
        SheetColumn(key="region", title="region", whole=True, repeat=True),
        *(
            SheetColumn(key=option.value, title=title, right=True)
            for option, title in _TITLES.items()
            if any(option.value in row for row in rows)
        ),
        SheetColumn(key="usd_gpu_hr", title="GPU-h", right=True, show=fixed(3), strong=True),
        SheetColumn(key="as_of", title="as of", whole=True, tone=Tone.SOFT),
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
        notes.append("! listed, but cannot be bought.")
    if len(rows) < total:
        notes.append(
            f"{len(rows)} of {total} shapes, cheapest GPU-hour first: narrow with --gpu, --provider, or --limit 0."
        )
    return notes


def usd_gpu_hr(catalog: Catalog, price: Price) -> float:
    """Return the rate of one whole GPU; a slice counts as its share."""
    return price.usd_hr / catalog.instance_type(price.provider, price.instance_type).board_count


def matrix_sheet(catalog: Catalog, chosen: Selection) -> Sheet:
    """Return the GPU matrix: one row per GPU, dense rates only, with a month from its cheapest seller under each buying option.

    The last two columns divide the month on demand by what a GPU does: dense FP16 throughput, and memory bandwidth.
    """
    columns = [
        SheetColumn(key="gpu", title="GPU", strong=True, repeat=True, whole=True),
        SheetColumn(key="architecture", title="architecture", whole=True),
        *(
            SheetColumn(key=key, title=precision.name, right=True, show=_figure)
            for precision, key in RATE_COLUMNS.items()
        ),
        SheetColumn(key="mem_bw_gb_s", title="GB/s", right=True, show=_figure),
        SheetColumn(key="memory_gib", title="GiB", right=True, show=fixed(1)),
        SheetColumn(key="nvlink_gb_s", title="NVLink", right=True, show=_figure_or_none),
        SheetColumn(key="mig_instances", title="MIG", right=True, show=_figure_or_none),
        SheetColumn(key="flop_per_byte", title="FLOP/B", right=True, show=fixed(0)),
        SheetColumn(key="seller", title="seller", whole=True),
        SheetColumn(key="on_demand_usd_mo", title="on demand", right=True, show=fixed(0)),
        SheetColumn(key="spot_usd_mo", title="spot", right=True, show=fixed(0)),
        SheetColumn(key="committed_usd_mo", title="committed", right=True, show=fixed(0)),
        SheetColumn(key="usd_mo_per_fp16_tflops", title="$/TFLOPS", right=True, show=fixed(2)),
        SheetColumn(key="usd_mo_per_gb_s", title="$/(GB/s)", right=True, show=fixed(2)),
    ]
    gpus = [gpu for gpu in catalog.gpus if chosen.gpu in (None, gpu.name)]
    return Sheet(columns=columns, rows=[_matrix_row(catalog, chosen, gpu) for gpu in gpus], notes=_NOTES)


def with_provenance(sheet: Sheet) -> Sheet:
    """Return the matrix for programs, with the offering behind each price and the figures lacking a second source."""
    keys = (*(f"{name}_{what}" for name in _WAYS for what in ("basis", "offering")), "unverified_fields")
    return replace(sheet, columns=[*sheet.columns, *(SheetColumn(key=key, title=key) for key in keys)])


def with_doubt_shown(sheet: Sheet) -> Sheet:
    """Return the matrix for people: a figure without a second source ends in ?, a derived price in ~."""
    return replace(sheet, rows=[{**row, **_doubtful(sheet, row)} for row in sheet.rows])


def _doubtful(sheet: Sheet, row: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return the cells of a row that have a mark, as text."""
    listed = row["unverified_fields"]
    marks = dict.fromkeys(listed if isinstance(listed, list) else [], "?")
    marks |= {f"{name}_usd_mo": "~" for name in _WAYS if row[f"{name}_basis"] == PriceBasis.DERIVED.value}
    return {
        column.key: f"{column.text(row[column.key])}{marks[column.key]}"
        for column in sheet.columns
        if column.key in marks and row[column.key] is not None
    }


def _matrix_row(catalog: Catalog, chosen: Selection, gpu: Gpu) -> dict[str, Cell]:
    balance = gpu.flop_per_byte(Precision.FP16)
    doubts = ("memory_gib" if name == "memory_mib" else name for name in gpu.unverified_fields)
    row: dict[str, Cell] = {
        "gpu": gpu.name,
        "architecture": gpu.architecture,
        **{key: gpu.tflops(precision) for precision, key in RATE_COLUMNS.items()},
        "mem_bw_gb_s": gpu.mem_bw_gb_s,
        "memory_gib": round(gpu.memory_gib, 2),
        "nvlink_gb_s": gpu.nvlink_gb_s,
        "mig_instances": max((profile.max_instances for profile in catalog.mig_profiles(gpu)), default=0),
        "flop_per_byte": None if balance is None else round(balance, 1),
        "unverified_fields": sorted(doubts),
    }
    seller = _seller(catalog, chosen, gpu)
    row["seller"] = seller
    own = replace(chosen, provider=seller)
    for name, options in _WAYS.items():
        cheapest = _cheapest(catalog, own, gpu, options) if seller else None
        row[f"{name}_usd_mo"] = None if cheapest is None else round(usd_gpu_hr(catalog, cheapest) * HR_PER_MO, 2)
        row[f"{name}_basis"] = None if cheapest is None else cheapest.basis.value
        row[f"{name}_offering"] = None if cheapest is None else f"{cheapest.offering}, as of {cheapest.as_of}"
    month_usd = row["on_demand_usd_mo"]
    row["usd_mo_per_fp16_tflops"] = _per(month_usd, gpu.tflops(Precision.FP16))
    row["usd_mo_per_gb_s"] = _per(month_usd, gpu.mem_bw_gb_s)
    return row


def _seller(catalog: Catalog, chosen: Selection, gpu: Gpu) -> str | None:
    """Return who sells a board most cheaply: on demand, else on spot, else committed; None where no provider does.

    All prices of a row are this seller's: across sellers a commitment may look more expensive than on demand.
    """
    found = (_cheapest(catalog, chosen, gpu, options) for options in _WAYS.values())
    return next((price.provider for price in found if price), None)


def _per(usd: Cell, amount: float | None) -> float | None:
    """Return dollars per unit of performance; None if it is not sold or has no figure."""
    return round(usd / amount, 4) if isinstance(usd, float) and amount else None


def _cheapest(catalog: Catalog, chosen: Selection, gpu: Gpu, options: Sequence[BuyingOption]) -> Price | None:
    """Return the cheapest rate of one whole GPU under any of the options; None if none is sold."""
    found = (
        price
        for option in options
        for price in catalog.prices.offerings(
            gpu=gpu.name, provider=chosen.provider, region=chosen.region, option=option, at=chosen.at
        )
        if catalog.instance_type(price.provider, price.instance_type).gpu_frac == 1
    )
    return min(found, key=lambda price: (usd_gpu_hr(catalog, price), price.key[:3]), default=None)


def _figure(cell: Cell) -> str:
    """Format a figure: no decimals from 100 on."""
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:,.0f}" if cell >= 100 else f"{cell:g}"


def _figure_or_none(cell: Cell) -> str:
    """Format a figure; a dash if the GPU does not have it."""
    return _figure(cell) if cell else "–"
