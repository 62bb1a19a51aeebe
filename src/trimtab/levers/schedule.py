"""Hold nodes when they are needed: office hours for notebooks, the run's own hours for regular jobs."""

from __future__ import annotations

import numpy as np

from trimtab.fleet.effects import SetSchedule, StartBeforeRuns
from trimtab.fleet.kinds import is_regular
from trimtab.fleet.model import Window, Workload
from trimtab.fleet.settings import Assumptions, Bands, Lever
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import HR_PER_WEEK

LEVER = Lever.SCHEDULE
_REGULAR_RUNS = {WorkloadKind.BATCH, WorkloadKind.EVALUATION}


def propose(
    workload: Workload, window: Window, bands: Bands, assumptions: Assumptions
) -> tuple[SetSchedule | StartBeforeRuns, ...]:
    """Offer a weekly timetable to notebooks, capacity ahead of time to runs that come at the same time of day."""
    if workload.kind is WorkloadKind.NOTEBOOK:
        hours = _active_hours(workload, window, bands)
        return (SetSchedule(hours_of_week=hours),) if hours and len(hours) < HR_PER_WEEK else ()
    if workload.kind in _REGULAR_RUNS and workload.jobs is not None and is_regular(workload.jobs):
        return (StartBeforeRuns(lead_s=assumptions.node_startup_s),)
    return ()


def _active_hours(workload: Workload, window: Window, bands: Bands) -> tuple[int, ...]:
    """Return the hours of the week in which it was ever active, with an hour before and after; all where gaps hide some."""
    busy = workload.activity.busy_gpus
    held = workload.gpu_seconds > 0
    slot = window.week_hours()
    if np.isnan(busy[held]).mean() > 0.5 or not held.any():
        return ()
    active = np.zeros(HR_PER_WEEK, dtype=bool)
    active[slot[np.nan_to_num(busy) >= bands.active_frac * 0.5]] = True
    near = active | np.roll(active, -1) | np.roll(active, 1)
    return tuple(int(hour) for hour in np.flatnonzero(near))
