import csv
import gzip
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from trimtab.errors import BillError
from trimtab.sources.bills.cells import find_instance_type, read_time
from trimtab.sources.bills.focus import read_bills
from trimtab.tables.arrow import arrow_schema

DATA = Path(__file__).parent.parent / "data" / "bills"


def bill(path, text):
    path.write_text(text)
    return read_bills([path])


def test_a_focus_bill_becomes_costs_with_its_types_periods_and_tags():
    bills = read_bills([DATA / "focus_1_2.csv"])

    first, covered, credit = bills.table.to_pylist(maps_as_pydicts="strict")
    assert bills.table.schema.equals(arrow_schema("costs"))
    assert first["instance_type"] == "p4d.24xlarge"
    assert first["Tags"] == {"team": "research", "n": "3"}
    assert covered["instance_type"] == "p4d.24xlarge"
    assert covered["ChargePeriodStart"] == datetime(2026, 9, 1, 1, tzinfo=UTC)
    assert covered["ChargeClass"] is None
    assert covered["CommitmentDiscountStatus"] == "Used"
    assert credit["BilledCost"] == -5.0
    assert credit["PricingQuantity"] is None
    assert bills.notes == ("focus_1_2.csv: FOCUS 1.2",)


def test_a_cur_is_amortised_as_aws_documents_it():
    rows = read_bills([DATA / "cur_2_0.csv"]).table.to_pylist(maps_as_pydicts="strict")

    # on demand 5.672; reserved 3.4; unused reservation 7 + 3; covered 4.1; negation 0; unused plan 6 - 4.1; tax 9.9
    assert [row["EffectiveCost"] for row in rows] == pytest.approx([5.672, 3.4, 10.0, 4.1, 0.0, 1.9, 9.9])
    assert sum(row["BilledCost"] for row in rows) == pytest.approx(5.672 + 0 + 100 + 5.672 - 5.672 + 6 + 9.9)
    assert [row["ChargeCategory"] for row in rows] == [
        "Usage",
        "Usage",
        "Purchase",
        "Usage",
        "Adjustment",
        "Purchase",
        "Tax",
    ]
    assert rows[1]["CommitmentDiscountId"] == "arn:ri-1"
    assert rows[0]["instance_type"] == "g5.12xlarge"
    assert rows[0]["Tags"] == {"user_team": "search"}


def test_a_parquet_bill_keeps_its_own_types(tmp_path):
    table = pa.table(
        {
            "BilledCost": pa.array([1.5]),
            "ChargePeriodStart": pa.array([datetime(2026, 9, 1)], type=pa.timestamp("ms")),
            "ChargePeriodEnd": pa.array([datetime(2026, 9, 2)], type=pa.timestamp("ns", tz="UTC")),
            "ServiceProviderName": ["Example"],
            "Tags": pa.array([[("a", "b")]], type=pa.map_(pa.string(), pa.string())),
        }
    )
    pq.write_table(table, tmp_path / "bill.parquet")

    (row,) = read_bills([tmp_path / "bill.parquet"]).table.to_pylist(maps_as_pydicts="strict")

    assert row["ChargePeriodEnd"] == datetime(2026, 9, 2, tzinfo=UTC)
    assert row["ProviderName"] == "Example"
    assert row["Tags"] == {"a": "b"}


def test_reading_twice_gives_the_same_rows():
    assert read_bills([DATA]).table.equals(read_bills([DATA]).table)


def test_columns_in_snake_case_are_renamed_and_said(tmp_path):
    text = "billed_cost,charge_period_start,charge_period_end\n3,2026-09-01,2026-09-02\n"

    bills = bill(tmp_path / "bill.csv", text)

    assert bills.table["BilledCost"].to_pylist() == [3.0]
    assert "bill.csv: column billed_cost read as BilledCost" in bills.notes


def test_missing_columns_are_all_named_with_near_matches(tmp_path):
    with pytest.raises(BillError) as raised:
        bill(tmp_path / "bill.csv", "BilledCosts,ChargeStart\n1,2\n")

    message = str(raised.value)
    assert "BilledCost is missing; is it BilledCosts" in message
    assert "ChargePeriodStart is missing" in message
    assert "ChargePeriodEnd is missing" in message


def test_every_cell_that_cannot_be_read_is_named_with_its_row(tmp_path):
    text = "BilledCost,ChargePeriodStart,ChargePeriodEnd\n1,2026-09-01,2026-09-02\nten,yesterday,2026-09-02\n"

    with pytest.raises(BillError) as raised:
        bill(tmp_path / "bill.csv", text)

    assert "bill.csv row 2: BilledCost is not a number (saw 'ten')" in str(raised.value)
    assert "bill.csv row 2: ChargePeriodStart is not a time (saw 'yesterday')" in str(raised.value)


def test_rows_without_a_cost_are_dropped_and_counted(tmp_path):
    text = "BilledCost,ChargePeriodStart,ChargePeriodEnd\nNULL,2026-09-01,2026-09-02\n1,NULL,2026-09-02\n"

    bills = bill(tmp_path / "bill.csv", text)

    assert bills.table.num_rows == 0
    assert bills.counts == {
        "bills: rows without a billed cost dropped": 1,
        "bills: rows without a charge period dropped": 1,
    }


def test_tags_that_are_no_object_are_left_empty_and_counted(tmp_path):
    text = 'BilledCost,ChargePeriodStart,ChargePeriodEnd,Tags\n1,2026-09-01,2026-09-02,"[1,2]"\n'

    bills = bill(tmp_path / "bill.csv", text)

    assert bills.table["Tags"].null_count == 1
    assert bills.counts == {"bills: Tags unreadable, left empty": 1}


def test_another_currency_is_kept_and_said(tmp_path):
    text = "BilledCost,ChargePeriodStart,ChargePeriodEnd,BillingCurrency\n1,2026-09-01,2026-09-02,EUR\n"

    bills = bill(tmp_path / "bill.csv", text)

    assert bills.table["BillingCurrency"].to_pylist() == ["EUR"]
    assert "the bill is in EUR: kept as billed; list prices are in USD" in bills.notes


def test_a_newer_focus_is_read_and_said(tmp_path):
    text = "BilledCost,ChargePeriodStart,ChargePeriodEnd,InvoiceDetailId,CarbonFootprint\n1,2026-09-01,2026-09-02,a,9\n"

    bills = bill(tmp_path / "bill.csv", text)

    assert any("FOCUS 1.4 does not have (CarbonFootprint); newer? read as 1.4" in note for note in bills.notes)


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("empty.csv", b"", "is empty"),
        ("bill.xlsx", b"x", r"\*\.csv"),
        ("broken.parquet", b"PAR1", "truncated"),
        ("ragged.csv", b"BilledCost,ChargePeriodStart\n1,2,3\n", "not readable as CSV"),
    ],
)
def test_a_file_that_is_no_bill_is_refused(tmp_path, name, content, part):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(BillError, match=part):
        read_bills([tmp_path / name])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$1.624 per On Demand Linux g5.4xlarge Instance Hour", "g5.4xlarge"),
        ("USE1-BoxUsage:p5.48xlarge", "p5.48xlarge"),
        ("BoxUsage:u-6tb1.56xlarge", None),
        ("Standard_ND96isr_H100_v5 - US East", "Standard_ND96isr_H100_v5"),
        ("a2-highgpu-8g in us-central1", "a2-highgpu-8g"),
        ("BM.GPU.H100.8", "BM.GPU.H100.8"),
        ("One p4d.24xlarge.", "p4d.24xlarge"),
        ("Amazon S3 storage", None),
        ("trn1n.32xlarge", "trn1n.32xlarge"),
    ],
)
def test_the_instance_type_is_found_in_a_description(text, found):
    assert find_instance_type(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "2026-09-01T00:00:00Z",
        "2026-09-01 00:00:00",
        "2026-09-01",
        "2026-09-01T02:00:00+02:00",
        "2026-09-01T00:00:00.000Z",
    ],
)
def test_moments_are_read_in_every_spelling_of_exports(text):
    assert read_time(text) == datetime(2026, 9, 1, tzinfo=UTC)


def test_the_official_sample_is_read_whole(shared_dir):
    bills = read_bills([shared_dir / "data" / "focus"])

    official = bills.table.slice(0, 1000)
    assert bills.table.num_rows == 1100
    assert official["instance_type"].to_pylist().count("g5.4xlarge") == 8
    with (shared_dir / "data" / "focus" / "focus_1.0_official_sample_1000rows.csv").open(newline="") as file:
        billed = [float(row["BilledCost"]) for row in csv.DictReader(file)]
    assert official["BilledCost"].to_pylist() == billed
    assert "focus_1.0_official_sample_1000rows.csv: FOCUS 1.0" in bills.notes
    assert "synthetic_aws_1_3_cost_and_usage_rows100_seed42.csv: FOCUS 1.3" in bills.notes


@given(
    st.text(max_size=200), st.sampled_from(["", "BilledCost,ChargePeriodStart,ChargePeriodEnd,Tags,SkuPriceDetails\n"])
)
def test_any_text_as_a_bill_is_read_or_refused_on_purpose(tmp_path_factory, text, head):
    path = tmp_path_factory.mktemp("bill") / "bill.csv"
    path.write_text(head + text, encoding="utf-8")

    with suppress(BillError):
        read_bills([path])


@given(st.text(max_size=60))
def test_any_text_is_searched_for_an_instance_type(text):
    found = find_instance_type(text)

    assert found is None or found in text


def test_a_bill_without_rows_is_said_to_be_so(tmp_path):
    head = (DATA / "focus_1_2.csv").read_text().splitlines()[0]

    assert "empty.csv: no rows in it" in bill(tmp_path / "empty.csv", head + "\n").notes


def test_charges_that_two_files_hold_are_charged_once(tmp_path):
    whole = (DATA / "focus_1_2.csv").read_text().splitlines()
    once = read_bills([DATA / "focus_1_2.csv"])
    (tmp_path / "a.csv").write_text("\n".join(whole[:3]) + "\n")
    (tmp_path / "b.csv").write_text("\n".join(whole) + "\n")

    twice = read_bills([tmp_path])

    assert sorted(twice.table["BilledCost"].to_pylist()) == sorted(once.table["BilledCost"].to_pylist())
    assert twice.counts["bills: charges that an earlier file holds too, dropped"] == 2


def test_rows_of_parquet_whose_cost_is_no_number_are_dropped_and_counted(tmp_path):
    moments = [datetime(2026, 9, 1, tzinfo=UTC)] * 4, [datetime(2026, 9, 2, tzinfo=UTC)] * 4
    costs = pa.array([1.0, None, float("nan"), float("inf")])
    effective = pa.array([float("nan"), 1.0, 1.0, 1.0])
    names = ["ChargePeriodStart", "ChargePeriodEnd", "BilledCost", "EffectiveCost"]
    pq.write_table(pa.table([*moments, costs, effective], names=names), tmp_path / "bill.parquet")

    bills = read_bills([tmp_path / "bill.parquet"])

    assert bills.table["BilledCost"].to_pylist() == [1.0]
    assert bills.table["EffectiveCost"].to_pylist() == [None]
    assert bills.counts == {
        "bills: rows without a billed cost dropped": 3,
        "bills: EffectiveCost unreadable, left empty": 1,
    }


@pytest.mark.parametrize(
    "cell",
    ["line_item_unblended_cost", "reservation_unused_recurring_fee", "savings_plan_total_commitment_to_date"],
)
def test_a_cell_of_a_cur_that_is_no_number_is_named_or_counted(tmp_path, cell):
    with (DATA / "cur_2_0.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    rows[0][cell] = "ten"
    with (tmp_path / "cur.csv").open("w") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)

    with suppress(BillError):
        assert read_bills([tmp_path / "cur.csv"]).table.num_rows == len(rows)


def test_a_bill_packed_to_exhaust_memory_is_refused(tmp_path):
    head = b"BilledCost,ChargePeriodStart,ChargePeriodEnd\n"
    (tmp_path / "bill.csv.gz").write_bytes(gzip.compress(head + b"1,2026-09-01,2026-09-02\n" * 6_000_000, 9))

    with pytest.raises(BillError, match="100 times its size; if that is right, unpack it first"):
        read_bills([tmp_path / "bill.csv.gz"])


def test_a_cur_without_its_cost_names_the_column(tmp_path):
    text = (DATA / "cur_2_0.csv").read_text().replace("line_item_unblended_cost", "line_item_other")
    (tmp_path / "cur.csv").write_text(text)

    with pytest.raises(BillError, match="column BilledCost is missing"):
        read_bills([tmp_path / "cur.csv"])
