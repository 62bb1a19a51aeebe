"""AWS's price lists: offer files, GetProducts, Spot Advisor, spot price history."""

import json
from datetime import UTC, date, datetime

import pytest
from tests.sources.answering_server import answering
from tests.sources.recorded_prices import ADVISOR, aws_lists

from trimtab.catalog import BuyingOption, InterruptionBucket, PriceBasis, load_catalog
from trimtab.errors import CredentialsError, SourceError
from trimtab.sources.http import WebServer
from trimtab.sources.price_lists import PriceReading
from trimtab.sources.price_lists.aws import (
    advice_of,
    derived_spot,
    item_lines,
    read_bulk,
    read_history,
    read_query,
    term_rates,
)
from trimtab.sources.price_lists.aws_savings_plans import plan_rates, read_savings_plans

TODAY = date(2026, 11, 20)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TYPES = frozenset(one.name for one in load_catalog().instance_types if one.provider == "aws")


@pytest.fixture
def bulk():
    with answering(aws_lists) as (_, url), WebServer(url) as server:
        return read_bulk(server, TYPES, ("us-east-1",), TODAY)


@pytest.fixture
def signed(monkeypatch):
    """Let boto3 sign without asking anybody."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def rates(reading):
    return {(price.instance_type, price.option): price.usd_hr for price in reading.prices}


def test_an_offer_file_gives_shared_linux_hours_only(bulk):
    found = rates(bulk)

    assert found["p4d.24xlarge", BuyingOption.ON_DEMAND] == 21.9576
    assert found["g6.xlarge", BuyingOption.ON_DEMAND] == 0.8048
    assert bulk.skipped["aws: dedicated tenancy"] == 1
    assert bulk.skipped["aws: another operating system"] == 1
    assert bulk.skipped["aws: capacity reservation, not an instance hour"] == 2
    assert bulk.skipped["aws: capacity block"] == 1
    assert bulk.skipped["aws: software included"] == 1
    assert bulk.skipped["aws: currency CNY"] == 1
    assert bulk.skipped["aws: price 'n/a' is not a number"] == 1
    assert bulk.skipped["aws: row cut short"] == 1
    assert bulk.skipped["aws: type that the catalog does not know"] == 1


def test_an_upfront_fee_is_spread_over_the_hours_of_its_term(bulk):
    found = rates(bulk)

    assert found["p4d.24xlarge", BuyingOption.RESERVED_3Y] == pytest.approx(4.5 + 105120 / (3 * 8760)), (
        "partial upfront"
    )
    assert found["p4d.24xlarge", BuyingOption.RESERVED_1Y] == 13.9
    assert bulk.skipped["aws: convertible reservation"] == 1


def test_a_region_that_the_list_lacks_is_an_error():
    with answering(aws_lists) as (_, url), WebServer(url) as server, pytest.raises(SourceError, match="no region eu"):
        read_bulk(server, TYPES, ("eu-west-9",), TODAY)


def test_something_else_than_an_offer_file_is_an_error():
    def answer(asked):
        return (200, {}, b"<html>") if asked.path.endswith(".csv") else aws_lists(asked)

    with answering(answer) as (_, url), WebServer(url) as server, pytest.raises(SourceError, match="no offer file"):
        read_bulk(server, TYPES, ("us-east-1",), TODAY)


def test_spot_is_derived_from_average_savings_even_negative_ones(bulk):
    listed = [price for price in bulk.prices if price.option is BuyingOption.ON_DEMAND]

    derived_spot(advice_of(json.dumps(ADVISOR).encode()), listed, TODAY, bulk)

    spot = {price.instance_type: price for price in bulk.prices if price.option is BuyingOption.SPOT}
    assert spot["p4d.24xlarge"].usd_hr == pytest.approx(21.9576 * 0.4, abs=1e-6)
    assert spot["p4d.24xlarge"].interruption is InterruptionBucket.OVER_20, "by the place's label, not by its order"
    assert spot["g6.xlarge"].usd_hr == pytest.approx(0.8048 * 1.62, abs=1e-6)
    assert spot["g6.xlarge"].interruption is None, "a band that the list does not explain is unknown"
    assert all(price.basis is PriceBasis.DERIVED and "Spot Advisor" in price.note for price in spot.values())


def test_the_recorded_advisor_is_read_whole(shared_dir):
    path = shared_dir / "data" / "catalog" / "api_samples" / "aws_spot_advisor_gpu_2025-07-28.json"

    advice = advice_of(path.read_bytes())

    assert advice["p5.48xlarge", "ca-central-1"][0] == -62
    assert all(bucket is not None for _, bucket in advice.values())


def item():
    """Return an item as GetProducts delivers it: JSON in a string."""
    attributes = {"instanceType": "p4d.24xlarge", "regionCode": "us-east-1", "operatingSystem": "Linux",
                  "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}  # fmt: skip
    terms = {
        "OnDemand": {"S.J": {"priceDimensions": {"S.J.6": {"unit": "Hrs", "pricePerUnit": {"USD": "21.9576"}}}}},
        "Reserved": {
            "S.3": {
                "priceDimensions": {
                    "S.3.2": {"pricePerUnit": {"USD": "87600"}, "description": "Upfront Fee"},
                    "S.3.6": {"unit": "Hrs", "pricePerUnit": {"USD": "3.0"}},
                },
                "termAttributes": {
                    "LeaseContractLength": "1yr",
                    "PurchaseOption": "Partial Upfront",
                    "OfferingClass": "standard",
                },
            }
        },
    }
    return json.dumps({"product": {"sku": "S", "attributes": attributes}, "terms": terms})


def test_items_of_the_query_api_are_json_in_strings():
    reading = PriceReading()

    term_rates(item_lines([item(), "{not json", 7], "us-east-1", reading), TYPES, TODAY, reading)

    assert rates(reading) == {
        ("p4d.24xlarge", BuyingOption.ON_DEMAND): 21.9576,
        ("p4d.24xlarge", BuyingOption.RESERVED_1Y): 13.0,
    }
    assert reading.skipped["aws: item that is not a product with terms"] == 2


def test_the_query_api_is_asked_page_by_page(signed):
    def answer(asked):
        wanted = json.loads(asked.body)
        last = wanted.get("NextToken") == "more"
        page = {"PriceList": [item()] if last else [], **({} if last else {"NextToken": "more"})}
        return 200, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(page).encode()

    with answering(answer) as (script, url):
        reading = read_query(url, frozenset({"p4d.24xlarge"}), ("us-east-1",), TODAY)

    assert len(script.seen) == 2
    assert rates(reading)["p4d.24xlarge", BuyingOption.ON_DEMAND] == 21.9576


def history_page(entries, token=""):
    items = "".join(
        f"<item><instanceType>{name}</instanceType><productDescription>{product}</productDescription>"
        f"<spotPrice>{price}</spotPrice><timestamp>{moment}</timestamp><availabilityZone>{zone}</availabilityZone></item>"
        for name, product, price, moment, zone in entries
    )
    return (
        '<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<requestId>r</requestId><spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{token}</nextToken>"
        "</DescribeSpotPriceHistoryResponse>"
    ).encode()


THROTTLED = (
    b"<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slow down</Message></Error></Errors>"
    b"<RequestID>r</RequestID></Response>"
)


def test_observed_spot_is_the_mean_over_time_then_over_zones(signed):
    first = [("p4d.24xlarge", "Linux/UNIX", "8.0", "2026-11-01T00:00:00.000Z", "us-east-1a"),
             ("p4d.24xlarge", "Windows", "20.0", "2026-11-19T00:00:00.000Z", "us-east-1a")]  # fmt: skip
    second = [("p4d.24xlarge", "Linux/UNIX", "10.0", "2026-11-17T00:00:00.000Z", "us-east-1a"),
              ("p4d.24xlarge", "Linux/UNIX", "12.0", "2026-11-10T00:00:00.000Z", "us-east-1b")]  # fmt: skip

    def answer(asked):
        page = history_page(second) if b"NextToken=more" in asked.body else history_page(first, "more")
        return 200, {"Content-Type": "text/xml"}, page

    with answering(answer) as (script, url):
        script.faults = [(503, {}, THROTTLED)]
        reading = read_history(url, frozenset({"p4d.24xlarge"}), ("us-east-1",), NOW)

    assert rates(reading)["p4d.24xlarge", BuyingOption.SPOT] == pytest.approx(((8 + 10) / 2 + 12) / 2)
    assert reading.skipped["aws: spot price of another system or type"] == 1
    assert "2 zones" in reading.prices[0].note


def test_being_refused_is_a_matter_of_credentials(signed):
    refusal = (
        b"<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors>"
        b"<RequestID>r</RequestID></Response>"
    )

    with (
        answering(lambda _asked: (403, {}, refusal)) as (_, url),
        pytest.raises(CredentialsError, match="Unauthorized"),
    ):
        read_history(url, TYPES, ("us-east-1",), NOW)


def test_an_item_that_is_nested_without_end_is_counted():
    reading = PriceReading()

    assert list(item_lines(["[" * 100_000], "us-east-1", reading)) == []
    assert reading.skipped["aws: item that is not a product with terms"] == 1


@pytest.fixture
def plans():
    reading = PriceReading()
    with answering(aws_lists) as (_, url), WebServer(url) as server:
        read_savings_plans(server, TYPES, ("us-east-1", "eu-west-9"), TODAY, reading)
    return reading


def test_savings_plans_give_what_a_linux_hour_takes_of_a_plan_for_all_instances(plans):
    assert rates(plans) == {
        ("p5.48xlarge", BuyingOption.SAVINGS_PLAN_1Y): 41.5,
        ("p5.48xlarge", BuyingOption.SAVINGS_PLAN_3Y): 29.25,
    }
    assert {price.basis for price in plans.prices} == {PriceBasis.LISTED}


def test_rows_of_savings_plans_that_are_left_out_are_counted_with_the_reason(plans):
    assert plans.skipped == {
        "aws savings plan: a plan of one instance family": 1,
        "aws savings plan: paid upfront": 1,
        "aws savings plan: another operating system": 1,
        "aws savings plan: not an hour on shared hardware": 1,
        "aws savings plan: price that is not a number": 1,
        "aws savings plan: price of 0, or no number": 1,
        "aws savings plan: type that the catalog does not know": 1,
        "aws: no savings plans in a region": 1,
    }


def test_something_else_than_a_list_of_savings_plans_is_an_error():
    for lines, said in (
        (["<html>"], "no line that begins with SKU"),
        (["SKU,Unit"], "lacks the columns Currency, Disc"),
    ):
        with pytest.raises(SourceError, match=said):
            list(plan_rates(lines, "us-east-1", TYPES, TODAY, "somewhere", PriceReading()))
