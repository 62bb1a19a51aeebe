"""What the proof window could have cost at best, with the future known: a bound that no plan which keeps its targets can reach.

Each workload may take the cheapest GPU that the planner may give it, wherever it may run (moving and traffic paid), for exactly
the GPU time that its work needs: no cold starts, no whole nodes, no losses, no waiting; services at the highest load their law
promises. Every node is paid at the cheapest rate on offer, committed or not. Workloads that cannot be judged, new workloads,
and nodes that stay whatever is planned, stay as they were. Commitments that are held are paid, and take off what they could
cover.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.placement import Placement
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import Fleet, JobsObservation, Workload
from trimtab.fleet.reach import offerings_for
from trimtab.fleet.token_work import in_tokens
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.ledger.commitments import Commitment
from trimtab.levers import disaggregation, gpu_count
from trimtab.levers.batching import profile_here
from trimtab.levers.lever import LeverRequest
from trimtab.plan.options.composition import places
from trimtab.plan.program.fleet_problem import groups_of
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import own_micro_usd
from trimtab.replay.outcomes.service_outcome import hourly_demand_gpus
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR, micro_usd


def clairvoyant_bound(
    fleet: Fleet,
    evaluators: Mapping[int, Evaluator],
    market: Market,
    owned: Sequence[Commitment] = (),
    *,
    strict: bool = False,
) -> int:
    """Return the bound in micro-dollars: each workload's own, the nodes that somebody unjudged holds, and those that stay.

    A `strict` one leaves out what a plan may do that keeps its targets by a hair: answer late as often as they allow, on
    replicas that are never at rest. What costs less than that has not done the work.
    """
    groups = groups_of(fleet)
    stays = frozenset(groups.staying)
    total = sum(
        _least(LeverRequest(evaluator=evaluator, market=market), _off(fleet, index, stays), strict=strict)
        for index, evaluator in evaluators.items()
    )
    judged = frozenset(evaluators)
    for owners, usage in groups.held:
        if not owners & judged:
            total += sum(_at_best_rate(market, pool, seconds) for pool, seconds in usage.items())
    total += sum(_at_best_rate(market, pool, seconds) for pool, seconds in groups.stays.items())
    paid = sum(commitment.micro_usd_hr for commitment in owned)
    spared = sum(_spared_at_most(commitment, market) for commitment in owned)
    return paid * fleet.window.hours + max(0, total - math.ceil(spared * fleet.window.hours))


def _spared_at_most(held: Commitment, market: Market) -> float:
    """Return what a held commitment could spare an hour at most: what it covers, at the best rate, in micro-dollars."""
    rates = held.offer.rates_micro_usd_hr
    if not held.offer.is_spend:
        return float(held.quantity * _best_rate(market, held.offer.pool))
    return held.quantity * max((_best_rate(market, pool) / rate for pool, rate in rates.items()), default=0.0)


def _off(fleet: Fleet, workload: int, stays: frozenset[int]) -> float:
    """Return the share of a workload's node time that it held on nodes which do not stay whatever is planned."""
    cells = fleet.holdings
    mine = cells.owner == workload
    held = float(cells.node_seconds[mine].sum())
    there = float(cells.node_seconds[mine & np.isin(cells.node, list(stays))].sum())
    return 1.0 - there / held if held > 0 else 1.0


def _least(ask: LeverRequest, off_frac: float, *, strict: bool) -> int:
    """Return the least a workload can add to the bill: its work at the cheapest place that may hold it, hour by hour.

    Where it stays, what it does on nodes that stay too costs nothing more.
    """
    gain = _batching_gain(ask)
    other_types = _work_on_other_types(ask)
    gpu_seconds = float(_work(ask, strict=strict).sum() - sum(other_types.values())) / gain
    here = ask.market.rate(ask.workload.pool) / ask.workload.gpus_per_node / S_PER_HR * gpu_seconds * off_frac
    # a place too slow for one request at a time may do in batches
    able = [way for way in places(ask) if gain > 1 or ask.evaluator.hopeless(way) is None]
    usual = min([here, *(_cost_at(ask, way, gpu_seconds, gain) for way in able), *_costs_apart(ask)])
    return int(usual + sum(_least_of_type(ask, gpu, used_s, off_frac, able) for gpu, used_s in other_types.items()))


def _work_on_other_types(ask: LeverRequest) -> dict[str, float]:
    """Return the GPU-seconds of runs that were on other types of GPU than usual, by type."""
    jobs, speeds = ask.workload.jobs, ask.case.type_speeds
    if jobs is None or not speeds:
        return {}
    used_s = _used_s(ask.workload, jobs)
    return {gpu: float(used_s[[name == gpu for name in jobs.gpu]].sum()) for gpu in speeds}


def _least_of_type(ask: LeverRequest, gpu: str, used_s: float, off_frac: float, able: Sequence[Deployment]) -> float:
    """Return a lower bound of what runs which were on another type can add: there, if it is on offer, or at the cheapest place.

    Elsewhere they take as much longer as their type is faster than the usual one, at least.
    """
    same = [offering for offering in ask.once(_on_offer) if offering.gpu == ask.market.gpu(gpu)]
    rates = [_best_gpu_rate(ask, offering.pool) / offering.gpus_per_node / S_PER_HR for offering in same]
    there = min(rates, default=0.0) * used_s * off_frac
    slowed_s = used_s * ask.case.type_speeds[gpu].low
    return min([there, *(_cost_at(ask, way, slowed_s, 1.0) for way in able)])


def _cost_at(ask: LeverRequest, way: Deployment, gpu_seconds: float, gain: float) -> float:
    """Return what work of so many GPU-seconds at home costs at a place, with what going there costs in addition."""
    place, workload = ask.evaluator.place(way), ask.workload
    speed = max(place.speed.high, place.work_speed.high if gain > 1 else 0.0)
    if place.replica_gpus is not None:
        # what a GPU there does of the requests that one does today
        speed *= place.replica_gpus.times_today * workload.gpus_per_pod / place.gpus_per_pod
    besides = own_micro_usd(workload, way, ask.market, ask.settings, ask.case.window.hours)
    if place.shared is not None:
        slot = place.shared
        share = 1 / slot.gpus_per_node if slot.others else slot.slots / slot.shared.slots_per_node
        rate = ask.market.rate(place.pool) * share / workload.gpus_per_pod / S_PER_HR
    else:
        rate = _gpu_rate(ask, place) * min(1.0, place.gpus_per_pod / _gpus_used(workload))
    return besides + rate * gpu_seconds / speed


def _costs_apart(ask: LeverRequest) -> Iterator[float]:
    """Yield a lower bound of a service's cost with prefill and decode apart by pair of nodes: their tokens at full load."""
    splits, service = ask.once(disaggregation.pairs), ask.workload.service
    if isinstance(splits, str) or service is None:
        return
    for split in splits:
        total = 0.0
        for half in split.halves.values():
            requests = float(np.nansum(in_tokens(service, half.scaling.tokens).arrivals))
            rate = _best_gpu_rate(ask, half.nodes.pool) / half.nodes.gpus_per_node / S_PER_HR
            total += requests / (half.replica_req_s * half.nodes.speed.high) * half.gpus * rate
        yield total


def _batching_gain(ask: LeverRequest) -> float:
    """Return how many times its own promised rate a replica could serve in full batches; 1 where it would not batch."""
    profile, case = ask.once(profile_here), ask.case
    if isinstance(profile, str) or case.law is None:
        return 1.0
    most = max(size / second_s for size, second_s in zip(profile.sizes, profile.seconds, strict=True))
    return max(1.0, most / (case.law.capacity_req_s * max(case.law.top_load, case.law.seen_load)))


def _work(ask: LeverRequest, *, strict: bool) -> FloatArray:
    """Return the GPU-seconds per hour that the work needs at least (n_hours,)."""
    case, workload = ask.case, ask.workload
    if workload.jobs is not None and workload.kind is not WorkloadKind.SERVING:
        jobs = workload.jobs
        return np.array([float(_used_s(workload, jobs).sum())])
    required = max((target.required_frac for target in case.targets), default=0.0) if strict else 1.0
    if workload.kind is WorkloadKind.SERVING and case.law is not None:
        load = max(case.law.top_load, case.law.seen_load, 1.0 if strict else 0.0)
        work = np.nan_to_num(hourly_demand_gpus(case)) / load * S_PER_HR * required
        declared = workload.spec.open_hours
        if declared is not None:  # what is asked of it outside them may be refused
            work = np.where(np.isin(case.window.week_hours(), declared.hours_of_week), work, 0.0)
        # whatever a law or a count of replicas says, history did the work on the GPUs that it held
        return np.minimum(work, workload.gpu_seconds) if strict else work
    busy = np.nan_to_num(workload.activity.busy_gpus) > 0
    return np.where(busy, workload.gpu_seconds, 0.0) * (_busiest_part(workload, required) if strict else 1.0)


def _used_s(workload: Workload, jobs: JobsObservation) -> FloatArray:
    """Return the GPU-seconds of each run (n_runs,) on GPUs that did anything."""
    return (jobs.end_s - jobs.start_s) * jobs.pods * gpu_count.gpus_used(workload, jobs.gpus / jobs.pods)


def _busiest_part(workload: Workload, required: float) -> FloatArray:
    """Return 1 for the busiest hours (n_hours,), as few as hold that share of all activity; 0 for the others."""
    busy = np.nan_to_num(workload.activity.busy_gpus)
    order = np.argsort(-busy, kind="stable")
    before = np.cumsum(busy[order]) - busy[order]
    needed = np.zeros(len(busy))
    needed[order[before < required * busy.sum()]] = 1.0
    return needed


def _gpus_used(workload: Workload) -> float:
    """Return the GPUs of a usual run's pod, or of a replica, that ever did anything; all where that was not measured."""
    usual = np.array([workload.gpus_per_pod])
    runs = workload.jobs is not None and workload.kind is not WorkloadKind.SERVING
    return float((gpu_count.gpus_used(workload, usual) if runs else usual)[0])


def _gpu_rate(ask: LeverRequest, place: Placement) -> float:
    """Return the cheapest way to have one GPU of a place for one second, in micro-dollars."""
    return _best_gpu_rate(ask, place.pool) / place.gpus_per_node / S_PER_HR


def _best_gpu_rate(ask: LeverRequest, pool: Pool) -> int:
    """Return the cheapest way to have a node of a pool for an hour, in micro-dollars."""
    market = ask.market
    offering = {offered.pool: offered for offered in ask.once(_on_offer)}.get(pool)
    rates = [market.rate(pool)]
    if offering is not None:
        committed = market.committed_rate(pool)
        rates += [] if committed is None else [committed]
        if ask.workload.spec.interruptible and offering.spot is not None:
            rates.append(market.rate(pool.held_as(CapacityType.SPOT)))
        booked = market.block_price(pool)
        if ask.workload.jobs is not None and booked is not None:
            rates.append(micro_usd(booked.usd_hr))
    return min(rates)


def _on_offer(ask: LeverRequest) -> Sequence[Offering]:
    return offerings_for(ask.workload, ask.market)


def _at_best_rate(market: Market, pool: Pool, node_seconds: IntArray) -> int:
    return int(_best_rate(market, pool) * int(node_seconds.sum()) // S_PER_HR)


def _best_rate(market: Market, pool: Pool) -> int:
    rate = market.rate(pool)
    committed = market.committed_rate(pool) if pool.capacity_type is CapacityType.ON_DEMAND else None
    return rate if committed is None else min(rate, committed)
