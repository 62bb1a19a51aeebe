"""Units: conversions are exact, money adds up."""

import pytest
from hypothesis import given, strategies as st

from trimtab.units import apportion, cents, micro_usd, mul_div, parse_span, per_month, round_parts


def test_dollars_become_whole_micro_dollars_half_to_even():
    assert micro_usd("21.957642") == 21_957_642
    assert micro_usd("0.0000005") == 0
    assert micro_usd("0.0000015") == 2


def test_cents_round_half_to_even():
    assert [cents(amount) for amount in (5_000, 15_000, 14_999, -5_000)] == [0, 2, 1, 0]


@given(total=st.integers(-(10**12), 10**12), weights=st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_apportioned_parts_sum_to_the_whole(total, weights):
    assert sum(apportion(total, weights)) == total


def test_apportioning_is_by_weight():
    assert apportion(100, [1, 3]) == [25, 75]


@given(a=st.integers(-(10**15), 10**15), n=st.integers(0, 10**6), d=st.integers(1, 10**6))
def test_exact_ratio_is_within_half_a_unit(a, n, d):
    assert abs(mul_div(a, n, d) * d - a * n) * 2 <= d


def test_a_month_has_730_hours():
    assert per_month(24.0, 24.0) == 730.0


@pytest.mark.parametrize("text", ["", "d", "14", "-3h", "2y", "nan h"])
def test_a_span_that_cannot_be_read_names_the_cure(text):
    with pytest.raises(ValueError, match="write 15s, 5m"):
        parse_span(text)


@given(st.lists(st.integers(-(10**12), 10**12), max_size=30), st.sampled_from([10, 1000, 10_000]))
def test_rounded_parts_sum_to_the_rounded_sum_and_none_is_off_by_a_unit(parts, unit):
    rounded = round_parts(parts, unit)

    assert abs(sum(rounded) * unit - sum(parts)) <= unit / 2
    assert all(abs(whole * unit - part) < unit for whole, part in zip(rounded, parts, strict=True))
