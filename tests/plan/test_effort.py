"""Effort in the joint choice: what a lever asks of the team is paid once, and the plan is the best among what is worth it."""

from dataclasses import replace
from datetime import date
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.fleets import FleetRows, few_machines
from tests.plan.fleets import EXACT, A, KeptOutcomes, brute_force, make_plan

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import AS_IT_IS
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Effort, Limits, Settings
from trimtab.levers import autoscaling, commitments, right_size
from trimtab.plan.actions.draft_plan import DraftPlan
from trimtab.plan.effort import effort_micro_usd, effort_of, with_effort
from trimtab.plan.options.composition import Candidate
from trimtab.plan.options.workload_options import Coupling, options_of, undominated
from trimtab.plan.problem import NodeGroup, Option, Problem
from trimtab.plan.program.solve import solve_problem
from trimtab.replay.outcomes.evaluate import cases_of
from trimtab.replay.outcomes.outcome import Outcome
from trimtab.units import HR_PER_MO, micro_usd

DAYS = 7
HOURS = HR_PER_MO  # a month, so that amounts a month are amounts over the window
RATE = 1_000_000
MARKET = Market(catalog=few_machines(), at=date(2026, 9, 30), max_term_years=1, assumptions=Settings().assumptions)


COUPLED = Pool("aws", "g5.xlarge", "us-east-1")
POOLS = (COUPLED, COUPLED.held_as(CapacityType.SPOT))


def usage(nodes, pool=A):
    return {pool: np.full(HOURS, round(nodes * 3600), dtype=np.int64)}


def three_services(saved_nodes):
    """Services on ten nodes each, of which autoscaling would save some: one dollar a node and hour."""
    return Problem(
        options=tuple((Option(usage=usage(10 - saved)),) for saved in saved_nodes),
        groups=tuple(NodeGroup(usage=usage(10), holders=frozenset({one})) for one in range(len(saved_nodes))),
        rates_micro_usd_hr={A: RATE},
        offers=(),
        hours=HOURS,
    )


ONCE = Settings(efforts={autoscaling.NAME: Effort(weeks=12.0, per="fleet")})


def scaled(saved_nodes, chosen=ONCE):
    entries = [[effort_of(autoscaling.NAME, f"class {one}", chosen)] for one in range(len(saved_nodes))]
    return solve_problem(with_effort(three_services(saved_nodes), entries), EXACT)


@pytest.mark.parametrize(
    ("saved_nodes", "taken"),
    [
        ((3.0, 3.0, 1.0), (0, 0, 0)),  # $2,190 + $2,190 + $730: the third asks for no work of its own
        ((3.0, 2.0, 0.0), (-1, -1, -1)),  # $3,650 together: twelve engineer-weeks would take more than a year
        ((6.0, 2.0, 0.05), (0, 0, -1)),  # the third adds less than $50 a month
    ],
)
def test_what_is_paid_once_is_paid_back_by_all_that_need_it(saved_nodes, taken):
    assert scaled(saved_nodes).choice == taken


@pytest.mark.parametrize(
    ("saved_nodes", "taken"),
    [
        ((1.0, 0.0, 0.0), (0, -1, -1)),  # $730 pays 1.5 + 0.6 weeks of $4,000 back in twelve months: $700
        ((0.9, 0.0, 0.0), (-1, -1, -1)),  # $657 does not
        ((1.0, 0.3, 0.2), (0, 0, -1)),  # once that is done, $219 pays 0.6 weeks back ($200), and $146 does not
    ],
)
def test_the_first_use_of_a_lever_asks_for_more_than_the_next(saved_nodes, taken):
    chosen = Settings(efforts={autoscaling.NAME: Effort(weeks=0.6, per="class", first_weeks=1.5)})

    assert scaled(saved_nodes, chosen).choice == taken


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_an_effort_is_scaled_with_all_its_parts(factor):
    twice = Effort(weeks=1.0, per="class", first_weeks=3.0).scaled(factor)

    assert (twice.once_weeks, twice.each_weeks) == (3.0 * factor, factor)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_nothing_is_lost_by_dropping_what_another_beats_at_no_more_effort(data):
    work = {"one": 400.0, "two": 900.0}
    offered = [
        [
            Candidate(
                deployment=AS_IT_IS,
                usage=usage(data.draw(st.integers(0, 12)) / 2, data.draw(st.sampled_from(POOLS))),
                outcome=Outcome(on_demand=np.zeros(1, np.int64), spot=np.zeros(1, np.int64), attained=()),
                effort={name: work[name] for name in data.draw(st.sets(st.sampled_from(["one", "two"])))},
            )
            for _ in range(data.draw(st.integers(1, 4)))
        ]
        for _ in range(2)
    ]
    coupling = Coupling.of(Limits(), MARKET, ())

    def best(candidates):
        problem = replace(
            three_services((0.0, 0.0)),
            options=tuple(tuple(Option(usage=one.usage) for one in row) for row in candidates),
            rates_micro_usd_hr={A: RATE} | MARKET.rates(POOLS),
        )
        return brute_force(with_effort(problem, [[one.effort for one in row] for row in candidates]))

    assert best([undominated(row, MARKET, coupling)[0] for row in offered]) == best(offered)


def small_fleet():
    """A service with quiet nights, a notebook, and runs on held nodes: few options, several levers."""
    rows = FleetRows(DAYS)
    for number in range(4):
        rows.node(f"s{number}", "g5.12xlarge").hold("prod/api", f"s{number}", [0], owner_kind="Deployment")
        rows.use("prod/api", f"s{number}", 0, range(DAYS * 24), sm=0.3, util=0.4)
    rows.demand("prod/api", lambda hour: 400 if 8 <= hour % 24 < 20 else 40, 4)
    rows.node("nb", "g5.xlarge").hold("lab/notebook", "nb", [0], owner_kind="Notebook")
    rows.use("lab/notebook", "nb", 0, [hour for hour in range(DAYS * 24) if 9 <= hour % 24 < 17], sm=0.3, util=0.4)
    rows.use("lab/notebook", "nb", 0, [hour for hour in range(DAYS * 24) if not 9 <= hour % 24 < 17], sm=0.0, util=0.0)
    rows.workloads = {"lab/notebook": {"kind": "notebook"}}
    return build_fleet(rows.bundle(), Settings())


@pytest.fixture(scope="module")
def fleet():
    return small_fleet()


@pytest.fixture(scope="module")
def store():
    """Outcomes by key, so that one replay serves every test."""
    return KeptOutcomes()


def worth(drafted, chosen):
    hours = drafted.fleet.window.hours
    return drafted.cost(drafted.everything) + effort_micro_usd(drafted.actions, chosen, hours)


@pytest.mark.parametrize("week_usd", [0.0, 4_000.0, 20_000.0])
def test_no_part_of_a_plan_could_be_left_out_or_swapped_at_a_gain(fleet, store, week_usd):
    base = Settings(efforts={autoscaling.NAME: Effort(weeks=1.0, per="fleet")})
    chosen = replace(base, planning=replace(EXACT, engineer_week_usd=week_usd))
    planned = make_plan(fleet, MARKET, chosen, seed=7, progress=lambda *_: None, store=store)
    drafted = planned.drafted.without(
        frozenset()
    )  # with what is best in hindsight: less is bought, as far as history backs it
    best = worth(drafted, chosen)
    slack = 1e-4 * planned.plan.before_micro_usd  # of periods and rounding

    for size in range(1, len(drafted.actions) + 1):
        for some in combinations(range(len(drafted.actions)), size):
            rest = drafted.without(frozenset(some))
            evaluators = drafted.enacted.evaluators
            if all(evaluators[index].keeps_targets(one) for index, one in rest.deployments.items()):
                assert worth(rest, chosen) >= best - slack, [drafted.actions[one].lever for one in some]
    for index, case in enumerate(cases_of(fleet, chosen, 7, store=store).values()):
        for deployment in [AS_IT_IS, *(one.deployment for one in options_of(case, MARKET).candidates)]:
            swapped = {**drafted.deployments, index: deployment}
            trial = DraftPlan(
                fleet=fleet,
                enacted=drafted.enacted,
                deployments={number: one for number, one in swapped.items() if one.changes},
                released=drafted.released,
                discounts=drafted.discounts,
            )
            assert worth(trial, chosen) >= best - slack, deployment


def test_effort_that_is_never_paid_back_leaves_the_fleet_as_it_is(fleet, store):
    dear = replace(Settings(), planning=replace(EXACT, engineer_week_usd=1e6))
    planned = make_plan(fleet, MARKET, dear, seed=7, progress=lambda *_: None, store=store)

    assert {action.lever for action in planned.plan.actions} <= {commitments.NAME}
    assert planned.plan.bound_micro_usd < planned.plan.after_micro_usd
    assert any("pay back" in one.reason for one in planned.plan.not_worth_doing)


def test_an_entry_is_charged_for_the_window():
    entries = effort_of(right_size.NAME, "x", Settings())

    assert sum(entries.values()) == pytest.approx(2 * 4_000 / 12)
    problem = with_effort(three_services((1.0,)), [[entries]])
    assert problem.entries_micro_usd["right-size for x"] == micro_usd(entries["right-size for x"])
