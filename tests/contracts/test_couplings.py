"""Every coupling says the same in its rows, its prices, its moves and the exact bill; each alone, and all of them together.

A coupling is a module of `trimtab.plan.program.couplings`; `WITHOUT` must know how to take each out of a problem, so that a new
one cannot be left out here.
"""

from dataclasses import replace
from pkgutil import iter_modules

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.plan.fleets import EXACT, SPOT, A, B, choices, nodes_of, problems, rounding, so_much, spend_at

from trimtab.catalog.kinds import BuyingOption
from trimtab.errors import PlanError
from trimtab.plan.problem import KEEP, NodeGroup
from trimtab.plan.program import couplings
from trimtab.plan.program.decompose import mix
from trimtab.plan.program.improve import Improver
from trimtab.plan.program.limits import broken
from trimtab.plan.program.master import Master, gather
from trimtab.plan.program.solve import choice_cost, solve_problem
from trimtab.plan.program.table import OptionTable, cost_with, total_usage
from trimtab.units import S_PER_HR, usd

NO_COUPLING = {"parts", "linked_rows"}
"""Modules that several couplings share."""
TOGETHER = "together"
LIMIT_USD = 1e6


def options_with(problem, **changes):
    return tuple(tuple(replace(option, **changes) for option in row) for row in problem.options)


WITHOUT = {
    "node_commitments": lambda problem: replace(problem, offers=problem.spend_offers, owned=problem.owned_spend),
    "spend_plans": lambda problem: replace(
        problem,
        offers=tuple(problem.node_offers.values()),
        owned=tuple(one for one in problem.owned if not one.offer.is_spend),
    ),
    "quotas": lambda problem: replace(problem, quotas={}),
    "spot_share": lambda problem: replace(problem, spot_max_frac=None),
    "shared_nodes": lambda problem: replace(problem, options=options_with(problem, slots={})),
    "held_nodes": lambda problem: replace(
        problem,
        groups=tuple(NodeGroup(usage=one.usage, holders=frozenset({min(one.holders)})) for one in problem.groups),
    ),
    "one_time_costs": lambda problem: replace(
        problem, options=options_with(problem, needs=frozenset()), entries_micro_usd={}
    ),
}
COUPLINGS = [*WITHOUT, TOGETHER]


@st.composite
def coupled(draw, by):
    """A tiny problem that is coupled by one thing alone, or by all."""
    problem = draw(problems())

    def some_off():
        return {pool: int(problem.rates_micro_usd_hr[pool] * draw(st.floats(0.3, 0.95))) for pool in (A, B)}

    problem = replace(
        problem,
        quotas={pool: draw(st.integers(0, 4)) for pool in (A, B, SPOT) if draw(st.booleans())},
        spot_max_frac=draw(st.sampled_from([0.0, 0.25, 0.5])),
        offers=(*problem.offers, spend_at(some_off(), BuyingOption.SAVINGS_PLAN_3Y)),
    )
    if draw(st.booleans()):
        nodes = so_much(draw(st.integers(0, 2)), nodes_of(A, 9))
        problem = replace(problem, owned=(nodes, so_much(draw(st.integers(0, 9_000_000)), spend_at(some_off()))))
    for name, without in WITHOUT.items():
        problem = problem if by in (name, TOGETHER) else without(problem)
    return problem


def a_choice(data, problem):
    return [data.draw(st.integers(KEEP, len(options) - 1)) for options in problem.options]


def hourly(problem):
    """The program with each hour a period: nothing is lost to gathering."""
    table = OptionTable(problem)
    return Master(table, gather(table, table.use_of([KEEP] * problem.workloads), problem.hours))


def breach_hr(problem, choice):
    """Node-hours by which a choice breaks its quotas, and the limit on spot."""
    use = total_usage(problem, choice)
    over = sum(
        np.maximum(use[pool] - nodes * S_PER_HR, 0).sum() for pool, nodes in problem.quotas.items() if pool in use
    )
    if problem.spot_max_frac is None:
        return over / S_PER_HR
    everything = sum(seconds.sum() for seconds in use.values())
    spot = sum(seconds.sum() for pool, seconds in use.items() if pool == SPOT)
    return (over + max(0, spot - problem.spot_max_frac * everything)) / S_PER_HR


def test_every_coupling_is_held_to_the_contract():
    assert {module.name for module in iter_modules(couplings.__path__)} - NO_COUPLING == set(WITHOUT)


@pytest.mark.parametrize("by", COUPLINGS)
@settings(max_examples=40)
@given(data=st.data())
def test_rows_ask_of_a_choice_what_it_costs_and_what_it_breaks(by, data):
    problem = data.draw(coupled(by))
    choice = a_choice(data, problem)
    master = hourly(problem)
    columns = [master.column(master.table.row(workload, option)) for workload, option in enumerate(choice)]

    answer = mix(master.program(), columns, gap_frac=0.0, max_nodes=10_000)

    excess_hr = answer.shared[master.excess].sum()
    excess_usd = np.array(master.program().cost)[master.excess] @ answer.shared[master.excess]
    asked = answer.bound - excess_usd + master.table.owned_usd
    slack = 1e-6 * (1 + excess_usd) + usd(rounding(problem) + 100)
    assert excess_hr <= breach_hr(problem, choice) + 1e-6
    if by != TOGETHER or not broken(
        problem, choice
    ):  # the program may pay for idle nodes to bring down the share of spot
        assert asked <= usd(choice_cost(problem, choice)) + slack, "rows are a relaxation of the exact bill"
    if by != TOGETHER:
        assert excess_hr == pytest.approx(breach_hr(problem, choice), abs=1e-6)
        assert bool(broken(problem, choice)) == (excess_hr > 1e-6)
    if not problem.owned_spend:  # a provider applies these in its own order, the program in the best
        assert asked >= usd(choice_cost(problem, choice)) - slack


@pytest.mark.parametrize("by", COUPLINGS)
@settings(max_examples=30)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_at_any_prices_no_choice_within_the_limits_costs_less_than_the_bound_and_what_its_options_add(by, data, seed):
    problem = data.draw(coupled(by))
    master = hourly(problem)
    scale = np.random.default_rng(seed)
    duals = -scale.exponential(scale.choice([0.1, 5.0, 50.0]), len(master.program().row_low))

    priced = master.price(duals)

    bound = priced.bound + master.table.owned_usd
    for choice in choices(problem):
        added = sum(priced.reduced[master.table.row(workload, option)] for workload, option in enumerate(choice))
        if not broken(problem, choice):
            assert bound + added <= usd(choice_cost(problem, choice) + rounding(problem)) + 1e-9 * added


@pytest.mark.parametrize("by", COUPLINGS)
@settings(max_examples=60)
@given(data=st.data())
def test_a_move_gains_what_the_exact_bill_and_the_broken_limits_lose(by, data):
    problem = data.draw(coupled(by))
    improver = Improver(OptionTable(problem), a_choice(data, problem))
    for _ in range(3):
        workload = data.draw(st.integers(0, problem.workloads - 1))
        option = data.draw(st.integers(KEEP, len(problem.options[workload]) - 1))
        before = cost_with(problem, improver.choice, improver.bought), breach_hr(problem, improver.choice)
        gain = improver.gains(workload, [option])[0]

        improver.move(workload, option)

        after = cost_with(problem, improver.choice, improver.bought), breach_hr(problem, improver.choice)
        lost = usd(before[0]) - usd(after[0]) + LIMIT_USD * (before[1] - after[1])
        assert gain == pytest.approx(lost, rel=1e-9, abs=1e-5 * (1 + problem.hours))
        expected = total_usage(problem, improver.choice)
        assert all(np.array_equal(use, expected.get(pool, 0 * use)) for pool, use in improver.use.items())


@pytest.mark.parametrize("by", COUPLINGS)
@settings(max_examples=40)
@given(data=st.data())
def test_a_move_that_is_not_worth_trying_gains_nothing(by, data):
    problem = data.draw(coupled(by))
    improver = Improver(OptionTable(problem), a_choice(data, problem))
    for workload, options in enumerate(problem.options):
        others = [option for option in (KEEP, *range(len(options))) if option != improver.choice[workload]]
        gains = dict(zip(others, improver.gains(workload, others), strict=True))

        left_out = gains.keys() - set(improver.worth_trying(workload, others))

        assert all(gains[option] <= 1e-6 for option in left_out)


@pytest.mark.parametrize("by", COUPLINGS)
@settings(max_examples=25)
@given(data=st.data())
def test_the_plan_is_the_cheapest_choice_within_the_limits_and_its_bound_is_below(by, data):
    problem = data.draw(coupled(by))
    allowed = [choice for choice in choices(problem) if not broken(problem, choice)]
    if not allowed:
        with pytest.raises(PlanError, match=r"quota of|spot limit"):
            solve_problem(problem, EXACT)
        return

    chosen = solve_problem(problem, EXACT)

    best = min(choice_cost(problem, choice) for choice in allowed)
    assert not broken(problem, chosen.choice)
    assert chosen.cost_micro_usd <= best + rounding(problem)
    assert chosen.bound_micro_usd <= best + rounding(problem) + 100
