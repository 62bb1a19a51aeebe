"""How many nodes to commit to, exactly, for a known use."""

from __future__ import annotations

import numpy as np

from trimtab.ledger.arrays import IntArray
from trimtab.units import S_PER_HR


def best_count(node_seconds: IntArray, on_demand_micro_usd_hr: int, committed_micro_usd_hr: int) -> int:
    """Return the number of committed nodes that makes the bill of known use (n_hours,) least; the smallest on ties.

    The cost is convex in the count, so the first count whose next unit does not pay is the optimum. For whole nodes this
    is the newsvendor rule: the k-th unit pays if and only if it is used in more than committed/on-demand of the hours.
    """
    most = int(np.ceil(node_seconds.max(initial=0) / S_PER_HR))
    unit = committed_micro_usd_hr * S_PER_HR * len(node_seconds)
    for count in range(most):
        used = np.clip(node_seconds - count * S_PER_HR, 0, S_PER_HR)
        if int(used.sum()) * on_demand_micro_usd_hr <= unit:
            return count
    return most
