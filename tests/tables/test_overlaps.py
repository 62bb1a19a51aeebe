"""Nothing is billed twice: rows that overlap and agree are one, rows that contradict one another are refused by name."""

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.fleets import FleetRows, at
from tests.tables.bundles import END, HOUR, META, START, allocation, device, node, tables

from trimtab.errors import BundleError
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings
from trimtab.ledger import IDLE, allocate, bill
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.checks import check_bundle


def checked(**rows):
    return check_bundle(memory_bundle(tables(**rows), META))


def faults(**rows):
    with pytest.raises(BundleError) as raised:
        checked(**rows)
    return str(raised.value)


def charge(hours=(0, 1), resource="i-1", cost=4.0, **changes):
    return {
        "ChargePeriodStart": START + hours[0] * HOUR,
        "ChargePeriodEnd": START + hours[1] * HOUR,
        "ChargeCategory": "Usage",
        "ResourceId": resource,
        "BilledCost": cost,
        "instance_type": "g5.xlarge",
        "Tags": {"team": "ml"},
        **changes,
    }


def test_rows_of_one_node_that_overlap_become_one_life():
    bundle = checked(nodes=[node(end=START + 10 * HOUR), node(start=START + 5 * HOUR, labels={"team": "other"})])

    assert bundle.table("nodes").select(["start", "end"]).to_pylist() == [{"start": START, "end": None}]
    assert bundle.meta.counts["nodes: rows of one node that overlap, merged"] == 1


def test_lives_of_one_node_that_follow_one_another_stay_two():
    bundle = checked(nodes=[node(end=START + HOUR), node(start=START + HOUR)])

    assert bundle.table("nodes").num_rows == 2


def test_two_types_of_one_node_at_once_are_refused_with_their_rows_and_the_cure():
    text = faults(
        nodes=[node("other"), node(end=END), node(instance_type="g5.xlarge", gpu_count=1)], devices=[device()]
    )

    assert "two rows of the node n0 overlap and differ in instance_type, gpu_count: billed twice" in text
    assert "rows 1 and 2" in text
    assert "p4d.24xlarge 8 from" in text
    assert "end the first life where the second starts" in text


def test_a_node_that_took_anothers_name_within_the_hour_ends_it_there():
    second = node(start=START + 9.5 * HOUR, instance_type="p5.48xlarge")
    bundle = checked(nodes=[node(end=START + 10 * HOUR), second])

    assert bundle.table("nodes")["end"].to_pylist() == [START + 9.5 * HOUR, None]
    assert bundle.meta.counts["nodes: lives that overlap by an hour at most, cut (clocks)"] == 1


def test_one_machine_under_two_names_is_refused():
    text = faults(nodes=[node(), node("ip-10-0-0-1")], devices=[device(), device(node="ip-10-0-0-1")])

    assert "the nodes ip-10-0-0-1 and n0 hold GPUs of the same id at the same time: 1 (saw 'GPU-0')" in text
    assert "keep one name in nodes, devices and allocations" in text


def test_a_gpu_that_went_to_another_node_later_is_no_fault():
    nodes = [node(end=START + 10 * HOUR), node("n1", start=START + 10 * HOUR)]

    assert checked(nodes=nodes, devices=[device(), device(node="n1")]).table("devices").num_rows == 2


def test_a_holding_told_twice_is_one():
    bundle = checked(allocations=[allocation(end=END), allocation(start=START + HOUR), allocation(pod="chat-2")])

    assert bundle.table("allocations")["pod"].to_pylist() == ["chat-1", "chat-2"]
    assert bundle.table("allocations")["end"].to_pylist() == [None, None]


def test_an_hour_and_its_day_of_one_resource_are_two_exports_of_one_bill():
    text = faults(costs=[charge((0, 24), cost=96.0), charge((5, 6))])

    assert "two charges for the use of i-1 overlap, over different periods: billed twice" in text
    assert "give one of them" in text


def test_a_gpu_that_two_pods_hold_at_once_is_held_once():
    rows = FleetRows(1).node("n", "p3.8xlarge").hold("a/x", "n", [0]).hold("a/y", "n", [0])

    fleet = build_fleet(rows.bundle(), Settings())

    held = fleet.holdings.node_seconds[fleet.holdings.owner != IDLE]
    assert held.sum() == pytest.approx(24 * 3600 / 4)
    assert fleet.coverage.counts["device-hours that several held at once, shared between them"] == 24


span = st.tuples(st.integers(0, 47), st.integers(0, 47)).map(sorted)


@given(
    repeats=st.lists(st.tuples(st.integers(0, 2), span), max_size=6),
    holds=st.lists(st.tuples(st.integers(0, 4), span), max_size=6),
    seed=st.integers(0, 9),
)
def test_a_bundle_with_rows_told_again_is_billed_as_without_them(repeats, holds, seed):
    rows = FleetRows(2).node("a", "p3.8xlarge").node("b", "g5.xlarge", 3, 40).node("c", "p3.8xlarge", 10)
    rows.hold("t/x", "a", [0, 1]).hold("t/y", "b", [0], 5, 30).hold("t/z", "c", [2, 3], 12)
    once = priced(rows)

    for kind, again in (("nodes", repeats), ("allocations", holds)):
        for index, (start, end) in again:
            said = rows.rows[kind][index]
            first = max(said["start"], at(start))
            last = min(said["end"] or at(48), at(end))
            if first < last:
                rows.rows[kind].append({**said, "start": first, "end": last})
        np.random.default_rng(seed).shuffle(rows.rows[kind])

    assert priced(rows) == once


def priced(rows):
    """The bill by hour and the share of each workload, from a bundle that was checked."""
    fleet = build_fleet(check_bundle(rows.bundle()), Settings())
    billed = bill(fleet.usage, dict.fromkeys(fleet.usage.pools, 10_000_000))
    shares = allocate(billed, fleet.holdings).by_owner(len(fleet.workloads))
    return billed.total, {one.name: int(cost) for one, cost in zip(fleet.workloads, shares, strict=True)}


def test_ends_keep_their_microseconds():
    bundle = checked(nodes=[node(end=END - timedelta(microseconds=1)), node(end=START + HOUR)])

    assert bundle.table("nodes")["end"].to_pylist() == [END - timedelta(microseconds=1)]
