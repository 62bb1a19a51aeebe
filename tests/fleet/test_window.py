from datetime import UTC, datetime

import pytest

from trimtab.fleet.model import Window


@pytest.mark.parametrize(
    ("start", "hours", "shown"),
    [
        ("2026-09-21T00:00", 28 * 24, "21 Sep to 18 Oct 2026"),
        ("2026-09-21T00:00", 24, "21 Sep 2026"),
        ("2026-12-30T00:00", 3 * 24, "30 Dec 2026 to 1 Jan 2027"),
        ("2026-09-21T05:00", 30, "21 Sep 2026 05:00 to 22 Sep 2026 11:00 UTC"),
        ("2026-09-21T00:00", 0, "21 Sep 2026 00:00 to 21 Sep 2026 00:00 UTC"),
    ],
)
def test_a_window_of_whole_days_is_said_by_its_first_and_last_day(start, hours, shown):
    assert str(Window(start=datetime.fromisoformat(start).replace(tzinfo=UTC), hours=hours)) == shown
