"""The HorizontalPodAutoscaler (autoscaling/v2), written from its documentation.

https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/ : `desired = ceil(current * value / target)`
unless the ratio is within the tolerance; an external metric with an AverageValue asks for `ceil(value / target)`; of several
metrics the highest counts; a stabilization window takes the highest recommendation of its past on the way down and the lowest
on the way up; a behaviour's policies limit the change within a period, and `selectPolicy: Max` takes the one that allows most.
"""

from __future__ import annotations

from math import ceil

import numpy as np
import numpy.typing as npt
from numba import njit

Floats = npt.NDArray[np.float64]
_ROUNDING = 1e-9


@njit(cache=True)
def desired_replicas(current: int, value: float, target: float, tolerance_up: float, tolerance_down: float) -> int:
    """Return what an AverageValue metric asks for; `value` is the metric's sum over the pods."""
    if current <= 0:
        return ceil(value / target - _ROUNDING)
    ratio = value / (target * current)
    if -tolerance_down - _ROUNDING <= ratio - 1.0 <= tolerance_up + _ROUNDING:
        return current
    return ceil(value / target - _ROUNDING)


@njit(cache=True)
def stabilized(recent: Floats, at: int, up_steps: int, down_steps: int, desired: int, current: int) -> int:
    """Keep a recommendation in a ring of past ones and return what the two windows allow.

    `recent` holds the recommendation of decision i at i modulo its length; unused places are NaN. Its last place at first holds
    the replicas that there were before decision 0, which count as a recommendation (kubernetes/kubernetes:
    pkg/controller/podautoscaler/horizontal.go, recordInitialRecommendation).
    """
    size = len(recent)
    recent[at % size] = desired
    lowest, highest = float(desired), float(desired)
    for back in range(max(up_steps, down_steps, 1)):
        if back > at + 1 or back >= size:
            break
        value = recent[(at - back) % size]
        if np.isnan(value):
            continue
        if back < up_steps and value < lowest:
            lowest = value
        if back < down_steps and value > highest:
            highest = value
    if current < lowest:
        return int(lowest)
    if current > highest:
        return int(highest)
    return current


@njit(cache=True)
def limited(
    changes: Floats, at: int, period_steps: int, current: int, wanted: int, percent: float, pods: int, rising: bool
) -> int:
    """Return how far one direction's policies let the replicas go now.

    `changes` holds the replicas added (positive) or removed by decision i at i modulo its length. Each policy counts from the
    replicas that there were at the start of its period.
    """
    size = len(changes)
    moved = 0.0
    for back in range(1, min(period_steps, size)):
        if back > at:
            break
        change = changes[(at - back) % size]
        if (rising and change > 0) or (not rising and change < 0):
            moved += change
    start = current - moved
    if rising:
        most = max(ceil(start * (1 + percent / 100) - _ROUNDING), start + pods)
        return int(min(wanted, max(most, current)))
    least = min(start * (1 - percent / 100), start - pods)
    return int(max(wanted, min(ceil(least - _ROUNDING), current)))
