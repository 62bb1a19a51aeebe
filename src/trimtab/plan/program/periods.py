"""Gather hours of like use into periods, pool by pool, so that a program needs few balance rows.

The bill is convex in use, so that a program over means is never dearer than the hourly one: its optimum is a bound. What it
loses depends on where the cuts are. At the optimum a pool's balance price is the on-demand rate in hours above the committed
count and 0 below, so that cuts by the level of use lose almost nothing: hours are sorted by use and cut into equal parts.
Pools that are coupled within the hour (a spend plan covers them) are cut together, where their use differs most in dollars.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappush, heapreplace
from itertools import count

import numpy as np

from trimtab.fleet.model import FloatArray, IntArray
from trimtab.plan.program.couplings.shared_nodes import gathered_sharing
from trimtab.plan.program.pool_use import Gathered, Tracked
from trimtab.plan.program.table import OptionTable
from trimtab.units import usd

MAX_NUMBERS = 60_000_000
"""Fewer periods than asked for are made where options times periods would exceed this: 0.5 GB."""

_MOST_COMPARED = 2_000_000
"""Numbers up to which hours are compared with one another."""


def gather(
    table: OptionTable, use: Sequence[FloatArray], most: int, most_limited: int | None = None
) -> tuple[Gathered, ...]:
    """Gather each tracked pool's hours into at most `most` periods, by the level of `use` (one (n_hours,) per tracked pool).

    Limited pools are gathered into at most `most_limited` where that is given. Pools that are coupled within the hour share
    their periods.
    """
    rows = sum(tracked.count for tracked in table.tracked)
    # options times periods is what the arrays hold
    allowed = max(1, MAX_NUMBERS // max(1, rows))
    gathered: dict[int, Gathered] = {}
    for places in _together(table):
        tracked = [table.tracked[place] for place in places]
        limited = [at for at, pool in enumerate(tracked) if pool.is_limited]
        parts = min(allowed, most if most_limited is None or not limited else most_limited)
        alike = _alike(tracked, parts)
        label = _cut(table, places, use, parts, limited) if alike is None else alike
        for place, pool in zip(places, tracked, strict=True):
            gathered[place] = _gathered(pool, label, exact=alike is not None)
    return tuple(gathered[place] for place in range(len(table.tracked)))


def _together(table: OptionTable) -> list[list[int]]:
    """Return the places of tracked pools that share their periods."""
    joint: dict[str, list[int]] = {}
    alone: list[list[int]] = []
    for place, tracked in enumerate(table.tracked):
        if tracked.cut_with:
            joint.setdefault(tracked.cut_with, []).append(place)
        else:
            alone.append([place])
    return [*alone, *joint.values()]


def _cut(
    table: OptionTable, places: Sequence[int], use: Sequence[FloatArray], most: int, limited: Sequence[int]
) -> IntArray:
    """Return the period of each hour, by the level of use of one pool or, in dollars, of several."""
    # where a quota binds, at the busiest hours, half of the periods are single hours
    peaks = most // 2 if limited else 0
    if len(places) == 1:
        return _labels(use[places[0]], most, peaks)
    rates = table.problem.rates_micro_usd_hr
    level = np.array([usd(rates[table.tracked[place].pool]) * use[place] for place in places])
    return _cells(
        level, most, {hour for at in limited for hour in np.argsort(-level[at])[: peaks // len(limited)].tolist()}
    )


def _gathered(tracked: Tracked, label: IntArray, *, exact: bool) -> Gathered:
    weight_hr = np.bincount(label).astype(np.float64)
    share = np.zeros((len(label), len(weight_hr)))
    # each hour's weight in the mean of its period
    share[np.arange(len(label)), label] = 1.0 / weight_hr[label]
    # sorted by period, the hours of each are one run
    order = np.argsort(label, kind="stable")
    first = np.searchsorted(label[order], np.arange(len(weight_hr)))
    return Gathered(
        weight_hr=weight_hr,
        nodes=tracked.means(share),
        peak=tracked.peaks(order, first) if tracked.is_limited else np.zeros((0, 0)),
        sharing=tuple(gathered_sharing(sharing, share, exact=exact) for sharing in tracked.sharing),
    )


def _alike(tracked: Sequence[Tracked], most: int) -> IntArray | None:
    """Return the period of each hour if hours are gathered that are alike in all rows; None where too many differ.

    Nothing is lost then, not even what whole nodes round up: services that do not scale have few different hours.
    """
    sharing = [shared for workload in tracked for shared in workload.sharing]
    rows = [
        *(use for workload in tracked for use in workload.seconds),
        *(line for shared in sharing for room in shared.taken for line in room),
    ]
    if not sharing or len(rows) * len(rows[0]) > _MOST_COMPARED:
        return None
    # an hour is a column here: equal columns are alike in every row
    different, label = np.unique(np.array(rows), axis=1, return_inverse=True)
    return np.asarray(label.reshape(-1), dtype=np.int64) if different.shape[1] <= most else None


def _cells(level: FloatArray, most: int, alone: Collection[int]) -> IntArray:
    """Return the period of each hour of several pools' use (n_pools, n_hours); the hours in `alone` are periods each.

    Of the periods so far the one whose hours differ most is cut in the middle, along the pool in which they do.
    """
    if level.shape[1] <= most:
        return np.arange(level.shape[1])
    rest = np.array([hour for hour in range(level.shape[1]) if hour not in alone], dtype=np.int64)
    done, waiting = [np.array([hour]) for hour in sorted(alone)], [(_spread(level, rest), 0, rest)]
    # numbers break ties in the heap, because arrays have no order
    for number in count(1, 2):
        spread, _, hours = waiting[0]
        # the spread is negative, so that the heap gives the widest; at 0 the hours left do not differ
        if len(done) + len(waiting) >= most or spread == 0:
            break
        along = int(np.argmax(np.ptp(level[:, hours], axis=1)))
        halves = np.array_split(hours[np.argsort(level[along, hours], kind="stable")], 2)
        heapreplace(waiting, (_spread(level, halves[0]), number, halves[0]))
        heappush(waiting, (_spread(level, halves[1]), number + 1, halves[1]))
    label = np.empty(level.shape[1], dtype=np.int64)
    # by their numbers, so that labels do not depend on how the heap lies
    for at, hours in enumerate([*done, *(hours for _, _, hours in sorted(waiting, key=lambda cell: cell[1]))]):
        label[hours] = at
    return label


def _spread(level: FloatArray, hours: IntArray) -> float:
    """Return how much some hours differ, negative: the most by which one pool's use does, times the hours."""
    return -float(np.ptp(level[:, hours], axis=1).max()) * len(hours)


def _labels(level: FloatArray, most: int, peaks: int) -> IntArray:
    """Return the period of each hour; the `peaks` highest stand alone, because a quota binds there."""
    if len(level) <= most:
        return np.arange(len(level))
    label = np.empty(len(level), dtype=np.int64)
    order = np.argsort(level, kind="stable")
    # equal numbers of hours in each period, by rank of use
    rest = len(level) - peaks
    label[order[:rest]] = np.arange(rest) * (most - peaks) // rest
    label[order[rest:]] = most - peaks + np.arange(peaks)
    return label
