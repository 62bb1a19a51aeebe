"""Judge a workload that simply holds nodes (notebooks, and whatever shows neither requests nor runs) hour by hour."""

from __future__ import annotations

import numpy as np

from trimtab.deployment.effects import SetSchedule
from trimtab.deployment.placement import Placement
from trimtab.replay.outcomes.outcome import (
    Case,
    Outcome,
    held_as,
    held_replicas,
    held_usage,
    run_speed,
    speed_attained,
)
from trimtab.tables.workloads import TargetMetric


def hours_outcome(case: Case, place: Placement) -> Outcome:
    """Hold the nodes in the hours of the timetable; throughput is the share of history's measured activity that
    falls into them: what was not measured counts on neither side."""
    usage = held_usage(case.workload, place)
    up = np.ones(case.window.hours, dtype=bool)
    if isinstance(place.holding, SetSchedule):
        up = np.isin(case.window.week_hours(), place.holding.hours_of_week)
    busy = np.nan_to_num(case.workload.activity.busy_gpus)
    ratio = float(busy[up].sum() / busy.sum()) if busy.sum() > 0 else 1.0
    speed = min(1.0, run_speed(case, place.speed))
    on_demand, spot = held_as(place, np.where(up, usage, 0))
    return Outcome(
        on_demand=on_demand,
        spot=spot,
        attained=tuple(
            speed_attained(target, ratio * speed, ratio * speed * place.speed.low / place.speed.value)
            for target in case.targets
            if target.metric is TargetMetric.THROUGHPUT
        ),
        replicas=np.where(up, held_replicas(case.workload), 0),
    )
