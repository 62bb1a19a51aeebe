import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from benchmarks.bill_splits import oracle, ours, world
from hypothesis import given, settings, strategies as st
from tests.tables.bundles import META, START, allocation, node, tables

from trimtab.catalog.providers import nodes_by_resource
from trimtab.diagnose.bill_split import (
    COLUMNS,
    UNSEEN,
    UNTAGGED,
    UNUSED_COMMITMENT,
    ChargeBasis,
    CostSplit,
    charges_of,
    spent_of_bill,
)
from trimtab.diagnose.findings import UNALLOCATED
from trimtab.errors import BillError
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import memory_bundle
from trimtab.units import usd

HELD = [allocation(team="assist", gpus=4.0, device=None), allocation(team="research", pod="r", gpus=2.0, device=None)]
"""Half of the node, and a quarter, for two days."""


def charge(cost=10.0, *, start_hr=0, hours=1, **cells):
    at = START + timedelta(hours=start_hr)
    row = {"ChargePeriodStart": at, "ChargePeriodEnd": at + timedelta(hours=hours), "BilledCost": cost}
    return {**row, "ChargeCategory": "Usage", "BillingCurrency": "USD", **cells}


def paid(*rows, by="team", basis=ChargeBasis.EFFECTIVE, usd_per=None):
    """What each name pays in dollars, on a node `n0` that half and a quarter are held of."""
    named = node(labels={"provider_id": "aws:///us-east-1a/i-0abc"})
    held = [{**one, "workload": f"{one['team']}/w", "namespace": one["team"]} for one in HELD]
    bundle = memory_bundle(tables(nodes=[named], allocations=held, devices=[], gpu_usage=[]), META)
    costs = charges_of(table_from_rows("costs", list(rows)).select(COLUMNS), basis, usd_per or {})
    resources = nodes_by_resource(bundle.table("nodes", ["node", "labels"]))
    spent = spent_of_bill(costs, build_fleet(bundle, Settings()), resources, CostSplit.parse(by))
    return {name: usd(int(days.sum())) for name, days in (*spent.held.items(), *spent.unheld.items())}


@pytest.mark.parametrize("resource", ["i-0abc", "arn:aws:ec2:us-east-1:1:instance/i-0ABC", "n0"])
def test_a_nodes_charge_is_split_over_who_held_it_and_the_rest_is_idle(resource):
    assert paid(charge(ResourceId=resource)) == {"assist": 5.0, "research": 2.5, UNALLOCATED: 2.5}


def test_a_credit_on_a_node_is_split_as_its_use_is():
    found = paid(charge(-8.0, ResourceId="n0", ChargeCategory="Credit"))

    assert found == {"assist": -4.0, "research": -2.0, UNALLOCATED: -2.0}


def test_a_charge_without_a_resource_goes_to_all_nodes_of_its_type_in_its_region():
    assert paid(charge(instance_type="p4d.24xlarge", RegionId="us-east-1"))["assist"] == 5.0
    assert paid(charge(instance_type="p4d.24xlarge", RegionId="eu-west-1")) == {UNSEEN: 10.0}


def test_tags_name_the_payer_of_what_is_no_node():
    assert paid(charge(ResourceId="vol-1", Tags=[("user:Team", "data")])) == {"data": 10.0}
    assert paid(charge(ResourceId="vol-1", Tags=[("cost-center", "4711")]), by="label:cost-center") == {"4711": 10.0}


def test_what_is_nobodys_stands_under_the_name_of_what_it_is():
    found = paid(
        charge(1.0, CommitmentDiscountStatus="Unused", ResourceId="n0"),
        charge(2.0, ChargeCategory="Tax"),
        charge(-3.0, ChargeCategory="Credit"),
        charge(4.0, ResourceId="vol-2"),
        charge(5.0, ResourceId="n0", start_hr=24 * 30),
    )

    assert found == {
        UNUSED_COMMITMENT: 1.0,
        "shared (tax)": 2.0,
        "shared (credits)": -3.0,
        UNTAGGED: 4.0,
        UNSEEN: 5.0,
    }


def test_a_commitments_use_counts_amortised_and_its_fee_as_billed():
    rows = (
        charge(0.0, EffectiveCost=6.0, CommitmentDiscountStatus="Used", ResourceId="n0"),
        charge(500.0, EffectiveCost=0.0, ChargeCategory="Purchase"),
    )

    assert paid(*rows)["assist"] == 3.0
    assert paid(*rows, basis=ChargeBasis.BILLED) == {"shared (purchases)": 500.0}


def test_another_currency_counts_at_the_stated_rate_and_never_without_one():
    assert paid(charge(ResourceId="n0", BillingCurrency="EUR"), usd_per={"EUR": 1.1})["assist"] == 5.5
    with pytest.raises(BillError, match=r"charges in EUR.*--fx EUR="):
        paid(charge(BillingCurrency="EUR"))


def test_a_charge_period_that_begins_before_the_telemetry_is_split_by_what_was_seen_of_it():
    assert paid(charge(48.0, start_hr=-24, hours=48, ResourceId="n0"))["assist"] == 24.0


def test_each_days_charges_stand_on_their_day():
    bundle = memory_bundle(tables(allocations=HELD, devices=[], gpu_usage=[]), META)
    rows = [charge(4.0, start_hr=1, ResourceId="n0"), charge(8.0, start_hr=25, ResourceId="n0")]
    costs = charges_of(table_from_rows("costs", rows).select(COLUMNS), ChargeBasis.BILLED, {})

    spent = spent_of_bill(costs, build_fleet(bundle, Settings()), {"n0": "n0"}, CostSplit.parse("workload"))

    assert spent.first_day == datetime(2026, 9, 1, tzinfo=UTC).date()
    assert spent.held["prod/chat"].tolist() == [3_000_000, 6_000_000]


@settings(max_examples=40)
@given(st.integers(0, 10**9), st.sampled_from(ChargeBasis))
def test_generated_bills_are_split_as_exact_fractions_say(seed, basis):
    made = world(seed)
    right = oracle(made, effective=basis is ChargeBasis.EFFECTIVE)
    with tempfile.TemporaryDirectory() as folder:
        got = ours(made, Path(folder), basis)
        assert ours(made, Path(folder), basis) == got

    assert {name: usd(got.get(name, 0)) for name in {*right, *got}} == pytest.approx(
        {name: float(right.get(name, 0)) for name in {*right, *got}}, abs=2e-6
    )
    assert usd(sum(got.values())) == pytest.approx(float(sum(right.values())), abs=1e-6)


def test_charges_beyond_what_whole_billionths_can_hold_are_refused_by_row():
    with pytest.raises(BillError, match=r"exceed \$9,000,000,000 together.*row 2"):
        paid(charge(4.4e9, ResourceId="n0"), charge(-5e9, ResourceId="n0"))


def test_a_charge_that_is_no_number_is_refused_by_row():
    with pytest.raises(BillError, match="row 2 has a cost that is not a number"):
        paid(charge(1.0, ResourceId="n0"), charge(float("nan"), ResourceId="n0"))


def test_a_large_bill_is_split_to_the_billionth():
    rows = [charge(8.9e9, ResourceId="n0")]

    found = paid(*rows)

    assert sum(found.values()) == pytest.approx(8.9e9, abs=1e-6)
    assert found["assist"] == pytest.approx(4.45e9, abs=1e-6)
