"""Serving from spot: offered, replayed with losses, and taken only where it keeps the targets and pays."""

from datetime import date

import pytest
from tests.fleets import FleetRows, few_machines

from trimtab.catalog.kinds import CapacityType
from trimtab.deployment.effects import HedgeOnSpot
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.plan.options.workload_options import options_of
from trimtab.replay.outcomes.evaluate import cases_of

SETTINGS = Settings()


@pytest.fixture(scope="module")
def market():
    return Market(catalog=few_machines(), at=date(2026, 9, 30), max_term_years=1, assumptions=SETTINGS.assumptions)


@pytest.fixture(scope="module", params=[None, True])
def found(request, market):
    rows = FleetRows(7)
    for number in range(8):
        rows.node(f"n{number}", "g5.xlarge").hold("prod/api", f"n{number}", [0], owner_kind="Deployment")
        rows.use("prod/api", f"n{number}", 0, range(168), sm=0.3, util=0.4)
    rows.demand("prod/api", lambda hour: 400 if 8 <= hour % 24 < 20 else 60, 8)
    rows.workloads = {"prod/api": {"interruptible": request.param, "kind": "serving"}}
    fleet = build_fleet(rows.bundle(), SETTINGS)
    (case,) = cases_of(fleet, SETTINGS, seed=7).values()
    return request.param, options_of(case, market)


def hedged(options):
    return [one for one in options.candidates if isinstance(one.deployment.buying, HedgeOnSpot)]


def test_only_a_service_that_was_declared_interruptible_is_served_from_spot(found):
    interruptible, options = found

    assert bool(hedged(options)) == bool(interruptible)


def test_what_is_kept_is_billed_as_spot_and_keeps_its_targets_under_weekly_losses(found):
    _, options = found

    for one in hedged(options):
        assert options.evaluator.keeps_targets(one.deployment)
        assert any(pool.capacity_type is CapacityType.SPOT for pool in one.usage)
