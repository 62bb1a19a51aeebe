"""Fewer bits a weight as options: on every GPU that runs and holds them, with every way of holding replicas.

Formats that the team accepts (`quantize:` in workloads.yaml) are options like any other. The rest is priced beside the plan and
never in it: what it does to a model's answers nobody here knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from trimtab.catalog.pools import Pool
from trimtab.fleet.effects import Effect, UseOffering
from trimtab.fleet.market import Market
from trimtab.fleet.model import IntArray
from trimtab.fleet.settings import Lever
from trimtab.ledger import best_count
from trimtab.levers import quantization, right_size
from trimtab.levers.quantization import EVALUATE, Formats
from trimtab.physics.formats import WeightFormat
from trimtab.plan.evaluate import Evaluator
from trimtab.plan.outcome import Case, Effects, placement
from trimtab.units import S_PER_HR, micro_usd, per_month, usd

Usage = Mapping[Pool, IntArray]
_WAYS_TRIED = 2
"""Ways of holding replicas that are priced with a format nobody accepted yet: those of the cheapest options."""


def quantized_options(
    case: Case, market: Market, ways: Sequence[Mapping[Lever, Effect]]
) -> Iterator[dict[Lever, Effect]]:
    """Yield effects with every accepted format, on every place, held in every way."""
    formats = quantization.formats_of(case.workload)
    if isinstance(formats, Formats):
        for stored in formats.accepted:
            for where in quantized_places(case, market, formats, stored):
                for how in ways:
                    yield {**where, **how}


def quantized_places(
    case: Case, market: Market, formats: Formats, stored: WeightFormat
) -> Iterator[dict[Lever, Effect]]:
    """Yield where a service can run with weights stored so: at home, and on offerings that may hold them only then."""
    workload, assumptions = case.workload, case.settings.assumptions
    home = market.gpu(workload.gpu)
    if home is None:
        return
    whole = {size.pool for size in right_size.propose(workload, market, assumptions).fitting}
    sizes = right_size.propose(workload, market, assumptions, stored=stored).fitting
    places: list[UseOffering | None] = [None, *(replace(one, only_quantized=one.pool not in whole) for one in sizes)]
    for size in places:
        there = home if size is None else market.gpu(size.gpu)
        if there is None:
            continue
        change = quantization.propose(workload, formats.model, stored, home, there, assumptions)
        if not isinstance(change, str):
            where: dict[Lever, Effect] = {Lever.QUANTIZATION: change}
            yield where if size is None else {**where, Lever.RIGHT_SIZE: size}


def precision_note(evaluator: Evaluator, market: Market, kept: Sequence[tuple[Effects, Usage]]) -> str | None:
    """Say what formats that nobody has evaluated would save beside the plan's best option; None where one is accepted."""
    case = evaluator.case
    formats = quantization.formats_of(case.workload)
    if isinstance(formats, str):
        return formats
    if formats.accepted or not kept:
        return None
    priced = sorted(((alone_cost(usage, market), effects) for effects, usage in kept), key=lambda pair: pair[0])
    ways = [{Lever.AUTOSCALING: one[Lever.AUTOSCALING]} for _, one in priced if Lever.AUTOSCALING in one][:_WAYS_TRIED]
    best, saved = None, 0
    for stored in formats.unknown:
        for where in quantized_places(case, market, formats, stored):
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
    return alone_cost(placement(evaluator.case.workload, effects).usage(evaluator.outcome(effects)), market)


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
