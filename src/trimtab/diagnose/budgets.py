"""Where a month will end: what was spent so far, and for each day that is left, the mean of the same weekdays before it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from trimtab.fleet.model import FloatArray, IntArray
from trimtab.units import DAYS_PER_WEEK

LOOK_BACK_DAYS = 4 * DAYS_PER_WEEK
"""Days that a forecast learns from: four of each weekday."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthEnd:
    """The calendar month in which history ends, in micro-dollars."""

    month: str
    so_far: float
    forecast: float
    """The whole month: what was spent, and what its other days are expected to cost."""
    days_seen: int
    days: int


def month_end(first_day: date, costs: IntArray, whole_days: int) -> MonthEnd:
    """Forecast the month of the last whole day; `costs` (n_days,) are daily from `first_day`, of which `whole_days` are whole.

    Days of the month before history began are expected to have cost what the same weekdays cost later.
    """
    seen = np.asarray(costs[: max(1, whole_days)], dtype=np.float64)
    last = first_day + timedelta(days=len(seen) - 1)
    start = last.replace(day=1)
    end = (start + timedelta(days=31)).replace(day=1)
    by_weekday = _weekday_means(first_day, seen)
    spent = [float(seen[(day - first_day).days]) for day in _days(max(start, first_day), last + timedelta(days=1))]
    unknown = [*_days(start, min(first_day, end)), *_days(last + timedelta(days=1), end)]
    expected = sum(float(by_weekday[day.weekday()]) for day in unknown)
    return MonthEnd(
        month=f"{start:%Y-%m}",
        so_far=sum(spent),
        forecast=sum(spent) + expected,
        days_seen=len(spent),
        days=(end - start).days,
    )


def _weekday_means(first_day: date, costs: FloatArray) -> FloatArray:
    """Return the mean cost of each weekday over the last weeks (7,); of one that was not seen, the mean of all."""
    first = max(0, len(costs) - LOOK_BACK_DAYS)
    weekday = (first_day.weekday() + np.arange(first, len(costs))) % DAYS_PER_WEEK
    recent = costs[first:]
    count = np.bincount(weekday, minlength=DAYS_PER_WEEK)
    total = np.bincount(weekday, weights=recent, minlength=DAYS_PER_WEEK)
    return np.where(count > 0, total / np.maximum(count, 1), recent.mean())


def _days(start: date, end: date) -> list[date]:
    return [start + timedelta(days=number) for number in range((end - start).days)]
