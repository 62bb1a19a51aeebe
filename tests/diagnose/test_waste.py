"""Waste is told apart, and sums to the bill."""

import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.diagnose.findings import WasteKind
from trimtab.diagnose.verdicts import product_form, verdict_of
from trimtab.diagnose.waste import waste_of
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings
from trimtab.ledger import allocate, bill

SETTINGS = Settings()
RATE = 1_000_000


def diagnose(rows, *, cheaper=0.0, non_gpu=()):
    fleet = build_fleet(rows.bundle(), SETTINGS)
    allocation = allocate(bill(fleet.usage, dict.fromkeys(fleet.usage.pools, RATE)), fleet.holdings)
    nodes = frozenset(index for index, node in enumerate(fleet.nodes) if node.name in non_gpu)
    found = waste_of(fleet, allocation, SETTINGS.bands, dict.fromkeys(fleet.usage.pools, cheaper), nodes)
    hours = {waste.kind: waste.micro_usd / RATE for waste in found}
    assert sum(waste.micro_usd for waste in found) == fleet.usage.node_seconds.sum() // 3600 * RATE
    return hours


def day():
    return FleetRows(1).node("n", "p3.8xlarge")


def still():
    """A node whose GPUs were read and did nothing."""
    return day().use(None, "n", 0, range(24), sm=0.0)


def test_a_node_that_nobody_held_is_unallocated():
    assert diagnose(still()) == {WasteKind.UNALLOCATED_NODES: 24}


def test_a_node_of_which_nothing_was_read_is_not_called_unallocated():
    assert diagnose(day()) == {WasteKind.UNKNOWN_HOLDER: 24}


def test_a_node_held_by_pods_without_gpus_is_named_so():
    assert diagnose(still(), non_gpu=("n",)) == {WasteKind.NON_GPU_PODS: 24}


def test_hours_outside_the_runs_of_a_node_are_hours_not_used():
    rows = day().hold("a/x", "n", range(4), 0, 8)
    for gpu in range(4):
        rows.use("a/x", "n", gpu, range(8), sm=0.7)

    assert diagnose(rows) == {WasteKind.HOURS_NOT_USED: 16, WasteKind.USEFUL: 8}


def test_held_without_activity_is_idle():
    rows = day().hold("a/x", "n", range(4))
    for gpu in range(4):
        rows.use("a/x", "n", gpu, range(24), sm=0.0)

    assert diagnose(rows)[WasteKind.IDLE] == 24


def test_three_of_four_gpus_without_activity_are_more_than_used():
    rows = day().hold("a/x", "n", range(4), owner_kind="Job").job("a/x", 0, 0, 24, 4)
    for gpu in range(4):
        rows.use("a/x", "n", gpu, range(24), sm=0.7 if gpu == 0 else 0.0)

    assert diagnose(rows) == {WasteKind.OVER_PARALLEL: 18, WasteKind.USEFUL: 6}


def test_hours_without_readings_are_not_judged():
    assert diagnose(day().hold("a/x", "n", range(4))) == {WasteKind.UNMEASURED: 24}


def test_useful_work_bought_the_dear_way_pays_the_difference():
    rows = day().hold("a/x", "n", range(4))
    for gpu in range(4):
        rows.use("a/x", "n", gpu, range(24), sm=0.9)

    assert diagnose(rows, cheaper=0.25) == {WasteKind.BUYING_OPTION: 6, WasteKind.USEFUL: 18}


def workload(**readings):
    rows = day().hold("a/x", "n", range(4))
    for gpu in range(4):
        rows.use("a/x", "n", gpu, range(24), **readings)
    return build_fleet(rows.bundle(), SETTINGS).workload("a/x")


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ({"sm": 0.10}, "over-provisioned"),
        ({"sm": 0.40}, "find the cause"),
        ({"sm": 0.70}, "healthy"),
        ({"sm": 0.40, "dram": 0.75}, "bound by memory bandwidth"),
        ({"sm": 0.70, "memory_gib": 15.6}, "at risk of running out"),
        ({"sm": 0.70, "memory_gib": 2.0}, "could share a GPU"),
        ({"util": 0.95}, "only GPU_UTIL was there"),
    ],
)
def test_verdicts_follow_the_bands(readings, expected):
    assert expected in verdict_of(workload(**readings), "w", SETTINGS.bands).headline


def test_a_board_whose_exporter_tells_no_more_is_not_asked_for_sm_activity():
    board = load_catalog().gpu("Trainium")

    told = verdict_of(workload(util=0.2), "w", SETTINGS.bands, gpu=board).headline

    assert "SM_ACTIVE" not in told
    assert "on other boards than Trainium is not known" in told


def test_low_sm_activity_alone_is_not_called_memory_bound():
    assert "memory bandwidth" not in verdict_of(workload(sm=0.2), "w", SETTINGS.bands).headline


def test_the_product_form_multiplies_allocation_busy_and_efficiency():
    rows = day().hold("a/x", "n", [0, 1])
    rows.use("a/x", "n", 0, range(24), sm=0.5).use("a/x", "n", 1, range(24), sm=0.5)

    form = product_form(build_fleet(rows.bundle(), SETTINGS), SETTINGS.bands)

    assert (form.allocation_frac, form.busy_frac, form.efficiency_frac) == (0.5, 1.0, 0.5)
    assert form.product_frac == 0.25


def test_only_the_nodes_bought_the_dear_way_count_as_wrongly_bought():
    rows = FleetRows(1)
    for node, capacity_type in (("here", "on-demand"), ("there", "spot")):
        rows.node(node, "g5.xlarge", capacity_type=capacity_type)
        rows.hold("team/train", node, [0]).use("team/train", node, 0, range(24), sm=1.0)
    fleet = build_fleet(rows.bundle(), SETTINGS)
    on_demand, spot = sorted(fleet.usage.pools)
    allocation = allocate(bill(fleet.usage, {on_demand: 3_000_000, spot: 1_000_000}), fleet.holdings)

    found = waste_of(fleet, allocation, SETTINGS.bands, {on_demand: 0.5})

    assert {one.kind: one.micro_usd for one in found}[WasteKind.BUYING_OPTION] == 36_000_000
