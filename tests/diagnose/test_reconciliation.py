from datetime import UTC, datetime, timedelta

from trimtab.diagnose.bill_split import COLUMNS, ChargeBasis, charges_of
from trimtab.diagnose.charges import months
from trimtab.tables.arrow import table_from_rows
from trimtab.units import micro_usd

SEPTEMBER, OCTOBER = datetime(2026, 9, 30, 23, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC)


def charge(cost, at=SEPTEMBER, **cells):
    row = {"ChargePeriodStart": at, "ChargePeriodEnd": at + timedelta(hours=1), "BilledCost": cost}
    return {**row, "BillingCurrency": "USD", "ChargeCategory": "Usage", **cells}


def found(*rows, invoices=None):
    costs = table_from_rows("costs", list(rows)).select(COLUMNS)
    billed, amortised = (charges_of(costs, basis, {}) for basis in (ChargeBasis.BILLED, ChargeBasis.EFFECTIVE))
    return {month.month: month for month in months(billed, amortised, invoices or {})}


def test_a_month_is_made_of_its_categories():
    month = found(
        charge(10.0),
        charge(3.0, ChargeCategory="Tax"),
        charge(-4.0, ChargeCategory="Credit"),
        charge(-1.0, ChargeClass="Correction"),
    )["2026-09"]

    assert {kind: usd for kind, usd in month.by_category.items() if usd} == {
        "Usage": micro_usd(9),
        "Tax": micro_usd(3),
        "Credit": micro_usd(-4),
    }
    assert (month.billed, month.corrections, month.rows) == (micro_usd(8), micro_usd(-1), 4)


def test_the_billing_month_decides_where_the_bill_states_it():
    assert set(found(charge(1.0, BillingPeriodStart=OCTOBER), charge(1.0))) == {"2026-09", "2026-10"}


def test_the_invoice_is_held_against_what_the_charges_ask_for():
    months_found = found(charge(10.25), invoices={"2026-09": micro_usd(10.25), "2026-10": micro_usd(7)})

    assert months_found["2026-09"].difference == 0
    assert months_found["2026-10"].difference == micro_usd(-7)


def test_commitments_are_asked_for_when_bought_and_amortised_when_used():
    month = found(
        charge(100.0, EffectiveCost=0.0, ChargeCategory="Purchase"),
        charge(0.0, EffectiveCost=4.0, CommitmentDiscountStatus="Used"),
        charge(0.0, EffectiveCost=1.5, CommitmentDiscountStatus="Unused"),
    )["2026-09"]

    assert (month.billed, month.amortised, month.unused_commitment) == (
        micro_usd(100),
        micro_usd(5.5),
        micro_usd(1.5),
    )
