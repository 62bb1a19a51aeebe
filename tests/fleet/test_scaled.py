import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.fleets import FleetRows

from trimtab.fleet.build import build_fleet
from trimtab.fleet.scaled import scaled_fleet, spread
from trimtab.fleet.settings import Settings


@pytest.fixture(scope="module")
def fleet():
    rows = FleetRows(3)
    for number in range(4):
        rows.node(f"n{number}", "g5.xlarge").hold("ml/train", f"n{number}", [0], owner_kind="Job")
        rows.use("ml/train", f"n{number}", 0, range(72), sm=0.5)
    rows.node("spare", "g5.xlarge")
    return build_fleet(rows.bundle(), Settings())


@given(st.integers(1, 40), st.floats(0.05, 4))
def test_items_are_spread_evenly_and_are_never_fewer_than_asked_for(count, factor):
    picked = spread(range(count), factor)

    assert len(picked) == math.ceil(count * factor - 1e-9)
    assert picked == sorted(picked)
    repeats = np.bincount(picked, minlength=count)
    assert repeats.max() - repeats.min() <= 1


def test_half_as_much_again_takes_half_as_many_nodes_again_and_unheld_ones_stay(fleet):
    more = scaled_fleet(fleet, 1.5)

    assert len(more.nodes) == 6 + 1
    assert len({node.name for node in more.nodes}) == 7
    assert more.usage.node_seconds.sum() == more.node_seconds.sum() == fleet.node_seconds.sum() * 7 // 5
    assert more.holdings.node_seconds.sum() == pytest.approx(more.node_seconds.sum())
    assert more.workloads[0].held_node_seconds.sum() == pytest.approx(fleet.workloads[0].held_node_seconds.sum() * 1.5)
    assert more.workloads[0].activity.busy_gpus == pytest.approx(fleet.workloads[0].activity.busy_gpus * 1.5)


def test_the_same_demand_is_the_same_fleet(fleet):
    assert scaled_fleet(fleet, 1.0) is fleet


def test_no_demand_at_all_is_refused(fleet):
    with pytest.raises(ValueError, match="more than 0"):
        scaled_fleet(fleet, 0.0)
