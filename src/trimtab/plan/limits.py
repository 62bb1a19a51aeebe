"""Limits on a plan: which are broken, and which contradict one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.plan.decompose import mix
from trimtab.plan.master import Master
from trimtab.plan.periods import gather
from trimtab.plan.problem import KEEP, Problem, total_usage
from trimtab.plan.table import Table
from trimtab.units import HR_PER_DAY, S_PER_HR

Rule = Pool | None
"""The quota of a pool, or (None) the limit on spot."""

_MAX_NODES = 200
_MOST_TRIED_TOGETHER = 2
_EXCESS = 1e-6


def broken(problem: Problem, choice: Sequence[int]) -> tuple[Rule, ...]:
    """Return the limits that a choice breaks in some hour."""
    if not problem.quotas and problem.spot_max_frac is None:
        return ()
    usage = total_usage(problem, choice)
    found: list[Rule] = [
        pool
        for pool, quota in sorted(problem.quotas.items())
        if pool in usage and int(usage[pool].max(initial=0)) > quota * S_PER_HR
    ]
    if problem.spot_max_frac is not None:
        spot = sum(int(use.sum()) for pool, use in usage.items() if pool.capacity_type is CapacityType.SPOT)
        if spot > problem.spot_max_frac * sum(int(use.sum()) for use in usage.values()):
            found.append(None)
    return tuple(found)


def conflict(problem: Problem) -> str:
    """Say which limits no plan can keep together: a single one, else a pair, else a set from which none can be left out."""
    rules: list[Rule] = [*sorted(problem.quotas), *([None] if problem.spot_max_frac is not None else [])]
    if _can_keep(problem, rules):
        return f"no plan was found that keeps {_words(problem, rules)} in every hour; raise the tightest or add options"
    for size in range(1, _MOST_TRIED_TOGETHER + 1):
        for some in combinations(rules, size):
            if not _can_keep(problem, some):
                return _message(problem, some)
    left = list(rules)
    for rule in rules:
        fewer = [other for other in left if other != rule]
        if not _can_keep(problem, fewer):
            left = fewer
    return _message(problem, left)


def _can_keep(problem: Problem, rules: Sequence[Rule]) -> bool:
    """Tell whether some choice keeps these limits on the mean of gathered periods; False is certain."""
    fewer = replace(
        problem,
        quotas={pool: quota for pool, quota in problem.quotas.items() if pool in rules},
        spot_max_frac=problem.spot_max_frac if None in rules else None,
        offers={},
    )
    table = Table(fewer)
    master = Master(table, gather(table, table.use_of([KEEP] * problem.workloads), HR_PER_DAY))
    program = master.program().copy()
    program.cost = [0.0] * len(program.cost)
    for excess in master.excess:
        program.cost[excess] = 1.0
    columns = [replace(master.column(row), cost=0.0) for row in range(table.rows)]
    return mix(program, columns, gap_frac=0.0, max_nodes=_MAX_NODES).bound <= _EXCESS


def _message(problem: Problem, rules: Sequence[Rule]) -> str:
    together = " together" if len(rules) > 1 else ""
    return f"no plan keeps {_words(problem, rules)}{together}: every option of some workload needs more; raise a limit"


def _words(problem: Problem, rules: Sequence[Rule]) -> str:
    words = [
        f"the spot limit of {problem.spot_max_frac:.0%} of node-hours"
        if rule is None
        else f"the quota of {problem.quotas[rule]} x {rule}"
        for rule in rules
    ]
    return " and ".join(words)
