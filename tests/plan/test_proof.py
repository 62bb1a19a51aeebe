"""A plan laid over another window: all its actions together are the proof, some of them are parts of it."""

from itertools import combinations

import pytest
from tests.fleets import FleetRows, few_machines
from tests.plan.fleets import make_plan

from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.plan.actions.intervals import joint_saving
from trimtab.plan.proof.proof_window import PlanOnWindow, prove

SETTINGS = Settings()


@pytest.fixture(scope="module")
def windows():
    """A service on one of four GPUs, a node that nobody holds: a plan of the first two weeks, the fleet of the third."""
    rows = FleetRows(21).node("spare", "g5.12xlarge").node("n", "g5.12xlarge")
    rows.hold("web/a", "n", [0], owner_kind="Deployment").use("web/a", "n", 0, range(21 * 24), sm=0.3)
    return planned_on_two_weeks(rows)


def planned_on_two_weeks(rows):
    bundle = rows.bundle()
    whole = bundle_window(bundle)
    market = Market(catalog=few_machines(), at=whole.end.date(), max_term_years=1, assumptions=SETTINGS.assumptions)
    fit, later = (build_fleet(bundle, SETTINGS, whole.part(*hours)) for hours in ((0, 336), (336, 168)))
    planned = make_plan(fit, market, SETTINGS, seed=7, progress=lambda _stage, _share: None)
    return planned, later, market


def test_all_actions_together_cost_what_the_proof_says(windows):
    planned, later, market = windows

    again = PlanOnWindow(planned=planned, enacted=prove(planned, later, market, SETTINGS, seed=7).enacted)

    proof = prove(planned, later, market, SETTINGS, seed=7).proof
    everything = frozenset(range(len(planned.plan.actions)))
    assert everything
    assert again.cost(frozenset()) == proof.before_micro_usd
    assert again.cost(everything) == proof.after_micro_usd


def test_more_actions_never_cost_more_where_they_only_give_back(windows):
    planned, later, market = windows
    again = PlanOnWindow(planned=planned, enacted=prove(planned, later, market, SETTINGS, seed=7).enacted)

    count = len(planned.plan.actions)
    none = again.cost(frozenset())

    assert all(
        again.cost(frozenset(some)) <= none for size in range(count) for some in combinations(range(count), size)
    )


def test_the_interval_of_the_whole_plan_holds_on_a_fleet_that_does_not_change(windows):
    planned, later, market = windows

    proof = prove(planned, later, market, SETTINGS, seed=7).proof

    claimed = joint_saving(planned.plan)
    saved_usd_mo = planned.plan.usd_mo(2 * (proof.before_micro_usd - proof.after_micro_usd))
    assert claimed.low <= saved_usd_mo <= claimed.high
    assert claimed.low < claimed.value < claimed.high


def test_a_node_that_nobody_holds_any_more_goes_with_the_workload_that_the_plan_moves_off_it():
    """In the third week `emptied` idles: what held it has gone to smaller nodes by then, and its order names it."""
    rows = FleetRows(21).node("n", "g5.12xlarge").node("emptied", "g5.12xlarge").node("theirs", "g5.12xlarge")
    rows.hold("web/a", "n", [0], owner_kind="Deployment").use("web/a", "n", 0, range(21 * 24), sm=0.3)
    rows.hold("web/a", "emptied", [0], 0, 14 * 24, owner_kind="Deployment", pod="web/a-1")
    rows.use("web/a", "emptied", 0, range(14 * 24), sm=0.3)
    rows.hold("web/gone", "theirs", [0, 1, 2, 3], 0, 14 * 24, owner_kind="Deployment")
    planned, later, market = planned_on_two_weeks(rows)
    (moved,) = planned.deployments

    enacted = prove(planned, later, market, SETTINGS, seed=7).enacted

    assert moved == "web/a"
    (home,) = later.usage.pools
    (index,) = (at for at, one in enumerate(later.workloads) if one.name == moved)
    before, after = enacted.usage({}, ()), enacted.usage({index: planned.deployments[moved]}, ())
    week_s = 7 * 24 * 3600
    assert before[home].sum() == 3 * week_s
    assert after[home].sum() == week_s, "a node stays whose holder, which has gone, the plan did not move"
