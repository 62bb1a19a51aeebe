from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.sources.hour_grid import Cube, HourGrid, UsageKey

KEY = UsageKey("GPU-0", "ns", "pod")


@given(st.integers(1, 400), st.integers(1, 50))
def test_chunks_cover_the_grid_once(hours, size):
    pieces = list(HourGrid(start_s=3600, hours=hours).chunks(size))

    assert sum(piece.hours for piece in pieces) == hours
    assert pieces[0].start_s == 3600
    assert all(left.end_s == right.start_s for left, right in pairwise(pieces))


@given(st.integers(1, 400), st.integers(1, 50))
def test_looks_end_with_the_last_hour_and_stay_within_the_window(hours, every_hr):
    grid = HourGrid(start_s=3600, hours=hours)

    first_s, last_s, step_s = grid.looks(every_hr)

    assert last_s == grid.last_evaluation_s
    assert grid.first_evaluation_s <= first_s < grid.first_evaluation_s + step_s
    assert (last_s - first_s) / step_s == pytest.approx(round((last_s - first_s) / step_s), abs=1e-6)


def test_a_moment_lies_in_the_hour_that_holds_it():
    grid = HourGrid(start_s=7200, hours=3)

    assert grid.hour_of(np.array([7_200_000, 10_799_999, 10_800_000])).tolist() == [0, 0, 1]


def test_the_first_spelling_put_stays_and_counts_add_up():
    cube = Cube(grid=HourGrid(start_s=0, hours=2))

    for value in (1.0, 2.0):
        cube.put("mean", KEY, np.array([0]), np.array([value]))
        cube.add("samples", KEY, np.array([1]), np.array([value]))

    assert cube.of("mean", KEY)[0] == 1.0
    assert np.isnan(cube.of("mean", KEY)[1])
    assert cube.of("samples", KEY)[1] == 3.0


def test_readings_outside_the_grid_are_left_out():
    cube = Cube(grid=HourGrid(start_s=0, hours=2))

    cube.put("mean", KEY, np.array([-1, 2]), np.array([1.0, 1.0]))

    assert np.isnan(cube.of("mean", KEY)).all()
