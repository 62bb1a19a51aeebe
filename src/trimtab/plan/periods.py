"""Gather periods of like use, pool by pool, so that a program needs few balance rows.

The bill is convex in use, so that a program over means is never dearer than the hourly one: its optimum is a bound. What it
loses depends on where the cuts are. At the optimum a pool's balance price is the on-demand rate in periods above the committed
count and 0 below, so that cuts by the level of use lose almost nothing: periods are sorted by use and cut into equal parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.fleet.model import FloatArray, IntArray
from trimtab.plan.table import Table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gathered:
    """One tracked pool in gathered periods: hours in each (n,), and the mean nodes of each of its table rows (n_rows, n)."""

    weight_hr: FloatArray
    nodes: FloatArray
    peak: FloatArray
    """The most nodes of each of its table rows in any period gathered; (0, 0) for a pool without a quota."""


def gather(table: Table, use: Sequence[FloatArray], most: int, most_limited: int | None = None) -> tuple[Gathered, ...]:
    """Gather each tracked pool's periods into at most `most`, by the level of `use` (one (n_periods,) per tracked pool).

    Pools with a quota are gathered into at most `most_limited` where that is given.
    """
    gathered = []
    for tracked, level in zip(table.tracked, use, strict=True):
        limited = tracked.pool in table.problem.quotas
        parts = most if most_limited is None or not limited else most_limited
        label = _labels(level, parts, parts // 2 if limited else 0)
        weight_hr = np.asarray(np.bincount(label, weights=table.weight_hr), dtype=np.float64)
        mean = np.zeros((table.periods, len(weight_hr)))
        mean[np.arange(table.periods), label] = table.weight_hr / weight_hr[label]
        peak = _peaks(tracked.nodes, label) if tracked.pool in table.problem.quotas else np.zeros((0, 0))
        gathered.append(Gathered(weight_hr=weight_hr, nodes=tracked.nodes @ mean, peak=peak))
    return tuple(gathered)


def _labels(level: FloatArray, most: int, peaks: int) -> IntArray:
    """Return the gathered period of each period; the `peaks` highest stand alone, because a quota binds there."""
    if len(level) <= most:
        return np.arange(len(level))
    label = np.empty(len(level), dtype=np.int64)
    order = np.argsort(level, kind="stable")
    rest = len(level) - peaks
    label[order[:rest]] = np.arange(rest) * (most - peaks) // rest
    label[order[rest:]] = most - peaks + np.arange(peaks)
    return label


def _peaks(nodes: FloatArray, label: IntArray) -> FloatArray:
    order = np.argsort(label, kind="stable")
    first = np.searchsorted(label[order], np.arange(int(label.max()) + 1))
    return np.asarray(np.maximum.reduceat(nodes[:, order], first, axis=1), dtype=np.float64)
