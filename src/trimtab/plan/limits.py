"""Limits on a plan: which are broken, and which contradict one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.errors import PlanError
from trimtab.plan.decompose import mix
from trimtab.plan.master import Master
from trimtab.plan.periods import gather
from trimtab.plan.problem import KEEP, Problem, total_usage
from trimtab.plan.table import Table
from trimtab.units import HR_PER_DAY, S_PER_HR

Rule = Pool | None
"""The quota of a pool, or (None) the limit on spot."""

_MAX_NODES = 200
_MAX_INTEGRAL_ENTRIES = 60_000
"""Above so many coefficients the relaxation judges: what it calls impossible is impossible, but it may miss a conflict."""
_MOST_TRIED_TOGETHER = 2
_MOST_SETS = 50
"""More sets of one size are not tried one by one: an irreducible set is found by leaving rules out."""
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


def refuse_conflict(problem: Problem) -> None:
    """Raise PlanError if no plan can keep the limits, naming those that contradict one another.

    Named are one that is impossible alone, else a pair, else a set from which none can be left out.
    """
    judge = _Judge(problem)
    if judge.can_keep(judge.rules):
        return
    for size in range(1, _MOST_TRIED_TOGETHER + 1):
        sets = list(combinations(judge.rules, size))
        for some in sets if len(sets) <= _MOST_SETS else ():
            if not judge.can_keep(some):
                raise PlanError(_message(problem, some))
    left = list(judge.rules)
    for rule in judge.rules:
        fewer = [other for other in left if other != rule]
        if not judge.can_keep(fewer):
            left = fewer
    raise PlanError(_message(problem, left))


def limits_in_words(problem: Problem) -> str:
    """Name all limits of a problem."""
    return _words(problem, _rules(problem))


def _rules(problem: Problem) -> list[Rule]:
    return [*sorted(problem.quotas), *([None] if problem.spot_max_frac is not None else [])]


class _Judge:
    """Tells which limits can be kept together, on the mean of gathered periods: a refusal is certain."""

    def __init__(self, problem: Problem) -> None:
        self.rules = _rules(problem)
        table = Table(replace(problem, offers={}))
        self._master = Master(table, gather(table, table.use_of([KEEP] * problem.workloads), HR_PER_DAY))
        self._columns = [replace(self._master.column(row), cost=0.0) for row in range(table.rows)]
        self._integral = self._master.entries(range(table.rows)) <= _MAX_INTEGRAL_ENTRIES

    def can_keep(self, rules: Sequence[Rule]) -> bool:
        """Tell whether some choice breaks none of these limits."""
        program = self._master.program().copy()
        program.cost = [0.0] * len(program.cost)
        for rule in rules:
            for excess in self._master.excess_of[rule]:
                program.cost[excess] = 1.0
        answer = mix(program, self._columns, gap_frac=0.0, max_nodes=_MAX_NODES, integral=self._integral)
        return answer.bound <= _EXCESS


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
