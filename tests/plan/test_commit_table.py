from datetime import date

import pytest
from hypothesis import given, strategies as st

from trimtab.catalog.kinds import BuyingOption, PriceBasis
from trimtab.catalog.pools import Pool
from trimtab.catalog.prices import Price
from trimtab.levers.commit_advice import CommitmentPrice, Payment, listed_offer, return_of

POOL = Pool("aws", "p4d.24xlarge", "us-east-1")


def offer(*, years=1, upfront=0.0, usd_hr=6.0):
    return CommitmentPrice(pool=POOL, term_years=years, upfront_usd=upfront, usd_hr=usd_hr, source="a quote")


def test_a_year_of_two_nodes_used_always():
    row = return_of(offer(usd_hr=6.0), 10.0, nodes=2, hours_mo=730)

    assert row.on_demand_usd == pytest.approx(2 * 8760 * 10)
    assert row.committed_usd == pytest.approx(2 * 8760 * 6)
    assert row.saving_usd == pytest.approx(70_080)
    assert row.saving_frac == pytest.approx(0.4)
    assert row.break_even_mo == pytest.approx(7.2)
    assert row.loses_below_frac == pytest.approx(0.6)


def test_a_commitment_used_less_than_its_rate_loses_and_never_breaks_even():
    row = return_of(offer(usd_hr=6.0), 10.0, nodes=1, hours_mo=365)

    assert row.saving_usd == pytest.approx(8760 * 5 - 8760 * 6)
    assert row.break_even_mo is None


def test_what_is_paid_upfront_is_spread_over_the_term():
    all_upfront = offer(upfront=8760.0, usd_hr=0.0)
    part = offer(years=3, upfront=26280.0, usd_hr=2.0)

    assert all_upfront.effective_usd_hr == pytest.approx(1.0)
    assert all_upfront.payment is Payment.ALL_UPFRONT
    assert part.effective_usd_hr == pytest.approx(3.0)
    assert part.payment is Payment.PARTIAL_UPFRONT
    assert offer().payment is Payment.MONTHLY


def test_a_year_s_cost_compares_terms_of_different_length():
    one_year = return_of(offer(years=1, usd_hr=6.0), 10.0, nodes=1, hours_mo=730)
    three_years = return_of(offer(years=3, usd_hr=4.0), 10.0, nodes=1, hours_mo=730)

    assert one_year.committed_usd_year == pytest.approx(52_560)
    assert three_years.committed_usd_year == pytest.approx(35_040)
    assert one_year.on_demand_usd_year == three_years.on_demand_usd_year == pytest.approx(87_600)


def test_use_of_no_hour_has_no_saving_share():
    row = return_of(offer(), 10.0, nodes=1, hours_mo=0)

    assert row.saving_frac is None
    assert row.break_even_mo is None


def test_a_free_or_unknown_price_and_more_hours_than_a_month_has_are_refused():
    with pytest.raises(ValueError, match="above 0"):
        offer(usd_hr=0.0)
    with pytest.raises(ValueError, match="above 0"):
        offer(usd_hr=float("nan"))
    with pytest.raises(ValueError, match="730"):
        return_of(offer(), 10.0, nodes=1, hours_mo=731)


def test_a_listed_rate_becomes_an_offer_that_names_its_source_and_day():
    price = Price(
        provider="aws",
        instance_type="p4d.24xlarge",
        region="us-east-1",
        option=BuyingOption.RESERVED_3Y,
        usd_hr=9.5,
        as_of=date(2026, 1, 21),
        source="a list",
        basis=PriceBasis.LISTED,
    )

    listed = listed_offer(POOL, price)

    assert (listed.term_years, listed.usd_hr, listed.option) == (3, 9.5, BuyingOption.RESERVED_3Y)
    assert "2026-01-21" in listed.source


@given(rate=st.floats(0.1, 20), hours=st.floats(1, 730), nodes=st.integers(1, 50), years=st.sampled_from([1, 3]))
def test_it_saves_exactly_where_it_is_used_more_than_it_loses_below(rate, hours, nodes, years):
    row = return_of(offer(years=years, usd_hr=rate), 10.0, nodes=nodes, hours_mo=hours)

    if abs(hours / 730 - row.loses_below_frac) > 1e-6:
        assert (row.saving_usd > 0) == (hours / 730 > row.loses_below_frac)
        assert (row.break_even_mo is not None) == (row.saving_usd > 0)
