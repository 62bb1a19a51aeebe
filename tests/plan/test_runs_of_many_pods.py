"""Runs keep the GPUs that they had: those of all their pods, and each run its own."""

from datetime import date

import numpy as np
import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.catalog.kinds import CapacityType
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import ReleaseIdle, SetCapacityType
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.model import PodSize
from trimtab.fleet.occupancy import pods_of_runs
from trimtab.fleet.settings import Settings
from trimtab.levers import gpu_count, idle_release
from trimtab.pipeline import audit
from trimtab.plan.options.workload_options import options_of
from trimtab.plan.proof.clairvoyant import clairvoyant_bound
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.jobs_outcome import nodes_of_runs

SETTINGS = Settings()
RUNS = "ml/pretrain"
DAYS = 14


@pytest.fixture(scope="module")
def market():
    return Market(catalog=load_catalog(), at=date(2026, 9, 30), max_term_years=1, assumptions=SETTINGS.assumptions)


def wide_runs():
    """A run of 4 pods with 8 GPUs each, twelve hours every day, on four nodes that are held all the time."""
    fleet = FleetRows(DAYS)
    for node in range(4):
        fleet.node(f"n{node}", "p4d.24xlarge")
    for day in range(DAYS):
        begin = 24 * day + 6
        for node in range(4):
            pod = f"run{day}-worker-{node}"
            fleet.hold(RUNS, f"n{node}", range(8), begin, begin + 12, pod=pod, owner_kind="PyTorchJob")
            for device in range(8):
                fleet.use(RUNS, f"n{node}", device, range(begin, begin + 12), sm=0.8, util=1.0, memory_gib=30.0)
        fleet.job(RUNS, begin, begin, begin + 12, 32, name=f"run{day}")
    fleet.workloads = {RUNS: {"kind": "training"}}
    return fleet


def runs_of_two_widths():
    """Every day a run on one GPU and one on four, all of which work, on a node that holds four."""
    fleet = FleetRows(DAYS).node("narrow", "p3.8xlarge").node("wide", "p3.8xlarge")
    for day in range(DAYS):
        begin = 24 * day + 6
        for node, gpus in (("narrow", 1), ("wide", 4)):
            pod = f"{node}-{day}"
            fleet.hold(RUNS, node, range(gpus), begin, begin + 8, pod=pod, owner_kind="Job")
            for device in range(gpus):
                fleet.use(RUNS, node, device, range(begin, begin + 8), sm=0.8, util=1.0)
            fleet.job(RUNS, begin, begin, begin + 8, gpus, name=pod)
    fleet.workloads = {RUNS: {"kind": "training"}}
    return fleet


def evaluator_of(rows):
    (case,) = cases_of(build_fleet(rows.bundle(), SETTINGS), SETTINGS, seed=7).values()
    return Evaluator(case=case)


def test_a_run_of_several_pods_takes_the_nodes_of_all_of_them():
    evaluator = evaluator_of(wide_runs())
    jobs = evaluator.case.workload.jobs

    assert set(jobs.pods) == {4}
    assert set(nodes_of_runs(jobs, evaluator.place(AS_IT_IS))) == {4}
    outcome = evaluator.outcome(Deployment.of((idle_release.NAME, ReleaseIdle(startup_s=300.0))))
    assert outcome.on_demand.sum() >= DAYS * 12 * 3600 * 4


def test_the_plan_of_wide_runs_costs_at_least_their_own_hours_and_no_less_than_the_bound(market):
    fleet = build_fleet(wide_runs().bundle(), SETTINGS)
    options = options_of(cases_of(fleet, SETTINGS, seed=7)[RUNS], market)
    bound = clairvoyant_bound(fleet, {0: options.evaluator}, market)

    for one in options.candidates:
        cost = sum(market.rate(pool) * int(used.sum()) // 3600 for pool, used in one.usage.items())
        assert cost >= bound

    found = audit(wide_runs().bundle(), SETTINGS, at=date(2026, 9, 30))
    assert found.proof.after_micro_usd >= found.proof.clairvoyant_micro_usd > 0


def test_a_run_as_wide_as_some_pod_is_one_pod_and_a_wider_one_consists_of_usual_pods():
    sizes = (PodSize(gpus=1.0, pods=3, used_gpus=None), PodSize(gpus=8.0, pods=9, used_gpus=None))

    assert list(pods_of_runs(np.array([1.0, 8.0, 16.0, 24.0, 4.0]), sizes, 8.0)) == [1, 1, 2, 3, 4]
    assert list(pods_of_runs(np.array([32.0, 0.5]), (PodSize(gpus=8.0, pods=2, used_gpus=None),), 8.0)) == [4, 1]


def test_runs_of_two_widths_keep_their_own_gpus():
    evaluator = evaluator_of(runs_of_two_widths())
    workload = evaluator.case.workload

    assert [(size.gpus, size.used_gpus) for size in workload.pod_sizes] == [(1.0, 1.0), (4.0, 4.0)]
    assert gpu_count.smaller_sizes(workload) == {}


def test_only_the_size_that_leaves_gpus_unused_is_cut(market):
    rows = runs_of_two_widths()
    rows.node("spare", "p3.8xlarge")
    for day in range(DAYS):
        begin = 24 * day + 6
        rows.hold(RUNS, "spare", range(2), begin, begin + 8, pod=f"spare-{day}", owner_kind="Job")
        rows.job(RUNS, begin, begin, begin + 8, 2, name=f"spare-{day}")
        for device, level in enumerate((0.8, 0.0)):
            rows.use(RUNS, "spare", device, range(begin, begin + 8), sm=level, util=level)
    evaluator = evaluator_of(rows)

    assert gpu_count.smaller_sizes(evaluator.case.workload) == {2: 1}
    cuts = gpu_count.propose(evaluator.case.workload, market)
    assert {(cut.before, cut.gpus) for cut in cuts} == {(2, 1)}
    for cut in cuts:
        way = Deployment.of((gpu_count.NAME, cut), (idle_release.NAME, ReleaseIdle(startup_s=300.0)))
        if cut.gpus_per_node < 4:
            assert evaluator.hopeless(way) == "would spread a run over more nodes"
        else:
            assert list(evaluator.place(way).pod_gpus(np.array([1.0, 2.0, 4.0]))) == [1.0, 1.0, 4.0]


def test_one_wide_run_beside_narrow_ones_keeps_its_gpus_though_most_of_all_are_idle():
    """Two runs hold four GPUs each at the same hours: one uses all, the other one only."""
    rows = FleetRows(DAYS).node("a", "p3.8xlarge").node("b", "p3.8xlarge")
    for day in range(DAYS):
        begin = 24 * day + 6
        for node, used in (("a", 4), ("b", 1)):
            rows.hold(RUNS, node, range(4), begin, begin + 8, pod=f"{node}-{day}", owner_kind="Job")
            rows.job(RUNS, begin, begin, begin + 8, 4, name=f"{node}-{day}")
            for device in range(4):
                rows.use(RUNS, node, device, range(begin, begin + 8), sm=0.8 if device < used else 0.0, util=0.0)
    rows.workloads = {RUNS: {"kind": "training"}}

    assert gpu_count.smaller_sizes(evaluator_of(rows).case.workload) == {}


def test_a_pod_that_was_restarted_elsewhere_holds_no_more_than_before():
    rows = FleetRows(DAYS).node("a", "g5.12xlarge").node("b", "g5.12xlarge")
    rows.hold("prod/api", "a", [0, 1], 0, 100, pod="api-0", owner_kind="StatefulSet")
    rows.hold("prod/api", "b", [2, 3], 101, None, pod="api-0", owner_kind="StatefulSet")
    for node, devices, hours in (("a", (0, 1), range(100)), ("b", (2, 3), range(101, DAYS * 24))):
        for device in devices:
            rows.use("prod/api", node, device, hours, sm=0.4, util=0.5)

    (workload,) = build_fleet(rows.bundle(), SETTINGS).workloads
    assert workload.gpus_per_pod == 2.0


def small_runs():
    """Every day four runs on one GPU each, side by side on a node of four that is held all the time."""
    fleet = FleetRows(DAYS).node("n", "p3.8xlarge")
    for day in range(DAYS):
        begin = 24 * day + 6
        for device in range(4):
            fleet.hold(RUNS, "n", [device], begin, begin + 8, pod=f"{device}-{day}", owner_kind="Job")
            fleet.use(RUNS, "n", device, range(begin, begin + 8), sm=0.8, util=1.0)
            fleet.job(RUNS, begin, begin, begin + 8, 1, name=f"{device}-{day}")
    fleet.workloads = {RUNS: {"kind": "training", "interruptible": True}}
    return fleet


def test_small_runs_share_the_nodes_that_are_started_for_them():
    (case,) = cases_of(build_fleet(small_runs().bundle(), SETTINGS), SETTINGS, seed=7).values()

    outcome = Evaluator(case=case).outcome(Deployment.of(("idle-release", ReleaseIdle(startup_s=300.0))))

    assert outcome.on_demand.sum() == DAYS * (8 * 3600 + 300 + 60)


@pytest.mark.parametrize("held", [True, False])
def test_spot_that_is_gone_is_billed_on_demand_whether_nodes_stay_or_not(held):
    (case,) = cases_of(build_fleet(small_runs().bundle(), SETTINGS), SETTINGS, seed=7).values()
    evaluator, pool = Evaluator(case=case), case.workload.pool.held_as(CapacityType.SPOT)
    release = () if held else (("idle-release", ReleaseIdle(startup_s=300.0)),)

    def outcome(unavailable_frac):
        effect = SetCapacityType(pool=pool, loss_per_hr=0.0, unavailable_frac=unavailable_frac, drought_s=3600.0)
        return evaluator.outcome(Deployment.of(*release, ("spot", effect)))

    always, seldom = outcome(0.0), outcome(0.5)
    assert always.on_demand.sum() == 0
    assert 0.2 < seldom.on_demand.sum() / (seldom.on_demand.sum() + seldom.spot.sum()) < 0.8
    # nothing is saved on nodes that stay, so that runs on demand are a little shorter
    assert 0.95 <= (seldom.on_demand.sum() + seldom.spot.sum()) / always.spot.sum() <= 1.0
