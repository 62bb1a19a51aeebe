from dataclasses import replace

import pytest

from trimtab.catalog import load_catalog
from trimtab.catalog.kinds import BuyingOption
from trimtab.catalog.pools import Pool
from trimtab.catalog.registry import changed, price_change
from trimtab.errors import InputError, UnknownName
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings


def ratios(text):
    catalog = load_catalog()
    other = changed(catalog, [price_change(text)])
    return [(old, new.usd_hr / old.usd_hr) for old, new in zip(catalog.prices.prices, other.prices.prices, strict=True)]


@pytest.mark.parametrize(
    ("text", "factor", "answers"),
    [
        ("spot+30%", 1.3, lambda price: price.option is BuyingOption.SPOT),
        ("commitments-5%", 0.95, lambda price: price.option.term_years > 0),
        ("aws + 10%", 1.1, lambda price: price.provider == "aws"),
        ("p4d.24xlarge-20%", 0.8, lambda price: price.instance_type == "p4d.24xlarge"),
        ("all+100%", 2.0, lambda price: True),
    ],
)
def test_a_change_hits_what_it_names_and_nothing_else(text, factor, answers):
    for price, ratio in ratios(text):
        assert ratio == pytest.approx(factor if answers(price) else 1.0)


def test_a_family_of_gpus_changes_together():
    catalog = load_catalog()
    boards = {
        catalog.instance_table[price.provider, price.instance_type].gpu
        for price, ratio in ratios("A100-15%")
        if ratio != 1
    }

    assert len(boards) > 1
    assert all(board.startswith("A100") for board in boards)


def test_a_market_at_changed_prices_answers_with_them_whatever_was_asked_before():
    market = Market.of(load_catalog(), None, Settings())
    pool = Pool("aws", "p4d.24xlarge", "us-east-1")
    before, committed = market.offerings("aws", "us-east-1"), market.committed_rate(pool)

    other = replace(market, catalog=changed(market.catalog, [price_change("aws+100%")]))

    rates = {offering.pool: offering.rate_micro_usd_hr for offering in other.offerings("aws", "us-east-1")}
    for offering in before:
        assert rates[offering.pool] == pytest.approx(2 * offering.rate_micro_usd_hr, abs=1)
    assert other.committed_rate(pool) == pytest.approx(2 * committed, abs=1)
    assert market.offerings("aws", "us-east-1") == before
    assert replace(market, max_term_years=0).committed_rate(pool) is None


def test_a_misspelt_name_is_told_with_near_matches():
    with pytest.raises(UnknownName, match="did you mean spot"):
        changed(load_catalog(), [price_change("spt+30%")])


@pytest.mark.parametrize("text", ["spot", "spot+30", "30%", "spot-100%"])
def test_what_is_no_change_is_refused(text):
    with pytest.raises(InputError, match=r"not a price change|leave no price"):
        price_change(text)
