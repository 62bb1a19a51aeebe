"""What programs on one GPU leave each other: never less than a fair share, never better for being more."""

import pytest
from hypothesis import given, strategies as st

from trimtab.catalog import load_catalog
from trimtab.physics.colocation import AS_MET, MET_BOTH_WAYS, left_frac, met_frac, mps_share, time_slice

OTHERS = st.integers(0, 7)
BUSY = st.floats(0, 1)


def slowdown(others, busy_frac, ways=AS_MET):
    return sum((1 + met) * share for met, share in enumerate(met_frac(others, busy_frac, ways)))


def test_two_others_at_work_a_fifth_of_the_time_leave_three_fifths():
    # each is at work 0.2 / 0.6 = 1/3 of the time once it shares: (2/3)^2, 2 (1/3)(2/3), (1/3)^2
    assert left_frac(2, 0.2) == pytest.approx(0.6)
    assert met_frac(2, 0.2) == pytest.approx((4 / 9, 4 / 9, 1 / 9))


def test_others_that_never_rest_leave_an_equal_share_and_are_always_met():
    assert left_frac(3, 1.0) == pytest.approx(1 / 4)
    assert met_frac(3, 1.0) == pytest.approx((0, 0, 0, 1))


@given(OTHERS, BUSY, st.sampled_from([AS_MET, MET_BOTH_WAYS]))
def test_shares_of_requests_sum_to_one_and_nobody_is_slower_than_in_turns_with_all(others, busy_frac, ways):
    assert sum(met_frac(others, busy_frac, ways)) == pytest.approx(1)
    assert 1 <= slowdown(others, busy_frac, ways) <= 1 + others + 1e-9
    assert left_frac(others, busy_frac) >= 1 / (1 + others)


@given(OTHERS, BUSY, BUSY)
def test_busier_or_more_neighbours_never_help(others, one, other):
    less, more = sorted((one, other))

    assert slowdown(others, less) <= slowdown(others, more) + 1e-9
    assert slowdown(others, less) <= slowdown(others + 1, less) + 1e-9
    assert slowdown(others, less) <= slowdown(others, less, MET_BOTH_WAYS) + 1e-9


def test_shares_of_a_board_add_up_to_it():
    gpu = load_catalog().gpu("L4")

    share, slices = mps_share(gpu, 4), time_slice(gpu, 4, 2)

    assert (share.memory_gib * 4, share.mem_bw_gb_s * 4) == pytest.approx((gpu.memory_gib, gpu.mem_bw_gb_s))
    assert all(share.rates_tflops[one] * 4 == pytest.approx(rate) for one, rate in gpu.rates_tflops.items())
    assert (slices.memory_gib * 2, slices.mem_bw_gb_s) == pytest.approx((gpu.memory_gib, gpu.mem_bw_gb_s))
