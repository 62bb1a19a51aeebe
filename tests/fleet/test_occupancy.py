"""Node lives and holdings add up, whatever the records say."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.fleets import MONDAY, FleetRows

from trimtab.fleet.build import build_fleet
from trimtab.fleet.model import Window
from trimtab.fleet.occupancy import held_nodes
from trimtab.fleet.settings import Settings
from trimtab.ledger import IDLE, Holdings, allocate, bill


def fleet_of(rows):
    return build_fleet(rows.bundle(), Settings())


def shares(fleet):
    """Node-seconds per owner name; None is idle."""
    total = {}
    for owner, seconds in zip(fleet.holdings.owner, fleet.holdings.node_seconds, strict=True):
        name = None if owner == IDLE else fleet.workloads[owner].name
        total[name] = total.get(name, 0.0) + seconds
    return total


def test_a_workload_on_two_of_four_gpus_holds_half_the_node():
    fleet = fleet_of(FleetRows(1).node("n", "p3.8xlarge").hold("a/x", "n", [0, 1]))

    assert shares(fleet) == {"a/x": 12 * 3600, None: 12 * 3600}


def test_a_node_without_any_holder_is_idle():
    fleet = fleet_of(FleetRows(1).node("n", "g5.xlarge", start=6, end=18))

    assert shares(fleet) == {None: 12 * 3600}
    assert fleet.usage.node_seconds.sum() == 12 * 3600


def test_a_node_given_back_and_taken_again_has_two_lives():
    rows = FleetRows(1).node("n", "g5.xlarge", start=0, end=6).node("n", "g5.xlarge", start=12, end=18)
    rows.hold("a/x", "n", [0])

    fleet = fleet_of(rows)

    assert shares(fleet) == {"a/x": 12 * 3600}
    assert fleet.coverage.counts["held hours outside the node's life"] == 12


def test_a_gpu_held_twice_is_shared_between_its_holders_and_counted():
    fleet = fleet_of(FleetRows(1).node("n", "g5.xlarge").hold("a/x", "n", [0]).hold("a/y", "n", [0]))

    assert shares(fleet) == {"a/x": 12 * 3600, "a/y": 12 * 3600}
    assert fleet.coverage.counts["device-hours that several held at once, shared between them"] == 24


def test_an_allocation_on_an_unknown_node_is_counted_and_not_billed():
    fleet = fleet_of(FleetRows(1).node("n", "g5.xlarge").hold("a/x", "ghost", [0]))

    assert fleet.coverage.counts["allocations on unknown nodes"] == 1
    assert shares(fleet) == {None: 24 * 3600}


def test_a_device_that_changed_hands_within_an_hour_is_seen_once():
    rows = FleetRows(1).node("n", "p3.8xlarge").hold("a/x", "n", [0], 0, 12.5).hold("a/y", "n", [0], 12.5)
    rows.use("a/x", "n", 0, range(13), sm=0.5).use("a/y", "n", 0, range(12, 24), sm=0.5)

    assert fleet_of(rows).coverage.device_hours_seen_frac == 0.25


hours = st.tuples(st.floats(0, 48), st.floats(0, 48)).map(sorted)


@given(
    lives=st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["g5.xlarge", "p3.8xlarge"]), hours), min_size=1, max_size=4
    ),
    held=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 3), hours, st.sampled_from(["t/x", "t/y"])), max_size=6
    ),
)
def test_workloads_and_idle_carry_the_whole_bill(lives, held):
    rows = FleetRows(2)
    for name, instance_type, (start, end) in lives:
        rows.node(name, instance_type, start, end)
    for node, device, (start, end), workload in held:
        rows.hold(workload, node, [device], start, end)

    fleet = fleet_of(rows)
    priced = bill(fleet.usage, dict.fromkeys(fleet.usage.pools, 3_333_333))
    split = allocate(priced, fleet.holdings)

    assert split.by_owner(len(fleet.workloads)).sum() + split.idle == priced.total


def test_holdings_never_exceed_what_the_node_was_billed():
    fleet = fleet_of(FleetRows(2).node("n", "p3.8xlarge", 0.25, 30.5).hold("a/x", "n", [0, 1, 2, 3]))
    total = np.zeros_like(fleet.node_seconds, dtype=float)
    np.add.at(total, (fleet.holdings.node, fleet.holdings.hour), fleet.holdings.node_seconds)

    assert total == pytest.approx(fleet.node_seconds)


def test_what_nodes_of_other_days_held_is_no_fault_of_the_history():
    rows = FleetRows(4).node("now", "g5.xlarge").hold("a/x", "now", [0])
    rows.node("later", "g5.xlarge", start=72).hold("a/y", "later", [0], start=72)

    fleet = build_fleet(rows.bundle(), Settings(), Window(start=MONDAY, hours=48))

    assert fleet.coverage.counts == {
        "a node that was up only outside the days planned on: in neither the bill nor the plan": 1
    }


@given(
    st.lists(
        st.tuples(st.integers(-1, 4), st.integers(0, 3), st.integers(0, 2), st.floats(0.0, 3600.0)),
        min_size=1,
        max_size=40,
    )
)
def test_what_each_workload_held_of_each_node_is_what_its_cells_say(cells):
    owner, node, hour, seconds = (np.array(column) for column in zip(*cells, strict=True))
    holdings = Holdings(
        pool=np.zeros_like(node), hour=hour, node=node, owner=owner, node_seconds=seconds.astype(np.float64)
    )
    node_seconds = np.arange(12).reshape(4, 3)

    found = held_nodes(holdings, 4, 5)

    for number, held in enumerate(found):
        mine = [sum(cell[3] for cell in cells if cell[0] == number and cell[1] == at) for at in range(4)]
        every = [sum(cell[3] for cell in cells if cell[0] != IDLE and cell[1] == at) for at in range(4)]
        share = np.array([of / whole if whole else 0.0 for of, whole in zip(mine, every, strict=True)])
        assert held.nodes.tolist() == [at for at in range(4) if mine[at]]
        assert held.by_hour(node_seconds) == pytest.approx(share @ node_seconds)
