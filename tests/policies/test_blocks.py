"""The calendar of capacity blocks: when booked nodes stand, and which blocks make a week."""

import math

import pytest
from hypothesis import given, strategies as st

from trimtab.policies.blocks import BlockCalendar, blocks_of, purchases, stands_for_s, weekday_at

HOUR = 3600.0
WORKDAYS = BlockCalendar((2, 2, 2, 2, 2, 0, 0))
CALENDARS = st.builds(BlockCalendar, st.tuples(*[st.integers(0, 3)] * 7))


def test_a_node_stands_from_half_past_eleven_to_eleven_on_the_day_after_the_last():
    monday, saturday = 11.5 * HOUR, 5 * 24 * HOUR + 11 * HOUR

    assert stands_for_s(WORKDAYS, 0, monday - 1) == 0
    assert stands_for_s(WORKDAYS, 0, monday) == saturday - monday
    assert stands_for_s(WORKDAYS, 0, saturday - 60) == 60
    assert stands_for_s(WORKDAYS, 0, saturday) == 0
    assert stands_for_s(WORKDAYS, 2, monday) == 0


def test_a_block_over_the_end_of_the_week_is_one():
    calendar = BlockCalendar((1, 0, 0, 0, 0, 0, 1))

    assert [tuple(one) for one in blocks_of(calendar)] == [(6, 2, 1)]
    assert stands_for_s(calendar, 0, 6 * 24 * HOUR + 12 * HOUR) == 2 * 24 * HOUR - HOUR


def test_a_block_that_stands_every_day_is_extended_and_never_ends():
    assert stands_for_s(BlockCalendar((3, 1, 1, 1, 1, 1, 1)), 0, 0.0) == math.inf


@given(CALENDARS)
def test_the_blocks_of_a_week_book_the_nodes_of_every_day(calendar):
    booked = [0] * 7
    for block in blocks_of(calendar):
        for day in range(block.weekday, block.weekday + block.days):
            booked[day % 7] += block.nodes
    assert tuple(booked) == calendar.nodes


@given(CALENDARS, st.integers(0, 2), st.integers(0, 7 * 24 * 60 - 1))
def test_a_node_that_stands_for_a_while_is_booked_until_then(calendar, node, minute):
    at_s = minute * 60.0
    left_s = stands_for_s(calendar, node, at_s)
    if 0 < left_s < math.inf:
        assert calendar.nodes[weekday_at(at_s)] > node
        assert calendar.nodes[weekday_at(at_s + left_s)] > node  # paid to half an hour later
        assert calendar.nodes[weekday_at(at_s + left_s + 1800)] <= node


@given(st.integers(0, 256))
def test_bought_sizes_hold_the_nodes(nodes):
    sizes = purchases(nodes)
    assert sum(sizes) == nodes
    assert set(sizes) <= {1, 2, 4, 8, 16, 32, 64}


@pytest.mark.parametrize(("hour", "day"), [(0.0, 6), (11.5, 0), (35.4, 0), (35.5, 1)])
def test_a_block_day_begins_at_half_past_eleven(hour, day):
    assert weekday_at(hour * HOUR) == day
