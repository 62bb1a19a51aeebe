"""Solve the joint problem: column generation over every option, pruning with proof, a small MILP, an exact re-bill.

1. The linear relaxation starts from a few options; its prices let every other option be judged alone, until none pays. The
   bound therefore covers all options, not only those that entered.
2. An option whose reduced cost exceeds the distance between the best known plan and the bound cannot be in a better plan: it
   is dropped, and nothing is lost (reduced-cost fixing).
3. The options left go into a MILP whose dual bound is the certified bound; its choice, improved on the exact bill one workload
   at a time, is the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.fleet.model import FloatArray, IntArray
from trimtab.fleet.settings import Planning
from trimtab.ledger import Commitment
from trimtab.plan.highs import solve
from trimtab.plan.master import Assembled, Master
from trimtab.plan.problem import KEEP, Problem, best_commitments, exact_bill, total_usage
from trimtab.units import MICRO_PER_USD

_MAX_ROUNDS = 100
_PAYS_USD = 1e-6
"""An option enters if it lowers the relaxation by more than this."""
_MAX_LOCAL_ROUNDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The plan in numbers: an option index or KEEP per workload, commitments, exact cost, certified bound."""

    choice: tuple[int, ...]
    commitments: tuple[Commitment, ...]
    cost_micro_usd: int
    bound_micro_usd: int
    pruned: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Relaxed:
    """The relaxation at its optimum over all options: bound, reduced costs, and the options that entered."""

    bound_usd: float
    reduced: list[FloatArray]
    active: list[list[int]]
    choice: tuple[int, ...]


def solve_problem(problem: Problem, planning: Planning) -> Chosen:
    """Return the cheapest plan found and a bound that no combination of the options can beat."""
    master = Master(problem)
    relaxed = _relax(master)
    choice, cost = _improved(problem, relaxed.choice, relaxed.active)
    room_usd = cost / MICRO_PER_USD - relaxed.bound_usd
    kept = [[index for index, reduced in enumerate(row) if reduced <= room_usd + _PAYS_USD] for row in relaxed.reduced]
    mixed = master.program(kept)
    solution = solve(mixed.program, integral=True, gap_frac=planning.mip_gap_frac, max_nodes=planning.mip_max_nodes)
    found, found_cost = _improved(problem, mixed.read(solution.values), kept)
    if found_cost < cost:
        choice, cost = found, found_cost
    bound_usd = max(solution.bound, relaxed.bound_usd)
    dropped = sum(map(len, problem.options)) - sum(map(len, kept))
    return Chosen(
        choice=choice,
        commitments=best_commitments(problem, total_usage(problem, choice)),
        cost_micro_usd=cost,
        bound_micro_usd=min(cost, int(np.floor(bound_usd * MICRO_PER_USD))),
        pruned={"cannot be in a better plan (reduced cost)": dropped},
    )


def _relax(master: Master) -> _Relaxed:
    """Solve the linear relaxation over all options by column generation."""
    active = [_first_options(master, workload) for workload in range(master.problem.workloads)]
    best = -np.inf
    for _ in range(_MAX_ROUNDS):
        assembled = master.program(active)
        solution = solve(assembled.program, integral=False)
        reduced = _reduced_costs(master, assembled, solution.duals)
        gain = [float(row.min(initial=0.0)) for row in reduced]
        best = max(best, solution.objective + sum(min(0.0, value) for value in gain))
        if all(value >= -_PAYS_USD for value in gain):
            break
        for workload, row in enumerate(reduced):
            if len(row) and row.min() < -_PAYS_USD and int(row.argmin()) not in active[workload]:
                active[workload].append(int(row.argmin()))
    return _Relaxed(
        bound_usd=best,
        reduced=[np.maximum(row, 0.0) for row in reduced],
        active=active,
        choice=assembled.read(solution.values),
    )


def _first_options(master: Master, workload: int) -> list[int]:
    """Return the cheapest option on demand: a start for column generation."""
    at_list = np.outer([master.rate_usd_hr(pool) for pool in range(len(master.pools))], master.periods.weight)
    cost = [use.at(at_list) for use in master.options[workload]]
    return [int(np.argmin(cost))] if cost else []


def _reduced_costs(master: Master, assembled: Assembled, duals: FloatArray) -> list[FloatArray]:
    prices = assembled.prices(duals)
    return [
        np.array([use.at(prices) for use in options]) - duals[assembled.convexity[workload]]
        for workload, options in enumerate(master.options)
    ]


def _improved(
    problem: Problem, choice: tuple[int, ...], active: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], int]:
    """Improve a choice on the exact bill, changing one workload at a time, until nothing pays; ties keep what is."""
    best, cost = choice, choice_cost(problem, choice)
    for _ in range(_MAX_LOCAL_ROUNDS):
        before = cost
        for workload in range(problem.workloads):
            for option in (KEEP, *active[workload]):
                tried = (*best[:workload], option, *best[workload + 1 :])
                tried_cost = choice_cost(problem, tried) if option != best[workload] else cost
                if tried_cost < cost:
                    best, cost = tried, tried_cost
        if cost == before:
            break
    return best, cost


def choice_cost(problem: Problem, choice: Sequence[int]) -> int:
    """Return the exact bill of a choice under its best commitments."""
    usage: dict[Pool, IntArray] = total_usage(problem, choice)
    return exact_bill(usage, problem.rates_micro_usd_hr, best_commitments(problem, usage), problem.hours).total
