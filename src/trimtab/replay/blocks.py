"""Lay a calendar of capacity blocks over a window: what is paid by the hour, and which booked nodes are free when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.policies.blocks import NOTICE_S, START_S, BlockCalendar, stands_for_s, weekday_at
from trimtab.replay.series import FloatArray, IntArray
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, HR_PER_WEEK, S_PER_HR


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Nodes booked by a calendar, beside as many on demand as are needed; `first_week_hour` is that of the window's start."""

    calendar: BlockCalendar
    first_week_hour: int


def hours_of_days(first_week_hour: int, hours: int) -> IntArray:
    """Return the seconds of each hour of a window that belong to the block day of each weekday (n_hours, 7)."""
    shares = np.zeros((HR_PER_WEEK, DAYS_PER_WEEK), dtype=np.int64)
    # the hour in which blocks change hands belongs to two days: to the old one up to this second
    before_s = START_S % S_PER_HR
    for hour in range(HR_PER_WEEK):
        today = weekday_at(hour * S_PER_HR)
        turns = hour % HR_PER_DAY == START_S // S_PER_HR
        shares[hour, today] += before_s if turns else S_PER_HR
        if turns:
            shares[hour, weekday_at(hour * S_PER_HR + before_s)] += S_PER_HR - before_s
    # the calendar repeats weekly, and the window may begin at any hour of it
    return np.asarray(shares[(first_week_hour + np.arange(hours)) % HR_PER_WEEK])


def booked_node_seconds(blocks: Blocks, hours: int) -> IntArray:
    """Return the node-seconds per hour (n_hours,) that are paid, used or not."""
    return np.asarray(hours_of_days(blocks.first_week_hour, hours) @ np.array(blocks.calendar.nodes, dtype=np.int64))


class BookedNodes:
    """Booked nodes in use. A job takes those that stand longest, which are the lowest numbers."""

    notice_s = float(NOTICE_S)

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        # the fullest day bounds how many numbers there are
        self._busy_until_s: FloatArray = np.zeros(max(blocks.calendar.nodes, default=0))

    def free(self, nodes: int, at_s: float) -> IntArray:
        """Return the numbers of so many nodes that stand and are free at a moment; none where there are fewer."""
        up = self._blocks.calendar.nodes[weekday_at(self._week_s(at_s))]
        idle = np.flatnonzero(self._busy_until_s[:up] <= at_s)[:nodes]
        # all or none: a job does not stand half on booked nodes
        return np.asarray(idle if len(idle) == nodes else idle[:0], dtype=np.int64)

    def stand_for_s(self, taken: IntArray, at_s: float) -> float:
        """Return for how long all of some nodes can still be used: as long as the first of them to go."""
        return min(stands_for_s(self._blocks.calendar, int(node), self._week_s(at_s)) for node in taken)

    def hold(self, taken: IntArray, until_s: float) -> None:
        """Keep some nodes busy until a moment."""
        self._busy_until_s[taken] = until_s

    def _week_s(self, at_s: float) -> float:
        return self._blocks.first_week_hour * S_PER_HR + at_s
