"""What a move is said to gain is what the exact bill then loses; a sweep never makes a choice dearer."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.plan.fleets import problems

from trimtab.plan.problem import KEEP
from trimtab.plan.program.improve import Improver, improved
from trimtab.plan.program.solve import choice_cost
from trimtab.plan.program.table import OptionTable, exact_bill, own_cost, total_usage
from trimtab.units import usd


def every_option(problem):
    return [[KEEP, *range(len(options))] for options in problem.options]


def billed_usd(problem, improver):
    """The bill at the counts that a sweep holds fixed, with what the choice costs besides nodes."""
    fixed = sum(count * problem.node_offers[pool].rate_micro_usd_hr for pool, count in improver.nodes.counts.items())
    over = {pool: np.maximum(use - improver.nodes.counts.get(pool, 0) * 3600, 0) for pool, use in improver.use.items()}
    nodes = exact_bill(over, problem.rates_micro_usd_hr, (), problem.hours).total
    return usd(nodes + fixed * problem.hours + own_cost(problem, improver.choice))


@settings(max_examples=80)
@given(problems(), st.data())
def test_the_use_kept_move_by_move_is_the_use_of_the_choice(problem, data):
    improver = Improver(OptionTable(problem), [KEEP] * problem.workloads)
    for _ in range(4):
        workload = data.draw(st.integers(0, problem.workloads - 1))
        option = data.draw(st.integers(KEEP, len(problem.options[workload]) - 1))
        before = billed_usd(problem, improver)
        gain = improver.gains(workload, [option])[0]

        improver.move(workload, option)

        assert billed_usd(problem, improver) == pytest.approx(before - gain, abs=1e-5 * (1 + problem.hours))
        expected = total_usage(problem, improver.choice)
        assert all(np.array_equal(use, expected.get(pool, 0 * use)) for pool, use in improver.use.items())


@settings(max_examples=80)
@given(problems())
def test_sweeps_never_make_a_choice_dearer(problem):
    start = tuple(len(options) - 1 for options in problem.options)

    better = improved(OptionTable(problem), start, every_option(problem)).choice

    assert choice_cost(problem, better) <= choice_cost(problem, start) + 10 * problem.hours
