"""Arrivals inside a step of history, which only counted them: drawn, since an autoscaler sees each quarter of a minute.

Requests of many users come independently of one another, so that the counts inside a step are multinomial. The even split
that a mean suggests is too calm: a replica that serves one request in two seconds gets seven in 15 s, give or take three, and
an autoscaler that follows them holds the highest of its window. What clusters more than that inside a step is not known from
counts by step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.policies.scaling import SYNC_S
from trimtab.replay.series import FloatArray
from trimtab.units import HR_PER_DAY, S_PER_HR


def arrivals_by_decision(arrivals: FloatArray, *, step_s: float, seed: Sequence[int]) -> FloatArray:
    """Return arrivals (n_steps,) by decision, each step's split at random over its decisions (n_steps * step_s / SYNC_S,).

    Each step keeps its total; a step that nobody counted (NaN) stays unknown. The same seed gives the same split.
    """
    parts = int(step_s) // SYNC_S
    if parts <= 1:
        return arrivals
    known = ~np.isnan(arrivals)
    # a share of a request goes with the others: 2.5 are three, each of them counting as 5/6
    whole = np.ceil(np.where(known, arrivals, 0.0)).astype(np.int64)
    # independent users: the counts of equal parts are multinomial
    split = np.random.default_rng(list(seed)).multinomial(whole, np.full(parts, 1.0 / parts))
    weight = np.where(whole > 0, arrivals / np.maximum(whole, 1), np.where(known, 0.0, np.nan))
    return np.asarray((split * weight[:, None]).reshape(-1), dtype=np.float64)


def usual_demand(demand: FloatArray, *, step_s: float) -> FloatArray:
    """Return demand by step (n_steps,) whose unknown steps (NaN) hold what was usual at that hour of the day.

    Monitoring that was down is no demand of zero, and no reason for an autoscaler to stand still for days: it is the history
    that has a gap, not the cluster. Where an hour of the day was never seen, its place is taken by the mean of all that was;
    a demand that nobody measured at all stays unknown.
    """
    known = ~np.isnan(demand)
    if known.all() or not known.any():
        return demand
    hour_of_day = (np.arange(len(demand)) * step_s // S_PER_HR).astype(np.int64) % HR_PER_DAY
    seen = np.bincount(hour_of_day[known], minlength=HR_PER_DAY)
    total = np.bincount(hour_of_day[known], weights=demand[known], minlength=HR_PER_DAY)
    # an hour of the day that was never seen takes the mean of all that was
    usual = np.where(seen > 0, total / np.maximum(seen, 1), demand[known].mean())
    return np.asarray(np.where(known, demand, usual[hour_of_day]), dtype=np.float64)
