"""Runs that can wait: offered where declared, replayed within their slack, and worth it under a service's commitments."""

from datetime import date

import numpy as np
import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.deployment.effects import DeferRuns
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.pipeline import audit
from trimtab.plan.options.workload_options import options_of
from trimtab.replay.outcomes.evaluate import cases_of

SETTINGS = Settings()
DAYS = 14
RUNS = "eval/suite"


@pytest.fixture(scope="module")
def market():
    return Market(catalog=load_catalog(), at=date(2026, 9, 30), max_term_years=1, assumptions=SETTINGS.assumptions)


def rows(declared):
    """Two hours of evaluation at noon, every day, on a node that is held all the time."""
    fleet = FleetRows(DAYS).node("e0", "g5.xlarge")
    for day in range(DAYS):
        noon = 24 * day + 12
        fleet.hold(RUNS, "e0", [0], noon, noon + 2, pod=f"p{day}", owner_kind="Job")
        fleet.job(RUNS, noon, noon, noon + 2, 1, name=f"j{day}")
        fleet.use(RUNS, "e0", 0, range(noon, noon + 2), sm=0.7, util=0.9)
    fleet.workloads = {RUNS: {"kind": "evaluation", **declared}}
    return fleet


def deferred(declared, market):
    fleet = build_fleet(rows(declared).bundle(), SETTINGS)
    options = options_of(cases_of(fleet, SETTINGS, seed=7)[RUNS], market)
    found = [one for one in options.candidates if isinstance(one.deployment.holding, DeferRuns)]
    return options, {one.deployment.holding.policy.start_hour: one for one in found}


def test_runs_that_nobody_declared_deferrable_are_not_moved(market):
    assert deferred({}, market)[1] == {}


def test_runs_move_to_hours_within_their_slack(market):
    options, found = deferred({"deferrable": {"within_hr": 12}}, market)

    assert {15, 18, 21} <= set(found)
    for hour, one in found.items():
        held = sum(np.asarray(used) for used in one.usage.values())
        hours = {int(at) % 24 for at in np.flatnonzero(held)}
        assert options.evaluator.keeps_targets(one.deployment)
        if hour in (15, 18, 21):
            assert hours <= {hour, hour + 1, (hour + 2) % 24}


def test_only_the_named_hours_are_tried(market):
    _, found = deferred({"deferrable": {"within_hr": 12, "start_hours": [20]}}, market)
    assert set(found) <= {20}


def test_a_slack_replaces_the_observed_wait_as_the_target():
    fleet = build_fleet(rows({"deferrable": {"within_hr": 6}}).bundle(), SETTINGS)
    waits = [one for one in cases_of(fleet, SETTINGS, seed=7)[RUNS].targets if one.metric.value == "queue_wait"]
    assert [one.limit_s for one in waits] == [6 * 3600.0]
    assert waits[0].declared


def shared_node(machine, gpus, slack_hr):
    """A run of 16 h every night and an evaluation of 3 h at ten, each on a node of its own that is always held."""
    fleet = FleetRows(28)
    for name, node, start, long in (("train/nightly", "t0", 2, 16), (RUNS, "e0", 10, 3)):
        fleet.node(node, machine)
        for day in range(28):
            at = 24 * day + start
            fleet.hold(name, node, list(range(gpus)), at, at + long, pod=f"{node}-{day}", owner_kind="Job")
            fleet.job(name, at, at, at + long, gpus, name=f"{node}-{day}")
            for gpu in range(gpus):
                fleet.use(name, node, gpu, range(at, at + long), sm=0.9, util=0.97, memory_gib=38.0)
    fleet.workloads = {
        RUNS: {"kind": "evaluation", "deferrable": {"within_hr": slack_hr}},
        "train/nightly": {"kind": "batch"},
    }
    return audit(fleet.bundle(), SETTINGS)


def held_until(found):
    effects = [one.effect for action in found.plan.actions for one in action.changes]
    return [one.policy.start_hour for one in effects if isinstance(one, DeferRuns)]


def test_runs_move_onto_the_hours_that_another_leaves_of_a_commitment():
    near, far = shared_node("p4d.24xlarge", 8, 2), shared_node("p4d.24xlarge", 8, 12)

    assert held_until(near) == []
    assert held_until(far) in ([18], [21])
    assert far.proof.after_micro_usd < 0.85 * near.proof.after_micro_usd
    assert all(one.attained_frac >= one.target.required_frac for one in far.proof.targets)


def test_nobody_waits_where_that_saves_nothing():
    assert held_until(shared_node("g5.xlarge", 1, 12)) == []
