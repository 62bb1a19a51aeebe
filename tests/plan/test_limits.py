"""Quotas and the limit on spot are kept in every hour; where they cannot be, the rules in conflict are named."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.plan.fleets import EXACT, SPOT, A, B, choices, problems, rounding

from trimtab.errors import PlanError
from trimtab.plan.problem import NodeGroup, Option, Problem
from trimtab.plan.program.limits import broken
from trimtab.plan.program.solve import choice_cost, first_look, plan_without, price_limits, solve_problem


def fleet(options, present, *, quotas=None, spot_max_frac=None):
    """Workloads with one hour of whole nodes per option, each on present nodes of its own."""
    return Problem(
        options=tuple(
            tuple(Option(usage={pool: np.array([count * 3600]) for pool, count in use.items()}) for use in row)
            for row in options
        ),
        groups=tuple(
            NodeGroup(usage={pool: np.array([count * 3600]) for pool, count in use.items()}, holders=frozenset({at}))
            for at, use in enumerate(present)
        ),
        rates_micro_usd_hr={A: 4_000_000, B: 5_000_000, SPOT: 1_000_000},
        offers=(),
        hours=1,
        quotas=quotas or {},
        spot_max_frac=spot_max_frac,
    )


@settings(max_examples=120)
@given(problems(), st.integers(0, 4), st.integers(0, 4), st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5])))
def test_the_plan_is_the_cheapest_that_keeps_its_limits(problem, quota_a, quota_b, spot_max_frac):
    limited = replace(problem, quotas={A: quota_a, B: quota_b}, spot_max_frac=spot_max_frac)
    allowed = [choice for choice in choices(limited) if not broken(limited, choice)]

    if not allowed:
        with pytest.raises(PlanError, match=r"quota of|spot limit"):
            solve_problem(limited, EXACT)
        return
    chosen = solve_problem(limited, EXACT)

    assert not broken(limited, chosen.choice)
    best = min(choice_cost(limited, choice) for choice in allowed)
    assert chosen.cost_micro_usd <= best + rounding(problem)
    assert chosen.bound_micro_usd <= best + rounding(problem) + 100


@settings(max_examples=15)
@given(problems(hours_of=st.just(60)), st.integers(1, 3))
def test_a_quota_holds_in_single_hours_when_periods_are_gathered(problem, quota):
    limited = replace(problem, quotas={A: quota})

    if all(broken(limited, choice) for choice in choices(limited)):
        with pytest.raises(PlanError):
            solve_problem(limited, EXACT)
    else:
        assert not broken(limited, solve_problem(limited, EXACT).choice)


def test_a_quota_sends_a_workload_to_the_next_best_pool():
    free = fleet([[{A: 2}], [{A: 2}]], [{B: 2}, {B: 2}])

    assert solve_problem(free, EXACT).choice == (0, 0)
    assert sum(solve_problem(replace(free, quotas={A: 2}), EXACT).choice) == -1


def test_an_option_that_breaks_a_quota_alone_is_in_no_plan_by_any_part():
    # a half of it beside a half of the other would fit, and cost less than any plan
    limited = fleet([[{A: 6}, {B: 8}]], [{B: 9}], quotas={A: 4})

    assert first_look(limited).choice == (1,)
    assert solve_problem(limited, replace(EXACT, mip_gap_frac=1.0)).bound_micro_usd == pytest.approx(
        40_000_000, abs=100
    )


def test_a_spot_limit_leaves_part_of_the_fleet_on_demand():
    free = fleet([[{SPOT: 2}], [{SPOT: 2}]], [{A: 2}, {A: 2}])

    assert solve_problem(free, EXACT).choice == (0, 0)
    assert sum(solve_problem(replace(free, spot_max_frac=0.5), EXACT).choice) == -1


def test_an_impossible_quota_is_named_alone():
    problem = fleet([[{A: 3}]], [{A: 4}], quotas={A: 2, B: 9}, spot_max_frac=0.5)

    with pytest.raises(PlanError, match=r"quota of 2 x a\.large") as failure:
        solve_problem(problem, EXACT)
    assert "b.large" not in str(failure.value)
    assert "spot" not in str(failure.value)


def test_two_rules_that_contradict_each_other_are_named_together():
    problem = fleet([[{SPOT: 3}]], [{A: 4}], quotas={A: 2, B: 9}, spot_max_frac=0.5)

    with pytest.raises(PlanError, match=r"quota of 2 x a\.large .* and the spot limit of 50% .* together") as failure:
        solve_problem(problem, EXACT)
    assert "b.large" not in str(failure.value)


def test_a_ban_on_spot_is_told_with_what_it_costs():
    problem = fleet([[{SPOT: 3}]], [{A: 3}], spot_max_frac=0.0)
    chosen = solve_problem(problem, EXACT)

    (price,) = price_limits(
        problem, chosen, lambda limit: False, lambda limit: plan_without(limit, problem, chosen, EXACT)
    )

    assert price.use.binds
    assert price.cost_usd_mo == pytest.approx((3 * 4 - 3 * 1) * 730)
