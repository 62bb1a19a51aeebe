from datetime import UTC, datetime, timedelta

import pytest

from trimtab.cli.server_options import parse_moment, parse_window
from trimtab.errors import UsageError
from trimtab.sources.hour_grid import whole_hours

NOW = datetime(2026, 9, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW),
        ("14d", NOW - timedelta(days=14)),
        ("now-6h", NOW - timedelta(hours=6)),
        ("2026-09-01", datetime(2026, 9, 1, tzinfo=UTC)),
        ("2026-09-01T12:00Z", datetime(2026, 9, 1, 12, tzinfo=UTC)),
        ("2026-09-01T12:00+02:00", datetime(2026, 9, 1, 10, tzinfo=UTC)),
    ],
)
def test_moments_are_lengths_back_or_iso_dates(text, moment):
    assert parse_moment(text, NOW) == moment


def test_a_length_counts_back_from_the_end_of_the_window():
    assert parse_window("7d", "2026-09-10", NOW)[0] == datetime(2026, 9, 3, tzinfo=UTC)


@pytest.mark.parametrize("days", [14, 28])
def test_a_length_in_days_is_that_many_whole_days_whatever_the_minute(days):
    now = datetime(2026, 9, 10, 12, 34, 56, tzinfo=UTC)

    assert whole_hours(*parse_window(f"{days}d", "now", now)).hours == days * 24
    assert parse_window("2026-09-01T12:30Z", "now", now)[0] == datetime(2026, 9, 1, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(("start", "end"), [("yesterday", "now"), ("1d", "tomorrow"), ("2026-09-10", "2026-09-01")])
def test_what_is_no_window_is_a_usage_error(start, end):
    with pytest.raises(UsageError):
        parse_window(start, end, NOW)
