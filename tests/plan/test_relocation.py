"""Moving to another region or cloud: it pays for itself or it does not happen, and its cost is in every sum."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.fleets import FleetRows
from tests.plan.fleets import make_plan

from trimtab.catalog import load_catalog
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import Relocate
from trimtab.deployment.placement import resolve
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.reach import with_other_regions
from trimtab.fleet.settings import Limits, Settings
from trimtab.ledger import CommitmentOffer
from trimtab.levers import relocation, right_size, sharing, spot
from trimtab.levers.lever import LeverRequest, Risk
from trimtab.levers.registry import lever_named
from trimtab.plan.options.composition import Candidate, places
from trimtab.plan.options.workload_options import Coupling, options_of, undominated
from trimtab.plan.planner import plan_of as plan_again
from trimtab.plan.problem import Option, Problem
from trimtab.plan.program.fleet_problem import fleet_problem
from trimtab.plan.program.solve import choice_cost, solve_problem
from trimtab.plan.proof.proof_window import prove
from trimtab.plan.prospects import EarlierWork, judge
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.outcome import Outcome, Stress, entry_micro_usd, own_micro_usd, run_speed

SETTINGS = Settings()
DAYS = 14
NEAR_FREE = {"data_gib": 100.0, "traffic_gib_mo": 1000.0}
WINDOW_MO = DAYS * 24 / 730


def training(nodes=6, **declared):
    """Runs that keep nodes in Frankfurt busy all day: the same nodes cost a fifth less in the United States."""
    rows = FleetRows(DAYS)
    for n in range(nodes):
        rows.node(f"n{n}", "g5.12xlarge", region="eu-central-1")
        for day in range(DAYS):
            first, last = day * 24, day * 24 + 23
            rows.hold("lab/train", f"n{n}", range(4), first, last, pod=f"p{n}-{day}", owner_kind="Job")
            rows.job("lab/train", first, first, last, 4, name=f"j{n}-{day}")
            for gpu in range(4):
                rows.use("lab/train", f"n{n}", gpu, range(first, last), sm=0.7, tensor=0.5, dram=0.5, memory_gib=18.0)
    rows.workloads = {"lab/train": {"kind": "training", **declared}}
    return build_fleet(rows.bundle(), SETTINGS)


def market(at=SETTINGS):
    return Market.of(load_catalog(), None, at)


def plan_of(fleet, at=SETTINGS):
    return make_plan(fleet, market(at), at, seed=7, progress=lambda _stage, _share: None)


def move_in(plan):
    return next((action for action in plan.actions if action.lever == relocation.NAME), None)


def reason_in(plan):
    return next(one.reason for one in plan.not_worth_doing if one.lever == relocation.NAME)


@cache
def moved():
    return plan_of(training(regions=("us-east-1",), **NEAR_FREE))


def test_a_cheaper_region_wins_where_data_and_traffic_are_small():
    action = move_in(moved().plan)

    assert [change.effect.pool for change in action.changes] == [Pool("aws", "g5.12xlarge", "us-east-1")]
    assert action.risk is Risk.MEDIUM
    assert action.effort_weeks == lever_named(relocation.NAME).effort.weeks


def test_beside_a_plan_without_it_a_region_that_a_scenario_allows_is_offered():
    at_home = plan_of(training(**NEAR_FREE))
    fleet = with_other_regions(training(**NEAR_FREE), ["us-east-1"])
    earlier = EarlierWork(replayed=at_home.prospects)

    prospects = judge(fleet, market(), SETTINGS, seed=7, progress=lambda _stage, _share: None, earlier=earlier)
    found = plan_again(prospects, lambda _stage, _share: None)

    assert found.plan.after_micro_usd == moved().plan.after_micro_usd
    assert move_in(found.plan) is not None


def test_nothing_moves_that_nobody_allowed():
    plan = plan_of(training(**NEAR_FREE)).plan

    assert move_in(plan) is None
    assert relocation.NAME not in {one.lever for one in plan.not_worth_doing}


def test_a_rule_of_the_fleet_forbids_what_a_workload_would_allow():
    at = replace(SETTINGS, limits=Limits(regions="eu-west-1"))
    plan = plan_of(training(regions=("us-east-1",), **NEAR_FREE), at).plan

    assert move_in(plan) is None
    assert reason_in(plan) == "limits.regions allows none of aws/us-east-1"


def test_traffic_that_eats_the_saving_is_named_with_its_sum():
    plan = plan_of(training(regions=("us-east-1",), data_gib=0.0, traffic_gib_mo=1e6)).plan

    assert move_in(plan) is None
    assert "$20,000 a month of traffic" in reason_in(plan)


def test_moving_and_traffic_are_in_the_bill_to_the_micro_dollar():
    planned = moved()
    plan, move = planned.plan, move_in(planned.plan).changes[0].effect

    per_month = move.traffic_usd_mo + move.once_usd / SETTINGS.planning.change_horizon_mo
    assert move.copy_usd == pytest.approx(100 * SETTINGS.ownership.region_traffic_usd_gib)
    assert move.overlap_usd == pytest.approx(168 * 6 * 7.09282, rel=1e-6)
    assert plan.moving_micro_usd == pytest.approx(per_month * WINDOW_MO * 1e6, abs=1)
    nodes = planned.drafted.bill(planned.drafted.everything).total
    assert plan.after_micro_usd == nodes + plan.moving_micro_usd
    assert plan.bound_micro_usd <= plan.after_micro_usd


def test_the_shares_of_the_actions_sum_to_the_saving_net_of_moving():
    plan = moved().plan

    assert sum(action.saving_micro_usd for action in plan.actions) == plan.joint_saving_micro_usd
    assert sum(action.moving_usd_mo for action in plan.actions) == pytest.approx(plan.usd_mo(plan.moving_micro_usd))


def test_the_proof_pays_for_the_move_as_long_as_its_window_lasts():
    planned = moved()
    week = training(regions=("us-east-1",), **NEAR_FREE)

    proof = prove(planned, week, market(), SETTINGS, seed=8).proof

    assert proof.moving_micro_usd == planned.plan.moving_micro_usd
    assert proof.after_micro_usd == planned.plan.after_micro_usd
    assert proof.hourly_after_usd.sum() == pytest.approx(proof.after_micro_usd / 1e6)
    assert proof.clairvoyant_micro_usd <= proof.after_micro_usd


@pytest.mark.parametrize("weeks", [1.0, 520.0])
def test_another_cloud_is_paid_once_and_only_where_it_pays(weeks):
    asked = replace(
        SETTINGS,
        limits=Limits(providers="lambda"),
        planning=replace(SETTINGS.planning, max_term_years=0),
        alternatives=replace(SETTINGS.alternatives, migration_weeks=weeks),
    )
    fleet = training(data_gib=0.0, traffic_gib_mo=0.0)

    planned = plan_of(fleet, asked)
    action = move_in(planned.plan)

    assert move_in(plan_of(fleet).plan) is None, "off where nobody asks"
    if weeks > 1:
        assert action is None
        assert "$2,087,150 once" in reason_in(planned.plan)
        return
    assert {change.effect.cloud for change in action.changes} == {"lambda"}
    assert action.risk is Risk.HIGH
    assert action.effort_weeks == lever_named(relocation.NAME).effort.weeks + weeks
    entry = entry_micro_usd(asked, DAYS * 24)
    assert entry == pytest.approx(4000 / 12 * WINDOW_MO * 1e6, abs=1)
    assert planned.plan.moving_micro_usd > entry


def service(limit_s):
    """A service with a p95 of half a second, and a move for it over the sea."""
    rows = FleetRows(7).node("n", "g5.xlarge", region="eu-central-1").hold("prod/api", "n", [0])
    rows.use("prod/api", "n", 0, range(168), sm=0.4, tensor=0.2, dram=0.3, memory_gib=10.0)
    rows.demand(
        "prod/api",
        lambda hour: 3600,
        1,
        le_s=(0.1, 0.5, 1.0, float("inf")),
        counts=lambda hour: [1800, 1790, 10, 0],
        running=lambda hour: 0.3,
    )
    rows.workloads = {
        "prod/api": {
            "regions": ["us-east-1", "eu-west-1"],
            "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": limit_s}],
            **NEAR_FREE,
        }
    }
    (case,) = cases_of(build_fleet(rows.bundle(), SETTINGS), SETTINGS, seed=7).values()
    return case


@pytest.mark.parametrize(("limit_s", "kept"), [(0.7, {"eu-west-1"}), (0.95, {"eu-west-1", "us-east-1"}), (0.5, set())])
def test_the_round_trip_comes_off_the_latency_target(limit_s, kept):
    case = service(limit_s)
    evaluator = Evaluator(case=case)

    offered = relocation.propose(case.workload, market(), SETTINGS).fitting
    moves = [Deployment.of((relocation.NAME, move)) for move in offered]
    same = [one for one in moves if one.relocation.pool.instance_type == "g5.xlarge"]
    possible = [one for one in same if evaluator.hopeless(one) is None and evaluator.keeps_targets(one)]
    assert {one.relocation.pool.region for one in possible} == kept


def test_a_move_says_how_much_longer_a_request_takes_and_what_it_costs():
    case = service(2.0)
    moves = {move.pool.region: move for move in relocation.propose(case.workload, market(), SETTINGS).fitting}

    assert moves["eu-west-1"].rtt_s == SETTINGS.assumptions.region_rtt_s
    assert moves["us-east-1"].rtt_s == SETTINGS.assumptions.continent_rtt_s
    assert moves["us-east-1"].traffic_usd_mo == pytest.approx(1000 * 0.02)
    away = Deployment.of((relocation.NAME, moves["us-east-1"]))
    assert resolve(case.workload, away).pool.region == "us-east-1"


def test_other_nodes_in_the_region_cost_a_rollout_only_where_one_is_stated():
    case = service(2.0)
    (fit,) = cases_of(training(), SETTINGS, seed=7).values()
    size = right_size.propose(fit.workload, market(), SETTINGS.assumptions).fitting[-1]
    other = Deployment.of((right_size.NAME, size))
    stated = replace(SETTINGS, assumptions=replace(SETTINGS.assumptions, rollout_overlap_hr=10.0))

    assert own_micro_usd(case.workload, AS_IT_IS, market(), stated, 730) == 0
    assert own_micro_usd(fit.workload, other, market(), SETTINGS, 730) == 0
    assert own_micro_usd(fit.workload, other, market(), stated, 730) == pytest.approx(10 * 6 * 7.09282e6 / 12, rel=1e-6)


def test_spot_nodes_elsewhere_count_only_with_the_move_there():
    fleet = training(regions=("us-east-1",), interruptible=True, **NEAR_FREE)
    (case,) = cases_of(fleet, SETTINGS, seed=7).values()
    move = relocation.propose(case.workload, market(), SETTINGS).fitting[0]
    offers = spot.propose(case.workload, market(), SETTINGS.assumptions)
    on_spot = next(one for one in offers if one.pool.nodes == move.pool)
    both = Deployment.of((relocation.NAME, move), (spot.NAME, on_spot))

    together = resolve(case.workload, both)
    assert together.spot.pool.region == "us-east-1" == together.pool.region
    assert resolve(case.workload, Deployment.of((spot.NAME, on_spot))).spot is None


@cache
def stay_cost():
    fleet = training(nodes=2)
    (case,) = cases_of(fleet, SETTINGS, seed=7).values()
    return solve_problem(fleet_problem(fleet, [options_of(case, market())], market()), SETTINGS.planning)


@settings(max_examples=6, deadline=None)
@given(
    st.sets(st.sampled_from(["us-east-1", "us-west-2", "eu-west-1", "ap-northeast-1"]), min_size=1),
    st.sampled_from([0.0, 1e3, 1e6]),
    st.sampled_from([0.0, 1e3, 1e5]),
)
def test_an_allowed_region_never_makes_the_plan_dearer(regions, data_gib, traffic_gib_mo):
    fleet = training(nodes=2, regions=tuple(sorted(regions)), data_gib=data_gib, traffic_gib_mo=traffic_gib_mo)
    (case,) = cases_of(fleet, SETTINGS, seed=7).values()

    chosen = solve_problem(fleet_problem(fleet, [options_of(case, market())], market()), SETTINGS.planning)

    assert chosen.cost_micro_usd <= stay_cost().cost_micro_usd
    assert chosen.bound_micro_usd <= chosen.cost_micro_usd


COUPLED, FREE = Pool("aws", "g5.xlarge", "us-east-1"), Pool("aws", "g5.xlarge", "us-east-1", "spot")
NOTHING = Outcome(on_demand=np.zeros(2, dtype=np.int64), spot=np.zeros(2, dtype=np.int64), attained=())


@st.composite
def candidates(draw):
    seconds = st.lists(st.integers(0, 2).map(lambda nodes: nodes * 3600), min_size=2, max_size=2)
    pools = draw(st.sets(st.sampled_from([COUPLED, FREE]), min_size=1))
    return Candidate(
        deployment=AS_IT_IS,
        usage={pool: np.array(draw(seconds), dtype=np.int64) for pool in sorted(pools)},
        outcome=NOTHING,
        own_micro_usd=draw(st.integers(0, 3)) * 300_000,
        needs=frozenset(draw(st.sets(st.sampled_from(["gcp", "azure"])))),
    )


@given(
    st.lists(st.lists(candidates(), min_size=1, max_size=5), min_size=1, max_size=2),
    st.integers(0, 3).map(lambda number: number * 400_000),
)
def test_dropping_what_another_beats_loses_nothing(rows, entry):
    at = market()
    coupling = Coupling.of(Limits(), at, ())

    def cheapest(kept):
        problem = Problem(
            options=tuple(
                tuple(Option(usage=c.usage, own_micro_usd=c.own_micro_usd, needs=c.needs) for c in row) for row in kept
            ),
            groups=(),
            rates_micro_usd_hr={COUPLED: at.rate(COUPLED), FREE: at.rate(FREE)},
            offers=(CommitmentOffer(option=at.commitment(COUPLED).option, rates_micro_usd_hr={COUPLED: 600_000}),),
            hours=2,
            entries_micro_usd={"gcp": entry, "azure": 2 * entry},
        )
        sizes = [range(len(row)) for row in kept]
        return min(choice_cost(problem, choice) for choice in np.array(np.meshgrid(*sizes)).T.reshape(-1, len(sizes)))

    assert cheapest([undominated(row, at, coupling)[0] for row in rows]) == cheapest(rows)


def test_a_move_keeps_its_figures_in_words():
    move = move_in(moved().plan).changes[0].effect

    assert isinstance(move, Relocate)
    assert move.describe() == "move to us-east-1, on g5.12xlarge (4x A10G)"


def test_slots_elsewhere_go_with_the_move_there_and_cost_what_it_costs():
    case = service(2.0)
    ask = LeverRequest(evaluator=Evaluator(case=case), market=market())
    both = next(where for where in places(ask) if {relocation.NAME, sharing.NAME} <= where.levers)

    place = resolve(case.workload, both)
    assert place.shared is both.sharing
    assert place.move is both.relocation
    assert place.pool.region == place.move.pool.region != case.workload.pool.region
    assert own_micro_usd(case.workload, both, market(), SETTINGS, 730) > 0
    alone = resolve(case.workload, both.restricted({sharing.NAME}))
    assert alone.shared is None
    assert alone.pool == case.workload.pool


def test_runs_on_the_same_gpu_elsewhere_keep_the_speed_that_was_measured():
    (fit,) = cases_of(training(nodes=1, regions=("us-east-1",), **NEAR_FREE), SETTINGS, seed=7).values()
    moves = relocation.propose(fit.workload, market(), SETTINGS).fitting
    same = next(move for move in moves if move.pool.instance_type == "g5.12xlarge")

    slower = replace(fit, stress=Stress(speed=0.5))

    assert run_speed(slower, resolve(fit.workload, Deployment.of((relocation.NAME, same))).speed) == 1.0
