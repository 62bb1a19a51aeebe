"""Azure's retail prices: pages, meters, totals of terms."""

import json
from datetime import date

import pytest
from tests.sources.answering_server import answering
from tests.sources.recorded_prices import azure, azure_list

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.errors import SourceError
from trimtab.sources.http import WebServer
from trimtab.sources.price_lists import PriceReading
from trimtab.sources.price_lists.azure import azure_rates, read_azure

TODAY = date(2026, 11, 20)


@pytest.fixture
def read():
    with answering(azure_list) as (script, url), WebServer(url, sleep=lambda s: None) as server:
        yield script, read_azure(server, load_catalog(), ("eastus",), TODAY)


def rates(reading):
    return {price.option: price.usd_hr for price in reading.prices}


def test_rates_spot_and_reservations_are_told_apart(read):
    _, reading = read

    found = rates(reading)
    assert found[BuyingOption.ON_DEMAND] == 3.673, "the meter's own region, valid today, without Windows"
    assert found[BuyingOption.SPOT] == 0.91
    assert found[BuyingOption.RESERVED_1Y] == pytest.approx(21033 / 8760, abs=1e-6), (
        "the total of the term, by its hours"
    )


def test_a_reservation_that_is_no_total_of_its_term_is_left_out_and_counted(read):
    _, reading = read

    assert BuyingOption.RESERVED_3Y not in rates(reading)
    assert reading.skipped["azure: reservation whose price is not a total of its term"] == 1


def test_every_item_left_out_has_a_reason(read):
    _, reading = read

    assert reading.skipped["azure: Windows"] == 1
    assert reading.skipped["azure: Low Priority meter"] == 1
    assert reading.skipped["azure: DevTestConsumption rate"] == 1
    assert reading.skipped["azure: unit '1/Month', not an hour"] == 1
    assert reading.skipped["azure: currency EUR"] == 1
    assert reading.skipped["azure: price of 0 or less"] == 1
    assert reading.skipped["azure: rate that starts later"] == 1
    assert reading.skipped["azure: term '5 Years'"] == 1
    assert reading.skipped["azure: item with a bad retailPrice"] == 1


def test_links_to_the_next_page_are_followed_at_the_address_that_was_given(read):
    script, _ = read

    assert any(asked.query.get("$skip") == "7" for asked in script.seen)
    assert all(
        "armRegionName eq 'eastus'" in asked.query["$filter"] for asked in script.seen if "$skip" not in asked.query
    )


def test_pages_that_do_not_end_are_an_error():
    def ring(_asked):
        page = {"Items": [], "NextPageLink": "https://prices.azure.com/api/retail/prices?$skip=1"}
        return 200, {}, json.dumps(page).encode()

    with answering(ring) as (_, url), WebServer(url) as server, pytest.raises(SourceError, match="do not end"):
        read_azure(server, load_catalog(), (), TODAY)


def test_the_recorded_sample_is_read(shared_dir):
    path = shared_dir / "data" / "catalog" / "api_samples" / "azure_retail_prices.json"
    items = json.loads(path.read_text(encoding="utf-8"))["Items"]
    reading = PriceReading()

    azure_rates(items, frozenset({"Standard_NC48ads_A100_v4"}), (), TODAY, reading)

    assert rates(reading) == {BuyingOption.RESERVED_1Y: pytest.approx(42066 / 8760, abs=1e-6)}
    assert sum(reading.skipped.values()) == len(items) - 1


def test_a_newer_rate_of_the_same_meter_stands():
    reading = PriceReading()
    items = [azure(retailPrice=4.0, effectiveStartDate="2026-06-01T00:00:00Z"), azure(retailPrice=3.0)]

    azure_rates(items, frozenset({"Standard_NC24ads_A100_v4"}), (), TODAY, reading)

    assert rates(reading) == {BuyingOption.ON_DEMAND: 4.0}


def test_a_savings_plans_rates_stand_inside_the_on_demand_item_and_are_hourly():
    reading = PriceReading()
    plans = [
        {"term": "1 Year", "unitPrice": 2.7, "retailPrice": 2.7},
        {"term": "3 Years", "retailPrice": 1.9},
        {"term": "5 Years", "retailPrice": 1.5},
        {"term": "1 Year", "retailPrice": 99.0},
        {"retailPrice": 1.0},
    ]

    azure_rates(
        [azure(retailPrice=4.0, savingsPlan=plans)], frozenset({"Standard_NC24ads_A100_v4"}), (), TODAY, reading
    )

    found = rates(reading)
    assert (found[BuyingOption.SAVINGS_PLAN_1Y], found[BuyingOption.SAVINGS_PLAN_3Y]) == (2.7, 1.9)
    assert reading.skipped["azure: savings plan of another term, or not below on demand"] == 2
    assert reading.skipped["azure: savings plan without a term and a price"] == 1
