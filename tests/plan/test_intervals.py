"""Intervals of savings: never narrower than savings were seen to drift, and in scale with what they are about."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.levers import commitments, right_size, spot
from trimtab.levers.registry import BUILT_IN, lever_named
from trimtab.plan.actions.intervals import OTHER_DRIFT_FRAC, saving_estimate
from trimtab.provenance import Basis, Estimate

HOURS = 4 * 168
LEVERS = [lever.name for lever in BUILT_IN]


def speed(low, value, high):
    return Estimate(value=value, low=low, high=high, basis=Basis.MODELLED)


@pytest.mark.parametrize("lever", LEVERS)
def test_a_saving_that_never_varied_is_still_as_unsure_as_such_savings_were(lever):
    found = saving_estimate(1000.0, np.full(HOURS, 1.0), None, lever)

    known = lever_named(lever).drift_frac
    drift = OTHER_DRIFT_FRAC if known is None else known
    assert (found.low, found.high) == pytest.approx((1000 * (1 - drift), 1000 * (1 + drift)))


def test_weeks_that_differ_widen_the_interval_beyond_the_drift():
    weeks = np.repeat([0.2, 1.8, 0.1, 1.9], 168)

    found = saving_estimate(1000.0, weeks, None, commitments.NAME)

    assert found.low < 1000 * (1 - commitments.LEVER.drift_frac)


def test_doubt_about_the_speed_widens_the_interval():
    sure = saving_estimate(1000.0, np.full(HOURS, 1.0), None, right_size.NAME)
    unsure = saving_estimate(1000.0, np.full(HOURS, 1.0), speed(0.5, 1.0, 2.0), right_size.NAME)

    assert unsure.low < sure.low
    assert unsure.high > sure.high


def test_assumed_odds_of_spot_widen_the_interval_and_certain_spot_does_not():
    known, assumed = (
        saving_estimate(1000.0, np.full(HOURS, 1.0), None, spot.NAME, spot_up_frac=up_frac) for up_frac in (1.0, 0.5)
    )

    assert known.low == pytest.approx(1000 * (1 - spot.LEVER.drift_frac))
    assert assumed.low == pytest.approx(620.0)
    assert assumed.high == pytest.approx(1580.0)


@given(st.floats(-1e6, 1e6), st.sampled_from(LEVERS), st.floats(0.1, 10.0))
def test_an_interval_scales_with_its_saving(saving, lever, factor):
    hourly = np.tile([1.0, 2.0], HOURS // 2)

    one, other = (saving_estimate(amount, hourly, None, lever) for amount in (saving, saving * factor))

    assert other.low == pytest.approx(one.low * factor, abs=1e-6)
    assert other.high == pytest.approx(one.high * factor, abs=1e-6)
