import numpy as np
from hypothesis import given, strategies as st

from trimtab.sources.hour_grid import HourGrid, Life, Watch, lifetimes

HOUR_S = 3600
FULL = 12


def watch(samples):
    return Watch(grid=HourGrid(start_s=0, hours=len(samples)), samples=np.array(samples, dtype=float))


def seen(counts, watched=None):
    return lifetimes(np.array(counts, dtype=float), watch(watched or [FULL] * len(counts)))


def test_a_thing_that_is_always_there_began_at_the_window_and_lives_on():
    assert seen([12, 12, 12]) == [Life(start_s=0.0, end_s=None)]


def test_boundaries_are_placed_by_the_samples_of_their_hour():
    assert seen([0, 3, 12, 6, 0]) == [Life(start_s=1.75 * HOUR_S, end_s=3.5 * HOUR_S)]


def test_a_thing_that_comes_back_has_a_new_life():
    assert [life.start_s for life in seen([12, 0, 12, 0])] == [0.0, 2.0 * HOUR_S]


def test_hours_in_which_nobody_watched_do_not_end_a_life():
    assert seen([12, 0, 0, 12], [12, 0, 0, 12]) == [Life(start_s=0.0, end_s=None)]


def test_a_thing_that_was_there_when_watching_stopped_lives_on():
    assert seen([12, 12, 0], [12, 12, 0]) == [Life(start_s=0.0, end_s=None)]


def test_what_goes_within_the_last_hour_has_gone():
    assert seen([12, 6]) == [Life(start_s=0.0, end_s=1.5 * HOUR_S)]


def test_one_failed_scrape_at_the_end_does_not_end_a_life():
    assert seen([12, 11]) == [Life(start_s=0.0, end_s=None)]


@given(st.lists(st.integers(0, FULL), min_size=1, max_size=48))
def test_lives_are_in_order_apart_and_hold_every_sample(counts):
    found = seen(counts, [FULL] * len(counts))

    ends = [life.end_s if life.end_s is not None else len(counts) * HOUR_S for life in found]
    assert all(life.start_s < end for life, end in zip(found, ends, strict=True))
    assert all(end <= life.start_s for end, life in zip(ends, found[1:], strict=False))
    held_s = sum(end - life.start_s for life, end in zip(found, ends, strict=True))
    assert held_s >= sum(counts) * HOUR_S / FULL - 1e-6
