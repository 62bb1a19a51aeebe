"""Runs that wait for an hour: worked by hand, and within their slack whatever the hour."""

from hypothesis import given, strategies as st

from trimtab.policies.deferral import DeferPolicy, start_s

HOUR = 3600


def test_a_run_waits_for_the_hour_where_that_is_within_its_slack():
    night = DeferPolicy(start_hour=22, within_s=8 * HOUR)
    assert start_s(night, 15 * HOUR) == 22 * HOUR
    assert start_s(night, 14 * HOUR) == 22 * HOUR


def test_a_run_that_cannot_wait_so_long_starts_at_once():
    night = DeferPolicy(start_hour=22, within_s=8 * HOUR)
    assert start_s(night, 13 * HOUR) == 13 * HOUR
    assert start_s(night, 23 * HOUR) == 23 * HOUR


def test_an_hour_after_midnight_is_tomorrows():
    assert start_s(DeferPolicy(start_hour=2, within_s=6 * HOUR), 23 * HOUR) == 26 * HOUR


@given(st.integers(0, 23), st.integers(0, 23 * HOUR), st.floats(0, 30 * 24 * HOUR))
def test_a_start_is_never_early_and_never_beyond_the_slack(hour, within_s, submit_s):
    started = start_s(DeferPolicy(start_hour=hour, within_s=within_s), submit_s)
    assert submit_s <= started <= submit_s + within_s + 1e-3
