"""What a newly read list changes, and the history that results."""

from dataclasses import replace
from datetime import date

from hypothesis import given, strategies as st

from trimtab.catalog import BuyingOption, Price, PriceBook, load_catalog
from trimtab.cli.prices.refresh import ChangeKind, buyable_as_before, changes, merged_history, without_own

OLD, TODAY = date(2026, 10, 1), date(2026, 11, 20)
CATALOG = load_catalog()


def rate(usd_hr, *, day=OLD, region="us-east-1", name="p4d.24xlarge", option=BuyingOption.ON_DEMAND):
    return Price(
        provider="aws", instance_type=name, region=region, option=option, usd_hr=usd_hr, as_of=day, source="aws-x"
    )


SCOPE = {("aws", "us-east-1", BuyingOption.ON_DEMAND)}


def book(*prices):
    return PriceBook(tuple(prices), CATALOG.instance_table)


def kinds(found):
    return {(change.price.instance_type, change.price.region): change.kind for change in found}


def test_rates_are_new_changed_confirmed_or_gone():
    former = (rate(20.0), rate(1.0, name="g5.xlarge"), rate(3.0, name="g6.xlarge"))
    listed = [rate(22.0, day=TODAY), rate(1.0, name="g5.xlarge", day=TODAY), rate(4.0, name="g6e.xlarge", day=TODAY)]

    found = changes(listed, former, book(*former), SCOPE)

    assert kinds(found) == {
        ("p4d.24xlarge", "us-east-1"): ChangeKind.CHANGED,
        ("g5.xlarge", "us-east-1"): ChangeKind.CONFIRMED,
        ("g6e.xlarge", "us-east-1"): ChangeKind.NEW,
        ("g6.xlarge", "us-east-1"): ChangeKind.VANISHED,
    }
    assert next(change.change_frac for change in found if change.kind is ChangeKind.CHANGED) == 22 / 20 - 1


def test_nothing_vanishes_where_the_list_was_not_asked():
    former = (rate(20.0, region="eu-west-1"),)

    assert changes([], former, book(*former), SCOPE) == []


def test_a_rate_confirmed_again_keeps_its_first_day_and_its_last():
    former = (rate(20.0, day=date(2026, 9, 1)), rate(20.0))
    listed = [rate(20.0, day=TODAY)]

    merged = merged_history(former, changes(listed, former, book(*former), SCOPE), TODAY)

    assert [price.as_of for price in merged] == [date(2026, 9, 1), TODAY]


def test_a_rate_that_vanished_keeps_its_past_and_cannot_be_bought_from_today():
    former = (rate(20.0),)

    merged = merged_history(former, changes([], former, book(*former), SCOPE), TODAY)
    after = book(*merged)

    asked = ("aws", "p4d.24xlarge", "us-east-1", BuyingOption.ON_DEMAND)
    assert after.price(*asked, at=OLD).purchasable
    assert not after.price(*asked, at=TODAY).purchasable
    assert changes([], tuple(merged), after, SCOPE) == [], "it vanishes once"


def test_a_rate_of_ones_own_stands():
    listed = [rate(20.0), rate(9.0, name="g5.xlarge")]

    assert without_own(listed, [rate(15.0, region="any")]) == [listed[1]]


def test_what_nobody_can_buy_stays_so_when_the_list_states_it_again():
    listed = Price(provider="gcp", instance_type="a3-highgpu-1g", region="us-central1", option=BuyingOption.ON_DEMAND,
                   usd_hr=11.0, as_of=TODAY, source="gcp-billing-catalog")  # fmt: skip

    assert not buyable_as_before([listed], CATALOG.prices)[0].purchasable
    assert buyable_as_before([replace(listed, instance_type="a3-highgpu-8g")], CATALOG.prices)[0].purchasable


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
def test_after_a_refresh_the_list_holds_and_reading_it_again_changes_nothing(rates):
    history = ()
    for number, usd_hr in enumerate(rates):
        day = date(2026, 1, 1 + number)
        listed = [rate(usd_hr, day=day)]
        history = tuple(merged_history(history, changes(listed, history, book(*history), SCOPE), day))

        asked = ("aws", "p4d.24xlarge", "us-east-1", BuyingOption.ON_DEMAND)
        assert book(*history).price(*asked, at=day).usd_hr == usd_hr
        again = changes(listed, history, book(*history), SCOPE)
        assert [change.kind for change in again] == [ChangeKind.CONFIRMED]
        assert tuple(merged_history(history, again, day)) == history
