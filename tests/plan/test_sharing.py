"""Workloads that hold parts of nodes share whole ones: one action, exact shares, the same bill in plan, ledger and proof."""

from itertools import combinations

import pytest
from tests.fleets import FleetRows, few_machines
from tests.plan.fleets import make_plan

from trimtab.catalog.kinds import Isolation
from trimtab.deployment.effects import UseSlots
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Planning, Settings
from trimtab.levers import sharing
from trimtab.plan.model import Risk
from trimtab.plan.proof.proof_window import PlanOnWindow, prove

SETTINGS = Settings()
CHEAP_WORK = Settings(planning=Planning(engineer_week_usd=100.0))
"""Work that even a small GPU given back pays for."""
DAYS = 21
LE_S = (1.0, 2.0, 4.0, float("inf"))


@pytest.fixture(scope="module")
def windows():
    """Four services in two namespaces, each on two of the eight GPUs of a node of its own."""
    rows = FleetRows(DAYS)
    for name in ("a/one", "a/two", "b/three", "b/four"):
        node = name.replace("/", "-")
        rows.node(node, "p4d.24xlarge").hold(name, node, [0, 1], owner_kind="Deployment")
        for device in (0, 1):
            rows.use(name, node, device, range(DAYS * 24), sm=0.7, dram=0.5, tensor=0.4, memory_gib=30.0)
        rows.demand(name, lambda hour: 3_000.0, 1, LE_S, lambda hour: (1_000, 1_800, 200, 0), running=lambda hour: 3.0)
    bundle = rows.bundle()
    whole = bundle_window(bundle)
    market = Market(catalog=few_machines(), at=whole.end.date(), max_term_years=1, assumptions=SETTINGS.assumptions)
    fit, later = (build_fleet(bundle, SETTINGS, whole.part(*hours)) for hours in ((0, 336), (336, 168)))
    planned = make_plan(fit, market, SETTINGS, seed=7, progress=lambda _stage, _share: None)
    return planned, later, market


def test_four_quarters_share_one_node(windows):
    planned, _, market = windows
    (action,) = [one for one in planned.plan.actions if one.lever == sharing.NAME]

    assert {change.subject for change in action.changes} == {"a/one", "a/two", "b/three", "b/four"}
    assert action.subject == "a/one, a/two, b/four, b/three"
    assert all(isinstance(change.effect, UseSlots) and change.effect.slots == 2 for change in action.changes)
    on_demand = market.rate(planned.fleet.workloads[0].pool)
    assert planned.plan.before_micro_usd == 4 * on_demand * 336
    assert planned.plan.after_micro_usd <= on_demand * 336


def test_the_gap_is_certified_and_the_shares_sum_to_the_saving_exactly(windows):
    plan = windows[0].plan

    assert plan.gap_frac <= 1e-4
    assert sum(action.saving_micro_usd for action in plan.actions) == plan.joint_saving_micro_usd


def test_the_proof_bills_the_shared_node_once(windows):
    planned, later, market = windows

    proof = prove(planned, later, market, SETTINGS, seed=7).proof

    assert proof.after_micro_usd * 336 == planned.plan.after_micro_usd * 168
    assert all(target.kept for target in proof.targets)
    assert proof.clairvoyant_micro_usd <= proof.after_micro_usd


def test_no_part_of_the_plan_costs_less_than_the_whole_and_none_is_lost(windows):
    planned, later, market = windows
    again = PlanOnWindow(planned=planned, enacted=prove(planned, later, market, SETTINGS, seed=7).enacted)
    count = len(planned.plan.actions)

    everything = again.cost(frozenset(range(count)))

    assert all(
        again.cost(frozenset(some)) >= everything for size in range(count) for some in combinations(range(count), size)
    )


def test_sharing_says_how_to_undo_it_and_what_it_rests_on(windows):
    (action,) = [one for one in windows[0].plan.actions if one.lever == sharing.NAME]

    assert "node selectors" in action.rollback
    assert any("whole GPUs on p4d.24xlarge" in line.what for line in action.evidence)


def two_small(limit_s=None, isolation=None):
    """Two services of an A10G each, which 30 requests an hour of two seconds keep at work a sixtieth of the time."""
    rows = FleetRows(7)
    for name in ("a/one", "a/two"):
        node = name.replace("/", "-")
        rows.node(node, "g5.xlarge").hold(name, node, [0], owner_kind="Deployment")
        rows.use(name, node, 0, range(168), sm=0.05, dram=0.03, tensor=0.02, memory_gib=6.0)
        rows.demand(name, lambda hour: 30.0, 1, LE_S, lambda hour: (10, 18, 2, 0), running=lambda hour: 0.06)
        if limit_s is not None:
            rows.workloads[name] = {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": limit_s}]}
        if isolation is not None:
            rows.workloads.setdefault(name, {})["isolation"] = isolation
    bundle = rows.bundle()
    market = Market(
        catalog=few_machines(), at=bundle_window(bundle).end.date(), max_term_years=1, assumptions=SETTINGS.assumptions
    )
    return make_plan(build_fleet(bundle, CHEAP_WORK), market, CHEAP_WORK, seed=7, progress=lambda *_: None)


def test_sharing_without_isolation_is_judged_with_its_sum_and_not_planned():
    plan = two_small().plan

    (judged,) = [one for one in plan.not_worth_doing if "without isolation" in one.reason]
    assert judged.saving_usd_mo == pytest.approx(1.006 * 730)
    assert judged.subject == "a/one, a/two"
    assert "1 x g5.xlarge in place of 2" in judged.reason
    assert "isolation: in workloads.yaml" in judged.reason
    assert all(action.lever != sharing.NAME for action in plan.actions)


def test_sharing_without_isolation_is_planned_where_it_is_admitted_and_keeps_the_targets():
    planned = two_small(limit_s=8.0, isolation="time-slicing")

    (action,) = [one for one in planned.plan.actions if one.lever == sharing.NAME]
    assert action.risk is Risk.HIGH
    assert {change.subject for change in action.changes} == {"a/one", "a/two"}
    assert all(one.effect.shared.kept_apart_by is Isolation.TIME_SLICING for one in action.changes)
    assert any("may be stopped by a fault of" in line.what for line in action.evidence)
    attained = [
        one
        for index, mine in planned.drafted.in_force(planned.drafted.everything).items()
        for one in planned.drafted.enacted.outcome(index, mine).attained
    ]
    assert attained
    assert all(one.safe_frac >= one.target.required_frac for one in attained)
    assert not any("without isolation" in one.reason for one in planned.plan.not_worth_doing)


def test_sharing_without_isolation_is_not_planned_where_a_target_would_be_missed():
    plan = two_small(isolation="time-slicing").plan

    assert all(action.lever != sharing.NAME for action in plan.actions)
