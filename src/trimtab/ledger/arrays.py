"""Types of arrays, and the exact integer arithmetic that plain numpy lacks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trimtab.units import S_PER_HR

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def charge(rate_micro_usd_hr: int | IntArray, node_seconds: IntArray) -> IntArray:
    """Price node-seconds at an hourly rate, or one for each element, in whole micro-dollars, half to even.

    Exact: rate * seconds stays below 2**63 for 10,000 nodes at 200 dollars an hour.
    """
    whole, rest = np.divmod(node_seconds * np.asarray(rate_micro_usd_hr, dtype=np.int64), S_PER_HR)
    # half to even, in whole numbers
    up = (2 * rest > S_PER_HR) | ((2 * rest == S_PER_HR) & (whole % 2 == 1))
    return np.asarray(whole + up, dtype=np.int64)


def apportion_groups(totals: IntArray, group: IntArray, weights: FloatArray) -> IntArray:
    """Split each group's whole total over its cells by weight, exactly (largest remainder; ties to the first cell).

    `group` (n,) gives each cell's group, ascending; `weights` (n,) are non-negative; `totals` (g,) are non-negative. A group
    whose weights are all 0 splits evenly. A group without a cell must have total 0, else ValueError: money would be lost.
    """
    cells = np.bincount(group, minlength=len(totals)) if len(group) else np.zeros(len(totals), dtype=np.int64)
    if np.any(totals[cells == 0] != 0):
        raise ValueError("an amount has no cell to be assigned to")
    scale = np.bincount(group, weights=weights, minlength=len(totals))
    share = np.where(scale[group] > 0, weights / np.where(scale > 0, scale, 1.0)[group], 1.0 / cells[group])
    exact = totals[group] * share
    parts = np.minimum(np.floor(exact).astype(np.int64), totals[group])
    given = np.zeros(len(totals), dtype=np.int64)
    np.add.at(given, group, parts)  # in whole numbers: bincount adds in floats, which are exact up to 2^53 only
    left = totals - given
    # within each group the largest remainder first, of equal ones the first cell
    order = np.lexsort((np.arange(len(group)), parts - exact, group))
    first = np.concatenate(([0], np.cumsum(cells)[:-1])) if len(cells) else np.zeros(0, dtype=np.int64)
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - first[group[order]]
    # floats may leave more than one for each cell: whole turns for all, the rest by remainder
    whole_turns, extra = np.divmod(left, np.maximum(cells, 1))
    return parts + whole_turns[group] + (rank < extra[group])
