"""Hold nodes when they are needed: office hours for notebooks, the run's own hours for regular jobs.

Runs that can wait are held until an hour of the day: onto nodes that services leave idle under their commitments, or into
cheap hours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import DeferRuns, Effect, SetSchedule, StartBeforeRuns
from trimtab.fleet.model import RUN_KINDS, Window, Workload, is_regular
from trimtab.fleet.settings import Assumptions, Bands, Effort
from trimtab.fleet.starts import run_startup_s
from trimtab.ledger.arrays import FloatArray
from trimtab.levers.lever import (
    AppliedLever,
    CompositionStage,
    EffortStep,
    Fact,
    JudgedWays,
    Lever,
    LeverRequest,
    Risk,
    held_and_used,
    usual_reason,
)
from trimtab.policies.deferral import DeferPolicy
from trimtab.tables.workloads import TargetMetric, WorkloadKind
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, HR_PER_WEEK, S_PER_HR

NAME = "schedule"
EVERY_HR = 3
"""Hours of the day that deferred runs may wait for where no cheap ones are named: which are idle, only the joint plan knows."""
_MOST_DEFERRED_S = 23 * S_PER_HR
"""A queue opens for at least an hour a day."""
_REGULAR_RUNS = {WorkloadKind.BATCH, WorkloadKind.EVALUATION}
_WORKDAYS = 5
_MOST_GAPS_FRAC = 0.5


class _Rule(NamedTuple):
    """How generous a timetable is: hours added on both sides, and whether every workday gets every workday's hours."""

    widen_hr: int
    same_every_workday: bool


_RULES = (_Rule(1, False), _Rule(2, False), _Rule(0, True), _Rule(1, True), _Rule(2, True), _Rule(3, True))


def propose(
    workload: Workload, window: Window, bands: Bands, assumptions: Assumptions, required_frac: float
) -> tuple[SetSchedule | StartBeforeRuns, ...]:
    """Offer weekly timetables to notebooks, capacity ahead of time to runs that come at the same time of day.

    A timetable is offered if, learnt without any one week, it held at least `required_frac` of that week's activity.
    """
    if workload.kind is WorkloadKind.NOTEBOOK:
        weeks = _activity_by_week(workload, window, bands)
        tables = (_timetable(weeks, rule) for rule in _RULES if _foretold(weeks, rule) >= required_frac)
        return tuple(
            SetSchedule(hours_of_week=table) for table in dict.fromkeys(tables) if 0 < len(table) < HR_PER_WEEK
        )
    if workload.kind in _REGULAR_RUNS and workload.jobs is not None and is_regular(workload.jobs):
        return (StartBeforeRuns(lead_s=run_startup_s(workload, assumptions)),)
    return ()


def _activity_by_week(workload: Workload, window: Window, bands: Bands) -> FloatArray:
    """Return activity by week and hour of the week (n_weeks, 168): below the band's floor 0, where unmeasured NaN.

    Whole weeks only. Nothing comes back where most of what it held was not measured: a timetable must not rest on gaps.
    """
    busy, held = workload.activity.busy_gpus, workload.gpu_seconds > 0
    if not held.any() or np.isnan(busy[held]).mean() > _MOST_GAPS_FRAC:
        return np.zeros((0, HR_PER_WEEK))
    active = np.where(busy < bands.active_frac / 2, 0.0, np.where(held, busy, 0.0))
    weeks = window.hours // HR_PER_WEEK
    return np.roll(active[: weeks * HR_PER_WEEK].reshape(weeks, HR_PER_WEEK), window.first_week_hour, axis=1)


def _timetable(weeks: FloatArray, rule: _Rule) -> tuple[int, ...]:
    """Return the hours of the week that a rule keeps, given weeks to learn from; an unmeasured hour may have been active."""
    active = ((weeks > 0) | np.isnan(weeks)).any(axis=0)
    if rule.same_every_workday:
        days = active.reshape(DAYS_PER_WEEK, HR_PER_DAY).copy()
        days[:_WORKDAYS] = days[:_WORKDAYS].any(axis=0)
        active = days.reshape(-1)
    wide = active.copy()
    for shift in range(1, rule.widen_hr + 1):
        wide |= np.roll(active, shift) | np.roll(active, -shift)
    return tuple(int(hour) for hour in np.flatnonzero(wide))


def _foretold(weeks: FloatArray, rule: _Rule) -> float:
    """Return the least share of a week's activity that a timetable learnt from the other weeks would have held."""
    shares = []
    for left_out in range(len(weeks)):
        table = _timetable(np.delete(weeks, left_out, axis=0), rule)
        total = float(np.nansum(weeks[left_out]))
        if total > 0:
            shares.append(float(np.nansum(weeks[left_out][list(table)])) / total)
    return min(shares, default=0.0)


def deferrals(workload: Workload, assumptions: Assumptions) -> tuple[DeferRuns, ...]:
    """Return one rule for each hour to wait for, for runs declared deferrable; nodes come and go with the runs."""
    declared = workload.spec.deferrable
    if workload.kind not in RUN_KINDS or workload.jobs is None or declared is None:
        return ()
    slack_s = min(_MOST_DEFERRED_S, round(declared.within_hr * S_PER_HR - run_startup_s(workload, assumptions)))
    if slack_s <= 0:
        return ()
    hours = declared.start_hours or tuple(range(0, HR_PER_DAY, EVERY_HR))
    return tuple(
        DeferRuns(policy=DeferPolicy(start_hour=hour, within_s=slack_s), startup_s=run_startup_s(workload, assumptions))
        for hour in sorted(set(hours))
    )


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    for effect in ask.once(_timetables):
        yield base.plus((NAME, effect))


def _timetables(ask: LeverRequest) -> tuple[SetSchedule | StartBeforeRuns | DeferRuns, ...]:
    """Return every way to hold nodes in the hours that they are needed, of a workload."""
    case = ask.case
    required_frac = _throughput_required(ask)
    tables = propose(ask.workload, case.window, ask.settings.bands, ask.assumptions, required_frac)
    return (*tables, *deferrals(ask.workload, ask.assumptions))


def _throughput_required(ask: LeverRequest) -> float:
    """Return the share of activity that a timetable must hold, with the plan's margin."""
    required = [target.required_frac for target in ask.case.targets if target.metric is TargetMetric.THROUGHPUT]
    margin = ask.settings.planning.target_margin_frac
    return 1 - (1 - max(required, default=0.0)) * (1 - margin)


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    return usual_reason(NAME, ask, judged) if ask.workload.kind is WorkloadKind.NOTEBOOK else None


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    yield held_and_used(applied.workload)


def _canary(effect: Effect) -> tuple[str, ...]:
    if isinstance(effect, DeferRuns):
        return (
            "Hold the queue for one night, with one team's runs in it.",
            "Check that they began at the hour and ended in time; then let the others' runs into it.",
        )
    return (
        "Start the nodes by timetable for one run, and keep the present nodes until it has finished.",
        "Check that the run began on time; then give the present nodes back.",
    )


LEVER = Lever(
    name=NAME,
    title="Schedule",
    meaning="Holds nodes in the hours that they are needed, and defers runs that can wait",
    ends="nodes held in hours without work",
    page="how-to/defer-runs.md",
    stage=CompositionStage.HOLD,
    kinds=RUN_KINDS | {WorkloadKind.NOTEBOOK},
    effort=Effort(weeks=0.5, per="class"),
    steps=(
        EffortStep("agree the hours with the teams whose runs wait", 1.0),
        EffortStep("read the emitted timetable, one night or one run, then the others", 1.5),
    ),
    risk=Risk.LOW,
    rollback="remove the timetable; nodes stay up as before",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
)
