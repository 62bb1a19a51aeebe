"""What slots are offered to whom, at what speed, and why others are not."""

from dataclasses import replace

import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.catalog.kinds import Isolation
from trimtab.deployment.fitting import NO_LAW
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers import sharing
from trimtab.tables.workloads import in_cluster

SETTINGS = Settings()


def offered(
    *,
    gpus=2,
    memory_gib=4.0,
    jobs=False,
    sm=0.05,
    node="p4d.24xlarge",
    isolation=Isolation.HARDWARE,
    model=None,
    there=None,
    name="web/api",
):
    rows = FleetRows(7).node("n", node).hold(name, "n", range(gpus), owner_kind=None if jobs else "Deployment")
    for device in range(gpus):
        rows.use(name, "n", device, range(168), sm=sm, dram=sm / 2, tensor=sm / 2, memory_gib=memory_gib)
    if jobs:
        rows.job(name, 0, 0, 160, gpus)
    if there is not None:
        provider, instance_type = there
        rows.rows["nodes"][0] |= {"provider": provider, "instance_type": instance_type, "region": "us-central1"}
    if model is not None:
        rows.workloads[name] = {"model": model}
    bundle = rows.bundle()
    market = Market(
        catalog=load_catalog(), at=bundle_window(bundle).end.date(), max_term_years=1, assumptions=SETTINGS.assumptions
    )
    return sharing.propose(build_fleet(bundle, SETTINGS).workloads[0], market, SETTINGS.assumptions, isolation)


def test_who_is_in_another_cluster_shares_other_nodes():
    sites = {
        cluster: {slot.shared.site for slot in offered(name=in_cluster("web/api", cluster)).fitting}
        for cluster in ("east", "west")
    }

    assert {site.cluster for site in sites["east"]} == {"east"}
    assert {replace(site, cluster="west") for site in sites["east"]} == sites["west"]
    assert not sites["east"] & sites["west"]
    assert all(slot.shared.site.cluster == "" for slot in offered().fitting)


def slots(found):
    return {(one.pool.instance_type, one.shared.profile): one for one in found.fitting}


def test_whole_gpus_of_its_own_kind_are_shared_at_the_same_speed():
    whole = slots(offered())["p4d.24xlarge", ""]

    assert (whole.slots, whole.shared.slots_per_node, whole.gpus) == (2, 8, 2.0)
    assert whole.speed.low == whole.speed.value == 1.0


def test_three_gpus_take_a_slot_of_four_so_that_nodes_fill_up():
    assert slots(offered(gpus=3))["p4d.24xlarge", ""].slots == 4


def test_a_service_whose_model_is_declared_shares_no_board_that_programs_are_compiled_for():
    """The smallest node of TPU v5p has four chips, each of which costs less than an H100."""
    there, model = ("gcp", "a3-highgpu-8g"), "mistralai/Mistral-7B-Instruct-v0.3"
    found = offered(gpus=1, memory_gib=30.0, node="p5.48xlarge", there=there, model=model)

    assert not [slot for slot in found.fitting if slot.gpu.startswith("TPU")]
    assert found.refused[NO_LAW]


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


def unisolated(found):
    """Its own GPU's shares, by what keeps them apart, shares a GPU, slots held and class."""
    return {
        (one.shared.kept_apart_by, one.shared.slots_per_node, one.slots, one.shared.busy_frac): one
        for one in found.fitting
        if one.pool.instance_type == "g5.xlarge" and one.shared.kept_apart_by is not Isolation.HARDWARE
    }


def small(isolation, **rest):
    return unisolated(offered(gpus=1, node="g5.xlarge", isolation=isolation, **rest))


def test_nothing_unisolated_is_offered_to_who_did_not_admit_it():
    assert small(Isolation.HARDWARE) == {}


def test_each_is_offered_what_its_owner_admits():
    kinds = {one: {key[0] for key in small(one)} for one in (Isolation.MPS, Isolation.TIME_SLICING, Isolation.NONE)}

    assert kinds[Isolation.MPS] == {Isolation.MPS}
    assert kinds[Isolation.TIME_SLICING] == {Isolation.TIME_SLICING}
    assert kinds[Isolation.NONE] == {Isolation.MPS, Isolation.TIME_SLICING}


def test_a_time_slice_is_the_whole_gpu_while_nobody_else_works_and_an_mps_share_never_is():
    found = small(Isolation.NONE)

    turns, share = found[Isolation.TIME_SLICING, 4, 1, 0.05], found[Isolation.MPS, 4, 1, 1.0]
    assert (turns.speed.low, turns.others, share.others) == (1.0, 3, 0)
    assert share.speed.value < 1.0
    assert turns.memory_gib == share.memory_gib == pytest.approx(22.5 / 4, rel=0.01)


def test_a_peak_that_one_share_does_not_hold_takes_two_time_slices_and_no_mps_share():
    found = small(Isolation.NONE, memory_gib=9.0)

    assert found[Isolation.TIME_SLICING, 4, 2, 0.05].others == 2
    assert not any(kind is Isolation.MPS and shares == 4 for kind, shares, *_ in found)


def test_who_is_at_work_longer_than_a_class_allows_is_not_put_into_it():
    classes = {busy for kind, _, _, busy in small(Isolation.TIME_SLICING, sm=0.17)}

    assert classes
    assert min(classes) == 0.20


def test_runs_are_never_put_on_a_gpu_unisolated():
    assert offered(gpus=1, jobs=True, isolation=Isolation.NONE).fitting == ()
