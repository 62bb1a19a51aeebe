"""Capacity blocks for runs: offered where a rate is known, replayed by their calendar, proved on weeks nobody planned on."""

from dataclasses import replace
from datetime import date

import pytest
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import BookBlocks
from trimtab.emit.manifests.orders import block_order
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Limits, Settings
from trimtab.levers import capacity_blocks, idle_release
from trimtab.pipeline import audit
from trimtab.plan.model import Risk
from trimtab.plan.options.workload_options import fixed_cost, options_of
from trimtab.plan.verify.enactment import enacted_frac
from trimtab.policies.blocks import BlockCalendar
from trimtab.replay.outcomes.evaluate import cases_of

SETTINGS = Settings(limits=Limits(use_spot=False))
"""Spot H100 nodes are cheaper than blocks."""
DAYS = 28
RUNS = "train/base"


@pytest.fixture(scope="module")
def market():
    return Market(catalog=load_catalog(), at=date(2026, 9, 30), max_term_years=1, assumptions=SETTINGS.assumptions)


def rows(machine="p5.48xlarge", start=12, long_hr=118, interruptible=True, wait_s=900):
    """One run a week over two nodes, from Monday noon on, on nodes that are held all the time."""
    fleet = FleetRows(DAYS).node("a", machine).node("b", machine)
    for week in range(DAYS // 7):
        begin = 168 * week + start
        for node in ("a", "b"):
            fleet.hold(RUNS, node, range(8), begin, begin + long_hr, pod=f"p{week}", owner_kind="Job")
            for gpu in range(8):
                fleet.use(RUNS, node, gpu, range(begin, begin + long_hr), sm=0.9, util=0.97, memory_gib=38.0)
        fleet.job(RUNS, begin, begin, begin + long_hr, 16, name=f"j{week}")
    targets = [{"metric": "queue_wait", "limit_s": wait_s}]
    fleet.workloads = {RUNS: {"kind": "training", "interruptible": interruptible, "targets": targets}}
    return fleet


def booked(fleet_rows, market, settings=SETTINGS):
    fleet = build_fleet(fleet_rows.bundle(), settings)
    options = options_of(cases_of(fleet, settings, seed=7)[RUNS], market)
    return options, [one for one in options.candidates if capacity_blocks.NAME in one.deployment.levers]


def cheapest(options, market):
    return min(options.candidates, key=lambda one: fixed_cost(one.usage, market))


def test_a_run_of_five_days_is_held_in_a_block_of_five_days(market):
    options, _ = booked(rows(), market)

    one = cheapest(options, market)
    assert one.deployment.levers == {idle_release.NAME, capacity_blocks.NAME}
    effect = one.deployment.buying
    assert effect.calendar.nodes == (2, 2, 2, 2, 2, 0, 0)
    block, *rest = sorted(one.usage, key=lambda pool: pool.capacity_type is CapacityType.ON_DEMAND)
    assert block == effect.pool
    assert one.usage[block].sum() == 4 * 5 * 2 * 24 * 3600
    assert sum(int(one.usage[pool].sum()) for pool in rest) < 0.05 * one.usage[block].sum()
    assert options.evaluator.keeps_targets(one.deployment)


def test_what_is_paid_follows_the_calendar_and_not_the_runs(market):
    options, _ = booked(rows(start=36), market)

    one = cheapest(options, market)
    effect = one.deployment.buying
    weeks = one.usage[effect.pool].reshape(4, 168)
    assert (weeks == weeks[0]).all()
    assert weeks[0].sum() == sum(effect.calendar.nodes) * 24 * 3600


def test_runs_that_cannot_resume_are_only_held_in_blocks_that_never_end(market):
    short, in_blocks = booked(rows(interruptible=False), market)
    long, always = booked(rows(start=0, long_hr=168, interruptible=False), market)

    # 118 of 168 hours at 71 % of the rate do not pay a block that stands throughout
    assert cheapest(short, market).deployment.levers == {idle_release.NAME}
    assert cheapest(long, market).deployment.buying.calendar.nodes == (2,) * 7
    for one in (*in_blocks, *always):
        assert len(set(one.deployment.buying.calendar.nodes)) == 1
        assert one.outcome.interruptions == 0


def test_nodes_that_stand_all_the_time_are_held_in_blocks_where_runs_may_not_wait_for_nodes(market):
    _, found = booked(rows(interruptible=False, wait_s=0.1), market)

    (one,) = found
    assert one.deployment.levers == {capacity_blocks.NAME}
    assert {pool.capacity_type for pool in one.usage} == {CapacityType.CAPACITY_BLOCK}


def test_nothing_is_offered_without_a_rate_or_where_nobody_wants_it(market):
    assert booked(rows("p4d.24xlarge"), market)[1] == []  # the catalog knows no rate in us-east-1
    assert booked(rows(), market, replace(SETTINGS, limits=Limits(use_spot=False, use_blocks=False)))[1] == []


def test_the_calendar_is_planned_on_one_window_and_paid_on_the_next():
    found = audit(rows().bundle(), SETTINGS)

    (action,) = [one for one in found.plan.actions if one.lever == capacity_blocks.NAME]
    (effect,) = [one.effect for one in action.changes]
    assert isinstance(effect, BookBlocks)
    assert action.risk is Risk.MEDIUM
    assert any("booked node-hours in use" in row.what and row.value > "90%" for row in action.evidence)
    week = found.proof.hourly_after_usd[-168:]  # the proof window ends on a Sunday night
    assert week.sum() == pytest.approx(2 * 5 * 24 * 39.33, rel=0.001)
    assert found.proof.saving_frac > 0.4
    assert all(one.attained_frac >= one.target.required_frac for one in found.proof.targets)

    page = block_order(action, RUNS, effect)
    assert "| for 5 days from Monday | 2 | 2 | $9,439.20 |" in page
    assert "--instance-count 2 --capacity-duration-hours 120" in page


def test_a_week_in_blocks_is_seen_by_its_node_hours():
    effect = BookBlocks(
        pool=Pool("aws", "p5.48xlarge", "us-east-1", CapacityType.CAPACITY_BLOCK.value),
        calendar=BlockCalendar((2, 2, 2, 2, 2, 0, 0)),
        rate_micro_usd_hr=39_330_000,
        on_demand_micro_usd_hr=55_040_000,
    )
    held = FleetRows(7).node("a", "p5.48xlarge", 12, 132, capacity_type="capacity-block").node("b", "p5.48xlarge")
    held.hold(RUNS, "a", range(8), 12, 132).use(RUNS, "a", 0, range(12, 132), sm=0.9)

    fleet = build_fleet(held.bundle(), SETTINGS)

    # one of two nodes, from Monday noon to Saturday noon; the week's calendar books as many hours of each
    assert enacted_frac(effect, None, None, (), fleet, {}) == pytest.approx(0.5)
