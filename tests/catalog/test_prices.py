"""The price book: what held at a date; no guess, no zero, no discount that is not sold."""

import math
from datetime import date, timedelta

import pytest
from hypothesis import given, strategies as st

from trimtab.catalog import BuyingOption, InstanceType, InterruptionBucket, Price, PriceBasis, PriceBook, load_catalog
from trimtab.catalog.prices import ANY_REGION
from trimtab.errors import MissingPrice, UnknownName

ON_DEMAND, SPOT = BuyingOption.ON_DEMAND, BuyingOption.SPOT
DAY = date(2026, 1, 1)
DAYS = st.dates(date(2024, 1, 1), date(2026, 12, 31))


def row(usd_hr=1.0, *, as_of=DAY, region="here", option=ON_DEMAND, instance_type="one", **more):
    return Price(
        provider="cloud", instance_type=instance_type, region=region, option=option, usd_hr=usd_hr, as_of=as_of, source="test",
        **more,
    )  # fmt: skip


def book(*rows):
    types = {
        ("cloud", r.instance_type): InstanceType(provider="cloud", name=r.instance_type, gpu="T4", gpu_count=1)
        for r in rows
    }
    return PriceBook(rows, types)


@pytest.mark.parametrize("usd_hr", [0.0, -1.0, math.nan, math.inf])
def test_a_price_that_is_not_above_zero_is_an_error(usd_hr):
    with pytest.raises(ValueError, match="above 0"):
        row(usd_hr)


def test_a_rate_holds_from_its_date_until_the_next():
    prices = book(row(3.0, as_of=date(2025, 1, 1)), row(2.0, as_of=date(2025, 6, 5)))

    def at(day):
        return prices.price("cloud", "one", "here", ON_DEMAND, at=day).usd_hr

    assert at(date(2025, 1, 1)) == 3.0
    assert at(date(2025, 6, 4)) == 3.0
    assert at(date(2025, 6, 5)) == 2.0
    assert at(None) == 2.0


def test_before_the_first_row_there_is_no_price_and_the_error_names_its_date():
    with pytest.raises(MissingPrice, match="2026-01-01"):
        book(row()).price("cloud", "one", "here", ON_DEMAND, at=date(2025, 12, 31))


def test_an_option_that_is_not_sold_is_missing_and_the_error_names_those_that_are():
    with pytest.raises(MissingPrice, match="on-demand"):
        book(row()).price("cloud", "one", "here", SPOT)


@pytest.mark.parametrize("place", [("cluod", "one", "here"), ("cloud", "onne", "here"), ("cloud", "one", "hear")])
def test_an_unknown_name_brings_near_matches(place):
    with pytest.raises(UnknownName) as caught:
        book(row()).price(*place, ON_DEMAND)

    assert caught.value.near


def test_a_rate_for_any_region_holds_where_a_region_has_none():
    prices = book(row(1.0, region=ANY_REGION), row(2.0, region="here"))

    assert prices.price("cloud", "one", "here", ON_DEMAND).usd_hr == 2.0
    assert prices.price("cloud", "one", "there", ON_DEMAND).usd_hr == 1.0


def test_options_leave_out_what_nobody_can_buy():
    prices = book(row(5.0, purchasable=False), row(2.0, option=SPOT))

    assert [price.option for price in prices.options("cloud", "one", "here")] == [SPOT]
    assert len(prices.options("cloud", "one", "here", purchasable_only=False)) == 2


def test_offerings_are_filtered_by_region_and_option():
    prices = book(row(), row(region="there"), row(region=ANY_REGION, option=SPOT))

    assert len(prices.offerings()) == 3
    assert {price.region for price in prices.offerings(region="here")} == {"here", ANY_REGION}
    assert len(prices.offerings(option=SPOT)) == 1
    assert len(prices.offerings(gpu="T4")) == 3
    assert prices.offerings(gpu="L4") == ()


def test_a_region_is_offered_each_option_once():
    prices = book(row(1.0, region=ANY_REGION), row(2.0, region="here"))

    assert [price.usd_hr for price in prices.offerings(region="here")] == [2.0]
    assert [price.usd_hr for price in prices.offerings(region="there")] == [1.0]


@given(st.lists(DAYS, min_size=1, max_size=6, unique=True), DAYS)
def test_the_rate_found_is_the_newest_that_is_not_after_the_day(days, at):
    prices = book(*(row(float(1 + i), as_of=day) for i, day in enumerate(days)))
    known = [day for day in days if day <= at]

    if known:
        assert prices.price("cloud", "one", "here", ON_DEMAND, at=at).as_of == max(known)
    else:
        with pytest.raises(MissingPrice):
            prices.price("cloud", "one", "here", ON_DEMAND, at=at)


@given(st.lists(DAYS, min_size=1, max_size=6, unique=True), DAYS, DAYS)
def test_own_rate_holds_from_its_date_whatever_a_newer_row_says(days, since, at):
    listed = book(*(row(float(1 + i), as_of=day) for i, day in enumerate(days)))
    own = listed.overridden([row(0.5, as_of=since, basis=PriceBasis.NEGOTIATED)])

    if at >= since:
        assert own.price("cloud", "one", "here", ON_DEMAND, at=at).usd_hr == 0.5
    else:
        assert [p.usd_hr for p in own.options("cloud", "one", "here", at=at)] == [
            p.usd_hr for p in listed.options("cloud", "one", "here", at=at)
        ]


def test_own_rate_for_any_region_replaces_every_region():
    own = book(row(2.0), row(3.0, region="there")).overridden([row(1.0, region=ANY_REGION)])

    assert [own.price("cloud", "one", place, ON_DEMAND).usd_hr for place in ("here", "there", "nowhere")] == [
        1.0,
        1.0,
        1.0,
    ]


def test_own_rate_leaves_other_options_alone():
    own = book(row(2.0), row(1.0, option=SPOT)).overridden([row(1.5)])

    assert own.price("cloud", "one", "here", SPOT).usd_hr == 1.0


def test_rates_confirmed_long_ago_are_stale_until_a_newer_row_confirms_them():
    prices = book(row(as_of=DAY), row(as_of=DAY, region="there"), row(as_of=DAY + timedelta(days=100), region="there"))

    stale = prices.stale(DAY + timedelta(days=121), 120)

    assert [price.region for price in stale] == ["here"]
    assert prices.stale(DAY + timedelta(days=120), 120) == ()


def test_interruption_bands_touch():
    bands = list(InterruptionBucket)

    assert [band.low_frac for band in bands] == pytest.approx([0.0, 0.05, 0.10, 0.15, 0.20])
    assert [band.high_frac for band in bands[:-1]] == pytest.approx([band.low_frac for band in bands[1:]])
    assert bands[-1].high_frac is None


@pytest.mark.parametrize(("gpu", "usd_hr"), [("TPU-v5e", 1.2), ("TPU-v5p", 4.2), ("TPU-v6e", 2.7)])
def test_a_tpu_costs_as_much_by_the_chip_in_machines_of_every_size(gpu, usd_hr):
    """Google's price list, "Cloud TPU pricing": by the chip; us-central1."""
    catalog = load_catalog()
    sizes = {name: kind.gpu_count for (_, name), kind in catalog.instance_table.items() if kind.gpu == gpu}

    each = {catalog.prices.price("gcp", name, "us-central1", ON_DEMAND).usd_hr / chips for name, chips in sizes.items()}

    assert sizes
    assert [pytest.approx(usd_hr)] * len(each) == list(each)
