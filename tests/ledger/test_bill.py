"""The bill is exact, sums up, and nodes are indivisible."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.errors import MissingPrice
from trimtab.ledger import (
    IDLE,
    Commitment,
    CommitmentOffer,
    Holdings,
    Usage,
    allocate,
    best_count,
    bill,
    focus_rows,
)

P4D = Pool("aws", "p4d.24xlarge", "us-east-1")
G5 = Pool("aws", "g5.xlarge", "us-east-1")
RATES = {P4D: 21_957_642, G5: 1_006_000}


def usage(*rows):
    return Usage(pools=(P4D, G5)[: len(rows)], node_seconds=np.array(rows, dtype=np.int64))


def reserve(count, pool=P4D, rate=13_921_094):
    offer = CommitmentOffer(option=BuyingOption.RESERVED_1Y, rates_micro_usd_hr={pool: rate})
    return Commitment(offer=offer, quantity=count)


def test_an_hour_of_one_node_costs_its_hourly_rate():
    assert bill(usage([3600]), RATES).total == 21_957_642


def test_part_of_an_hour_is_billed_by_the_second_half_to_even():
    assert bill(usage([1]), RATES).total == 6_099  # 21,957,642 / 3600 = 6,099.345


def test_a_commitment_is_paid_whether_used_or_not():
    priced = bill(usage([3600, 0, 7200]), RATES, [reserve(1)])

    assert priced.committed.tolist() == [[13_921_094] * 3]
    assert priced.metered.tolist() == [[0, 0, 21_957_642]]
    assert priced.unused_commitment().tolist() == [[0, 13_921_094, 0]]


def test_a_used_pool_without_a_rate_is_an_error_that_names_it():
    with pytest.raises(MissingPrice, match=r"g5\.xlarge on-demand in us-east-1"):
        bill(usage([0], [3600]), {P4D: 1})


def test_a_pool_that_is_not_used_needs_no_rate():
    assert bill(usage([0], [0]), {}).total == 0


def test_a_commitment_covers_on_demand_nodes_only():
    with pytest.raises(ValueError, match="covers on-demand"):
        reserve(1, pool=P4D.held_as(CapacityType.SPOT))


@st.composite
def cases(draw):
    hours = draw(st.integers(1, 6))
    row = st.lists(st.integers(0, 5 * 3600), min_size=hours, max_size=hours)
    commitments = [
        reserve(draw(st.integers(0, 4)), pool=draw(st.sampled_from([P4D, G5])), rate=draw(st.integers(0, 10**7)))
        for _ in range(draw(st.integers(0, 3)))
    ]
    return usage(draw(row), draw(row)), commitments


@given(cases())
def test_effective_cost_plus_unused_commitment_is_the_bill(case):
    used, commitments = case

    priced = bill(used, RATES, commitments)

    assert priced.effective().sum() + priced.unused_commitment().sum() == priced.total == priced.hourly.sum()


@given(cases(), st.integers(0, 2**32 - 1))
def test_workloads_plus_idle_plus_unused_commitment_is_the_bill(case, seed):
    used, commitments = case
    priced = bill(used, RATES, commitments)
    rng = np.random.default_rng(seed)
    pools, hours = used.node_seconds.shape
    pool, hour, owner = (
        grid.reshape(-1) for grid in np.meshgrid(range(pools), range(hours), [IDLE, 0, 1], indexing="ij")
    )
    weight = rng.random(len(pool)) * rng.integers(0, 2, len(pool))

    split = allocate(priced, Holdings(pool=pool, hour=hour, node=pool, owner=owner, node_seconds=weight))

    assert split.by_owner(2).sum() + split.idle + split.unused_commitment == priced.total
    assert split.by_owner_hour(2, hours).sum(axis=1).tolist() == split.by_owner(2).tolist()
    assert split.idle_by_node(pools).sum() == split.idle


@given(cases())
def test_billed_and_effective_cost_of_the_focus_rows_are_both_the_bill(case):
    used, commitments = case
    priced = bill(used, RATES, commitments)

    rows = focus_rows(priced, datetime(2026, 9, 1, tzinfo=UTC)).to_pylist()

    for column in ("BilledCost", "EffectiveCost"):
        assert sum(round(row[column] * 1e6) for row in rows) == priced.total
    assert all(row["ChargePeriodEnd"] - row["ChargePeriodStart"] == timedelta(hours=1) for row in rows)


def test_half_the_gpus_of_a_node_carry_half_its_cost():
    priced = bill(usage([3600]), RATES)
    cell = {"pool": [0, 0], "hour": [0, 0], "node": [0, 0], "owner": [0, IDLE]}
    holdings = Holdings(**{k: np.array(v) for k, v in cell.items()}, node_seconds=np.array([1800.0, 1800.0]))

    split = allocate(priced, holdings)

    assert split.by_owner(1).tolist() == [21_957_642 // 2]
    assert split.idle == 21_957_642 // 2


def test_billed_node_time_that_nobody_holds_is_refused():
    nobody = Holdings(
        **{k: np.zeros(0, dtype=np.int64) for k in ("pool", "hour", "node", "owner")}, node_seconds=np.zeros(0)
    )
    with pytest.raises(ValueError, match="no cell to be assigned to"):
        allocate(bill(usage([3600]), RATES), nobody)


@given(
    nodes=st.lists(st.integers(0, 6 * 3600), min_size=1, max_size=12),
    on_demand=st.integers(1, 10**6),
    share=st.floats(0.2, 1.2),
)
def test_the_committed_count_is_the_cheapest_of_all_counts(nodes, on_demand, share):
    row = np.array(nodes, dtype=np.int64)
    committed = int(on_demand * share)
    rates = {P4D: on_demand}

    def total(count):
        return bill(usage(row), rates, [reserve(count, rate=committed)]).total

    chosen = best_count(row, on_demand, committed)

    rounding = len(row)  # the bill rounds each hour to a micro-dollar
    assert total(chosen) <= min(total(count) for count in range(8)) + rounding


@given(
    nodes=st.lists(st.integers(0, 40 * 3600), min_size=1, max_size=12),
    on_demand=st.integers(1, 10**6),
    share=st.floats(0.0, 1.2),
)
def test_the_committed_count_is_the_first_whose_next_unit_does_not_pay(nodes, on_demand, share):
    row = np.array(nodes, dtype=np.int64)
    committed = int(on_demand * share)

    def pays(unit):
        used_s = sum(min(max(seconds - unit * 3600, 0), 3600) for seconds in nodes)
        return used_s * on_demand > committed * 3600 * len(nodes)

    most = -(-max(nodes) // 3600)
    assert best_count(row, on_demand, committed) == next((unit for unit in range(most) if not pays(unit)), most)
