from datetime import date

import numpy as np
import pytest

from trimtab.diagnose.charges import month_end

MONDAY = date(2026, 8, 31)


def test_a_steady_month_ends_at_its_daily_cost_times_its_days():
    end = month_end(date(2026, 9, 1), np.full(10, 100), whole_days=10)

    assert (end.month, end.so_far, end.forecast, end.days_seen, end.days) == ("2026-09", 1000, 3000, 10, 30)


def test_weekends_are_expected_as_weekends_were():
    week = [100, 100, 100, 100, 100, 0, 0]
    end = month_end(MONDAY, np.array(week * 3), whole_days=21)

    weekdays_in_september = 22
    assert end.forecast == pytest.approx(100 * weekdays_in_september)


def test_days_before_history_began_are_expected_too():
    end = month_end(date(2026, 9, 16), np.full(5, 10), whole_days=5)

    assert (end.so_far, end.forecast) == (50, 300)


def test_a_last_day_that_is_not_whole_is_left_to_the_forecast():
    end = month_end(date(2026, 9, 1), np.array([10, 10, 1]), whole_days=2)

    assert (end.so_far, end.forecast) == (20, 300)
