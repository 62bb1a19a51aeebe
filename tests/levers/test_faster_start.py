"""Images on each node's disk: offered where pulls were measured, taken off the service's own start, written and verified."""

from dataclasses import replace

import pytest
from benchmarks.enact import proved_fleet, row_of
from hypothesis import given, settings, strategies as st
from tests.contracts.random_fleets import LE_S, SHARES
from tests.fleets import FleetRows, few_machines, with_starts

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import ShortenStart
from trimtab.emit.manifests.facts import NodeMaker
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Assumptions, Planning, Settings
from trimtab.fleet.starts import SlowStarts
from trimtab.levers import autoscaling, faster_start
from trimtab.levers.lever import LeverRequest
from trimtab.plan.verify.enactment import enacted_frac
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.outcome import Stress
from trimtab.replay.outcomes.service_model import cold_start_of, planned_start_of, warm_start_of

FREE = Settings(
    planning=Planning(max_term_years=0, max_payback_mo=120, min_saving_usd_mo=1),
    assumptions=Assumptions(node_startup_s=60.0),
)
MACHINES = few_machines("g5.xlarge")
DAYS = 14
START = ShortenStart(start_s=100.0, before_s=900.0, images=True, weights=False)


def service(*pods, declared=None):
    """Eight replicas of which nights need two, and a load that comes at once at eight, with pods that tell their starts.

    Of each pod how long its start took, of that the pulls of its images, and the load (30 s where nothing is said).
    """
    rows = FleetRows(DAYS)
    for number in range(8):
        rows.node(f"n{number}", "g5.xlarge")
        rows.hold("prod/api", f"n{number}", [0], pod=f"api-{number}", owner_kind="Deployment")
        rows.use(
            "prod/api", f"n{number}", 0, range(DAYS * 24), sm=0.35, util=0.4, dram=0.2, tensor=0.15, memory_gib=8.0
        )

    def requests(hour):
        return 24_000 if 8 <= hour % 24 < 18 else 2_000

    rows.demand(
        "prod/api",
        requests,
        8,
        LE_S,
        lambda hour: [requests(hour) * share for share in SHARES],
        running=lambda hour: 5.0,
    )
    rows.workloads["prod/api"] = {
        "targets": [{"metric": "latency", "quantile": 0.985, "limit_s": 10.0}], "interruptible": False, **(declared or {}),
    }  # fmt: skip
    return with_starts(rows.bundle(), *pods)


def case_of(bundle, chosen=FREE):
    (case,) = cases_of(build_fleet(bundle, chosen), chosen, seed=7).values()
    return case


@pytest.fixture(scope="module")
def measured():
    return case_of(service(*[(900.0, 800.0)] * 4))


@pytest.mark.parametrize(
    ("pods", "declared", "expected"),
    [
        ([(900.0, 800.0)] * 4, None, START),
        ([(900.0, 50.0)] * 4, None, None),  # its images are a small part
        ([(900.0, None)] * 4, None, None),  # no event tells
        ([(900.0, 800.0)] * 2, None, None),  # too few starts
        ([(900.0, 800.0)] * 4, {"cold_start_s": 90.0}, None),
        ([], None, None),
    ],
)
def test_images_are_offered_where_pulls_were_measured_and_count(pods, declared, expected):
    assert faster_start.without_pulls(case_of(service(*pods, declared=declared))) == expected


USUAL, SHORT = (400.0, 100.0, 250.0), (210.0, 100.0, 60.0)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([USUAL] * 12 + [SHORT] * 3, [(110.0, True, True), (300.0, True, False), (210.0, False, True)]),
        ([USUAL] * 12 + [SHORT] * 2, [(300.0, True, False)]),  # two short loads may be chance
        (
            [(310.0, 10.0, 250.0)] * 12 + [(120.0, 10.0, 60.0)] * 3,
            [(120.0, False, True)],
        ),  # its images are a small part
    ],
)
def test_loads_count_where_several_were_far_shorter_alone_and_beside_images(pods, expected):
    found = faster_start.starts(case_of(service(*pods)))

    assert [(start.start_s, start.images, start.weights) for start in found] == expected


@given(st.lists(st.tuples(st.floats(1.0, 400.0), st.floats(0.0, 300.0), st.floats(0.0, 300.0)), min_size=3, max_size=8))
@settings(max_examples=8, deadline=None)
def test_a_start_is_never_shorter_than_its_parts_let_it(parts):
    case = case_of(service(*((setup + pull + load, pull, load) for setup, pull, load in parts)))

    for start in faster_start.starts(case):
        assert 0.0 <= start.start_s <= 0.9 * start.before_s + 0.1
        assert start.before_s == case.workload.start_s


@pytest.mark.parametrize(
    ("pods", "declared", "expected"),
    [
        ([(900.0, 10.0)] * 4, {"restore_s": 45.0}, (45.0, 900.0)),
        ([], {"restore_s": 45.0}, (45.0, 180.0)),  # in place of the start that is assumed
        ([], {"restore_s": 45.0, "cold_start_s": 60.0}, (45.0, 60.0)),
        ([], {"restore_s": 55.0, "cold_start_s": 60.0}, None),  # hardly shorter
        ([(900.0, 10.0)] * 4, None, None),  # nobody measured one
    ],
)
def test_a_snapshot_is_offered_where_its_restore_was_measured(pods, declared, expected):
    case = case_of(service(*pods, declared=declared))
    ask = LeverRequest(evaluator=Evaluator(case=case), market=Market.of(MACHINES, None, FREE))

    found = faster_start.from_snapshot(case)

    assert (None if found is None else (found.start_s, found.before_s)) == expected
    assert found is None or found in {way.start for way in faster_start.LEVER.ways(Deployment(), ask)}


def test_a_start_that_is_stated_for_all_is_not_taken_apart():
    stated = replace(FREE, assumptions=replace(FREE.assumptions, service_cold_start_s=400.0))

    assert faster_start.without_pulls(case_of(service(*[(900.0, 800.0)] * 4), stated)) is None


def test_a_shorter_start_is_the_services_own_and_not_its_nodes(measured):
    case = measured

    assert (planned_start_of(case), warm_start_of(case), cold_start_of(case)) == (900.0, 900.0, 960.0)
    assert (planned_start_of(case, START), warm_start_of(case, START), cold_start_of(case, START)) == (
        100.0,
        100.0,
        160.0,
    )


@given(slow_s=st.floats(0.0, 3000.0))
@settings(max_examples=30, deadline=None)
def test_a_slow_start_loses_no_more_than_a_usual_pull(measured, slow_s):
    slow = replace(measured, stress=Stress(starts=SlowStarts(own_s={"prod/api": slow_s})))

    assert warm_start_of(slow, START) == pytest.approx(max(100.0, slow_s - 800.0))


def test_it_is_offered_with_autoscalers_that_it_lets_keep_what_they_missed(measured):
    ask = LeverRequest(evaluator=Evaluator(case=measured), market=Market.of(MACHINES, None, FREE))

    ways = list(faster_start.LEVER.ways(Deployment(), ask))

    sooner = [way for way in ways if ask.evaluator.keeps_targets(way)]
    assert all(way.start == START and way.scaling is not None for way in ways)
    assert any(not ask.evaluator.keeps_targets(way.without("start")) for way in sooner)
    assert all(ask.evaluator.keeps_targets(way) for way in ways if ask.evaluator.keeps_targets(way.without("start")))


def test_a_plan_that_rests_on_it_says_so_in_order_and_is_read_back(tmp_path):
    proved = proved_fleet("starts", service(*[(900.0, 800.0)] * 4), FREE, MACHINES)

    actions = proved.planned.plan.actions
    sooner, scaled = (
        next(action for action in actions if action.lever == name) for name in (faster_start.NAME, autoscaling.NAME)
    )
    row = row_of(proved, NodeMaker.KARPENTER, tmp_path / "files")

    assert actions.index(sooner) < actions.index(scaled)
    assert sooner.enables == (scaled.id,)
    assert scaled.enables == ()
    assert row.off_frac == pytest.approx(0.0, abs=1e-9)
    assert (row.targets_equal, row.targets) == (row.targets, row.targets)
    assert "prod/api" in " ".join(row.by_page)


def test_a_plan_that_rests_on_a_snapshot_says_how_and_is_read_back(tmp_path):
    proved = proved_fleet("restored", service(*[(900.0, 10.0)] * 4, declared={"restore_s": 100.0}), FREE, MACHINES)

    action = next(action for action in proved.planned.plan.actions if action.lever == faster_start.NAME)
    row = row_of(proved, NodeMaker.KARPENTER, tmp_path)
    page = (tmp_path / "orders" / "start-prod-api.md").read_text(encoding="utf-8")

    assert (
        "restore its replicas from a snapshot of its process: replicas start in 100 s"
        in action.changes[0].effect.describe()
    )
    assert "Dynamo Snapshot" in page
    assert "restore_s" in page
    assert row.off_frac == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("took_s", "expected"), [(900.0, 0.0), (500.0, 0.5), (100.0, 1.0), (60.0, 1.0)])
def test_it_is_enacted_as_far_as_measured_starts_are_shorter(took_s, expected):
    fleet = build_fleet(service(*[(took_s, 10.0)] * 4), FREE)

    assert enacted_frac(START, None, 0, (), fleet, {}) == expected
