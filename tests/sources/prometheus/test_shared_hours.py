"""Which hours of a board's readings are a pod's own, by how many series stand beside one another."""

import numpy as np
import pytest

from trimtab.sources.hour_grid import Cube, HourGrid, UsageKey
from trimtab.sources.prometheus.gpu_usage import shared_hours

BOARD, A, B = UsageKey("GPU-0", "", ""), UsageKey("GPU-0", "ml", "a"), UsageKey("GPU-0", "ml", "b")
EXPECTED = 60.0


def found(samples, util):
    """The hours of two series or three of one board, one hour each."""
    cube = Cube(grid=HourGrid(start_s=0, hours=1))
    for key, count in samples.items():
        cube.put("samples", key, np.array([0]), np.array([float(count)]))
        cube.put("gpu_util_mean", key, np.array([0]), np.array([util[key]]))
    return shared_hours(cube, EXPECTED)


def test_a_board_beside_its_pods_tells_them_apart_and_splits_what_is_told_of_it_alone():
    hours = found({BOARD: 60, A: 60, B: 60}, {BOARD: 0.8, A: 0.6, B: 0.2})

    assert hours[A].apart[0]
    assert (hours[A].part[0], hours[B].part[0]) == pytest.approx((0.75, 0.25))


def test_a_board_that_a_pod_took_over_within_the_hour_is_not_told_apart():
    hours = found({BOARD: 25, A: 35}, {BOARD: 0.0, A: 0.6})

    assert not hours[A].apart[0]
    assert hours[A].part[0] == 1.0


def test_pods_that_followed_one_another_each_have_all_of_the_board():
    hours = found({A: 25, B: 35}, {A: 0.5, B: 0.6})

    assert (hours[A].part[0], hours[B].part[0]) == (1.0, 1.0)


def test_pods_on_a_board_at_once_that_are_not_told_apart_have_equal_parts():
    hours = found({A: 60, B: 60}, {A: 0.5, B: 0.5})

    assert not hours[A].apart[0]
    assert (hours[A].part[0], hours[B].part[0]) == (0.5, 0.5)


def test_a_pod_with_several_shares_of_a_board_is_not_taken_for_the_board():
    hours = found({A: 180, B: 60}, {A: 0.5, B: 0.5})

    assert not hours[A].apart[0]


def test_pods_that_all_read_zero_on_a_busy_board_are_lost():
    hours = found({BOARD: 60, A: 60, B: 60}, {BOARD: 0.8, A: 0.0, B: 0.0})

    assert hours[A].lost[0]
    assert not hours[A].apart[0]
    assert hours[BOARD].apart[0]


def test_pods_that_rest_on_a_resting_board_are_told_apart():
    hours = found({BOARD: 60, A: 60}, {BOARD: 0.0, A: 0.0})

    assert hours[A].apart[0]
