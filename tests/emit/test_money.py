import pytest
from hypothesis import given, strategies as st

from trimtab.emit.money import (
    bill_left,
    dollars,
    dollars_and_cents,
    month_cents,
    month_usd,
    month_usd_parts,
    percent,
    whole_dollars,
)
from trimtab.units import micro_usd


def test_an_amount_over_a_week_is_scaled_to_a_month_of_730_hours():
    # $168.00 in 168 hours is $1 an hour, so $730 a month.
    assert month_usd(micro_usd(168), 168) == 730.0


@given(st.lists(st.integers(-(10**13), 10**13), max_size=20), st.integers(1, 9000))
def test_parts_in_cents_sum_to_the_total_in_cents(parts, hours):
    total = sum(parts)

    shown = month_usd_parts(parts, total, hours)

    assert sum(round(part * 100) for part in shown) == month_cents(total, hours)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8), st.integers(1, 2000))
def test_no_part_is_more_than_a_cent_from_its_exact_amount(parts, hours):
    shown = month_usd_parts(parts, sum(parts), hours)

    for part, usd in zip(parts, shown, strict=True):
        assert abs(usd - part * 730 / hours / 1e6) <= 0.010001


def test_parts_that_do_not_sum_to_the_total_are_refused():
    with pytest.raises(ValueError, match="parts sum to 3 micro-dollars, not to 4"):
        month_usd_parts([1, 2], 4, 168)


def test_amounts_are_shown_as_people_write_them():
    assert dollars(1234.5) == "$1,234"
    assert dollars(-2140.2) == "-$2,140"
    assert dollars(-0.3) == "$0"
    assert dollars_and_cents(1234.5) == "$1,234.50"
    assert dollars_and_cents(-0.001) == "$0.00"
    assert percent(0.4018) == "40%"
    assert percent(None) == "–"


@given(st.integers(0, 10**9), st.integers(-(10**9), 10**9))
def test_the_bill_shown_less_the_saving_shown_is_the_bill_under_the_plan(today_cents, saved_cents):
    today, then, saved = today_cents / 100, (today_cents - saved_cents) / 100, saved_cents / 100

    left = bill_left(today, then)

    assert left == round(today) - round(saved)
    assert abs(left - then) <= 1.0


@given(st.lists(st.integers(-(10**8), 10**8), max_size=12))
def test_parts_in_whole_dollars_sum_to_the_total_in_whole_dollars(in_cents):
    shown = whole_dollars([part / 100 for part in in_cents])

    assert sum(shown) == round(sum(in_cents) / 100)
    assert all(abs(usd - part / 100) < 1 for usd, part in zip(shown, in_cents, strict=True))
