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
    most = max((one.tok_s_per_usd_hr or 0.0 for one in found[:ROWS]), default=0.0)
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(one, most))}</tr>" for one in found[:ROWS])
    # nearest misses first: they are the ones a small change may bring in
    misses = "".join(
        f"<li>{escape(f'{one.gpu} {one.what}: {one.reason.value}: {one.because}')}</li>"
        for one in sorted(rejected, key=lambda one: (one.miss_frac, one.gpu))[:REJECTS]
    )
    rest = f"<p>{len(found) - ROWS} more ways work</p>" if len(found) > ROWS else ""
    told = f"<details><summary>{len(rejected)} rejected</summary><ul>{misses}</ul></details>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}{told}"


def _cells(one: ServingOption | TrainingOption, most: float) -> tuple[str, ...]:
    worth = one.tok_s_per_usd_hr
    bar = _BAR.format(worth / most) if worth and most else ""
    used = min(1.0, one.footprint.total_gib / one.gpu.memory_gib)
    return (
        escape(f"{one.gpus} x {one.gpu.name}"),
        *_particulars(one),
        f"{worth:,.0f}{bar}" if worth else "–",
        f"{used:.0%}{_BAR.format(used)}",
        _bought(one, BuyingOption.ON_DEMAND),
        _bought(one, BuyingOption.SPOT),
        escape(one.offer.where),
    )


def _particulars(one: ServingOption | TrainingOption) -> tuple[str, ...]:
    """Return set-up, cost, its interval, time and speed, escaped."""
    match one:
        case ServingOption():
            cost, unit, speed = one.usd_per_mtok, "$/M tokens", one.tok_s.value * one.replicas
            setup = (
                f"{one.replicas} replicas, {one.stored.value}, {one.concurrency} at once, bound by {one.binding.value}"
            )
            takes = f"{one.latency_s:,.3g} s a request"
        case TrainingOption():
            cost, unit, speed = one.usd, "$", one.tok_s.value
            setup = (
                f"micro-batch {one.plan.micro_batch}, recompute {one.plan.recompute.value}, {one.plan.optimizer.value}"
            )
            takes = f"{one.days.value:,.3g} days"
    interval = f"{cost.low:,.2f}–{cost.high:,.2f}"
    return tuple(escape(text) for text in (setup, f"{cost.value:,.3g} {unit}", interval, takes, f"{speed:,.0f}"))


def _bought(one: ServingOption | TrainingOption, option: BuyingOption) -> str:
    """Return what a way of buying costs, an hour of serving or a whole run; a dash where it is not sold."""
    match one:
        case ServingOption():
            usd, unit = one.usd_hr_by_option.get(option), "/h"
        case TrainingOption():
            usd, unit = one.usd_by_option.get(option), ""
    return "–" if usd is None else f"${usd:,.2f}{unit}"
