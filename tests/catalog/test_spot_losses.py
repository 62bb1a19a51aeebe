"""How often spot nodes are lost, told from a published share of interrupted ones."""

import itertools
import math

import pytest
from hypothesis import given, strategies as st

from trimtab.catalog.kinds import InterruptionBucket
from trimtab.catalog.spot_losses import loss_of_share_per_hr, loss_per_hr
from trimtab.units import HR_PER_MO

RECORDED = 1 / 6


def test_an_open_or_unknown_band_loses_nodes_as_was_recorded():
    assert loss_per_hr(InterruptionBucket.OVER_20, RECORDED) == pytest.approx(RECORDED)
    assert loss_per_hr(None, RECORDED) == RECORDED


def test_the_lowest_band_loses_a_node_in_nine_days_where_the_open_one_loses_it_in_six_hours():
    # 2.5 % of lives of 5.5 hours
    assert 1 / loss_per_hr(InterruptionBucket.UNDER_5, RECORDED) == pytest.approx(217.1, abs=0.1)


def test_between_two_bands_there_is_no_cliff():
    rates = [loss_per_hr(band, RECORDED) for band in InterruptionBucket]

    assert all(low < high < 5 * low for low, high in itertools.pairwise(rates))


def test_a_share_of_a_month_is_the_least_that_a_band_can_mean():
    assert loss_of_share_per_hr(0.2, 0.0) == pytest.approx(-math.log(0.8) / HR_PER_MO)


@given(share=st.floats(0, 0.99), more=st.floats(0, 0.009), recorded=st.floats(0, 2))
def test_a_slightly_larger_share_loses_slightly_more_nodes(share, more, recorded):
    less, most = loss_of_share_per_hr(share, recorded), loss_of_share_per_hr(share + more, recorded)

    # the hazard of a share p grows by 1 / (1 - p), here at most by 1 / 0.001, on lives of at least the recorded ones
    steepest = max(recorded / -math.log(0.4), 1 / HR_PER_MO) / (1 - share - more)
    assert less <= most <= less + more * steepest + 1e-12
