"""What a choice uses and costs, exactly: the hourly bill in whole micro-dollars, which is what is reported.

The program works on means of gathered hours and on dollars; its objective is a bound, never the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.fleet.model import IntArray
from trimtab.ledger import Bill, Commitment, Usage, bill, nodes_committed
from trimtab.plan.problem import KEEP, Option, Problem
from trimtab.plan.program.couplings.held_nodes import held_usage
from trimtab.plan.program.couplings.one_time_costs import one_time_micro_usd
from trimtab.plan.program.couplings.shared_nodes import shared_usage
from trimtab.plan.program.pool_use import summed


def total_usage(problem: Problem, choice: Sequence[int]) -> dict[Pool, IntArray]:
    """Return node-seconds per pool under a choice (an option index or KEEP per workload); shared nodes round up jointly."""
    options = _chosen(problem, choice)
    alone = [option.usage for option in options]
    return summed([*alone, *held_usage(problem, choice), shared_usage(option.slots for option in options)])


def own_cost(problem: Problem, choice: Sequence[int]) -> int:
    """Return what a choice costs besides nodes, micro-dollars: its options' own sums and each cost they need, once."""
    return sum(option.own_micro_usd for option in _chosen(problem, choice)) + one_time_micro_usd(problem, choice)


def exact_bill(
    usage: Mapping[Pool, IntArray], rates: Mapping[Pool, int], paid: Sequence[Commitment], hours: int
) -> Bill:
    """Return the exact hourly bill of a use under commitments: what is reported."""
    # committed nodes are paid for also where nobody uses the pool
    pools = tuple(sorted({*usage, *nodes_committed(paid)}))
    seconds = np.zeros((len(pools), hours), dtype=np.int64)
    for row, pool in enumerate(pools):
        seconds[row] = usage.get(pool, 0)
    return bill(Usage(pools=pools, node_seconds=seconds), rates, paid)


def cost_with(problem: Problem, choice: Sequence[int], bought: Sequence[Commitment]) -> int:
    """Return the exact bill of a choice under what is owned and bought, with what it costs besides nodes."""
    usage, paid = total_usage(problem, choice), (*problem.owned, *bought)
    return exact_bill(usage, problem.rates_micro_usd_hr, paid, problem.hours).total + own_cost(problem, choice)


def _chosen(problem: Problem, choice: Sequence[int]) -> list[Option]:
    return [problem.options[workload][option] for workload, option in enumerate(choice) if option != KEEP]
