"""The answers of `trimtab fit` as sheets: ranked ways, and what was rejected and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from trimtab.catalog import BuyingOption
from trimtab.cli.sheet import Cell, Column, Sheet, fixed
from trimtab.physics.offers import Offer
from trimtab.physics.search_serving import Rejected, ServingOption, Unmet
from trimtab.physics.search_training import TrainingOption
from trimtab.provenance import Estimate
from trimtab.units import MS_PER_S

T = TypeVar("T", ServingOption, TrainingOption)
SHOWN_REJECTS = 8
NEAREST_FIRST = (Unmet.TARGET, Unmet.MEMORY, Unmet.PRICE, Unmet.FORMAT)


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


def _rate(offer: Offer, option: BuyingOption, nodes: int) -> float | None:
    found = offer.usd_hr.get(option)
    return None if found is None else found * nodes


def _buying(offer: Offer, nodes: int) -> dict[str, Cell]:
    return {
        "on_demand_usd_hr": _rate(offer, BuyingOption.ON_DEMAND, nodes),
        "spot_usd_hr": _rate(offer, BuyingOption.SPOT, nodes),
        "reserved_1y_usd_hr": _rate(offer, BuyingOption.RESERVED_1Y, nodes),
    }


BUYING_COLUMNS = (
    _column("on_demand_usd_hr", "on demand $/h", 2),
    _column("spot_usd_hr", "spot $/h", 2),
    _column("reserved_1y_usd_hr", "1-year $/h", 2),
)

SERVING_COLUMNS = (
    Column(key="gpu", title="GPU", whole=True, repeat=True),
    _column("gpus", "GPUs", 0),
    _column("replicas", "replicas", 0),
    Column(key="format", title="format", whole=True),
    _column("usd_per_mtok", "$/M tokens", 3),
    _column("usd_per_mtok_interval", "80 %"),
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
    *BUYING_COLUMNS,
)

TRAINING_COLUMNS = (
    Column(key="gpu", title="GPU", whole=True, repeat=True),
    _column("gpus", "GPUs", 0),
    _column("usd", "total $", 0),
    _column("usd_interval", "80 %"),
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
    *BUYING_COLUMNS,
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
        **_buying(one.offer, one.nodes),
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
        **_buying(one.offer, one.nodes),
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
        "basis": one.tok_s.basis.value,
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
    return [*lines, f"rejected: {more} more (-o json lists all)"] if more > 0 and lines else lines


def reject_rows(rejected: Sequence[Rejected]) -> list[dict[str, Cell]]:
    """Return all rejects as raw values."""
    return [{"gpu": one.gpu, "what": one.what, "reason": one.reason.value, "because": one.because} for one in rejected]


def sheet_of(
    found: Sequence[T], columns: Sequence[Column], row: Callable[[T], dict[str, Cell]], notes: Sequence[str]
) -> Sheet:
    """Return ways as a sheet."""
    return Sheet(columns=columns, rows=[row(one) for one in found], notes=notes)
