"""Commitments that are held, to nodes and to spend: what they cover, how well they are used, what is sunk, when they end."""

from datetime import date, timedelta

import numpy as np
import pytest
from tests.plan.fleets import market_of

from trimtab.catalog import BuyingOption
from trimtab.catalog.pools import Pool
from trimtab.ledger import Usage, nodes_committed
from trimtab.levers.commit_advice import CommitmentPrice
from trimtab.plan.commitments.inventory import Owned, OwnedNodes, OwnedSpend, inventory, not_running, running, unpriced

P4D = Pool("aws", "p4d.24xlarge", "us-east-1")
G5 = Pool("aws", "g5.xlarge", "us-east-1")
DAY = date(2026, 11, 1)
ROWS = """provider,instance_type,region,option,usd_hr
aws,p4d.24xlarge,us-east-1,on-demand,10
aws,g5.xlarge,us-east-1,on-demand,1
aws,p4d.24xlarge,us-east-1,savings-plan-1y,7.5
aws,g5.xlarge,us-east-1,savings-plan-1y,0.6
"""


@pytest.fixture
def market(tmp_path):
    return market_of(ROWS, tmp_path, DAY)


def usage(*rows):
    seconds = np.round(np.array(rows, dtype=float) * 3600).astype(np.int64)
    return Usage(pools=(P4D, G5)[: len(rows)], node_seconds=seconds)


def owned(count, start, end, name="c1"):
    offer = CommitmentPrice(pool=P4D, term_years=1, upfront_usd=0.0, usd_hr=6.0, source="a quote")
    return Owned(name=name, scope=OwnedNodes(offer=offer, count=count), start=start, end=end)


def spend(name, usd_hr, days=365, **more):
    start = DAY - timedelta(30)
    return Owned(
        name=name, scope=OwnedSpend(provider="aws", usd_hr=usd_hr, **more), start=start, end=start + timedelta(days)
    )


def test_inventory_tells_use_coverage_and_what_is_sunk(market):
    used = usage([3.0] * 5 + [1.0] * 5)

    (held,) = inventory([owned(2, date(2026, 1, 1), date(2027, 1, 1))], used, market, DAY)

    assert held.used_frac == pytest.approx((5 * 2 + 5 * 1) / 20)
    assert held.coverage_frac == pytest.approx(15 / 20)
    assert held.unused_usd_mo == pytest.approx(5 * 6.0 / 10 * 730)
    assert held.days_left == 61


def test_the_calendar_shows_the_first_to_end_first_and_what_is_left_then(market):
    used = usage([3.0] * 10)
    both = [
        owned(2, date(2026, 1, 1), date(2027, 1, 1), "late"),
        owned(1, date(2025, 12, 1), date(2026, 12, 1), "soon"),
        owned(5, date(2024, 12, 1), date(2025, 12, 1), "over"),
    ]

    held = inventory(both, used, market, DAY)

    assert [one.owned.name for one in held] == ["soon", "late"]
    assert [one.held_after for one in held] == [2, 0]
    assert nodes_committed(one for _, one in running(both, used.pools, market, DAY)) == {P4D: 3}
    assert not_running(both, DAY) == ("not counted, over by 2026-11-01: over (1)",)


def test_an_expired_commitment_to_spend_is_counted_and_named_beside_nodes(market):
    held = [spend("gone", 10.0, days=10), spend("runs", 1.0), owned(1, date(2024, 1, 1), date(2025, 1, 1), "old")]

    assert not_running(held, DAY) == ("not counted, over by 2026-11-01: gone, old (2)",)


def test_a_commitment_on_a_type_that_nobody_uses_is_sunk_whole(market):
    other = Usage(pools=(G5,), node_seconds=np.full((1, 10), 3 * 3600))

    (held,) = inventory([owned(2, date(2026, 1, 1), date(2027, 1, 1))], other, market, DAY)

    assert held.used_frac == 0
    assert held.coverage_frac is None
    assert held.unused_usd_mo == pytest.approx(2 * 6.0 * 730)


def test_held_plans_are_judged_family_first_by_what_they_cover_and_waste(market):
    held = [spend("all", 10.0), spend("g5 only", 3.0, family="g5", region="us-east-1")]

    narrow, wide = inventory(held, usage([0] * 24, [10] * 24), market, DAY)

    assert (narrow.owned.name, narrow.used_frac, narrow.coverage_frac) == ("g5 only", 1.0, pytest.approx(0.5))
    assert wide.used_frac == pytest.approx(0.3)  # 6 a whole hour is needed, 3 of it are covered already
    assert wide.coverage_frac == pytest.approx(0.5)
    assert wide.unused_usd_mo == pytest.approx(7 * 730)
    assert wide.days_left == 335


def test_a_plan_whose_rates_are_unknown_is_not_judged(market):
    three_years = spend("long", 1.0, days=3 * 365)
    used = usage([2] * 24, [10] * 24)

    assert three_years.option is BuyingOption.SAVINGS_PLAN_3Y
    assert inventory([three_years], used, market, DAY) == ()
    assert "long" in unpriced([three_years], used.pools, market, DAY)[0]


def test_nodes_cover_before_spend_in_whatever_order_they_are_listed(market):
    listed = [spend("sp", 7.5), owned(1, date(2026, 1, 1), date(2027, 1, 1), "ri")]

    nodes, plan = inventory(listed, usage([1.0] * 5 + [2.0] * 5), market, DAY)

    assert (nodes.owned.name, nodes.used_frac, nodes.coverage_frac) == ("ri", 1.0, pytest.approx(10 / 15))
    assert (plan.owned.name, plan.used_frac, plan.coverage_frac) == ("sp", 0.5, 1.0)
    assert plan.unused_usd_mo == pytest.approx(7.5 * 730 / 2)
