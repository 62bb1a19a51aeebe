"""The bill by workload, team and kind, with GPU-hours and activity; the heat map of activity by hour of the week."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trimtab.diagnose.findings import Spend
from trimtab.fleet.model import Fleet, FloatArray, Workload
from trimtab.ledger import Allocation
from trimtab.units import HR_PER_WEEK, S_PER_HR

NOBODY = "nobody (idle nodes)"


def spend_by(fleet: Fleet, allocation: Allocation, key: Callable[[Workload], str]) -> tuple[Spend, ...]:
    """Sum the bill by a property of workloads, largest first; node time that nobody held is a row of its own."""
    costs = allocation.by_owner(len(fleet.workloads))
    names = [key(workload) for workload in fleet.workloads]
    rows = []
    for name in dict.fromkeys(names):
        members = [index for index, other in enumerate(names) if other == name]
        rows.append(_row(fleet, name, members, int(costs[members].sum())))
    idle = allocation.idle + allocation.unused_commitment
    if idle:
        rows.append(Spend(name=NOBODY, micro_usd=idle, gpu_hours=0.0, activity_frac=None))
    return tuple(sorted(rows, key=lambda row: (-row.micro_usd, row.name)))


def spend_by_workload(fleet: Fleet, allocation: Allocation) -> tuple[Spend, ...]:
    """Sum the bill by workload, largest first, each with its team and kind."""
    known = {workload.name: workload for workload in fleet.workloads}
    return tuple(
        replace(row, team=known[row.name].team, kind=known[row.name].kind.value) if row.name in known else row
        for row in spend_by(fleet, allocation, lambda workload: workload.name)
    )


def _row(fleet: Fleet, name: str, members: list[int], cost: int) -> Spend:
    workloads = [fleet.workloads[index] for index in members]
    measured = [w for w in workloads if w.activity.mean_frac is not None]
    hours = sum(w.gpu_hours for w in measured)
    active = sum(w.gpu_hours * (w.activity.mean_frac or 0.0) for w in measured)
    return Spend(
        name=name,
        micro_usd=cost,
        gpu_hours=sum(w.gpu_hours for w in workloads),
        activity_frac=active / hours if hours else None,
    )


def week_activity(workload: Workload, first_week_hour: int) -> FloatArray:
    """Return mean activity per hour of the week (168,); NaN where nothing was held or measured."""
    held = workload.gpu_seconds / S_PER_HR
    level = np.divide(workload.activity.busy_gpus, held, out=np.full(len(held), np.nan), where=held > 0)
    slot = (first_week_hour + np.arange(len(held))) % HR_PER_WEEK
    seen = ~np.isnan(level)
    total = np.bincount(slot[seen], weights=level[seen], minlength=HR_PER_WEEK)
    number = np.bincount(slot[seen], minlength=HR_PER_WEEK)
    mean = np.divide(total, number, out=np.full(HR_PER_WEEK, np.nan), where=number > 0)
    return np.asarray(mean, dtype=np.float64)
