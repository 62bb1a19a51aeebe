"""Which nodes of a booked week stand when: the calendar of capacity blocks, and when a block takes its nodes back.

The calendar is fixed beforehand and bought again every week, so it does not depend on the future and applies to any
history. What AWS sells (EC2 user guide, "Capacity Blocks for ML" and "Extend Capacity Blocks", read 2026-11): blocks of whole
days that end at 11:30 UTC, nodes reclaimed 30 minutes before, a warning 10 minutes before that; a block that is extended in
time keeps its nodes, so that one which stands on all seven days is never interrupted while it can be extended.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from trimtab.units import DAYS_PER_WEEK, S_PER_DAY, S_PER_HR, S_PER_MIN

START_S = 11 * S_PER_HR + 30 * S_PER_MIN
"""Blocks begin and end at this time of the day, UTC."""
SHUTDOWN_S = 30 * S_PER_MIN
"""Nodes are reclaimed so long before a block ends."""
NOTICE_S = 10 * S_PER_MIN
"""A warning comes so long before nodes are reclaimed."""
SIZES = (64, 32, 16, 8, 4, 2, 1)
"""Nodes that one block may hold."""
MOST_NODES = 256
"""Nodes that all blocks of an account may hold on one day."""


class BlockCalendar(NamedTuple):
    """Nodes booked from 11:30 UTC on each weekday (Monday first) to the same time of the next day, every week.

    Node number n stands on the days that book more than n: days in a row are one block.
    """

    nodes: tuple[int, ...]


class Block(NamedTuple):
    """A number of nodes from 11:30 UTC of a weekday (Monday is 0) for some days; 7 days are extended week by week."""

    weekday: int
    days: int
    nodes: int


def weekday_at(week_s: float) -> int:
    """Return the weekday on which the block day of a moment began; seconds count from any Monday 00:00 UTC.

    >>> weekday_at(0.0), weekday_at(11.5 * 3600), weekday_at(35.4 * 3600)
    (6, 0, 0)
    """
    return int((week_s - START_S) // S_PER_DAY) % DAYS_PER_WEEK


def stands_for_s(calendar: BlockCalendar, node: int, week_s: float) -> float:
    """Return for how long a booked node can still be used: 0 where it does not stand, infinity if it stands every day."""
    if min(calendar.nodes) > node:
        return math.inf
    today, days = weekday_at(week_s), 0
    while calendar.nodes[(today + days) % DAYS_PER_WEEK] > node:
        days += 1
    gone_s = (week_s - START_S) % S_PER_DAY
    return max(0.0, days * S_PER_DAY - SHUTDOWN_S - gone_s) if days else 0.0


def blocks_of(calendar: BlockCalendar) -> tuple[Block, ...]:
    """Return the blocks to buy each week, the longest first; one that stands every day begins on Monday.

    >>> blocks_of(BlockCalendar((3, 3, 2, 2, 2, 2, 2)))
    (Block(weekday=0, days=7, nodes=2), Block(weekday=0, days=2, nodes=1))
    """
    found: dict[tuple[int, int], int] = {}
    for node in range(max(calendar.nodes)):
        up = [booked > node for booked in calendar.nodes]
        if all(up):
            found[0, DAYS_PER_WEEK] = found.get((0, DAYS_PER_WEEK), 0) + 1
            continue
        for day in range(DAYS_PER_WEEK):
            if up[day] and not up[day - 1]:
                days = 1
                while up[(day + days) % DAYS_PER_WEEK]:
                    days += 1
                found[day, days] = found.get((day, days), 0) + 1
    return tuple(
        Block(day, days, count) for (day, days), count in sorted(found.items(), key=lambda item: (-item[0][1], item))
    )


def purchases(nodes: int) -> tuple[int, ...]:
    """Return the sizes of the blocks that hold so many nodes together, the largest first.

    >>> purchases(100)
    (64, 32, 4)
    """
    bought = []
    for size in SIZES:
        count, nodes = divmod(nodes, size)
        bought += [size] * count
    return tuple(bought)
