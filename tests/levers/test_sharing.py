"""What slots are offered to whom, at what speed, and why others are not."""

import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers import sharing

SETTINGS = Settings()


def offered(*, gpus=2, memory_gib=4.0, jobs=False, sm=0.05):
    rows = (
        FleetRows(7)
        .node("n", "p4d.24xlarge")
        .hold("web/api", "n", range(gpus), owner_kind=None if jobs else "Deployment")
    )
    for device in range(gpus):
        rows.use("web/api", "n", device, range(168), sm=sm, dram=sm / 2, tensor=sm / 2, memory_gib=memory_gib)
    if jobs:
        rows.job("web/api", 0, 0, 160, gpus)
    bundle = rows.bundle()
    market = Market(
        catalog=load_catalog(), at=bundle_window(bundle).end.date(), max_term_years=1, assumptions=SETTINGS.assumptions
    )
    return sharing.propose(build_fleet(bundle, SETTINGS).workloads[0], market, SETTINGS.assumptions)


def slots(found):
    return {(one.pool.instance_type, one.shared.profile): one for one in found.fitting}


def test_whole_gpus_of_its_own_kind_are_shared_at_the_same_speed():
    whole = slots(offered())["p4d.24xlarge", ""]

    assert (whole.slots, whole.shared.slots_per_node, whole.gpus) == (2, 8, 2.0)
    assert whole.speed.low == whole.speed.value == 1.0


def test_three_gpus_take_a_slot_of_four_so_that_nodes_fill_up():
    assert slots(offered(gpus=3))["p4d.24xlarge", ""].slots == 4


def test_what_fills_most_of_a_node_has_nothing_to_share():
    assert ("p4d.24xlarge", "") not in slots(offered(gpus=5))


def test_a_slice_is_offered_where_the_measured_peak_fits_it_and_slower_by_its_share():
    found = slots(offered(gpus=1, memory_gib=4.0))

    seventh = found["p4d.24xlarge", "1g.5gb"]
    assert (seventh.slots, seventh.shared.slots_per_node) == (1, 56)
    assert seventh.memory_gib == pytest.approx(4.75)
    assert seventh.speed.value < found["p4d.24xlarge", "3g.20gb"].speed.value < 1.0


def test_a_slice_that_does_not_hold_the_peak_is_refused_and_counted():
    found = offered(gpus=1, memory_gib=8.0)

    assert ("p4d.24xlarge", "1g.5gb") not in slots(found)
    assert ("p4d.24xlarge", "1g.10gb") in slots(found)
    assert found.refused["not enough memory"] > 0


def test_unmeasured_memory_offers_no_slice():
    found = offered(gpus=1, memory_gib=None)

    assert all(not one.shared.profile for one in found.fitting)
    assert found.refused["memory use was not measured"] > 0


def test_a_replica_of_several_gpus_is_not_put_on_slices():
    assert all(not profile for _, profile in slots(offered(gpus=2)))


def test_runs_are_left_to_nodes_of_their_own():
    assert offered(jobs=True).fitting == ()
