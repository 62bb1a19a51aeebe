"""What a service would have cost at least, had the future been known: the yardstick of every scaling policy."""

from __future__ import annotations

import numpy as np

from trimtab.policies.metrics import ROUNDING
from trimtab.replay.series import FloatArray, IntArray
from trimtab.units import S_PER_HR


def needed_replicas(load: FloatArray) -> IntArray:
    """Return the replicas that serve each step's load without queueing; an unknown load needs what the step before needed."""
    # unknown loads count as none here; the next lines put the latest known one in their place
    need = np.ceil(np.nan_to_num(load, nan=-1.0) - ROUNDING).astype(np.int64)
    known = np.maximum.accumulate(np.where(np.isnan(load), 0, np.arange(len(load))))
    return np.maximum(need[known], 0)


def clairvoyant_replica_hr(load: FloatArray, *, step_s: float, cold_start_s: float) -> float:
    """Return the least replica-hours that serve every step without queueing, starts billed.

    The k-th replica runs whenever the load needs k; over a gap it costs the lesser of staying and starting again. Replicas are
    alike, so this is exact, level by level (interval cover with a start cost). A start before the first step is free.
    """
    need = needed_replicas(load)
    billed_s = 0.0
    for level in range(1, int(need.max(initial=0)) + 1):
        # edges of the stretches in which the load needs this level: rises and falls in turn
        edges = np.flatnonzero(np.diff(np.concatenate([[0], need >= level, [0]]).astype(np.int8)))
        starts, ends = edges[::2], edges[1::2]
        gaps_s = (starts[1:] - ends[:-1]) * step_s
        billed_s += float((ends - starts).sum()) * step_s
        # a gap costs the cheaper of staying up and starting again
        billed_s += float(np.minimum(gaps_s, cold_start_s).sum()) + (cold_start_s if starts[0] > 0 else 0.0)
    return billed_s / S_PER_HR
