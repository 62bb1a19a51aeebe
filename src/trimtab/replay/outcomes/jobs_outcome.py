"""Replay a workload that consists of runs under a deployment."""

from __future__ import annotations

from typing import Literal

import numpy as np

from trimtab.deployment.effects import DeferRuns, Holding, ReleaseIdle, StartBeforeRuns
from trimtab.deployment.placement import Placement, is_measured_same
from trimtab.fleet.model import JobsObservation, Target
from trimtab.fleet.settings import RUN_NODES_KEPT_S, SERVICE_NODES_KEPT_S, Assumptions
from trimtab.fleet.starts import SlowStarts
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.policies.deferral import start_s
from trimtab.replay.job_nodes import Blocks, booked_node_seconds, draw_droughts
from trimtab.replay.jobs import Capacity, Checkpoints, JobHistory, JobRules, OnDemand, Spot, replay_jobs
from trimtab.replay.outcomes.outcome import (
    Attained,
    Case,
    Outcome,
    Stress,
    held_as,
    held_usage,
    run_speed,
    speed_attained,
)
from trimtab.tables.workloads import TargetMetric
from trimtab.units import S_PER_DAY, S_PER_HR

_ROUNDING = 1e-9
_ON_TIME_S = 1200.0
"""A scheduled run that is submitted further than this from its usual time of day was not foreseen."""


def jobs_outcome(case: Case, place: Placement) -> Outcome:
    """Replay the workload's runs on nodes placed and held as the deployment says.

    Without release or schedule the nodes stay as history held them, and runs queue for them: those beyond the booked ones on
    demand. Where nodes start for runs, none waits for another: what history left waiting runs too.
    """
    jobs = _runs_of(case, place)
    if jobs is None:
        raise ValueError(f"{case.workload.name} has no runs")
    lead_s = place.holding.lead_s if isinstance(place.holding, StartBeforeRuns) else 0.0
    startup_s = _startup(case, place.holding)
    # history's nodes stay: runs wait for room on them and not for starts
    held = startup_s is None
    jobs, ahead_s = _in_order(jobs, lead_s, _held_s(case, jobs, place.holding))
    ran_s = jobs.end_s - jobs.start_s
    speeds = place.speeds_of(jobs.gpu, jobs.count)
    beside = place.shared is not None and not held
    history = JobHistory(
        submit_s=jobs.submit_s - ahead_s,
        work_s=ran_s / np.array([run_speed(case, speed) for speed in speeds]),
        nodes=_slots_of_runs(jobs, place) if beside else nodes_of_runs(jobs, place),
        pods=jobs.pods,
        pod_gpus=pod_gpus_of_runs(jobs, place),
    )
    held_nodes, closed_hours = held_usage(case.workload, place), case.stress.runs_closed_hours
    rules = JobRules(
        capacity=_capacity(case, place),
        startup_s=startup_s or 0.0,
        checkpoints=_checkpoints(case, place),
        # nodes that stay are themselves the quota
        max_nodes=int(held_nodes.max(initial=0)) // S_PER_HR if held else _quota(place, in_slots=beside),
        empty_node_kept_s=0.0 if held or beside else RUN_NODES_KEPT_S,
        shared_node_gpus=_shared_node_gpus(history, place),
        closed_s=(closed_hours[0] * S_PER_HR, closed_hours[1] * S_PER_HR),
        first_nodes_stay=held,
    )
    replayed = replay_jobs(history, rules, hours=case.window.hours, seed=case.seed)
    on_demand, spot = replayed.on_demand_node_seconds, replayed.spot_node_seconds
    most, kept_up = None, None
    if beside:
        on_demand = -(-on_demand // place.pods_per_node)
        most, kept_up = held_by_hour(
            replayed.start_s, replayed.finish_s, history.nodes, kept_s=SERVICE_NODES_KEPT_S, hours=case.window.hours
        )
    if held:
        on_demand, spot = _held_on_spot(held_nodes, on_demand, spot) if place.spot else held_as(place, held_nodes)
    booked, used_frac = None, None
    if isinstance(rules.capacity, Blocks):
        booked = booked_node_seconds(rules.capacity, case.window.hours)
        used_frac = float(replayed.block_node_seconds.sum() / booked.sum()) if booked.any() else None
        # booked nodes take the place of as many of those that stay
        on_demand = np.maximum(on_demand - booked, 0) if held else on_demand
    # from the submission on, and not from when nodes were asked for ahead of it
    wait_s = replayed.ready_s - (history.submit_s + ahead_s)
    ran = ~np.isnan(replayed.start_s)
    # how much longer the work takes at the low end of the speed
    slower = np.array([speed.value / speed.low for speed in speeds])
    spent_s = np.where(ran, replayed.finish_s - replayed.ready_s, 0.0)
    ratio, low_ratio = (_ratio(ran_s[ran].sum(), spent) for spent in (spent_s.sum(), (spent_s * slower).sum()))
    return Outcome(
        on_demand=on_demand,
        spot=spot,
        attained=tuple(_attained(target, wait_s, ratio, low_ratio) for target in case.targets if _judged(target)),
        interruptions=replayed.interruptions,
        lost_gpu_hr=float((replayed.lost_s * jobs.pods * pod_gpus_of_runs(jobs, place)).sum()) / S_PER_HR,
        runs_without_node=int((replayed.no_node_s > 0).sum()),
        longest_without_node_s=float(replayed.no_node_s.max(initial=0.0)),
        booked=booked,
        booked_used_frac=used_frac,
        replicas=most,
        kept_up=kept_up,
    )


def held_by_hour(
    begins_s: FloatArray, ends_s: FloatArray, slots: IntArray, *, kept_s: float, hours: int
) -> tuple[IntArray, IntArray]:
    """Return the most slots that runs hold at once in each hour (n_hours,), and those that stand when an hour begins.

    A node that a run leaves empty stays for `kept_s`: what stands when an hour begins are the runs that began before it and
    those that ended so shortly before it. What lies beyond the last hour counts from the first one on, as in the bill of runs
    on nodes of their own. Runs that never began (NaN) hold nothing.
    """
    whole_s = hours * S_PER_HR
    ran = ~np.isnan(begins_s)
    begins, ends, held = begins_s[ran], ends_s[ran], slots[ran]
    parts = []
    # one round for each length of the window that any run reaches into; what an earlier one left begins before it
    while len(begins):
        parts.append((begins, ends, held))
        beyond = ends + kept_s > whole_s
        begins, ends, held = begins[beyond] - whole_s, ends[beyond] - whole_s, held[beyond]
    if not parts:
        return np.zeros(hours, dtype=np.int64), np.zeros(hours, dtype=np.int64)
    begins, ends, held = (np.concatenate(column) for column in zip(*parts, strict=True))
    turns_s: FloatArray = np.arange(hours, dtype=np.float64) * S_PER_HR
    standing = np.asarray(_begun(begins, held, turns_s, "left") - _begun(ends + kept_s, held, turns_s, "right"))
    # who ends at the moment at which another begins leaves its slot to it: both are one change
    at_s, moment = np.unique(np.concatenate([begins, ends]), return_inverse=True)
    change = np.zeros(len(at_s), dtype=np.int64)
    np.add.at(change, moment, np.concatenate([held, -held]))
    level, most = np.cumsum(change), standing.copy()
    inside = (at_s >= 0) & (at_s < whole_s)
    np.maximum.at(most, (at_s[inside] // S_PER_HR).astype(np.int64), level[inside])
    return most, standing


def _begun(moments_s: FloatArray, slots: IntArray, turns_s: FloatArray, side: Literal["left", "right"]) -> IntArray:
    """Return the slots of which the moment was before each turn; at the turn itself too for `right`."""
    order = np.argsort(moments_s, kind="stable")
    sums = np.concatenate([[0], np.cumsum(slots[order])])
    return np.asarray(sums[np.searchsorted(moments_s[order], turns_s, side=side)], dtype=np.int64)


def felt_by_runs(case: Case, place: Placement, stress: Stress) -> Stress:
    """Return what of a stress a replay of the workload's runs reads there; the rest says nothing to it."""
    jobs = case.workload.jobs
    measured = jobs is not None and all(is_measured_same(speed) for speed in place.speeds_of(jobs.gpu, jobs.count))
    starts = _startup(case, place.holding) is not None
    # runs on nodes that stay ask for none, unless theirs are taken from them or end
    asks = starts or place.spot is not None or place.blocks is not None
    return Stress(
        speed=1.0 if measured else stress.speed,
        runs_closed_hours=stress.runs_closed_hours if asks else (0, 0),
        starts=stress.starts if starts else SlowStarts(),
    )


def asked_gpus(case: Case, place: Placement) -> FloatArray:
    """Return the GPUs of the runs that ask for nodes in each hour (n_hours,), or may have to; none where their nodes stay."""
    jobs, asked = _runs_of(case, place), np.zeros(case.window.hours)
    if jobs is None or (_startup(case, place.holding) is None and place.spot is None):
        return asked
    lead_s = place.holding.lead_s if isinstance(place.holding, StartBeforeRuns) else 0.0
    jobs, ahead_s = _in_order(jobs, lead_s, _held_s(case, jobs, place.holding))
    hour = ((jobs.submit_s - ahead_s) // S_PER_HR).astype(np.int64)
    # what is asked for before the window counts in its first hour
    np.add.at(asked, np.clip(hour, 0, case.window.hours - 1), jobs.gpus)
    return asked


def _runs_of(case: Case, place: Placement) -> JobsObservation | None:
    """Return the runs that a place is asked for: as they came where nodes stay, as if none had waited where nodes start."""
    jobs = case.workload.jobs
    if jobs is None or jobs.unqueued is None or _startup(case, place.holding) is None:
        return jobs
    return jobs.unqueued


def _shared_node_gpus(history: JobHistory, place: Placement) -> float | None:
    """Return the GPUs of nodes that runs share; None where each run has nodes of its own.

    They share nodes on demand that come and go, unless those are started ahead of a run or a pod is wider than a node.
    """
    if place.spot is not None or place.blocks is not None or not isinstance(place.holding, DeferRuns | ReleaseIdle):
        return None
    if place.shared is not None:  # beside other workloads' pods, which no replay of its own knows
        return None
    widths = history.pod_gpus
    if widths is None or not len(widths) or widths.max() > place.gpus_per_node + _ROUNDING:
        return None
    # where not even two of the smallest pods fit beside each other there is nothing to share
    return float(place.gpus_per_node) if 2 * widths.min() <= place.gpus_per_node + _ROUNDING else None


def _held_on_spot(held: IntArray, on_demand: IntArray, spot: IntArray) -> tuple[IntArray, IntArray]:
    """Return nodes that stay as (on demand, spot): on demand for the share of their time for which their runs found no spot."""
    ran = int(on_demand.sum() + spot.sum())
    without = np.asarray(np.rint(held * (on_demand.sum() / ran if ran else 0.0)), dtype=np.int64)
    return without, held - without


def _quota(place: Placement, *, in_slots: bool) -> int | None:
    """Return the nodes, or slots, that runs must share; None where no quota is stated, and for spot, of which another holds."""
    if place.quota_nodes is None or place.spot is not None:
        return None
    return place.quota_nodes * place.pods_per_node if in_slots else place.quota_nodes


def _judged(target: Target) -> bool:
    return target.metric in {TargetMetric.QUEUE_WAIT, TargetMetric.THROUGHPUT}


def _startup(case: Case, holding: Holding | None) -> float | None:
    """Return how long a run waits for its nodes to start; None where history's nodes stay."""
    if not isinstance(holding, StartBeforeRuns | DeferRuns | ReleaseIdle):
        return None
    planned_s = holding.lead_s if isinstance(holding, StartBeforeRuns) else holding.startup_s
    return case.stress.starts.run_start_s(case.workload.name, planned_s)


def _held_s(case: Case, jobs: JobsObservation, holding: Holding | None) -> FloatArray:
    """Return how long each run is held; what would then end after the window starts at once, so that its cost stays in it."""
    if not isinstance(holding, DeferRuns):
        return np.zeros(jobs.count)
    midnight_s = case.window.first_week_hour * S_PER_HR
    # the policy counts from Monday's midnight, submissions from the start of the window
    starts_s = np.array([start_s(holding.policy, midnight_s + float(at)) - midnight_s for at in jobs.submit_s])
    ends_s = starts_s + holding.startup_s + (jobs.end_s - jobs.start_s)
    return np.where(ends_s <= case.window.hours * S_PER_HR, starts_s - jobs.submit_s, 0.0)


def _in_order(jobs: JobsObservation, lead_s: float, held_s: FloatArray) -> tuple[JobsObservation, FloatArray]:
    """Return the runs in the order in which their nodes are asked for, and how far ahead of its submission each one's are."""
    # nodes cannot be asked for before the window begins
    ahead_s = np.where(_foreseen(jobs), np.minimum(lead_s, jobs.submit_s), 0.0) - held_s
    # the replay takes jobs in the order in which they ask; a stable sort keeps that of ties
    order = np.argsort(jobs.submit_s - ahead_s, kind="stable")
    return jobs.part(order), ahead_s[order]


def _slots_of_runs(jobs: JobsObservation, place: Placement) -> IntArray:
    """Return the slots of shared nodes that each run takes there (n_jobs,): one a pod, several where a pod is wider."""
    wide = np.ceil(pod_gpus_of_runs(jobs, place) / place.gpus_per_pod - _ROUNDING)
    return np.asarray(jobs.pods * np.maximum(wide, 1.0), dtype=np.int64)


def nodes_of_runs(jobs: JobsObservation, place: Placement) -> IntArray:
    """Return the whole nodes that each run would take there (n_jobs,), for all of its pods."""
    return place.nodes_of(jobs.pods, pod_gpus_of_runs(jobs, place))


def pod_gpus_of_runs(jobs: JobsObservation, place: Placement) -> FloatArray:
    """Return the GPUs that each pod of a run would hold there (n_jobs,)."""
    # a run without any GPU would be a division by zero
    return place.pod_gpus(np.maximum(jobs.gpus / jobs.pods, 1e-9))


def _foreseen(jobs: JobsObservation) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    phase = np.mod(jobs.submit_s, S_PER_DAY)
    off = np.abs(phase - np.median(phase)) if jobs.count else phase
    # the time of day is a circle: shortly before midnight is near shortly after it
    return np.asarray(np.minimum(off, S_PER_DAY - off) <= _ON_TIME_S, dtype=np.bool_)


def _capacity(case: Case, place: Placement) -> Capacity:
    assumptions = case.settings.assumptions
    if place.blocks is not None:
        return Blocks(calendar=place.blocks.calendar, first_week_hour=case.window.first_week_hour)
    if place.spot is None:
        return OnDemand()
    return Spot(
        loss_per_hr=place.spot.loss_per_hr,
        # nodes in place of lost ones take `startup_s` like any others
        restart_s=0.0,
        notice_s=assumptions.spot_notice_s,
        droughts=draw_droughts(
            place.spot.unavailable_frac,
            place.spot.drought_s,
            float(case.window.hours * S_PER_HR),
            take_nodes=place.spot.droughts_take,
            seed=case.seed,
        ),
    )


def _checkpoints(case: Case, place: Placement) -> Checkpoints | None:
    """Return how runs save, declared or not; only nodes that may go make it matter."""
    jobs, declared, assumed = case.workload.jobs, case.workload.spec.checkpoint, case.settings.assumptions
    resumes = place.blocks is not None and case.workload.spec.interruptible
    if jobs is None or (place.spot is None and not resumes):
        return None
    if declared is not None:
        return Checkpoints(interval_s=declared.interval_s, save_s=declared.save_s, restore_s=declared.restore_s)
    return undeclared_checkpoints(jobs, assumed)


def undeclared_checkpoints(jobs: JobsObservation, assumed: Assumptions) -> Checkpoints:
    """Return how runs are assumed to save where no checkpoints are declared: as observed, else as the assumptions state."""
    return Checkpoints(
        interval_s=jobs.checkpoint_interval_s or assumed.checkpoint_interval_s,
        save_s=assumed.checkpoint_save_s if jobs.checkpoint_save_s is None else jobs.checkpoint_save_s,
        restore_s=assumed.checkpoint_restore_s if jobs.checkpoint_restore_s is None else jobs.checkpoint_restore_s,
    )


def _ratio(ran_s: float, spent_s: float) -> float:
    return float(ran_s / spent_s) if spent_s > 0 else 1.0


def _attained(target: Target, wait_s: FloatArray, ratio: float, low_ratio: float) -> Attained:
    if target.metric is TargetMetric.THROUGHPUT:
        return speed_attained(target, ratio, low_ratio)
    # a run that never started has waited for ever
    known = np.where(np.isnan(wait_s), np.inf, wait_s)
    limit = np.inf if target.limit_s is None else target.limit_s
    # a microsecond for what sums of seconds round by
    share = float((known <= limit + 1e-6).mean()) if len(known) else 1.0
    return Attained(target=target, frac=share, safe_frac=share)
