"""Commitments to spend: applied after commitments, the highest discount first, use it or lose it, exact to the micro-dollar."""

from datetime import UTC, datetime
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.ledger import (
    IDLE,
    Commitment,
    CommitmentOffer,
    Holdings,
    Usage,
    allocate,
    best_spend,
    bill,
    focus_rows,
    spend_needed,
)

P4D = Pool("aws", "p4d.24xlarge", "us-east-1")
P5 = Pool("aws", "p5.48xlarge", "us-east-1")
G5 = Pool("aws", "g5.xlarge", "us-east-1")
POOLS = (P4D, P5, G5)
RATES = {P4D: 20_000_000, P5: 50_000_000, G5: 1_000_000}
PLANNED = {P4D: 15_000_000, P5: 30_000_000, G5: 600_000}
"""25 %, 40 % and 40 % off: G5 before P5, because its rate is lower."""


def usage(*rows):
    return Usage(pools=POOLS[: len(rows)], node_seconds=np.array(rows, dtype=np.int64))


def plan(spend, rates=None):
    offer = CommitmentOffer(option=BuyingOption.SAVINGS_PLAN_1Y, rates_micro_usd_hr=rates or PLANNED)
    return Commitment(offer=offer, quantity=spend)


def reserve(count, pool=P4D, rate=12_000_000):
    offer = CommitmentOffer(option=BuyingOption.RESERVED_1Y, rates_micro_usd_hr={pool: rate})
    return Commitment(offer=offer, quantity=count)


def test_spend_goes_to_the_highest_discount_first_and_to_the_lowest_rate_among_equals():
    priced = bill(usage([3600], [3600], [3600]), RATES, [plan(30_600_000)])

    assert priced.used_commitment()[0].tolist() == [[0], [30_000_000], [600_000]]
    assert priced.metered.tolist() == [[20_000_000], [0], [0]]
    assert priced.total == 50_600_000


def test_a_node_may_be_covered_in_part():
    priced = bill(usage([3600]), RATES, [plan(5_000_000)])

    assert priced.covered_seconds[0].tolist() == [[1200]]
    assert priced.total == 5_000_000 + 13_333_333


def test_reservations_apply_before_plans():
    priced = bill(usage([7200]), RATES, [plan(15_000_000), reserve(1)])

    assert priced.metered.tolist() == [[0]]
    assert priced.total == 27_000_000


def test_what_an_hour_does_not_use_is_lost():
    priced = bill(usage([0, 7200]), RATES, [plan(15_000_000)])

    assert priced.unused_commitment().tolist() == [[15_000_000, 0]]
    assert priced.metered.tolist() == [[0, 20_000_000]]


def test_a_second_plan_covers_what_the_first_leaves():
    first, second = plan(600_000, {G5: 600_000}), plan(15_600_000)

    priced = bill(usage([3600], [0], [7200]), RATES, [first, second])

    assert priced.used_commitment().sum(axis=2).tolist() == [[0, 0, 600_000], [15_000_000, 0, 600_000]]
    assert priced.total == 16_200_000


@pytest.mark.parametrize(
    ("rates", "why"),
    [
        ({P4D.held_as(CapacityType.SPOT): 1}, "covers on-demand"),
        ({P4D: 1, Pool("gcp", "a2-highgpu-1g", "us-central1"): 1}, "one provider"),
        ({P4D: 0}, "above 0"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(rates, why):
    with pytest.raises(ValueError, match=why):
        plan(1, rates)


seconds = st.integers(0, 5 * 3600)
money = st.integers(0, 200_000_000)


@st.composite
def cases(draw):
    hours = draw(st.integers(1, 5))
    rows = draw(st.lists(st.lists(seconds, min_size=hours, max_size=hours), min_size=3, max_size=3))
    rates = {pool: draw(st.integers(1, 60_000_000)) for pool in draw(st.sets(st.sampled_from(POOLS), min_size=1))}
    commitments = [reserve(draw(st.integers(0, 3)), pool=draw(st.sampled_from(POOLS)))]
    plans = [plan(draw(money), rates), plan(draw(money))][: draw(st.integers(1, 2))]
    return usage(*rows), commitments, plans


def greedy_total(used, commitments, plans):
    """Bill hour by hour and pool by pool in fractions of a dollar, whole seconds at a time."""
    total = Fraction(0)
    for hour in range(used.hours):
        left = {pool: int(used.node_seconds[row, hour]) for row, pool in enumerate(used.pools)}
        for one in commitments:
            left[one.offer.pool] -= min(left[one.offer.pool], one.quantity * 3600)
            total += one.quantity * one.offer.rate_micro_usd_hr
        for one in plans:
            total += one.quantity
            spend, rates = one.quantity, one.offer.rates_micro_usd_hr
            for pool in sorted(rates, key=lambda pool: (Fraction(rates[pool], RATES[pool]), rates[pool], pool)):
                covered = min(left[pool], spend * 3600 // rates[pool])
                left[pool] -= covered
                spend -= round(Fraction(rates[pool] * covered, 3600))
        total += sum(round(Fraction(RATES[pool] * rest, 3600)) for pool, rest in left.items())
    return total


@given(cases())
def test_the_total_is_that_of_a_greedy_walk_hour_by_hour(case):
    used, commitments, plans = case

    assert bill(used, RATES, [*plans, *commitments]).total == greedy_total(used, commitments, plans)


@given(cases())
def test_no_hour_is_dearer_than_without_plans_plus_their_spend(case):
    used, commitments, plans = case

    with_plans, without = bill(used, RATES, [*plans, *commitments]), bill(used, RATES, commitments)

    assert (with_plans.hourly <= without.hourly + sum(one.quantity for one in plans)).all()
    assert (with_plans.unused_commitment() >= 0).all()


@given(cases(), money)
def test_more_spend_never_leaves_more_to_meter(case, more):
    used, commitments, plans = case
    larger = [*plans[:-1], plan(plans[-1].quantity + more, plans[-1].offer.rates_micro_usd_hr)]

    before, after = (bill(used, RATES, [*commitments, *some]).metered.sum(axis=0) for some in (plans, larger))

    rate_of_a_second = max(RATES.values()) // 3600 + 3  # whole seconds, and a pool's hour rounds to a micro-dollar
    assert (after <= before + 3 * rate_of_a_second).all()


@given(cases(), st.integers(0, 2**32 - 1))
def test_everything_that_is_paid_goes_to_pools_or_is_unused(case, seed):
    used, commitments, plans = case
    priced = bill(used, RATES, [*plans, *commitments])
    cells = [
        (row, hour, owner)
        for row in range(len(POOLS))
        for hour in range(used.hours)
        for owner in (IDLE, 0)
    ]  # fmt: skip
    pool, hour, owner = np.array(cells).T
    weight = np.random.default_rng(seed).random(len(cells))

    split = allocate(priced, Holdings(pool=pool, hour=hour, node=pool, owner=owner, node_seconds=weight))

    assert split.by_owner(1).sum() + split.idle + split.unused_commitment == priced.total == priced.hourly.sum()


@given(cases())
def test_billed_and_effective_cost_of_the_focus_rows_are_both_the_bill(case):
    used, commitments, plans = case
    priced = bill(used, RATES, [*plans, *commitments])

    rows = focus_rows(priced, datetime(2026, 9, 1, tzinfo=UTC)).to_pylist()

    for column in ("BilledCost", "EffectiveCost"):
        assert sum(round(row[column] * 1e6) for row in rows) == priced.total
    unused = [row for row in rows if row["CommitmentDiscountStatus"] == "Unused"]
    assert sum(round(row["EffectiveCost"] * 1e6) for row in unused) == priced.unused


@given(cases())
def test_the_best_spend_is_the_cheapest_of_all_corners(case):
    used, _, (one, *_) = case
    rates = one.offer.rates_micro_usd_hr

    def total(spend):
        return bill(used, RATES, [plan(spend, rates)]).total

    chosen = best_spend(rates, used.pools, used.node_seconds, RATES)

    needed = spend_needed(rates, used.pools, used.node_seconds)
    tried = {0, *needed.tolist(), *(int(share * needed.max()) for share in np.linspace(0, 1, 23))}
    dust = used.hours * 3 * (max(RATES.values()) // 3600 + 3)  # less than a second of each pool and hour
    assert total(chosen) <= min(total(spend) for spend in tried) + dust
