"""Hold nodes when they are needed: office hours for notebooks, the run's own hours for regular jobs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.fleet.effects import SetSchedule, StartBeforeRuns
from trimtab.fleet.kinds import is_regular
from trimtab.fleet.model import FloatArray, Window, Workload
from trimtab.fleet.settings import Assumptions, Bands, Lever
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, HR_PER_WEEK

LEVER = Lever.SCHEDULE
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
        return (StartBeforeRuns(lead_s=assumptions.node_startup_s),)
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
