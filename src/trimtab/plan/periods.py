"""Gather hours of like use into periods, pool by pool, so that a program needs few balance rows.

The bill is convex in use, so that a program over means is never dearer than the hourly one: its optimum is a bound. What it
loses depends on where the cuts are. At the optimum a pool's balance price is the on-demand rate in hours above the committed
count and 0 below, so that cuts by the level of use lose almost nothing: hours are sorted by use and cut into equal parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.fleet.model import FloatArray, IntArray
from trimtab.plan.table import Table, Tracked

MAX_NUMBERS = 60_000_000
"""Fewer periods than asked for are made where options times periods would exceed this: 0.5 GB."""

_MOST_COMPARED = 2_000_000
"""Numbers up to which hours are compared with one another."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GatheredSharing:
    """One shared pool in gathered periods: each row's mean nodes' worth of slots, and the whole nodes it would need alone."""

    nodes: FloatArray
    whole: FloatArray
    exact: bool = False
    """Whether the hours of each period are alike in every row, so that means are what every hour holds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gathered:
    """One tracked pool in gathered periods: hours in each (n,), and the mean nodes of each of its table rows (n_rows, n)."""

    weight_hr: FloatArray
    nodes: FloatArray
    peak: FloatArray
    """The most nodes of each of its table rows in any hour gathered; (0, 0) for a pool without a quota."""
    sharing: tuple[GatheredSharing, ...] = ()
    """(n_rows, n) each, in the order of the tracked pool's shared ones."""


def gather(table: Table, use: Sequence[FloatArray], most: int, most_limited: int | None = None) -> tuple[Gathered, ...]:
    """Gather each tracked pool's hours into at most `most` periods, by the level of `use` (one (n_hours,) per tracked pool).

    Pools with a quota are gathered into at most `most_limited` where that is given.
    """
    rows = sum(tracked.count for tracked in table.tracked)
    allowed = max(1, MAX_NUMBERS // max(1, rows))
    gathered = []
    for tracked, level in zip(table.tracked, use, strict=True):
        limited = tracked.pool in table.problem.quotas
        parts = min(allowed, most if most_limited is None or not limited else most_limited)
        alike = _alike(tracked, parts)
        label = _labels(level, parts, parts // 2 if limited else 0) if alike is None else alike
        weight_hr = np.bincount(label).astype(np.float64)
        share = np.zeros((len(label), len(weight_hr)))
        share[np.arange(len(label)), label] = 1.0 / weight_hr[label]
        order = np.argsort(label, kind="stable")
        first = np.searchsorted(label[order], np.arange(len(weight_hr)))
        peak = tracked.peaks(order, first) if limited else np.zeros((0, 0))
        shared = tuple(
            GatheredSharing(nodes=one.nodes() @ share, whole=one.whole() @ share, exact=alike is not None)
            for one in tracked.sharing
        )
        gathered.append(Gathered(weight_hr=weight_hr, nodes=tracked.means(share), peak=peak, sharing=shared))
    return tuple(gathered)


def _alike(tracked: Tracked, most: int) -> IntArray | None:
    """Return the period of each hour if hours are gathered that are alike in all rows; None where too many differ.

    Nothing is lost then, not even what whole nodes round up: services that do not scale have few different hours.
    """
    rows = [*tracked.seconds, *(slots for one in tracked.sharing for slots in one.slots)]
    if not tracked.sharing or len(rows) * len(rows[0]) > _MOST_COMPARED:
        return None
    different, label = np.unique(np.array(rows), axis=1, return_inverse=True)
    return np.asarray(label.reshape(-1), dtype=np.int64) if different.shape[1] <= most else None


def _labels(level: FloatArray, most: int, peaks: int) -> IntArray:
    """Return the period of each hour; the `peaks` highest stand alone, because a quota binds there."""
    if len(level) <= most:
        return np.arange(len(level))
    label = np.empty(len(level), dtype=np.int64)
    order = np.argsort(level, kind="stable")
    rest = len(level) - peaks
    label[order[:rest]] = np.arange(rest) * (most - peaks) // rest
    label[order[rest:]] = most - peaks + np.arange(peaks)
    return label
