"""Hours of the week as cron."""

import pytest
from hypothesis import given, strategies as st

from trimtab.emit.manifests.cron_files import cron_spans, held_stretches

HOURS = st.sets(st.integers(0, 167), max_size=167)


def spans(hours):
    return [(one.start, one.end) for one in cron_spans([(a * 3600, b * 3600) for a, b in held_stretches(hours)])]


def test_office_hours_share_one_span():
    office = {day * 24 + hour for day in range(5) for hour in range(8, 20)}

    assert spans(office) == [("0 8 * * 1,2,3,4,5", "0 20 * * 1,2,3,4,5")]


def test_a_night_that_passes_midnight_ends_on_the_next_day():
    assert spans({22, 23, 24, 25}) == [("0 22 * * 1", "0 2 * * 2")]


def test_sunday_night_passes_into_monday():
    assert spans({166, 167, 0, 1}) == [("0 22 * * 0", "0 2 * * 1")]


def test_every_day_is_a_star():
    assert spans({day * 24 + 9 for day in range(7)}) == [("0 9 * * *", "0 10 * * *")]


def test_minutes_are_kept():
    assert [(one.start, one.end) for one in cron_spans([(9 * 3600 + 1500, 10 * 3600)])] == [
        ("25 9 * * 1", "0 10 * * 1")
    ]


def test_an_hour_outside_the_week_is_refused():
    with pytest.raises(ValueError, match="168"):
        held_stretches({168})


@given(HOURS)
def test_stretches_hold_exactly_the_hours_given(hours):
    held = [hour % 168 for start, end in held_stretches(hours) for hour in range(start, end)]

    assert sorted(held) == sorted(hours)
