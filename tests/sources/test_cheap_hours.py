from datetime import UTC, datetime, timedelta

import pytest
from tests.tables.bundles import META, tables

from trimtab.errors import InputError, PriceFileError
from trimtab.sources.cheap_hours import read_cheap_hours, with_cheap_hours
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.workloads import Workloads


@pytest.fixture
def read(tmp_path):
    def read(text):
        (tmp_path / "hours.csv").write_text(text)
        return read_cheap_hours(tmp_path / "hours.csv")

    return read


def day(name="usd_factor", cheap=(2, 3, 4, 5, 6)):
    return f"hour,{name}\n" + "".join(f"{hour},{0.5 if hour in cheap else 1.5}\n" for hour in range(24))


def test_the_best_hours_are_those_whose_next_three_are_cheap(read):
    best = read(day())

    assert best.hours == (2, 3, 4)
    assert best.chosen_mean == 0.5
    assert "02, 03, 04" in str(best)


def test_a_night_goes_over_midnight(read):
    assert set(read(day(cheap=(22, 23, 0, 1, 2))).hours) == {22, 23, 0}


def test_days_of_moments_with_zones_are_averaged_by_their_hour_in_utc(read):
    start = datetime(2026, 9, 1, tzinfo=UTC)
    rows = [
        (start + timedelta(hours=hour), 100 if (start + timedelta(hours=hour)).hour < 4 else 400) for hour in range(72)
    ]
    shifted = [(at.astimezone().isoformat(), grams) for at, grams in rows]

    best = read("timestamp,carbon_g_per_kwh\n" + "".join(f"{at},{grams}\n" for at, grams in shifted))

    assert set(best.hours) == {0, 1, 23} or set(best.hours) == {0, 1, 2}
    assert best.unit == "g CO2 a kWh"


def test_only_workloads_that_may_wait_and_name_no_hours_get_them(read):
    declared = Workloads.model_validate(
        {
            "workloads": {
                "a": {"deferrable": {"within_hr": 6}},
                "b": {"deferrable": {"within_hr": 6, "start_hours": [9]}},
                "c": {"team": "x"},
            }
        }
    )
    bundle = with_cheap_hours(memory_bundle(tables(), META, declared), read(day()))

    specs = bundle.workloads.workloads
    assert specs["a"].deferrable.start_hours == (2, 3, 4)
    assert specs["b"].deferrable.start_hours == (9,)
    assert specs["c"].deferrable is None


@pytest.mark.parametrize("text", ["hour,usd_factor\n1,2\n", "hour,usd_factor\n25,1\nx,1\n", "hour,usd_factor\n1,-3\n"])
def test_rows_at_fault_and_missing_hours_are_named(read, text):
    with pytest.raises(PriceFileError, match=r"row|hour"):
        read(text)


def test_a_file_of_something_else_is_refused(read):
    with pytest.raises(InputError, match="carbon_g_per_kwh or usd_factor"):
        read("a,b\n1,2\n")
