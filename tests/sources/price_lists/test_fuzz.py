"""Whatever a price list holds, reading it ends, invents no rate, and counts what it leaves out."""

import contextlib
import csv
import io
import json
import math
from datetime import date

import pytest
from hypothesis import given, settings, strategies as st
from tests.sources.recorded_prices import AWS_COLUMNS, AWS_CSV, AZURE_ITEMS, GCP_SKUS, PLAN_CSV, azure

from trimtab.catalog import load_catalog
from trimtab.errors import SourceError
from trimtab.sources.price_lists import PriceReading
from trimtab.sources.price_lists.aws import csv_lines, item_lines, term_rates
from trimtab.sources.price_lists.aws_savings_plans import plan_rates
from trimtab.sources.price_lists.azure import azure_rates
from trimtab.sources.price_lists.gcp import part_prices

TODAY = date(2026, 11, 20)
TYPES = frozenset(one.name for one in load_catalog().instance_types)
NAMES = frozenset({"A2 Instance Core", "A2 Instance Ram", "Nvidia Tesla A100 GPU"})
STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=6),
    st.lists(st.integers(), max_size=2),
    st.sampled_from(["1e400", "-1", "NaN", "inf", "0", "USD", "1 Hour", "2026-13-40"]),
)


def mutated(entry, path, value):
    """Return a copy of nested data in which one place, chosen by numbers, holds something else."""
    copied = json.loads(json.dumps(entry))
    place = copied
    for number in path:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = keys[number % len(keys)]
        if not isinstance(place[key], dict | list) or number % 3 == 0:
            place[key] = value
            break
        place = place[key]
    return copied


PLACES = st.lists(st.integers(0, 40), min_size=1, max_size=6)


def check(reading):
    assert all(math.isfinite(price.usd_hr) and price.usd_hr > 0 for price in reading.prices)
    assert all(number >= 0 for number in reading.skipped.values())


@settings(max_examples=150)
@given(st.sampled_from(AZURE_ITEMS), PLACES, STRANGE)
def test_azure_items(item, path, value):
    reading = PriceReading()
    azure_rates([mutated(item, path, value)], TYPES, (), TODAY, reading)
    check(reading)
    assert reading.prices or reading.skipped


@pytest.mark.parametrize("price", ["inf", "nan", "-1", "0", "1e400", "1e30", "1e-9"])
def test_no_rate_is_made_of_what_is_no_price(price):
    reading = PriceReading()
    azure_rates([azure(retailPrice=price)], TYPES, (), TODAY, reading)
    row = AWS_CSV.replace("21.9576", price)
    term_rates(csv_lines(row.splitlines(), "us-east-1", TYPES, "a file", reading), TYPES, TODAY, reading)
    reading.prices += plan_rates(
        PLAN_CSV.replace("41.5", price).splitlines(), "us-east-1", TYPES, TODAY, "a file", reading
    )
    check(reading)
    assert not any(one.provider == "azure" for one in reading.prices)


@settings(max_examples=150)
@given(st.sampled_from(GCP_SKUS), PLACES, STRANGE)
def test_google_skus(sku, path, value):
    reading = PriceReading()
    parts = part_prices([mutated(sku, path, value)], NAMES, (), TODAY, reading)
    assert all(math.isfinite(usd_hr) and usd_hr > 0 for usd_hr in parts.values())


def test_amounts_of_hundreds_of_digits_are_left_out():
    sku = json.loads(json.dumps(GCP_SKUS[2]))
    sku["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]["nanos"] = 10**400
    reading = PriceReading()

    assert part_prices([sku], NAMES, (), TODAY, reading) == {}
    assert sum(reading.skipped.values()) == 1


def test_an_hour_on_demand_needs_no_purchase_option():
    column = AWS_COLUMNS.index("PurchaseOption")
    rows = list(csv.reader(io.StringIO(AWS_CSV[AWS_CSV.index('"SKU"') :])))
    rows[1][column] = "nothing known"
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    reading = PriceReading()

    term_rates(csv_lines(text.getvalue().splitlines(), "us-east-1", TYPES, "a file", reading), TYPES, TODAY, reading)

    assert any(one.instance_type == "p4d.24xlarge" for one in reading.prices)


def test_an_offer_file_whose_cell_does_not_end_is_an_error():
    with pytest.raises(SourceError, match="no offer file"):
        list(csv_lines(['"' + "y" * 300_000], "us-east-1", TYPES, "a file", PriceReading()))


def test_a_moment_without_a_time_zone_is_none_and_its_rate_is_left_out():
    sku = json.loads(json.dumps(GCP_SKUS[2]))
    sku["pricingInfo"].append({**sku["pricingInfo"][0], "effectiveTime": "2023-03-24T10:52:50"})
    reading = PriceReading()

    assert part_prices([sku], NAMES, (), TODAY, reading) == {}
    assert sum(reading.skipped.values()) == 1


@settings(max_examples=150)
@given(st.integers(0, len(AWS_CSV) - 1), st.text(max_size=5), st.integers(0, 40))
def test_aws_offer_files(at, text, cut):
    reading = PriceReading()
    damaged = AWS_CSV[:at] + text + AWS_CSV[at + cut :]
    with contextlib.suppress(SourceError):
        term_rates(csv_lines(damaged.splitlines(), "us-east-1", TYPES, "a file", reading), TYPES, TODAY, reading)
    check(reading)


@settings(max_examples=150)
@given(st.one_of(STRANGE, st.dictionaries(st.sampled_from(["product", "terms"]), STRANGE), st.text(max_size=30)))
def test_aws_items(item):
    reading = PriceReading()
    term_rates(item_lines([item], "us-east-1", reading), TYPES, TODAY, reading)
    check(reading)
