"""What is billed is planned, and nothing is saved by work that vanishes."""

from dataclasses import replace
from datetime import date
from functools import cache

import pytest
from hypothesis import given, strategies as st
from tests.fleets import FleetRows

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import BuyCommitment, ReleaseIdle
from trimtab.diagnose.findings import WasteKind
from trimtab.errors import ConservationError
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers import idle_release
from trimtab.pipeline import audit
from trimtab.plan.problem import summed
from trimtab.plan.program.fleet_problem import FleetBill, groups_of, require_each_once, usage_of_nodes
from trimtab.plan.proof.proof_window import require_possible
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of

SETTINGS = Settings()
DAYS = 14
HOURS = range(DAYS * 24)


@pytest.fixture(scope="module")
def market():
    return Market(catalog=load_catalog(), at=date(2026, 9, 30), max_term_years=1, assumptions=SETTINGS.assumptions)


def rows():
    """One node that a notebook holds, one that works for nobody on record, one on which both is so, one that idles."""
    fleet = FleetRows(DAYS)
    for name in ("known", "unknown", "both", "idle"):
        fleet.node(name, "g5.12xlarge")
    for name in ("known", "both"):
        fleet.hold("lab/nb", name, [0, 1], pod=name, owner_kind="Notebook")
        for device in (0, 1):
            fleet.use("lab/nb", name, device, HOURS, sm=lambda hour: 0.5 if 8 <= hour % 24 < 16 else 0.0)
    for name, devices in (("unknown", (0, 1, 2, 3)), ("both", (2, 3))):
        for device in devices:
            fleet.use(None, name, device, HOURS, sm=0.7)
    for device in range(4):
        fleet.use(None, "idle", device, HOURS, sm=0.0)
    return fleet


def test_nodes_at_work_for_nobody_on_record_stay_billed_whatever_is_planned(market):
    fleet = build_fleet(rows().bundle(), SETTINGS)
    groups = groups_of(fleet)

    assert fleet.unknown_holders == {"unknown", "both"}
    assert {fleet.nodes[index].name for index in groups.staying} == {"unknown", "both"}
    assert {fleet.nodes[index].name for nodes in groups.unheld.values() for index in nodes} == {"idle"}

    cases = cases_of(fleet, SETTINGS, seed=7)
    enacted = FleetBill(fleet=fleet, evaluators={0: Evaluator(case=cases["lab/nb"])}, market=market)
    (pool,) = fleet.usage.pools
    assert (enacted.usage({}, ())[pool] == fleet.usage.node_seconds[0]).all()


@given(moved=st.sets(st.integers(0, 3)), released=st.sets(st.sampled_from(["spare-0", "spare-1", "spare-2", "n0"])))
def test_nodes_stay_billed_until_all_who_held_them_have_moved_and_spare_ones_until_they_are_given_back(moved, released):
    groups, enacted, fleet = shared_nodes()
    left = [usage_of_nodes(fleet, groups.staying)]
    left += [usage for owners, usage in groups.held if not owners <= moved]
    left += [
        usage_of_nodes(fleet, [node])
        for nodes in groups.unheld.values()
        for node in nodes
        if fleet.nodes[node].name not in released
    ]
    gone_to = {index: Deployment.of((idle_release.NAME, ReleaseIdle(startup_s=0.0))) for index in moved}

    usage = enacted.usage(gone_to, released)

    expected = summed(
        [
            *(
                enacted.outcome(index, way).usage(enacted.evaluators[index].place(way))
                for index, way in gone_to.items()
            ),
            *left,
        ]
    )
    assert usage.keys() == expected.keys()
    assert all((usage[pool] == expected[pool]).all() for pool in expected)


@cache
def shared_nodes():
    """Four workloads of runs on six nodes of two types, some of which two of them hold, and three spare ones."""
    rows = FleetRows(DAYS)
    for number, instance_type in enumerate(["g5.12xlarge", "g5.xlarge"] * 3):
        rows.node(f"n{number}", instance_type)
    for number in range(3):
        rows.node(f"spare-{number}", "g5.xlarge" if number else "g5.12xlarge")
    for number, nodes in enumerate([("n0", "n1"), ("n0", "n2"), ("n3",), ("n4", "n5")]):
        for node in nodes:
            device = 1 if (number, node) == (1, "n0") else 0
            rows.hold(f"lab/run-{number}", node, [device], 4.0, 40.0, owner_kind="Job")
            rows.use(f"lab/run-{number}", node, device, range(4, 40), sm=0.6)
    fleet = build_fleet(rows.bundle(), SETTINGS)
    cases = cases_of(fleet, SETTINGS, seed=7)
    evaluators = {index: Evaluator(case=cases[workload.name]) for index, workload in enumerate(fleet.workloads)}
    prices = Market(catalog=load_catalog(), at=date(2026, 9, 30), max_term_years=1, assumptions=SETTINGS.assumptions)
    return groups_of(fleet), FleetBill(fleet=fleet, evaluators=evaluators, market=prices), fleet


def test_an_hour_next_to_one_in_which_somebody_held_the_gpu_is_not_unknown():
    fleet = FleetRows(1).node("n", "g5.xlarge").hold("lab/run", "n", [0], 4, 10.0, owner_kind="Job")
    fleet.use("lab/run", "n", 0, range(4, 10), sm=0.6).use(None, "n", 0, [3, 10], sm=0.6)
    assert build_fleet(fleet.bundle(), SETTINGS).unknown_holders == set()

    fleet.use(None, "n", 0, [15], sm=0.6)
    assert build_fleet(fleet.bundle(), SETTINGS).unknown_holders == {"n"}


def test_gpus_that_a_pod_holds_without_naming_them_are_not_unknown():
    fleet = FleetRows(1).node("n", "g5.12xlarge").hold("lab/run", "n", [0, 1], owner_kind="Job")
    for row in fleet.rows["allocations"]:
        row["device"] = None
    for device in range(2):
        fleet.use(None, "n", device, range(24), sm=0.6)
    assert build_fleet(fleet.bundle(), SETTINGS).unknown_holders == set()


def test_an_audit_bills_them_and_says_so():
    found = audit(rows().bundle(), SETTINGS, at=date(2026, 9, 30))

    waste = {one.kind: one for one in found.waste}
    assert set(waste[WasteKind.UNKNOWN_HOLDER].where) == {"unknown", "both"}
    assert any("no known holder" in reason for reason in found.coverage.counts)
    assert sum(one.micro_usd for one in found.waste) == found.bill_micro_usd
    assert found.proof.clairvoyant_micro_usd >= found.proof.before_micro_usd * 2 / 4 * 0.5


def test_groups_that_leave_out_a_billed_node_are_an_error_that_names_it():
    fleet = build_fleet(rows().bundle(), SETTINGS)
    every = list(range(len(fleet.nodes)))

    require_each_once(fleet, every)
    with pytest.raises(ConservationError, match=fleet.nodes[2].name):
        require_each_once(fleet, [0, 1, 3])
    with pytest.raises(ConservationError, match=fleet.nodes[1].name):
        require_each_once(fleet, [*every, 1])


def test_a_plan_below_what_is_possible_is_an_error():
    require_possible(100, 100)
    with pytest.raises(ConservationError, match="not billed"):
        require_possible(99, 100)


def test_history_is_billed_at_the_prices_of_its_days_and_the_plan_at_those_of_today():
    """The price of a node is cut by half after three of fourteen days; the first seven are the fit window."""
    catalog = load_catalog()
    key = ("aws", "g5.12xlarge", "us-east-1", BuyingOption.ON_DEMAND)
    (*_, last) = catalog.prices.history(*key)
    cut = replace(last, usd_hr=last.usd_hr / 2, as_of=date(2026, 9, 10))
    book = replace(catalog.prices, prices=(*catalog.prices.prices, cut))
    found = audit(rows().bundle(), SETTINGS, replace(catalog, prices=book), at=date(2026, 9, 30))

    days = found.plan.window.hours / 24
    whole = 4 * 24 * last.usd_hr
    assert found.bill_micro_usd / 1e6 == pytest.approx(whole * 3 + whole / 2 * (days - 3))
    assert found.plan.before_micro_usd / 1e6 == pytest.approx(whole / 2 * days)
    assert sum(one.micro_usd for one in found.waste) == found.bill_micro_usd
    assert any("prices changed inside the history" in reason for reason in found.degraded)


def steady(days):
    """A node at work at all hours: nothing but a commitment makes it cheaper."""
    fleet = FleetRows(days).node("n", "p4d.24xlarge").hold("web/a", "n", range(8), owner_kind="Deployment")
    for device in range(8):
        fleet.use("web/a", "n", device, range(days * 24), sm=0.8, memory_gib=39.0)
    return fleet.bundle()


def bought(found):
    return [change.effect for action in found.plan.actions for change in action.changes]


def test_no_commitment_is_advised_on_less_than_four_weeks_and_the_audit_says_so():
    short, long = (audit(steady(days), SETTINGS, at=date(2026, 10, 30)) for days in (27, 28))
    off = replace(SETTINGS, limits=replace(SETTINGS.limits, use_commitments=False))

    assert bought(short) == []
    assert any("27 days of history, and a purchase needs 28" in reason for reason in short.degraded)
    assert [type(effect) for effect in bought(long)] == [BuyCommitment]
    assert bought(audit(steady(28), off, at=date(2026, 10, 30))) == []


def test_a_purchase_that_is_used_at_all_hours_can_save_no_more_than_it_does():
    found = audit(steady(28), SETTINGS, at=date(2026, 10, 30))
    (purchase,) = found.plan.actions

    # the difference of the two rates for 730 hours a month; less only where nodes go
    assert purchase.saving_usd_mo.low < purchase.saving_usd_mo.value
    assert purchase.saving_usd_mo.high == pytest.approx(purchase.saving_usd_mo.value, abs=0.01)
