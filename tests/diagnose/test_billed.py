from datetime import UTC, datetime, timedelta

from trimtab.diagnose.billed import BILL_COLUMNS, billed
from trimtab.fleet.model import Window
from trimtab.tables.arrow import empty_table, table_from_rows

START = datetime(2026, 9, 21, tzinfo=UTC)
WINDOW = Window(start=START, hours=24)


def cost(first_hr: float, hours: float, usd: float, *, instance_type="p4d.24xlarge", currency="USD", effective=None):
    return {
        "ChargePeriodStart": START + timedelta(hours=first_hr),
        "ChargePeriodEnd": START + timedelta(hours=first_hr + hours),
        "BilledCost": usd,
        "EffectiveCost": effective,
        "BillingCurrency": currency,
        "instance_type": instance_type,
    }


def found(*rows):
    return billed(table_from_rows("costs", list(rows)).select(BILL_COLUMNS), WINDOW, {"p4d.24xlarge", "g5.xlarge"})


def test_rows_of_the_fleets_types_in_the_window_are_added_up():
    result = found(
        cost(0, 1, 20.0), cost(1, 1, 2.0, instance_type="g5.xlarge"), cost(2, 1, 7.0, instance_type="m5.large")
    )

    assert (result.usd, result.rows) == (22.0, 2)


def test_the_effective_cost_goes_over_the_billed_one():
    assert found(cost(0, 1, 0.0, effective=13.8)).usd == 13.8


def test_a_row_that_reaches_out_of_the_window_counts_by_its_share_inside():
    # 48 hours of $48, half of them inside; the last row lies wholly outside.
    assert found(cost(-24, 48, 48.0), cost(24, 1, 5.0)).usd == 24.0


def test_another_currency_is_counted_and_never_added():
    result = found(cost(0, 1, 20.0), cost(0, 1, 18.0, currency="EUR"))

    assert (result.usd, result.foreign_rows) == (20.0, 1)


def test_no_bill_is_no_cost():
    assert billed(empty_table("costs", BILL_COLUMNS), WINDOW, {"p4d.24xlarge"}).rows == 0
