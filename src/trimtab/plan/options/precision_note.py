"""What formats that nobody has evaluated would save, priced beside the plan and never in it.

Formats that the team accepts (`quantize:` in workloads.yaml) are options like any other (`plan.outcomes.places`); what the rest
does to a model's answers nobody here knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab.catalog.pools import Pool
from trimtab.fleet.market import Market
from trimtab.fleet.model import IntArray
from trimtab.fleet.settings import Lever
from trimtab.ledger import best_count
from trimtab.levers import quantization
from trimtab.levers.quantization import EVALUATE
from trimtab.plan.outcomes.change_cost import own_micro_usd
from trimtab.plan.outcomes.evaluate import Evaluator
from trimtab.plan.outcomes.outcome import Case, Effects, placement
from trimtab.plan.outcomes.places import quantized_places
from trimtab.units import S_PER_HR, micro_usd, per_month, usd

Usage = Mapping[Pool, IntArray]
_WAYS_TRIED = 2
"""Ways of holding replicas that are priced with a format nobody accepted yet: those of the cheapest options."""


def precision_note(evaluator: Evaluator, market: Market, kept: Sequence[tuple[Effects, Usage]]) -> str | None:
    """Say what formats that nobody has evaluated would save beside the plan's best option; None where one is accepted."""
    case = evaluator.case
    formats = quantization.formats_of(case.workload)
    if isinstance(formats, str):
        return formats
    if formats.accepted or not kept:
        return None
    priced = sorted(
        ((_priced(case, effects, usage, market), effects) for effects, usage in kept), key=lambda one: one[0]
    )
    ways = [{Lever.AUTOSCALING: one[Lever.AUTOSCALING]} for _, one in priced if Lever.AUTOSCALING in one][:_WAYS_TRIED]
    best, saved = None, 0
    for stored in formats.unknown:
        alone = (where for where in quantized_places(case, market, formats, stored) if Lever.SHARING not in where)
        for where in alone:
            for how in ({}, *ways):
                cost = _cost(evaluator, market, {**where, **how})
                if cost is not None and priced[0][0] - cost > saved:
                    best, saved = stored, priced[0][0] - cost
    if best is None:
        return f"neither {' nor '.join(one.value for one in formats.unknown)} would save more"
    saved_usd_mo = per_month(usd(saved), case.window.hours)
    return f"{best.value} could save about ${saved_usd_mo:,.0f} a month more; {EVALUATE}"


def _cost(evaluator: Evaluator, market: Market, effects: Effects) -> int | None:
    """Return what a workload would cost alone, or None where it would miss a target."""
    if not evaluator.keeps_targets(effects):
        return None
    usage = placement(evaluator.case.workload, effects).usage(evaluator.outcome(effects))
    return _priced(evaluator.case, effects, usage, market)


def _priced(case: Case, effects: Effects, usage: Usage, market: Market) -> int:
    own = own_micro_usd(case.workload, effects, market, case.settings, case.window.hours)
    return alone_cost(usage, market) + own


def alone_cost(usage: Usage, market: Market) -> int:
    """Return what a use costs with the commitments that are best for it alone, in micro-dollars."""
    total = 0
    for pool, seconds in usage.items():
        rate, price = market.rate(pool), market.commitment(pool)
        if price is None or micro_usd(price.usd_hr) >= rate:
            total += rate * int(seconds.sum()) // S_PER_HR
            continue
        committed = micro_usd(price.usd_hr)
        count = best_count(seconds, rate, committed)
        beyond = (seconds - count * S_PER_HR).clip(min=0)
        total += count * committed * len(seconds) + rate * int(beyond.sum()) // S_PER_HR
    return total
