"""Intervals from held-out errors."""

import math

import numpy as np

from trimtab.catalog import load_catalog
from trimtab.physics.fitted import (
    BoardClass,
    board_class,
    class_keys,
    fit_intervals,
    intervals_from,
    intervals_to_json,
    least_relative_error,
)

KEYS = class_keys("tpot", 2, BoardClass.RECENT)


def errors(sigma, rows=4000, groups=40):
    drawn = np.random.default_rng(1).normal(0.1, sigma, rows)
    return [(KEYS, f"g{i % groups}", float(error)) for i, error in enumerate(drawn)]


def test_80_percent_of_like_errors_lie_inside():
    intervals = fit_intervals(errors(0.2))
    fresh = np.random.default_rng(2).normal(0.1, 0.2, 4000)

    estimates = [intervals.estimate(math.exp(error), KEYS) for error in fresh]

    inside = np.mean([one.low <= 1.0 <= one.high for one in estimates])
    assert 0.78 <= inside <= 0.88


def test_a_class_with_few_rows_takes_its_parents_spread():
    intervals = fit_intervals(errors(0.2))

    rare = intervals.spread(class_keys("tpot", 0, BoardClass.OTHER_VENDOR))

    assert rare == intervals.spreads["tpot"]


def test_spreads_read_back_what_was_written():
    intervals = fit_intervals(errors(0.3))

    again = intervals_from(intervals_to_json(intervals))

    assert set(again.spreads) == set(intervals.spreads)
    assert math.isclose(again.spread(KEYS).high, intervals.spread(KEYS).high, abs_tol=1e-3)


def test_the_centre_of_wide_errors_lies_below_their_median():
    wide = np.random.default_rng(3).normal(0.0, 0.6, 20_000)

    assert 0.2 < least_relative_error(wide) < 0.5


def test_boards_fall_into_the_class_whose_errors_they_share():
    catalog = load_catalog()

    assert board_class(catalog.gpu("H100-SXM5-80GB")) is BoardClass.RECENT
    assert board_class(catalog.gpu("L4")) is BoardClass.OLDER
    assert board_class(catalog.gpu("V100-SXM2-16GB")) is BoardClass.OLDER
    assert board_class(catalog.gpu("MI300X")) is BoardClass.OTHER_VENDOR
