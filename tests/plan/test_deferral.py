"""Runs that can wait: offered where declared, replayed within their slack, and worth it under a service's commitments."""

from datetime import date

import numpy as np
import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.fleet.build import build_fleet
from trimtab.fleet.effects import DeferRuns
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Lever, Settings
from trimtab.plan.evaluate import cases_of
from trimtab.plan.options import options_of

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
    found = [one for one in options.candidates if isinstance(one.effects.get(Lever.SCHEDULE), DeferRuns)]
    return options, {one.effects[Lever.SCHEDULE].policy.start_hour: one for one in found}


def test_runs_that_nobody_declared_deferrable_are_not_moved(market):
    assert deferred({}, market)[1] == {}


def test_runs_move_to_hours_within_their_slack(market):
    options, found = deferred({"deferrable": {"within_hr": 12}}, market)

    assert {15, 18, 21} <= set(found)
    for hour, one in found.items():
        held = sum(np.asarray(used) for used in one.usage.values())
        hours = {int(at) % 24 for at in np.flatnonzero(held)}
        assert options.evaluator.keeps_targets(one.effects)
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
