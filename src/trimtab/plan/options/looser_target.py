"""What a service would have to be content with to share a GPU: the nearest latency limit that a slice keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trimtab.fleet.effects import UseSlots
from trimtab.fleet.market import Market
from trimtab.fleet.model import Target, Workload
from trimtab.fleet.settings import Lever
from trimtab.plan.options.workload_options import refusal
from trimtab.plan.outcomes.evaluate import Evaluator
from trimtab.plan.outcomes.outcome import Case
from trimtab.units import HR_PER_MO, usd

_FACTORS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Multiples of the present limits that are tried; a service that would need more is not asked."""
_SLICES = 5
_REPLAYS = 2
"""The law says which multiples are hopeless; of the others the least few are replayed."""


def looser_target(case: Case, slots: Sequence[UseSlots], market: Market) -> str | None:
    """Say which limits the cheapest slice would keep, and at what cost; None where none keeps any that is tried."""
    limited = [target for target in case.targets if target.limit_s is not None]
    if not limited:
        return None
    able = sorted((one for one in slots if _takes_the_peak(case, one)), key=lambda one: _usd_mo(one, market))
    for slot in able[:_SLICES]:
        factor = _least_factor(case, slot)
        if factor is not None:
            return _in_words(case.workload, slot, limited[0], factor, market)
    return None


def _takes_the_peak(case: Case, slot: UseSlots) -> bool:
    """Tell whether one slice serves what one GPU was seen to serve at its busiest, with the headroom that plans leave."""
    growth = 1 + case.settings.planning.demand_headroom_frac
    return bool(slot.shared.profile) and case.law is not None and case.law.seen_load * growth <= slot.speed.low


def _least_factor(case: Case, slot: UseSlots) -> float | None:
    effects = {Lever.SHARING: slot}
    cases = {factor: replace(case, targets=tuple(_scaled(one, factor) for one in case.targets)) for factor in _FACTORS}
    hopeful = [factor for factor, looser in cases.items() if refusal(looser, effects) is None]
    return next((one for one in hopeful[:_REPLAYS] if Evaluator(case=cases[one]).keeps_targets(effects)), None)


def _scaled(target: Target, factor: float) -> Target:
    return target if target.limit_s is None else replace(target, limit_s=target.limit_s * factor)


def _usd_mo(slot: UseSlots, market: Market) -> float:
    """Return what a replica's part of a full shared node costs a month."""
    return usd(market.rate(slot.pool)) * HR_PER_MO * slot.slots / slot.shared.slots_per_node


def _in_words(workload: Workload, slot: UseSlots, first: Target, factor: float, market: Market) -> str:
    now_usd_mo = usd(market.rate(workload.pool)) * HR_PER_MO * workload.gpus_per_pod / workload.gpus_per_node
    limit_s = (first.limit_s or 0.0) * factor
    return (
        f"too slow for its targets: a {slot.shared.profile} slice of a {slot.gpu} runs it at x{slot.speed.value:.2f}, for "
        f"${_usd_mo(slot, market):,.0f} a month of a full node, not ${now_usd_mo:,.0f}; declare {first.metric.value} "
        f"p{first.required_frac * 100:g} <= {limit_s:.3g} s ({factor:g} x the limit) in workloads.yaml if that is enough"
    )
