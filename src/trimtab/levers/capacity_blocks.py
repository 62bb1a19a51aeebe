"""Which nodes of runs to hold in capacity blocks: the weekly calendar that a history of need would have paid best with.

    maximise   sum over units u, weekdays d of up[u,d] * (worth * used[u,d] - block_rate * paid[d]) - fall * falls[u]

where `up[u,d]` books unit u (nodes that come and go together) on the block day of weekday d, `used[u,d]` is the need that lies
between u and u + 1 units on those days, and `falls[u]` counts the blocks of a week that end. Units do not touch each other, so
that each is solved alone, exactly, over the 128 sets of weekdays. What a calendar is worth a replay decides: runs are whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.fleet.effects import BookBlocks
from trimtab.fleet.market import Market
from trimtab.fleet.model import IntArray, Window
from trimtab.fleet.settings import Lever
from trimtab.policies.blocks import MOST_NODES, SHUTDOWN_S, BlockCalendar
from trimtab.replay.blocks import hours_of_days
from trimtab.units import DAYS_PER_WEEK, S_PER_HR, micro_usd

LEVER = Lever.CAPACITY_BLOCK
PROVIDERS = ("aws",)
"""Whose blocks follow the calendar's rules."""

_DAY_SETS = np.array([[number >> day & 1 for day in range(DAYS_PER_WEEK)] for number in range(2**DAYS_PER_WEEK)])
"""Every set of weekdays (128, 7), the empty one first."""


def propose(
    need: IntArray, window: Window, pool: Pool, market: Market, *, unit: int, may_end: bool
) -> tuple[BookBlocks, ...]:
    """Return calendars for a need of node-seconds per hour (n_hours,) on demand; none where no rate of blocks is known.

    `unit` nodes are booked together, as runs need them. Unless blocks `may_end` while runs are on them, they stand every day.
    """
    price = market.block_price(pool) if pool.provider in PROVIDERS else None
    if price is None:
        return ()
    rate, on_demand = micro_usd(price.usd_hr), market.rate(pool)
    found = dict.fromkeys(_calendars(need, window, rate, on_demand, unit=unit, may_end=may_end))
    return tuple(
        BookBlocks(
            pool=pool.held_as(CapacityType.CAPACITY_BLOCK),
            calendar=calendar,
            rate_micro_usd_hr=rate,
            on_demand_micro_usd_hr=on_demand,
        )
        for calendar in found
        if any(calendar.nodes)
    )


def _calendars(
    need: IntArray, window: Window, rate: int, on_demand: int, *, unit: int, may_end: bool
) -> Iterator[BlockCalendar]:
    """Yield the best calendar that never ends and the best of all, that without its base (which a commitment may hold for
    less), and each with a unit more or less."""
    fall = SHUTDOWN_S * unit * on_demand
    calendars = [best_calendar(need, window, rate, on_demand, unit=unit, fall=None)]
    if may_end:
        best = best_calendar(need, window, rate, on_demand, unit=unit, fall=fall)
        calendars += [best, _shifted(best, -min(best.nodes))]
    for calendar in calendars:
        yield calendar
        yield _shifted(calendar, unit)
        yield _shifted(calendar, -unit)


def _shifted(calendar: BlockCalendar, nodes: int) -> BlockCalendar:
    """Return a calendar with so many nodes more on the days that book any."""
    return BlockCalendar(tuple(min(MOST_NODES, max(0, booked + nodes)) if booked else 0 for booked in calendar.nodes))


def best_calendar(
    need: IntArray, window: Window, rate: int, worth: int, *, unit: int, fall: int | None
) -> BlockCalendar:
    """Return the calendar that pays best for a need, where each node-hour in a block is worth so much, in micro-dollars.

    `fall` is what a unit's block costs when it ends, in micro-dollar-seconds; None lets no block end.
    """
    shares = hours_of_days(window.first_week_hour, window.hours)
    units = min(-(-int(need.max(initial=0)) // (unit * S_PER_HR)), MOST_NODES // unit)
    sets = _DAY_SETS if fall is not None else _DAY_SETS[[0, -1]]
    ends = (sets > np.roll(sets, -1, axis=1)).sum(axis=1)
    paid = unit * rate * shares.sum(axis=0)
    booked = np.zeros(DAYS_PER_WEEK, dtype=np.int64)
    for number in range(units):
        used = np.clip(need - number * unit * S_PER_HR, 0, unit * S_PER_HR)
        gain = worth * (used @ shares // S_PER_HR) - paid
        best = int(np.argmax(sets @ gain - ends * (fall or 0)))
        booked += sets[best]
    return BlockCalendar(tuple(int(count) * unit for count in booked))
