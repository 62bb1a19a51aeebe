"""Serving from spot: offered, replayed with losses, and taken only where it keeps the targets and pays."""

from datetime import date

import pytest
from tests.fleets import FleetRows, few_machines
from tests.plan.fleets import make_plan

from trimtab.catalog.kinds import CapacityType
from trimtab.deployment.effects import HedgeOnSpot
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Planning, Settings
from trimtab.plan.options.workload_options import options_of
from trimtab.replay.outcomes.evaluate import cases_of

SETTINGS = Settings()


@pytest.fixture(scope="module")
def market():
    return Market(catalog=few_machines(), at=date(2026, 9, 30), max_term_years=1, assumptions=SETTINGS.assumptions)


def eight_replicas(interruptible):
    """A service that is busier by day, as a fleet."""
    rows = FleetRows(7)
    for number in range(8):
        rows.node(f"n{number}", "g5.xlarge").hold("prod/api", f"n{number}", [0], owner_kind="Deployment")
        rows.use("prod/api", f"n{number}", 0, range(168), sm=0.3, util=0.4)
    rows.demand("prod/api", lambda hour: 400 if 8 <= hour % 24 < 20 else 60, 8)
    rows.workloads = {"prod/api": {"interruptible": interruptible, "kind": "serving"}}
    return build_fleet(rows.bundle(), SETTINGS)


@pytest.fixture(scope="module", params=[None, True])
def found(request, market):
    fleet = eight_replicas(request.param)
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


def test_a_plan_on_spot_may_save_as_much_less_as_zones_cost_that_are_lost_more_often():
    settings = Settings(planning=Planning(engineer_week_usd=0.0, min_saving_usd_mo=1.0, max_term_years=0))
    market = Market.of(few_machines(), date(2026, 9, 30), settings)
    plan = make_plan(eight_replicas(interruptible=True), market, settings, seed=7, progress=lambda *_: None).plan

    on_spot = next(action for action in plan.actions if action.lever == "spot")
    ((more, less),) = plan.losses_micro_usd
    assert more > less > 0
    assert on_spot.saving_usd_mo.low <= on_spot.saving_usd_mo.value - plan.usd_mo(more) + 1e-6
