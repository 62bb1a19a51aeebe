"""What runs hold of shared nodes hour by hour: the most at once, and what an hour begins with."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.replay.outcomes.jobs_outcome import held_by_hour
from trimtab.units import S_PER_HR

TICK_S = 600
HOURS = 4
RUNS = st.lists(
    st.tuples(st.integers(0, 6 * HOURS - 1), st.integers(1, 6 * HOURS * 2), st.integers(1, 3)), min_size=1, max_size=6
)
"""When each begins and how long it takes, in ticks, and its slots; some go on beyond the window."""


def held(runs, kept_s=0.0, hours=HOURS):
    begins = np.array([begin * TICK_S for begin, _, _ in runs], dtype=float)
    lengths = np.array([length * TICK_S for _, length, _ in runs], dtype=float)
    return held_by_hour(begins, begins + lengths, np.array([slots for *_, slots in runs]), kept_s=kept_s, hours=hours)


def at(tick, runs, kept_ticks=0):
    """The slots of runs that are there at a tick of the window, those that reach beyond it from its first tick on."""
    windows = range(0, 6 * HOURS * 4, 6 * HOURS)
    return sum(
        slots
        for begin, length, slots in runs
        for shift in windows
        if begin <= tick + shift < begin + length + kept_ticks
    )


@settings(max_examples=200)
@given(RUNS)
def test_an_hour_has_the_most_that_any_of_its_moments_has(runs):
    most, _ = held(runs)

    assert most.tolist() == [max(at(tick, runs) for tick in range(6 * hour, 6 * hour + 6)) for hour in range(HOURS)]


@settings(max_examples=200)
@given(RUNS)
def test_what_an_hour_begins_with_are_the_runs_before_it_and_nodes_that_are_still_kept(runs):
    most, standing = held(runs, kept_s=TICK_S)

    for hour in range(HOURS):
        begun_now = sum(slots for begin, _, slots in runs if begin == 6 * hour)
        assert standing[hour] == at(6 * hour, runs, kept_ticks=1) - begun_now
        assert most[hour] >= standing[hour]


def test_a_run_that_ends_leaves_its_slot_to_the_one_that_begins():
    most, standing = held([(0, 3, 2), (3, 3, 2)], hours=1)

    assert (most.tolist(), standing.tolist()) == ([2], [0])


def test_an_emptied_node_counts_in_the_hour_into_which_it_is_kept():
    most, standing = held([(0, 6, 1)], kept_s=300.0, hours=2)

    assert (most.tolist(), standing.tolist()) == ([1, 1], [0, 1])


def test_runs_that_never_begin_hold_nothing():
    never = np.array([np.nan])

    most, standing = held_by_hour(never, never, np.array([4]), kept_s=60.0, hours=2)

    assert not most.any()
    assert not standing.any()


@pytest.mark.parametrize("length_hr", [1, 5])
def test_a_run_holds_its_slots_in_every_hour_that_it_touches(length_hr):
    most, standing = held_by_hour(
        np.array([1_800.0]), np.array([1_800.0 + length_hr * S_PER_HR]), np.array([3]), kept_s=0.0, hours=8
    )

    assert most.tolist() == [3] * (length_hr + 1) + [0] * (7 - length_hr)
    assert standing.tolist() == [0] + [3] * length_hr + [0] * (7 - length_hr)
