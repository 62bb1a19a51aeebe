"""How much spend to commit to: known afterwards, prudently, beside reservations."""

from datetime import date, timedelta

import numpy as np
import pytest
from tests.plan.fleets import market_of, nodes_of, so_much

from trimtab.catalog.pools import Pool
from trimtab.ledger import Usage
from trimtab.plan.commitments.commit_report import advise_spend
from trimtab.plan.commitments.inventory import Owned, OwnedSpend, running

P4D = Pool("aws", "p4d.24xlarge", "us-east-1")
G5 = Pool("aws", "g5.xlarge", "us-east-1")
DAY = date(2026, 9, 1)
HOURS = 28 * 24
ROWS = """provider,instance_type,region,option,usd_hr
aws,p4d.24xlarge,us-east-1,on-demand,20
aws,g5.xlarge,us-east-1,on-demand,1
aws,p4d.24xlarge,us-east-1,savings-plan-1y,15
aws,g5.xlarge,us-east-1,savings-plan-1y,0.6
"""


@pytest.fixture
def market(tmp_path):
    return market_of(ROWS, tmp_path, DAY)


def usage(p4d, g5):
    rows = [np.full(HOURS, 3600 * count) if isinstance(count, int) else np.array(count) for count in (p4d, g5)]
    return Usage(pools=(P4D, G5), node_seconds=np.array(rows, dtype=np.int64))


def advice(used, market, **more):
    return advise_spend(used, market, (1,), **{"held": (), "advised": (), **more})


def spend(name, usd_hr):
    scope = OwnedSpend(provider="aws", usd_hr=usd_hr)
    return Owned(name=name, scope=scope, start=DAY - timedelta(30), end=DAY + timedelta(335))


def test_steady_use_is_best_covered_whole_and_bought_in_layers(market):
    (one,) = advice(usage(2, 10), market)

    assert one.best_usd_hr == 2 * 15 + 10 * 0.6
    assert one.discount_frac == pytest.approx(1 - 36 / 50)
    assert 0 < one.layers[0].hold_usd_hr <= 0.85 * 36
    assert sum(layer.buy_usd_hr for layer in one.layers) == pytest.approx(one.usd_hr)
    assert one.used_frac == pytest.approx(1.0, abs=1e-4)
    assert one.saving_usd_mo == pytest.approx((50 - 36) * 730 * one.usd_hr / 36, rel=0.4)


def test_a_dollar_that_would_replace_the_dearer_pool_alone_is_not_bought_where_it_loses(market):
    half = [3600 if hour % 2 else 0 for hour in range(HOURS)]  # 50 % in use, and 25 % off loses below 75 %

    (one,) = advice(usage(half, 10), market)

    assert one.best_usd_hr == 6.0
    assert one.usd_hr <= 6.0


def test_beside_reservations_only_what_they_leave_is_committed_to(market):
    alone, beside = sorted(
        advice(usage(2, 10), market, advised=[so_much(1, nodes_of(P4D, 12_000_000))]),
        key=lambda one: one.beside_reservations,
    )

    assert alone.best_usd_hr == 36
    assert beside.best_usd_hr == 21


def test_what_held_plans_cover_is_not_bought_again(market):
    used = usage(0, 10)
    plans = running([spend("held", 4.0)], used.pools, market, DAY)

    (one,) = advice(used, market, held=[commitment for _, commitment in plans])

    assert one.best_usd_hr == pytest.approx(2.0, abs=1e-3)


def test_without_rates_nothing_is_advised(market):
    assert advise_spend(usage(2, 10), market, (3,), held=(), advised=()) == ()
