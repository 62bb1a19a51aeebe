"""The GPU matrix: architecture, dense rates, memory, links and the cheapest month of every board."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trimtab.catalog import BuyingOption, Catalog, Gpu, Precision, Price, PriceBasis
from trimtab.catalog.gpus import RATE_COLUMNS
from trimtab.cli.output import Cell, Column, Sheet, fixed
from trimtab.cli.price_sheets import Selection, usd_gpu_hr
from trimtab.units import HR_PER_MO

_WAYS = {
    "on_demand": (BuyingOption.ON_DEMAND,),
    "spot": (BuyingOption.SPOT,),
    "committed": (BuyingOption.RESERVED_1Y, BuyingOption.RESERVED_3Y),
}
"""The ways of buying that the GPU matrix prices."""
_NOTES = (
    "FP32 ... FP4: dense TFLOPS (INT8: TOPS), never the figure for 2:4 sparsity; FP32 is the rate outside tensor cores.",
    "GiB: what the driver reports. NVLink: GB/s of one GPU, both directions. MIG: most instances of one GPU.",
    "FLOP/B: FP16 rate over bandwidth. ?: a datasheet figure without a second source.",
    "Prices: USD a month (730 h) of one GPU, at the cheapest whole-GPU offering known that way of buying; ~: derived.",
)


def matrix_sheet(catalog: Catalog, chosen: Selection) -> Sheet:
    """Return the GPU matrix: one row a board, dense rates only, with the cheapest month under each way of buying."""
    columns = [
        Column(key="gpu", title="GPU", strong=True, repeat=True, whole=True),
        Column(key="architecture", title="architecture", whole=True),
        *(Column(key=key, title=precision.name, right=True, show=_figure) for precision, key in RATE_COLUMNS.items()),
        Column(key="mem_bw_gb_s", title="GB/s", right=True, show=_figure),
        Column(key="memory_gib", title="GiB", right=True, show=fixed(1)),
        Column(key="nvlink_gb_s", title="NVLink", right=True, show=_figure_or_none),
        Column(key="mig_instances", title="MIG", right=True, show=_figure_or_none),
        Column(key="flop_per_byte", title="FLOP/B", right=True, show=fixed(0)),
        Column(key="on_demand_usd_mo", title="on demand", right=True, show=fixed(0)),
        Column(key="spot_usd_mo", title="spot", right=True, show=fixed(0)),
        Column(key="committed_usd_mo", title="committed", right=True, show=fixed(0)),
    ]
    gpus = [gpu for gpu in catalog.gpus if chosen.gpu in (None, gpu.name)]
    return Sheet(columns=columns, rows=[_matrix_row(catalog, chosen, gpu) for gpu in gpus], notes=_NOTES)


def with_provenance(sheet: Sheet) -> Sheet:
    """Return the matrix for programs: with the offering behind each price, and the figures that no second source confirmed."""
    keys = (*(f"{name}_{what}" for name in _WAYS for what in ("basis", "offering")), "unverified_fields")
    return replace(sheet, columns=[*sheet.columns, *(Column(key=key, title=key) for key in keys)])


def with_doubt_shown(sheet: Sheet) -> Sheet:
    """Return the matrix for people: a figure that no second source confirmed ends in ?, a derived price in ~."""
    return replace(sheet, rows=[{**row, **_doubtful(sheet, row)} for row in sheet.rows])


def _doubtful(sheet: Sheet, row: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return the cells of a row that carry a mark, as text."""
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
    for name, options in _WAYS.items():
        cheapest = _cheapest(catalog, chosen, gpu, options)
        row[f"{name}_usd_mo"] = None if cheapest is None else round(usd_gpu_hr(catalog, cheapest) * HR_PER_MO, 2)
        row[f"{name}_basis"] = None if cheapest is None else cheapest.basis.value
        row[f"{name}_offering"] = None if cheapest is None else f"{cheapest.offering}, as of {cheapest.as_of}"
    return row


def _cheapest(catalog: Catalog, chosen: Selection, gpu: Gpu, options: Sequence[BuyingOption]) -> Price | None:
    """Return the cheapest rate of one whole GPU under any of the options; None where none is sold."""
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
    """Show a figure: without decimals from 100 on, as it is below."""
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:,.0f}" if cell >= 100 else f"{cell:g}"


def _figure_or_none(cell: Cell) -> str:
    """Show a figure, and a dash where the board has no such thing."""
    return _figure(cell) if cell else "–"
