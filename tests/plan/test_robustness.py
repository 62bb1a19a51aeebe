"""The proof under stress: what departs changes the answer, what does not depart leaves it."""

from datetime import timedelta

import numpy as np
import pytest
from tests.fleets import MONDAY, FleetRows

from trimtab.deployment.effects import DeferRuns, ReleaseIdle, SetReplicaPolicy, StartBeforeRuns
from trimtab.fleet.build import build_fleet
from trimtab.fleet.model import Window
from trimtab.fleet.settings import Settings
from trimtab.fleet.starts import SlowStarts
from trimtab.pipeline import audit, open_demo
from trimtab.plan.model import CapacityPicture
from trimtab.plan.proof.robustness import (
    DEPARTURES,
    LATE_METRICS,
    NO_CAPACITY,
    NO_CAPACITY_FOR_RUNS,
    busiest_hours,
    steepest_hours,
)
from trimtab.policies.scaling import HpaPolicy
from trimtab.replay.outcomes.outcome import Case, Stress
from trimtab.replay.outcomes.service_model import cold_start_of, warm_start_of
from trimtab.replay.services import ServiceHistory, ServiceModel, replay_service
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.workloads import TargetMetric


@pytest.fixture(scope="module")
def found():
    return audit(open_demo("finetune-7b"), Settings())


def test_every_departure_is_judged_on_the_targets_of_the_proof(found):
    stressed = found.robustness.stressed

    assert [one.departure for one in stressed][: len(DEPARTURES)] == list(DEPARTURES)
    assert {one.targets for one in stressed} == {len(found.proof.targets)}
    assert all(one.targets_kept <= one.targets for one in stressed)
    assert all(one.targets_kept == sum(result.kept for result in one.results) for one in stressed)
    assert all(one.bill_usd_mo > 0 for one in stressed)


def test_faster_replicas_miss_no_target_that_the_proof_keeps(found):
    faster = next(one for one in found.robustness.stressed if one.departure.speed > 1)

    assert faster.missed == ()


def test_headroom_is_never_worth_less_than_nothing(found):
    assert found.robustness.price_usd_mo >= 0


def test_an_action_is_fragile_exactly_where_its_workloads_miss(found):
    missed = {name for one in found.robustness.stressed for name in one.missed}
    for action in found.plan.actions:
        touched = {change.subject for change in action.changes} & missed
        assert bool(found.robustness.fragile(action)) == bool(touched)


def test_capacity_is_missing_where_services_rise_most():
    held = np.array([1.0, 1.0, 1.0, 2.0, 9.0, 9.0, 2.0, 1.0])
    picture = CapacityPicture(workload="w", demand_gpus=held, before_gpus=held, after_gpus=held)

    assert steepest_hours([picture], 2) == (3, 5)
    assert steepest_hours([picture], 0) == (0, 0)
    assert steepest_hours([], 2)[0] == 0


@pytest.mark.parametrize(("closed", "served"), [((0, 0), True), ((6, 12), False), ((14, 18), True)])
def test_nothing_starts_while_no_node_can_be_had(closed, served):
    """Load for one replica, from the seventh hour to the twelfth for four."""
    arrivals = np.where((np.arange(24 * 240) // 240 >= 6) & (np.arange(24 * 240) // 240 < 12), 45.0, 10.0)
    model = ServiceModel(
        capacity_req_s=1.0,
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.ones((1, 2)),
        wait_limit_s=np.array([60.0]),
        cold_start_s=60.0,
        closed_hours=closed,
    )
    policy = HpaPolicy(target_frac=0.7, min_replicas=1, max_replicas=10)

    replay = replay_service(ServiceHistory(arrivals=arrivals, step_s=15.0), model, policy, initial_replicas=2)

    rush = replay.held[6 * 240 + 4 : 12 * 240]
    assert (replay.attained_frac[0] > 0.95) == served
    assert (rush.max() > 3) == served


def test_a_rule_with_late_metrics_does_the_same_later():
    """Replicas are plentiful and start at once: the rule sees load alone, so that lateness changes nothing else."""
    arrivals = np.where(np.arange(12 * 240) // 240 % 2 == 0, 30.0, 90.0)
    history = ServiceHistory(arrivals=arrivals, step_s=15.0)
    policy = HpaPolicy(target_frac=0.2, min_replicas=1, max_replicas=100, up_stabilization_s=0, down_stabilization_s=0)

    def held(late_s):
        model = ServiceModel(
            capacity_req_s=1.0,
            load_grid=np.array([0.0, 1.0]),
            ok_frac=np.ones((1, 2)),
            wait_limit_s=np.array([60.0]),
            cold_start_s=0.0,
            metrics_late_s=late_s,
        )
        return replay_service(history, model, policy, initial_replicas=10).held

    prompt, late = held(0.0), held(120.0)

    assert prompt.max() > prompt.min()
    assert np.array_equal(late[8 + 20 :], prompt[20:-8])


def test_what_can_only_touch_scaled_services_is_told_of_plans_that_scale_some(found):
    scaled = any(isinstance(change.effect, SetReplicaPolicy) for one in found.plan.actions for change in one.changes)

    told = {one.departure for one in found.robustness.stressed}

    assert {LATE_METRICS, NO_CAPACITY} <= told if scaled else not {LATE_METRICS, NO_CAPACITY} & told


def test_no_node_for_runs_is_told_of_plans_whose_runs_ask_for_some(found):
    effects = [change.effect for one in found.plan.actions for change in one.changes]
    told = {one.departure: one for one in found.robustness.stressed}

    assert any(isinstance(effect, DeferRuns | ReleaseIdle | StartBeforeRuns) for effect in effects)
    closed = told[NO_CAPACITY_FOR_RUNS]
    assert closed.runs_without_node > 0
    assert 0 < closed.longest_without_node_s <= 6 * 3600
    assert all(one.runs_without_node == 0 for one in told.values() if one is not closed)


def test_runs_that_find_no_node_keep_their_work_and_miss_what_they_must_start_by(found):
    closed = next(one for one in found.robustness.stressed if one.departure == NO_CAPACITY_FOR_RUNS)
    usual = {(one.workload, one.target): one for one in found.proof.targets}

    for result in closed.results:
        same = usual[result.workload, result.target]
        if result.target.metric is TargetMetric.THROUGHPUT:
            assert result.attained_frac == pytest.approx(same.attained_frac, abs=0.02)
        else:
            assert result.attained_frac <= same.attained_frac + 1e-9


def test_nodes_are_kept_from_runs_when_most_is_asked_for():
    assert busiest_hours(np.array([1.0, 0.0, 0.0, 4.0, 3.0, 0.0, 5.0]), 2) == (3, 5)
    assert busiest_hours(np.zeros(3), 0) == (0, 0)
    assert busiest_hours(np.zeros(3), 6) == (0, 6)


def started(node_s):
    """The demonstration with pods on record, each of which waited so long for a node of its own."""
    bundle = open_demo("finetune-7b")
    nodes = bundle.table("nodes").slice(0, 12).to_pylist(maps_as_pydicts="strict")
    pods = [
        {
            "pod": f"p{number}", "namespace": "ml", "workload": "ml/other", "node": row["node"], "phase": "Running",
            "gpus": 1.0,
            "created": row["start"] - timedelta(seconds=1), "scheduled": row["start"] + timedelta(seconds=node_s - 1),
        }
        for number, row in enumerate(nodes)
    ]  # fmt: skip
    return memory_bundle(
        {name: bundle.table(name) for name in bundle.tables} | {"pods": table_from_rows("pods", pods)},
        bundle.meta,
        bundle.workloads,
    )


def test_starts_are_as_slow_as_the_slowest_tenth_measured(found):
    slow = audit(started(3 * 3600.0), Settings()).robustness

    (row,) = (one for one in slow.stressed if one.departure.starts.node_s)
    assert row.departure.starts.node_s == 3 * 3600.0
    assert "a node 10800 s" in row.departure.name
    assert row.bill_usd_mo > found.robustness.stressed[0].bill_usd_mo
    assert [one.departure for one in slow.stressed if one is not row] == [
        one.departure for one in found.robustness.stressed
    ]
    assert not any("How long a node takes to start" in note for note in slow.notes)


def test_starts_that_nobody_measured_are_said_to_be_assumed(found):
    assert any(
        "How long a node takes to start was not measured" in note and "300 s" in note for note in found.robustness.notes
    )


def test_starts_no_slower_than_planned_are_said_and_make_no_row(found):
    quick = audit(started(120.0), Settings()).robustness

    assert len(quick.stressed) == len(found.robustness.stressed)
    assert any("a node 120 s" in note and "no longer than plans take" in note for note in quick.notes)


def test_replicas_start_as_slowly_as_measured_and_never_sooner_than_planned():
    rows = FleetRows(2).node("n", "g5.xlarge").hold("prod/chat", "n", [0])
    workload = build_fleet(rows.bundle(), Settings()).workload("prod/chat")
    window, planned = Window(start=MONDAY, hours=48), 300.0 + 180.0

    def cold_and_warm(**starts):
        stress = Stress(starts=SlowStarts(**starts))
        case = Case(
            workload=workload, window=window, targets=(), law=None, settings=Settings(), seed=1, stress=stress
        )  # fmt: skip
        return cold_start_of(case), warm_start_of(case)

    assert cold_and_warm() == (planned, 180.0)
    assert cold_and_warm(node_s=600.0) == (780.0, 180.0)
    assert cold_and_warm(node_s=60.0, own_s={"prod/chat": 240.0}) == (planned, 240.0)
    assert cold_and_warm(own_s={"prod/chat": 400.0}) == (700.0, 400.0)
    assert cold_and_warm(node_s=20.0, own_s={"prod/other": 900.0}) == (planned, 180.0)


def test_runs_that_must_start_soon_miss_it_while_no_node_can_be_had():
    """Four runs a day of two hours, on a node that is up all the time; each may wait an hour."""
    rows = FleetRows(6).node("n", "p4d.24xlarge")
    for hour in range(0, 6 * 24, 6):
        name = f"exp-{hour}"
        rows.hold("research/exp", "n", range(8), start=hour, end=hour + 2, pod=name, owner_kind="Job")
        rows.job("research/exp", hour, hour, hour + 2, 8, name=name)
    for device in range(8):
        rows.use("research/exp", "n", device, [hour for hour in range(6 * 24) if hour % 6 < 2], sm=0.9)
    rows.workloads = {"research/exp": {"kind": "training", "deferrable": {"within_hr": 1}}}

    found = audit(rows.bundle(), Settings())

    closed = next(one for one in found.robustness.stressed if one.departure == NO_CAPACITY_FOR_RUNS)
    assert found.proof.saving_frac > 0.2
    assert closed.missed == ("research/exp",)
    assert closed.runs_without_node == 1
    assert closed.longest_without_node_s == 6 * 3600.0
    assert closed.bill_usd_mo == pytest.approx(found.robustness.stressed[0].bill_usd_mo)
