"""The calendar of blocks that would have paid best: against every calendar, on tiny needs."""

from datetime import UTC, datetime
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.fleet.model import Window
from trimtab.levers.capacity_blocks import best_calendar
from trimtab.policies.blocks import BlockCalendar, blocks_of
from trimtab.replay.job_nodes import Blocks, booked_node_seconds, hours_of_days

HOUR = 3600
WEEK = Window(start=datetime(2026, 9, 7, tzinfo=UTC), hours=168)
"""It begins on a Monday."""


def gain(calendar, need, window, rate, worth, unit, fall):
    """What a calendar earns over on demand, in micro-dollar-seconds: its own hourly sums, in half-hours."""
    half = 1800
    total, ended = 0, sum(one.nodes // unit for one in blocks_of(calendar) if one.days < 7)
    for hour, used in enumerate(need):
        for part in (0, 1):
            week_s = (window.first_week_hour + hour) * HOUR + part * half
            booked = calendar.nodes[int((week_s - 41_400) // 86_400) % 7]
            total += worth * min(int(used) // 2, booked * half) - rate * booked * half
    return total - fall * ended


@settings(max_examples=30, deadline=None)
@given(
    days=st.lists(st.integers(0, 8), min_size=28, max_size=28),
    start=st.integers(0, 6),
    rate=st.integers(1, 10),
    fall=st.sampled_from([0, 1800, 100_000]),
)
def test_no_calendar_earns_more(days, start, rate, fall):
    window = Window(start=datetime(2026, 9, 7 + start, 6, tzinfo=UTC), hours=168)
    need = np.repeat(np.array(days), 6) * HOUR // 4

    found = best_calendar(need, window, rate, 10, unit=1, fall=fall)

    # sets of days need not be nested, so that what is best is compared with what is best node by node
    best = sum(
        max(
            gain(BlockCalendar(days), np.clip(need - node * HOUR, 0, HOUR), window, rate, 10, 1, fall)
            for days in product((0, 1), repeat=7)
        )
        for node in range(2)
    )
    assert gain(found, need, window, rate, 10, 1, fall) == pytest.approx(best, abs=70)


@pytest.mark.parametrize("fall", [None, 0])
def test_units_come_together(fall):
    need = np.full(168, 8 * HOUR)
    assert best_calendar(need, WEEK, 7, 10, unit=8, fall=fall).nodes == (8,) * 7


def test_what_may_not_end_stands_every_day_or_never():
    need = np.where(np.arange(168) < 120, 2 * HOUR, 0)

    assert best_calendar(need, WEEK, 7, 10, unit=1, fall=None).nodes == (2,) * 7
    assert best_calendar(need, WEEK, 8, 10, unit=1, fall=None).nodes == (0,) * 7
    assert best_calendar(need, WEEK, 8, 10, unit=1, fall=0).nodes == (2, 2, 2, 2, 0, 0, 0)


def test_hours_are_shared_out_to_block_days_and_paid_whole():
    shares = hours_of_days(0, 168)
    assert shares.sum(axis=0).tolist() == [24 * HOUR] * 7
    assert shares[11].tolist() == [1800, 0, 0, 0, 0, 0, 1800]

    paid = booked_node_seconds(Blocks(calendar=BlockCalendar((2, 0, 0, 0, 0, 0, 1)), first_week_hour=0), 168)
    assert paid[10:13].tolist() == [HOUR, 5400, 2 * HOUR]
    assert paid.sum() == 3 * 24 * HOUR
