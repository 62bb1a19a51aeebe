"""The answers of `trimtab fit` as sheets: ranked ways, and what was rejected and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from trimtab.catalog import BuyingOption
from trimtab.cli.sheet import Cell, Column, Sheet, fixed
from trimtab.physics.found_ways import Rejected, ServingOption, Unmet
from trimtab.physics.search_training import TrainingOption
from trimtab.provenance import Estimate
from trimtab.units import MS_PER_S

T = TypeVar("T", ServingOption, TrainingOption)
SHOWN_REJECTS = 8
MORE = "(-o json lists all)"
NEAREST_FIRST = (Unmet.TARGET, Unmet.MEMORY, Unmet.DRIVER, Unmet.PRICE, Unmet.FORMAT)


def _column(key: str, title: str, digits: int | None = None) -> Column:
    if digits is None:
        return Column(key=key, title=title)
    return Column(key=key, title=title, show=fixed(digits), right=True, whole=True)


def _interval(estimate: Estimate, digits: int, factor: float = 1.0) -> str:
    return f"{estimate.low * factor:,.{digits}f}–{estimate.high * factor:,.{digits}f}"


def _memory_bar(used_gib: float, total_gib: float, width: int = 8) -> str:
    """Return a bar of the memory that is used, such as `█████░░░ 61%`."""
    share = min(max(used_gib / total_gib, 0.0), 1.0)
    full = round(share * width)
    return "█" * full + "░" * (width - full) + f" {share:.0%}"


BUYING = {
    BuyingOption.ON_DEMAND: ("on_demand", "on demand"),
    BuyingOption.SPOT: ("spot", "spot with losses"),
    BuyingOption.RESERVED_1Y: ("reserved_1y", "1-year"),
    BuyingOption.RESERVED_3Y: ("reserved_3y", "3-year"),
    BuyingOption.OWNED: ("owned", "owned"),
}
"""The ways of buying that rows show: key and title. Spot holds what lost nodes cost."""


def _buying(usd: Mapping[BuyingOption, float], unit: str, digits: int) -> dict[str, Cell]:
    """Return what each way of buying costs; None where it is not sold."""
    return {
        f"{key}_{unit}": round(usd[option], digits) if option in usd else None for option, (key, _) in BUYING.items()
    }


def _buying_columns(unit: str, title: str, digits: int) -> tuple[Column, ...]:
    return tuple(_column(f"{key}_{unit}", f"{name} {title}", digits) for key, name in BUYING.values())


SERVING_COLUMNS = (
    Column(key="gpu", title="GPU", whole=True, repeat=True),
    _column("gpus", "GPUs", 0),
    _column("replicas", "replicas", 0),
    Column(key="format", title="format", whole=True),
    _column("usd_per_mtok", "$/M tokens", 3),
    _column("usd_per_mtok_interval", "80 %"),
    _column("total_usd_per_mtok", "all told $/M", 3),
    _column("usd_hr", "$/h", 2),
    _column("tok_s", "tokens/s", 0),
    _column("ttft_ms", "TTFT ms", 0),
    _column("tpot_ms", "TPOT ms", 1),
    _column("concurrency", "at once", 0),
    _column("memory", "memory"),
    _column("binding", "bound by"),
    _column("offering", "cheapest offering"),
    _column("tok_s_per_usd_hr", "tokens/s per $/h", 0),
    _column("stranded_gpus", "stranded", 0),
    *_buying_columns("usd_hr", "$/h", 2),
)

TRAINING_COLUMNS = (
    Column(key="gpu", title="GPU", whole=True, repeat=True),
    _column("gpus", "GPUs", 0),
    _column("usd", "total $", 0),
    _column("usd_interval", "80 %"),
    _column("total_usd", "all told $", 0),
    _column("days", "days", 2),
    _column("tok_s", "tokens/s", 0),
    _column("micro_batch", "micro-batch", 0),
    _column("recompute", "recompute"),
    _column("optimizer", "optimizer"),
    _column("memory", "memory"),
    _column("usd_hr", "$/h", 2),
    _column("offering", "cheapest offering"),
    _column("tok_s_per_usd_hr", "tokens/s per $/h", 0),
    _column("stranded_gpus", "stranded", 0),
    *_buying_columns("usd", "$", 0),
)


def serving_row(one: ServingOption) -> dict[str, Cell]:
    """Return one way of serving as raw values."""
    return {
        "gpu": one.gpu.name,
        "gpus": one.gpus,
        "replicas": one.replicas,
        "format": one.stored.value,
        "usd_per_mtok": round(one.usd_per_mtok.value, 4),
        "usd_per_mtok_interval": _interval(one.usd_per_mtok, 2),
        "usd_hr": round(one.usd_hr, 4),
        "tok_s": round(one.tok_s.value * one.replicas, 1),
        "ttft_ms": round(one.ttft_s.value * MS_PER_S, 1),
        "tpot_ms": round(one.tpot_s.value * MS_PER_S, 2),
        "concurrency": one.concurrency,
        "memory": _memory_bar(one.footprint.total_gib, one.gpu.memory_gib),
        "binding": one.binding.value,
        "offering": one.offer.where,
        "tok_s_per_usd_hr": None if one.tok_s_per_usd_hr is None else round(one.tok_s_per_usd_hr, 1),
        "stranded_gpus": one.stranded_gpus,
        **_buying(one.usd_hr_by_option, "usd_hr", 4),
    }


def training_row(one: TrainingOption) -> dict[str, Cell]:
    """Return one way of training as raw values."""
    return {
        "gpu": one.gpu.name,
        "gpus": one.gpus,
        "usd": round(one.usd.value, 2),
        "usd_interval": _interval(one.usd, 0),
        "days": round(one.days.value, 3),
        "tok_s": round(one.tok_s.value, 1),
        "micro_batch": one.plan.micro_batch,
        "recompute": one.plan.recompute.value,
        "optimizer": one.plan.optimizer.value,
        "memory": _memory_bar(one.footprint.total_gib, one.gpu.memory_gib),
        "usd_hr": round(one.usd_hr, 4),
        "offering": one.offer.where,
        "tok_s_per_usd_hr": None if one.tok_s_per_usd_hr is None else round(one.tok_s_per_usd_hr, 1),
        "stranded_gpus": one.stranded_gpus,
        **_buying(one.usd_by_option, "usd", 2),
    }


def machine_serving_row(one: ServingOption) -> dict[str, Cell]:
    """Return one way of serving for programs: bounds and sizes as numbers instead of bars and ranges."""
    return {
        **_numeric(serving_row(one)),
        "usd_per_mtok_low": round(one.usd_per_mtok.low, 4),
        "usd_per_mtok_high": round(one.usd_per_mtok.high, 4),
        "ttft_low_ms": round(one.ttft_s.low * MS_PER_S, 1),
        "ttft_high_ms": round(one.ttft_s.high * MS_PER_S, 1),
        "tpot_low_ms": round(one.tpot_s.low * MS_PER_S, 2),
        "tpot_high_ms": round(one.tpot_s.high * MS_PER_S, 2),
        "memory_gib": round(one.footprint.total_gib, 2),
        **_spot(one),
        "basis": one.tok_s.basis.value,
    }


def machine_training_row(one: TrainingOption) -> dict[str, Cell]:
    """Return one way of training for programs."""
    return {
        **_numeric(training_row(one)),
        "usd_low": round(one.usd.low, 2),
        "usd_high": round(one.usd.high, 2),
        "days_low": round(one.days.low, 3),
        "days_high": round(one.days.high, 3),
        "memory_gib": round(one.footprint.total_gib, 2),
        **_spot(one),
        "basis": one.tok_s.basis.value,
    }


def _spot(one: ServingOption | TrainingOption) -> dict[str, Cell]:
    """Return the spot rate before losses, how often nodes are lost, and whether the rate was observed."""
    listed = one.offer.usd_hr.get(BuyingOption.SPOT)
    if listed is None:
        return {"spot_listed_usd_hr": None, "spot_interruption": None, "spot_derived": None}
    bucket = one.offer.interruption
    return {
        "spot_listed_usd_hr": round(listed * one.nodes, 4),
        "spot_interruption": bucket.value if bucket else None,
        "spot_derived": one.offer.spot_derived,
    }


def _numeric(row: dict[str, Cell]) -> dict[str, Cell]:
    return {key: value for key, value in row.items() if key != "memory" and not key.endswith("_interval")}


def best_per_gpu(found: Sequence[T], limit: int, every: bool) -> list[T]:
    """Return the cheapest way on each GPU (all ways when asked), at most `limit`."""
    kept: dict[str, T] = {}
    for one in found:
        kept.setdefault(one.gpu.name if not every else f"{len(kept)}", one)
    return list(kept.values())[:limit]


def reject_lines(rejected: Sequence[Rejected], most: int = SHOWN_REJECTS) -> list[str]:
    """Return the nearest misses, one a GPU, and how many more there are."""
    ranked = sorted(rejected, key=lambda one: (NEAREST_FIRST.index(one.reason), one.miss_frac, one.gpu))
    first: dict[str, Rejected] = {}
    for one in ranked:
        first.setdefault(one.gpu, one)
    lines = [
        f"rejected: {one.gpu} {one.what}: {one.reason.value}: {one.because}" for one in list(first.values())[:most]
    ]
    more = len(rejected) - len(lines)
    return [*lines, f"rejected: {more} more {MORE}"] if more > 0 and lines else lines


def reject_rows(rejected: Sequence[Rejected]) -> list[dict[str, Cell]]:
    """Return all rejects as raw values."""
    return [{"gpu": one.gpu, "what": one.what, "reason": one.reason.value, "because": one.because} for one in rejected]


def sheet_of(rows: Sequence[Mapping[str, Cell]], columns: Sequence[Column], notes: Sequence[str]) -> Sheet:
    """Return rows as a sheet."""
    return Sheet(columns=columns, rows=rows, notes=notes)
