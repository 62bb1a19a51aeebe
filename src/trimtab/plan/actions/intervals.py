"""How sure a saving is: how far such savings drifted when plans met later weeks, and what the speed estimate adds.

The drift is measured, not derived: `python -m benchmarks.proof` plans on a fit window and replays the days after it, over 130
windows, and what is written here is the 80 % quantile of the error on one half of its fleets (2026-11-22; the other half says
how often the intervals hold: docs/benchmarks/proof.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from trimtab.deployment.effects import (
    DeferRuns,
    HedgeOnSpot,
    ReleaseIdle,
    SetCapacityType,
    SetReplicaPolicy,
    StartBeforeRuns,
)
from trimtab.deployment.placement import is_measured_same
from trimtab.fleet.model import RUN_KINDS, JobsObservation
from trimtab.ledger.arrays import FloatArray
from trimtab.levers.registry import lever_named
from trimtab.plan.actions.draft_plan import DraftPlan
from trimtab.plan.model import Plan, RunsSpend
from trimtab.plan.options.workload_options import fixed_cost
from trimtab.provenance import Basis, Estimate
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, S_PER_HR

_Z_80 = 1.2816
"""Normal quantile that leaves 10 % on each side."""
_WORTH_SAYING_FRAC = 0.005
"""A smaller error of a law rounds to nothing."""
_WORTH_SAYING_USD_MO = 1.0
"""Smaller amounts need no words of their own."""
_PAY_AS_RUN = ReleaseIdle | DeferRuns | StartBeforeRuns
"""Ways of holding nodes whose cost goes with the runs."""
_SPOT_UP_FRAC = (0.31, 0.79)
"""Share of the time in which spot could be had: twelve V100 zones recorded in 2022-23, without the hardest and the easiest."""
OTHER_DRIFT_FRAC = 0.184
"""80 % quantile of |replayed - predicted| / |predicted| over all actions, for levers that no fleet of the benchmark used."""
PLAN_DRIFT = 0.0717
"""80 % quantile of |replayed - predicted| / sqrt(predicted * bill) of whole plans: in between a share of the saving, which is
too narrow for small savings, and a share of the bill, which is too wide for them."""


def saving_estimate(
    saving_usd_mo: float,
    hourly_saving: FloatArray,
    speed: Estimate | None,
    lever: str,
    *,
    most_usd_mo: float = math.inf,
    law_error_frac: float = 0.0,
    spot_up_frac: float | None = None,
    losses_usd_mo: tuple[float, float] = (0.0, 0.0),
) -> Estimate:
    """Return an action's monthly saving with an 80 % interval.

    `hourly_saving` (n_hours,) is what the action saves hour by hour when it comes last. Its mean is uncertain as the mean of
    weeks is (days of one week are alike, so that a week counts as one observation; with less than two whole weeks a day does).
    The lever's drift is the least width. Where a new GPU's speed is predicted, its interval widens the saving in proportion.
    What a service's law was off by in its back-test (`BackTest.error_frac`) is another source of doubt, independent of those
    weeks: squares add. `spot_up_frac` is the share of the time in which spot is assumed to be there: what it saves goes about
    in proportion to that, so that recorded zones widen the interval. `losses_usd_mo` is what it costs more where nodes are lost
    often, and less where they are lost seldom. No more than `most_usd_mo` can be saved, whatever happens.
    """
    drift = _drift_frac(lever)
    wide = abs(saving_usd_mo) * math.hypot(max(drift, _Z_80 * _relative_error(hourly_saving)), law_error_frac)
    low, high = saving_usd_mo - wide, saving_usd_mo + wide
    basis, because = Basis.CALIBRATED, f"replayed on the fit window; such savings drifted by {drift:.0%} in later weeks"
    if law_error_frac >= _WORTH_SAYING_FRAC:
        because += f"; the service's law was off by {law_error_frac:.0%} on loads held out"
    if spot_up_frac is not None and 0 < spot_up_frac < 1:
        factors = [up_frac / spot_up_frac - 1 for up_frac in _SPOT_UP_FRAC]
        low = min(low, saving_usd_mo + abs(saving_usd_mo) * factors[0])
        high = max(high, saving_usd_mo + abs(saving_usd_mo) * factors[1])
        because += f"; spot is assumed to be there {spot_up_frac:.0%} of the time"
    low, high = min(low, saving_usd_mo - losses_usd_mo[0]), max(high, saving_usd_mo + losses_usd_mo[1])
    if max(losses_usd_mo) >= _WORTH_SAYING_USD_MO:
        because += (
            f"; spot nodes lost more or less often: ${losses_usd_mo[0]:,.0f} less to ${losses_usd_mo[1]:,.0f} more"
        )
    if speed is not None and speed.low < speed.value:
        low = min(low, saving_usd_mo - abs(saving_usd_mo) * math.log(speed.value / speed.low))
        high = max(high, saving_usd_mo + abs(saving_usd_mo) * math.log(max(speed.high, speed.value) / speed.value) / 2)
        because += f"; speed x{speed.value:.2f} ({speed.low:.2f}-{speed.high:.2f})"
    high = min(high, max(most_usd_mo, saving_usd_mo))
    return Estimate(value=saving_usd_mo, low=low, high=high, basis=basis, because=because)


def joint_saving(plan: Plan, *, speeds_as_predicted: bool = False) -> Estimate:
    """Return a plan's whole monthly saving with an 80 % interval: what later weeks would show.

    Independent doubts, whose squares add: how far whole plans drifted; how lumpy the runs are that pay by the hour, in a
    window that was seen and in one to come; how fast they are on other GPUs, how often spot is there and how often its nodes
    are lost, which are wrong for all of them together; and how early requests wait at replicas that were never seen full, each
    service for itself. The speed of runs is left out where later weeks are replayed with `speeds_as_predicted`. Of a service,
    speeds decide whether its targets hold, and the number of its replicas goes by the capacity that was emitted.
    """
    saving, bill = plan.usd_mo(plan.joint_saving_micro_usd), plan.usd_mo(plan.before_micro_usd)
    drift = PLAN_DRIFT * math.sqrt(max(saving, 0.0) * bill)
    lumps = _Z_80 * math.sqrt(2.0) * math.hypot(*(plan.usd_mo(run.micro_usd) * run.lumps_frac for run in plan.runs))
    known = [(plan.usd_mo(run.micro_usd), run.speed) for run in plan.runs if run.speed and not speeds_as_predicted]
    dearer = sum(cost * (speed.value / speed.low - 1) for cost, speed in known)
    cheaper = sum(cost * (1 - speed.value / speed.high) for cost, speed in known)
    queues = math.hypot(*(plan.usd_mo(micro_usd) for micro_usd in plan.queues_micro_usd))
    spot = [(plan.usd_mo(run.spot_micro_usd), run.spot_up_frac) for run in plan.runs if run.spot_up_frac]
    rarer = sum(saved * max(0.0, 1 - _SPOT_UP_FRAC[0] / up_frac) for saved, up_frac in spot)
    oftener = sum(saved * max(0.0, _SPOT_UP_FRAC[1] / up_frac - 1) for saved, up_frac in spot)
    often = sum(plan.usd_mo(more) for more, _ in plan.losses_micro_usd)
    seldom = sum(plan.usd_mo(less) for _, less in plan.losses_micro_usd)
    because = ["the drift of whole plans, predicted against replayed on later weeks"]
    because += ["how much the work of the runs differs from window to window"] if lumps else []
    because += ["how fast runs are on other GPUs"] if known else []
    because += ["how early requests wait at replicas never seen full"] if queues else []
    because += ["how often spot is there"] if rarer or oftener else []
    because += ["how often spot nodes are lost"] if often or seldom else []
    return Estimate(
        value=saving,
        low=saving - math.hypot(drift, lumps, dearer, queues, rarer, often),
        high=saving + math.hypot(drift, lumps, cheaper, oftener, seldom),
        basis=Basis.CALIBRATED,
        because="; ".join(because),
    )


def spend_of_runs(drafted: DraftPlan) -> Iterator[RunsSpend]:
    """Yield what each workload's runs cost under the whole plan, of those for which nodes come and go.

    The work of a window is taken for a compound Poisson sum: its variance is the sum of the squares of the runs' own work. What
    runs that waited would have done besides is expected from the lengths of others; runs that wait together often are alike, so
    that all of it may be nothing, or twice as much.
    """
    for index, deployment in drafted.in_force(drafted.everything).items():
        evaluator = drafted.enacted.evaluators[index]
        place, jobs = evaluator.place(deployment), evaluator.case.workload.jobs
        if jobs is None or evaluator.case.workload.kind not in RUN_KINDS or not isinstance(place.holding, _PAY_AS_RUN):
            continue
        held_s = (jobs.end_s - jobs.start_s) * jobs.gpus
        work = held_s[np.isfinite(held_s)]
        if not work.sum() > 0:
            continue
        outcome = drafted.enacted.outcome(index, deployment)
        # beside services they may come in hours that are fuller: as uncertain as the nodes that they would fill alone
        used = outcome.usage(place) if place.shared is None else {place.pool: outcome.on_demand}
        spend = fixed_cost(used, drafted.enacted.market) // S_PER_HR
        without_spot = replace(outcome, on_demand=outcome.on_demand + outcome.spot, spot=np.zeros_like(outcome.spot))
        yield RunsSpend(
            micro_usd=spend,
            lumps_frac=math.hypot(float(math.sqrt((work**2).sum()) / work.sum()), _expected_frac(jobs)),
            speed=_speed_of_work(place.speeds_of(jobs.gpu, jobs.count), held_s),
            spot_micro_usd=0
            if place.spot is None
            else fixed_cost(without_spot.usage(place), drafted.enacted.market) // S_PER_HR - spend,
            spot_up_frac=0.0 if place.spot is None else 1.0 - place.spot.unavailable_frac,
        )


def _expected_frac(jobs: JobsObservation) -> float:
    """Return the share of the runs' GPU-seconds that history does not show, because they waited."""
    if jobs.unqueued is None:
        return 0.0
    seen, all_of_it = (float(((runs.end_s - runs.start_s) * runs.gpus).sum()) for runs in (jobs, jobs.unqueued))
    return 1 - seen / all_of_it


def cost_of_queues(drafted: DraftPlan) -> Iterator[int]:
    """Yield the micro-dollars by which each scaled service would cost more if its careful capacity were all that it has.

    Its rule would see queues beyond that, which a replica that was never seen full may take in its stride.
    """
    for index, deployment in drafted.in_force(drafted.everything).items():
        evaluator = drafted.enacted.evaluators[index]
        place, law = evaluator.place(deployment), evaluator.case.law
        if law is None or law.tested is None or not isinstance(place.scaling, SetReplicaPolicy):
            continue
        if law.full_req_s <= law.capacity_req_s:
            continue
        careful = replace(law, tested=replace(law.tested, activity_req_s=law.capacity_req_s))
        usage = Evaluator(case=replace(evaluator.case, law=careful)).outcome(deployment).usage(place)
        market = drafted.enacted.market
        more = fixed_cost(usage, market) - fixed_cost(drafted.enacted.outcome(index, deployment).usage(place), market)
        yield max(0, more // S_PER_HR)


def cost_of_losses(drafted: DraftPlan) -> dict[int, tuple[int, int]]:
    """Return, by workload on spot, the micro-dollars that it costs more if nodes are lost often, and less if they are seldom.

    Both are replayed as the plan was, with the rates between which four in five pools of such odds lie.
    """
    found = {}
    market = drafted.enacted.market
    for index, deployment in drafted.in_force(drafted.everything).items():
        held = deployment.buying
        if not isinstance(held, SetCapacityType | HedgeOnSpot):
            continue
        odds = market.held_odds(held.pool, by_zone=isinstance(held, HedgeOnSpot))
        if odds is None:
            continue
        place = drafted.enacted.evaluators[index].place(deployment)
        often, planned, seldom = (
            fixed_cost(drafted.enacted.outcome(index, otherwise).usage(place), market) // S_PER_HR
            for rate in (odds.loss_high_per_hr, held.loss_per_hr, odds.loss_low_per_hr)
            for otherwise in (replace(deployment, buying=replace(held, loss_per_hr=rate)),)
        )
        found[index] = max(0, often - planned), max(0, planned - seldom)
    return found


def _speed_of_work(speeds: Sequence[Estimate], held_s: FloatArray) -> Estimate | None:
    """Return the speed of runs (n_runs,) all together, by their GPU-seconds; None where all keep the one that was measured."""
    if all(is_measured_same(speed) for speed in speeds):
        return None
    if all(speed == speeds[0] for speed in speeds):
        return speeds[0]
    work = np.where(np.isfinite(held_s), held_s, 0.0)
    value, low, high = (
        float(work.sum() / sum(done / getattr(speed, end) for done, speed in zip(work, speeds, strict=True)))
        for end in ("value", "low", "high")
    )
    return Estimate(
        value=value, low=low, high=high, basis=Basis.MODELLED, because="runs that were on several types of GPU"
    )


def _drift_frac(lever: str) -> float:
    known = lever_named(lever).drift_frac
    return OTHER_DRIFT_FRAC if known is None else known


def _relative_error(hourly: FloatArray) -> float:
    """Return the standard error of the mean as a share of the mean."""
    week = HR_PER_DAY * DAYS_PER_WEEK
    block = week if len(hourly) >= 2 * week else HR_PER_DAY
    blocks = len(hourly) // block
    if blocks < 2:
        return 0.5
    means = hourly[: blocks * block].reshape(blocks, block).mean(axis=1)
    centre = abs(float(means.mean()))
    return float(np.std(means, ddof=1) / math.sqrt(blocks) / centre) if centre > 0 else 0.0
