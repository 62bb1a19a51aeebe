from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trimtab.catalog.pools import Pool
from trimtab.levers.commit_advice import CommitmentPrice, advise
from trimtab.plan.commitments.commit_report import load_duration
from trimtab.replay.commitments import CommitRule

POOL = Pool("aws", "p4d.24xlarge", "us-east-1")
MONTH = 730


def offer(usd_hr=6.0, years=1):
    return CommitmentPrice(pool=POOL, term_years=years, upfront_usd=0.0, usd_hr=usd_hr, source="a quote")


def seconds(nodes):
    return np.round(np.asarray(nodes, dtype=float) * 3600).astype(np.int64)


def test_steady_use_is_bought_in_layers_that_end_at_the_use():
    advice = advise(POOL, seconds(np.full(MONTH, 9.0)), 10.0, [offer()])

    assert advice.hold == 9
    assert advice.layers[0].day == 0
    assert 6 <= advice.layers[0].buy <= 8  # steady use costs least bought whole, and no history says that it stays
    assert all(later.day > one.day and later.hold == one.hold + later.buy for one, later in pairwise(advice.layers))
    assert advice.saving_usd_mo == pytest.approx(9 * 4.0 * 730)


def test_no_more_than_the_coverage_cap_is_held():
    use = seconds(np.full(MONTH, 20.0))

    assert advise(POOL, use, 10.0, [offer()], cover_most_frac=0.9).hold == 18
    assert advise(POOL, use, 10.0, [offer()], cover_most_frac=1.0).hold == 20


def test_what_is_owned_already_is_not_bought_again():
    advice = advise(POOL, seconds(np.full(MONTH, 9.0)), 10.0, [offer()], owned=8)

    assert advice.buy == 1
    assert advice.hold == 9


def test_nothing_is_bought_beyond_demand_that_is_owned():
    advice = advise(POOL, seconds(np.full(MONTH, 9.0)), 10.0, [offer()], owned=12)

    assert advice.layers == ()
    assert advice.hold == 12


def test_an_offer_above_the_on_demand_price_is_no_offer():
    assert advise(POOL, seconds(np.full(MONTH, 9.0)), 10.0, [offer(usd_hr=10.0)]) is None
    assert advise(POOL, seconds(np.full(MONTH, 9.0)), 10.0, []) is None


def test_the_cheapest_of_several_offers_is_taken():
    advice = advise(POOL, seconds(np.full(MONTH, 9.0)), 10.0, [offer(7.0), offer(4.0, years=3)])

    assert advice.offer.term_years == 3
    assert advice.discount_frac == pytest.approx(0.6)


def test_a_few_days_of_history_back_less():
    day = advise(POOL, seconds(np.full(24, 9.0)), 10.0, [offer()])
    month = advise(POOL, seconds(np.full(MONTH, 9.0)), 10.0, [offer()])

    assert day.backed_nodes < 0.7 * month.backed_nodes


def test_the_rules_are_played_on_the_second_half():
    advice = advise(POOL, seconds(np.full(MONTH, 9.0)), 10.0, [offer()])

    assert advice.rule_costs[CommitRule.NOTHING] == pytest.approx(1.0)
    assert advice.rule_costs[CommitRule.HINDSIGHT] == pytest.approx(0.6)


@settings(max_examples=20)
@given(nodes=st.lists(st.integers(0, 12), min_size=48, max_size=200), rate=st.floats(2, 9))
def test_no_more_is_advised_than_was_ever_in_use(nodes, rate):
    advice = advise(POOL, seconds(nodes), 10.0, [offer(rate)])

    assert advice.hold <= max(nodes)
    assert advice.best_nodes <= max(nodes)


@given(
    nodes=st.lists(st.floats(0, 20), min_size=1, max_size=50),
    layers=st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)),
)
def test_the_parts_of_the_load_sum_to_it(nodes, layers):
    held, first, later = layers

    points = load_duration(np.array(nodes), owned=held, first=first, later=later, points=11)

    for point in points:
        parts = point.owned + point.first_layer + point.later_layers + point.on_demand
        assert parts == pytest.approx(point.load)
        assert point.load + point.unused == pytest.approx(max(point.load, sum(layers)))
    assert [point.load for point in points] == sorted((point.load for point in points), reverse=True)
