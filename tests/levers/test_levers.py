"""Each lever offers what fits, and nothing else."""

import pytest
from tests.fleets import FleetRows

from trimtab.catalog import CapacityType, load_catalog
from trimtab.catalog.pools import Pool
from trimtab.fleet.activity import activity_in_work
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.fleet.spot_record import SpotRecord
from trimtab.levers import autoscaling, commitments, gpu_count, idle_release, right_size, schedule, spot
from trimtab.levers.lever import software_fact
from trimtab.physics.offers import board
from trimtab.replay.outcomes.outcome import Case

SETTINGS = Settings()


@pytest.fixture(scope="module")
def market():
    return Market(catalog=load_catalog(), at=None, max_term_years=1, assumptions=SETTINGS.assumptions)


def runs(*, active_gpus=1, memory_gib=8.0, dram=0.1, sm=0.5, interruptible=None, instance_type="p3.8xlarge"):
    """A workload of two runs on all GPUs of a node, of which some do something."""
    rows = FleetRows(7).node("n", instance_type)
    gpus = range({"p3.8xlarge": 4, "p4d.24xlarge": 8}[instance_type])
    for number, start in enumerate((3, 90)):
        rows.hold("lab/exp", "n", gpus, start, start + 20, pod=f"p{number}", owner_kind="Job")
        rows.job("lab/exp", start - 1, start, start + 20, len(gpus), name=f"j{number}")
        for gpu in gpus:
            level = sm if gpu < active_gpus else 0.0
            rows.use(
                "lab/exp",
                "n",
                gpu,
                range(start, start + 20),
                sm=level,
                tensor=level / 2,
                dram=dram,
                memory_gib=memory_gib,
            )
    if interruptible is not None:
        rows.workloads = {"lab/exp": {"interruptible": interruptible}}
    return build_fleet(rows.bundle(), SETTINGS).workload("lab/exp")


def test_a_run_that_uses_one_of_four_gpus_is_offered_one(market):
    offers = gpu_count.propose(runs(active_gpus=1), market)

    assert {offer.gpus for offer in offers} == {1}
    assert "p3.2xlarge" in {offer.pool.instance_type for offer in offers}


def test_a_run_that_uses_all_its_gpus_keeps_them(market):
    assert gpu_count.propose(runs(active_gpus=4), market) == ()


def test_right_sizing_offers_only_gpus_that_hold_the_memory(market):
    offers = right_size.propose(runs(memory_gib=21.0), market, SETTINGS.assumptions).fitting
    fitting = [offer for offer in offers if not offer.gpu.startswith("V100")]  # its own GPU holds what it held

    assert fitting
    assert all(market.gpu(offer.gpu).memory_gib * 0.9 >= 21.0 for offer in fitting)


def test_right_sizing_says_why_it_refused(market):
    refused = right_size.propose(runs(memory_gib=21.0), market, SETTINGS.assumptions).refused

    assert refused["not enough memory"] > 0
    assert refused["another CPU architecture: images would have to be rebuilt"] > 0


def test_right_sizing_never_moves_onto_a_previous_generation(market):
    fitting = right_size.propose(runs(instance_type="p4d.24xlarge"), market, SETTINGS.assumptions).fitting

    assert not {offer.pool.instance_type for offer in fitting} & {"p3.2xlarge", "p3.8xlarge", "p3.16xlarge"}


@pytest.mark.parametrize("interruptible", [None, False])
def test_spot_is_not_offered_to_work_that_nobody_declared_interruptible(market, interruptible):
    assert spot.propose(runs(interruptible=interruptible), market, SETTINGS.assumptions) == ()


def test_serving_from_spot_counts_with_the_fleets_own_losses_and_outages():
    rows = FleetRows(7).node("n", "g5.xlarge").hold("prod/api", "n", [0]).demand("prod/api", lambda hour: 100, 4)
    rows.workloads = {"prod/api": {"interruptible": True}}
    workload = build_fleet(rows.bundle(), SETTINGS).workload("prod/api")
    home = Pool("aws", "g5.xlarge", "us-east-1")
    seen = SpotRecord(
        known_hr=500.0, without_hr=1.0, droughts=2, droughts_hr=1.0, node_hr=10_000.0, losses=50, losses_at_droughts=50
    )

    known = Market.of(load_catalog(), None, SETTINGS, {home: seen})
    offer = next(one for one in spot.hedges(workload, known, SETTINGS.assumptions) if one.pool.nodes == home)

    # 50 losses in 10,000 hours and one at the assumed rate; two outages of half an hour and an assumed one of 1.5 hours
    assert offer.loss_per_hr == pytest.approx(51 / 10_000, rel=0.03)
    assert offer.outage_s == pytest.approx((2 * 1800 + 5400) / 3)


def test_spot_is_offered_where_it_is_cheaper_than_on_demand(market):
    offers = spot.propose(runs(interruptible=True), market, SETTINGS.assumptions)

    assert offers
    for offer in offers:
        assert market.rate(offer.pool) < market.rate(offer.pool.held_as(CapacityType.ON_DEMAND))
        assert offer.loss_per_hr > 0


def test_nodes_that_come_with_runs_are_offered_to_runs_only(market):
    notebook = build_fleet(
        FleetRows(7).node("n", "g5.xlarge").hold("a/jupyter", "n", [0], owner_kind="Notebook").bundle(), SETTINGS
    ).workload("a/jupyter")

    assert len(idle_release.propose(runs(), SETTINGS.assumptions)) == 1
    assert idle_release.propose(notebook, SETTINGS.assumptions) == ()


def test_nodes_that_nobody_held_are_found():
    fleet = build_fleet(
        FleetRows(7).node("used", "g5.xlarge").node("empty", "g5.xlarge").hold("a/x", "used", [0]).bundle(), SETTINGS
    )

    assert [fleet.nodes[index].name for index in idle_release.unheld_nodes(fleet)] == ["empty"]


def test_no_commitment_is_offered_where_none_is_sold(market):
    pools = [offering.pool for offering in market.offerings("aws", "us-east-1")]
    offers = commitments.propose(pools, market)

    sold = {offer.pool.instance_type for offer in offers}
    assert "p4d.24xlarge" in sold
    assert not sold & {"p5.48xlarge", "p3.8xlarge"}


def notebook_weeks(hours_of_day, weeks=4):
    rows = FleetRows(7 * weeks).node("n", "g5.xlarge").hold("a/jupyter", "n", [0], owner_kind="Notebook")
    rows.use("a/jupyter", "n", 0, range(7 * 24 * weeks), sm=lambda hour: 0.3 if hours_of_day(hour) else 0.0)
    fleet = build_fleet(rows.bundle(), SETTINGS)
    return fleet.workload("a/jupyter"), fleet.window


def test_a_notebook_used_in_office_hours_gets_a_timetable_that_holds_them():
    workload, window = notebook_weeks(lambda hour: hour // 24 % 7 < 5 and 9 <= hour % 24 < 17)
    offers = schedule.propose(workload, window, SETTINGS.bands, SETTINGS.assumptions, 0.9)

    office = {day * 24 + hour for day in range(5) for hour in range(9, 17)}
    assert offers
    assert all(office <= set(offer.hours_of_week) for offer in offers)


def test_a_notebook_whose_hours_change_every_week_gets_no_timetable():
    workload, window = notebook_weeks(lambda hour: hour // 24 % 7 == hour // 168 and hour % 24 == 6 * (hour // 168))

    assert schedule.propose(workload, window, SETTINGS.bands, SETTINGS.assumptions, 0.9) == ()


def test_hours_without_readings_stay_in_a_notebooks_timetable():
    def office(hour):
        return hour // 24 % 7 < 5 and 9 <= hour % 24 < 17

    rows = FleetRows(28).node("n", "g5.xlarge").hold("a/jupyter", "n", [0], owner_kind="Notebook")
    measured = [hour for hour in range(28 * 24) if hour % 168 != 6 * 24 + 3]
    rows.use("a/jupyter", "n", 0, measured, sm=lambda hour: 0.3 if office(hour) else 0.0)
    fleet = build_fleet(rows.bundle(), SETTINGS)
    offers = schedule.propose(fleet.workload("a/jupyter"), fleet.window, SETTINGS.bands, SETTINGS.assumptions, 0.9)

    assert offers
    assert all(6 * 24 + 3 in offer.hours_of_week for offer in offers)


def test_autoscaling_never_goes_below_the_declared_floor():
    rows = FleetRows(7).node("n", "g5.xlarge").hold("prod/api", "n", [0]).demand("prod/api", lambda hour: 100, 4)
    rows.workloads = {"prod/api": {"min_replicas": 3, "max_replicas": 9}}
    assert {(offer.policy.min_replicas, offer.policy.max_replicas) for offer in autoscaling.propose(case_of(rows))} == {
        (3, 9)
    }


@pytest.mark.parametrize(("replicas", "limit_s", "floor"), [(4, 1.0, 2), (1, 1.0, 1), (4, 4 * 3600.0, 1)])
def test_two_replicas_are_the_least_where_history_had_two_and_a_lost_one_would_be_missed(replicas, limit_s, floor):
    rows = FleetRows(7).node("n", "g5.xlarge").hold("prod/api", "n", [0])
    rows.demand("prod/api", lambda hour: 100, replicas, (1.0, float("inf")), lambda hour: [100, 0])
    rows.workloads = {"prod/api": {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": limit_s}]}}

    assert {offer.policy.min_replicas for offer in autoscaling.propose(case_of(rows))} == {floor}


def case_of(rows):
    fleet = build_fleet(rows.bundle(), SETTINGS)
    (workload,) = fleet.workloads
    return Case(workload=workload, window=fleet.window, targets=workload.targets, law=None, settings=SETTINGS, seed=1)


def test_a_service_is_judged_by_what_its_gpu_does_while_there_is_work():
    rows = FleetRows(7).node("n", "p4d.24xlarge").hold("prod/api", "n", [0], owner_kind="Deployment")
    rows.use("prod/api", "n", 0, range(168), sm=0.06, util=0.15, tensor=0.03, dram=0.12)
    rows.demand("prod/api", lambda hour: 100, 1)
    service = build_fleet(rows.bundle(), SETTINGS).workload("prod/api")

    at_work = activity_in_work(service)

    assert (at_work.sm_frac, at_work.tensor_frac, at_work.dram_frac) == pytest.approx((0.4, 0.2, 0.8))
    assert activity_in_work(runs()).sm_frac == runs().activity.sm_frac


@pytest.mark.parametrize("interruptible", [None, True])
def test_serving_from_spot_is_offered_where_it_was_declared_and_with_every_floor(market, interruptible):
    rows = FleetRows(7).node("n", "g5.xlarge").hold("prod/api", "n", [0]).demand("prod/api", lambda hour: 100, 4)
    rows.workloads = {"prod/api": {"interruptible": interruptible}}
    workload = build_fleet(rows.bundle(), SETTINGS).workload("prod/api")

    offers = spot.hedges(workload, market, SETTINGS.assumptions)

    assert {offer.one_in for offer in offers} == ({0, 4, 2} if interruptible else set())
    assert spot.propose(workload, market, SETTINGS.assumptions) == ()


def test_another_architecture_is_told_with_the_cuda_and_driver_that_it_needs():
    a100, ada, t4 = board("A100-SXM4-40GB"), board("L4"), board("T4")

    assert [fact.value for fact in software_fact(a100, ada)] == ["CUDA 11.8 and driver 520.61 or newer"]
    assert [fact.value for fact in software_fact(None, t4)] == ["CUDA 10.0 and driver 410.48 or newer"]
    assert list(software_fact(a100, board("A10G"))) == []
    assert list(software_fact(a100, None)) == []
