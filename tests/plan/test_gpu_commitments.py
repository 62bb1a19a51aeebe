"""A commitment to GPUs covers them in any machine type: a spend plan at each type's committed price is just that."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.plan.fleets import nodes_of, spend_at

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.catalog.pools import Pool
from trimtab.ledger import best_count
from trimtab.plan.program.best_discounts import best_of
from trimtab.plan.program.table import exact_bill
from trimtab.units import micro_usd

ONE, TWO = Pool("gcp", "a2-highgpu-1g", "us-central1"), Pool("gcp", "a2-highgpu-2g", "us-central1")
ON_DEMAND, COMMITTED = 3_673_388, 2_314_200
"""Of one A100-40 with its share of the machine, in micro-dollars an hour."""
RATES = {ONE: ON_DEMAND, TWO: 2 * ON_DEMAND}
PLAN_RATES = {ONE: COMMITTED, TWO: 2 * COMMITTED}
HOUR = 3600


EACH = tuple(nodes_of(pool, rate) for pool, rate in PLAN_RATES.items())
ANY_SHAPE = (spend_at(PLAN_RATES),)


def billed(usage, offers):
    bought = best_of(usage, RATES, offers=offers, owned=())
    return exact_bill(usage, RATES, bought, len(usage[ONE])).total


def by_gpu(usage):
    """One count of GPUs for both machine types."""
    gpus = usage[ONE] + 2 * usage[TWO]
    count = best_count(gpus, ON_DEMAND, COMMITTED)
    beyond = int(np.clip(gpus - count * HOUR, 0, None).sum())
    return count * COMMITTED * len(gpus) + beyond * ON_DEMAND // HOUR


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=24))
def test_it_costs_what_a_count_of_gpus_costs_and_never_more_than_a_count_of_each_type(nodes):
    usage = {pool: np.array([one[at] for one in nodes], dtype=np.int64) * HOUR for at, pool in enumerate((ONE, TWO))}
    pooled = billed(usage, ANY_SHAPE)

    assert pooled == pytest.approx(by_gpu(usage), abs=100)
    assert pooled <= billed(usage, EACH) + 100


def test_loads_of_two_shapes_at_other_hours_share_what_is_committed():
    day, night = np.tile([8, 8, 0, 0], 6) * HOUR, np.tile([0, 0, 4, 4], 6) * HOUR
    usage = {ONE: day.astype(np.int64), TWO: night.astype(np.int64)}

    # half the hours of 63 % pay no count of either type; eight GPUs are always in use
    assert billed(usage, EACH) == 24 * 8 * ON_DEMAND
    assert billed(usage, ANY_SHAPE) == 24 * 8 * COMMITTED


def test_the_price_list_has_one_rate_a_gpu_for_all_shapes_of_a_series():
    prices = load_catalog().prices
    for region in ("us-central1", "europe-west4", "asia-northeast1"):
        rates = {
            width: micro_usd(prices.price("gcp", f"a2-highgpu-{width}g", region, BuyingOption.RESERVED_1Y).usd_hr)
            for width in (1, 2, 4, 8)
        }
        assert all(rate == pytest.approx(width * rates[1], rel=1e-4) for width, rate in rates.items())
