"""Commitments that run already are paid whatever is chosen and cover first; the choice and its bound know them."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings, strategies as st
from tests.plan.fleets import EXACT, A, B, brute_force, nodes_of, problems, rounding, so_much

from trimtab.plan.problem import NodeGroup, Option, Problem
from trimtab.plan.program.solve import solve_problem


def owned(pool, count, rate):
    return so_much(count, nodes_of(pool, rate))


@settings(max_examples=150)
@given(problems(), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2_000_000))
def test_the_plan_beside_owned_commitments_is_the_cheapest_of_all(problem, in_a, in_b, rate):
    held = replace(problem, owned=(owned(A, in_a, rate), owned(B, in_b, rate)))

    chosen = solve_problem(held, EXACT)

    best = brute_force(held)
    assert abs(chosen.cost_micro_usd - best) <= rounding(problem)
    assert chosen.bound_micro_usd <= best + rounding(problem)


def test_work_moves_to_nodes_that_are_paid_for_anyway():
    hours = 24
    use = np.full(hours, 3600, dtype=np.int64)
    problem = Problem(
        options=((Option(usage={B: use}),),),
        groups=(NodeGroup(usage={A: use}, holders=frozenset({0})),),
        rates_micro_usd_hr={A: 1_000_000, B: 1_500_000},
        offers=(),
        hours=hours,
    )

    assert solve_problem(problem, EXACT).choice == (-1,)
    held = replace(problem, owned=(owned(B, 1, 900_000),))
    assert solve_problem(held, EXACT).choice == (0,)
    assert solve_problem(held, EXACT).cost_micro_usd == hours * 900_000


def test_what_is_owned_beyond_demand_is_paid_all_the_same():
    problem = Problem(
        options=((),),
        groups=(NodeGroup(usage={A: np.array([3600])}, holders=frozenset({0})),),
        rates_micro_usd_hr={A: 1_000_000},
        offers=(),
        hours=1,
        owned=(owned(A, 3, 500_000),),
    )

    chosen = solve_problem(problem, EXACT)

    assert chosen.cost_micro_usd == 1_500_000
    assert chosen.bound_micro_usd == 1_500_000
