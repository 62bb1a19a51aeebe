"""What the proof window could have cost at best, with the future known: a bound that no plan can reach.

Each workload may take the cheapest GPU that the planner may give it, wherever it may run (moving and traffic paid), for exactly
the GPU time that its work needs: no cold starts, no whole nodes, no losses, no waiting; services at the highest load their law
promises. Every node is had at the cheapest rate on offer, committed or not. What nobody can judge, and new workloads, stay as
they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.fleet.effects import SetPrecision, UseOffering
from trimtab.fleet.limits import asked_isolation
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import Fleet, FloatArray, IntArray
from trimtab.fleet.reach import offerings_for
from trimtab.fleet.settings import Lever, Settings
from trimtab.levers import gpu_count, relocation, right_size, sharing
from trimtab.levers.batching import profile_of
from trimtab.plan.options.workload_options import refusal
from trimtab.plan.outcomes.change_cost import own_micro_usd
from trimtab.plan.outcomes.evaluate import Evaluator
from trimtab.plan.outcomes.outcome import Case, Effects
from trimtab.plan.outcomes.places import Where, places_of
from trimtab.plan.outcomes.service_outcome import hourly_demand_gpus
from trimtab.plan.program.fleet_problem import groups_of
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR, micro_usd


def clairvoyant_bound(fleet: Fleet, evaluators: Mapping[int, Evaluator], market: Market, settings: Settings) -> int:
    """Return the bound in micro-dollars: each workload's own, plus the nodes that somebody unjudged holds."""
    total = sum(_least(one.case, market, settings) for one in evaluators.values())
    judged = frozenset(evaluators)
    for owners, usage in groups_of(fleet).held:
        if not owners & judged:
            total += sum(_at_best_rate(market, pool, seconds) for pool, seconds in usage.items())
    return total


def _least(case: Case, market: Market, settings: Settings) -> int:
    """Return the least a workload can cost: its work on the cheapest fitting GPU, hour by hour."""
    workload = case.workload
    speeds = {workload.pool: 1.0}
    batched = _batching_gain(case, market)
    for effect in right_size.propose(workload, market, settings.assumptions).fitting:
        if refusal(case, {Lever.RIGHT_SIZE: effect}) is None:
            work_speed = effect.work_speed or effect.speed
            speeds[effect.pool] = max(effect.speed.high, work_speed.high if batched > 1 else 0.0)
    quantized = _quantized_places(case, market)
    for where in quantized:
        size = where.get(Lever.RIGHT_SIZE)
        if isinstance(size, UseOffering):
            speeds.setdefault(size.pool, max(size.speed.high, (size.work_speed or size.speed).high))
    gpu_seconds = float(_work(case).sum()) / batched / _format_gain(quantized)
    besides = {workload.pool: 0}
    for move in relocation.propose(workload, market, settings).fitting:
        moved: Effects = {Lever.RELOCATION: move}
        if refusal(case, moved) is None:
            work_speed = move.to.work_speed or move.speed
            speeds[move.pool] = max(move.speed.high, work_speed.high if batched > 1 else 0.0)
            besides[move.pool] = own_micro_usd(workload, moved, market, settings, case.window.hours)
    isolation = asked_isolation(workload.spec, settings.limits.isolation)
    costs = [
        besides.get(offering.pool, 0)
        + _gpu_rate(offering, market, spot=bool(workload.spec.interruptible), block=workload.jobs is not None)
        * gpu_seconds
        / speeds[offering.pool]
        for offering in offerings_for(workload, market)
        if offering.pool in speeds
    ]
    costs += [
        market.rate(slot.pool)
        * (1 / slot.gpus_per_node if slot.others else slot.slots / slot.shared.slots_per_node)
        / S_PER_HR
        * gpu_seconds
        / workload.gpus_per_pod
        / slot.speed.high
        for slot in sharing.propose(workload, market, settings.assumptions, isolation).fitting
        if refusal(case, {Lever.SHARING: slot}) is None
    ]
    here = market.rate(workload.pool) / workload.gpus_per_node / S_PER_HR * gpu_seconds
    return int(min([*costs, here]))


def _quantized_places(case: Case, market: Market) -> list[Where]:
    """Return the places where a service may run with its weights in an accepted format."""
    if not case.workload.spec.quantize:
        return []
    return [where for where in places_of(case, market).fitting if Lever.QUANTIZATION in where]


def _format_gain(quantized: Sequence[Where]) -> float:
    """Return how many times as fast an accepted format could make any work anywhere; 1 where none is accepted."""
    changes = [one for where in quantized if isinstance(one := where[Lever.QUANTIZATION], SetPrecision)]
    ratios = [
        ratio
        for one in changes
        for ratio in (one.speed, one.speed_there, one.work_speed, one.work_speed_there)
        if ratio is not None
    ]
    return max([1.0, *(ratio.high for ratio in ratios)])


def _batching_gain(case: Case, market: Market) -> float:
    """Return how many times its own promised rate a replica could serve in full batches; 1 where it would not batch."""
    profile = profile_of(case.workload, market.gpu(case.workload.gpu))
    if isinstance(profile, str) or case.law is None:
        return 1.0
    most = max(size / second_s for size, second_s in zip(profile.sizes, profile.seconds, strict=True))
    return max(1.0, most / (case.law.capacity_req_s * max(case.law.top_load, case.law.seen_load)))


def _work(case: Case) -> FloatArray:
    """Return the GPU-seconds per hour that the work needs at least (n_hours,)."""
    workload = case.workload
    if workload.kind is WorkloadKind.SERVING and case.law is not None:
        return np.nan_to_num(hourly_demand_gpus(case)) / max(case.law.top_load, case.law.seen_load) * S_PER_HR
    if workload.jobs is not None:
        used = gpu_count.gpus_needed(workload) or workload.gpus_per_pod
        runs = workload.jobs.gpus / workload.gpus_per_pod
        return np.array([float(((workload.jobs.end_s - workload.jobs.start_s) * runs * used).sum())])
    busy = np.nan_to_num(workload.activity.busy_gpus) > 0
    return np.where(busy, workload.gpu_seconds, 0.0)


def _gpu_rate(offering: Offering, market: Market, *, spot: bool, block: bool) -> float:
    """Return the cheapest way to have one GPU for one second, in micro-dollars."""
    rates = [offering.rate_micro_usd_hr]
    committed = market.committed_rate(offering.pool)
    if committed is not None:
        rates.append(committed)
    if spot and offering.spot is not None:
        rates.append(market.rate(offering.pool.held_as(CapacityType.SPOT)))
    booked = market.block_price(offering.pool)
    if block and booked is not None:
        rates.append(micro_usd(booked.usd_hr))
    return min(rates) / offering.gpus_per_node / S_PER_HR


def _at_best_rate(market: Market, pool: Pool, node_seconds: IntArray) -> int:
    rate = market.rate(pool)
    committed = market.committed_rate(pool) if pool.capacity_type is CapacityType.ON_DEMAND else None
    if committed is not None:
        rate = min(rate, committed)
    return int(rate * int(node_seconds.sum()) // S_PER_HR)
