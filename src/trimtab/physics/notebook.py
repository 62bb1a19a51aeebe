"""A notebook's view of a fit: the first ways with cost, time, memory and offering, and the nearest rejects."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from trimtab.catalog import BuyingOption
from trimtab.physics.found_ways import Rejected, ServingOption
from trimtab.physics.search_training import TrainingOption

ROWS = 12
REJECTS = 20
HEADS = (
    "GPUs",
    "set-up",
    "cost",
    "80 %",
    "takes",
    "tokens/s",
    "per $/h",
    "memory",
    "on demand",
    "spot with losses",
    "offering",
)
_BAR = (
    '<div style="width:90px;height:6px;background:#8884">'
    '<div style="width:{:.0%};height:6px;background:#0f766e"></div></div>'
)


def notebook_view(found: Sequence[ServingOption] | Sequence[TrainingOption], rejected: Sequence[Rejected]) -> str:
    """Return HTML without scripts or styles from elsewhere."""
    head = "".join(f"<th>{escape(name)}</th>" for name in HEADS)
    # bars compare the rows that are shown, not those that are left out
    most = max((way.tok_s_per_usd_hr or 0.0 for way in found[:ROWS]), default=0.0)
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(way, most))}</tr>" for way in found[:ROWS])
    # nearest misses first: they are the ones a small change may bring in
    misses = "".join(
        f"<li>{escape(f'{miss.gpu} {miss.what}: {miss.reason.value}: {miss.because}')}</li>"
        for miss in sorted(rejected, key=lambda miss: (miss.miss_frac, miss.gpu))[:REJECTS]
    )
    rest = f"<p>{len(found) - ROWS} more ways work</p>" if len(found) > ROWS else ""
    told = f"<details><summary>{len(rejected)} rejected</summary><ul>{misses}</ul></details>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}{told}"


def _cells(way: ServingOption | TrainingOption, most: float) -> tuple[str, ...]:
    worth = way.tok_s_per_usd_hr
    bar = _BAR.format(worth / most) if worth and most else ""
    used = min(1.0, way.footprint.total_gib / way.gpu.memory_gib)
    return (
        escape(f"{way.gpus} x {way.gpu.name}"),
        *_particulars(way),
        f"{worth:,.0f}{bar}" if worth else "–",
        f"{used:.0%}{_BAR.format(used)}",
        _bought(way, BuyingOption.ON_DEMAND),
        _bought(way, BuyingOption.SPOT),
        escape(way.offer.where),
    )


def _particulars(way: ServingOption | TrainingOption) -> tuple[str, ...]:
    """Return set-up, cost, its interval, time and speed, escaped."""
    match way:
        case ServingOption():
            cost, unit, speed = way.usd_per_mtok, "$/M tokens", way.tok_s.value * way.replicas
            setup = (
                f"{way.replicas} replicas, {way.stored.value}, {way.concurrency} at once, bound by {way.binding.value}"
            )
            takes = f"{way.latency_s:,.3g} s a request"
        case TrainingOption():
            cost, unit, speed = way.usd, "$", way.tok_s.value
            setup = (
                f"micro-batch {way.plan.micro_batch}, recompute {way.plan.recompute.value}, {way.plan.optimizer.value}"
            )
            takes = f"{way.days.value:,.3g} days"
    interval = f"{cost.low:,.2f}–{cost.high:,.2f}"
    return tuple(escape(text) for text in (setup, f"{cost.value:,.3g} {unit}", interval, takes, f"{speed:,.0f}"))


def _bought(way: ServingOption | TrainingOption, option: BuyingOption) -> str:
    """Return what a way of buying costs, an hour of serving or a whole run; a dash where it is not sold."""
    match way:
        case ServingOption():
            usd, unit = way.usd_hr_by_option.get(option), "/h"
        case TrainingOption():
            usd, unit = way.usd_by_option.get(option), ""
    return "–" if usd is None else f"${usd:,.2f}{unit}"
