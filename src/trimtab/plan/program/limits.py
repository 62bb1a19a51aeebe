"""Limits on a plan: which are broken, and which contradict one another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.errors import PlanError
from trimtab.ledger import NO_DISCOUNTS
from trimtab.plan.problem import KEEP, Problem, least_nodes, total_usage
from trimtab.plan.program.decompose import mix
from trimtab.plan.program.highs import INFINITY
from trimtab.plan.program.master import Master
from trimtab.plan.program.periods import gather
from trimtab.plan.program.table import Table
from trimtab.units import HR_PER_DAY, S_PER_HR

Rule = Pool | None
"""The quota of a pool, or (None) the limit on spot."""

_MAX_NODES = 200
_MAX_INTEGRAL_ENTRIES = 60_000
"""Above so many coefficients the relaxation judges: what it calls impossible is impossible, but it may miss a conflict."""
_MOST_TRIED_TOGETHER = 2
_MOST_SETS = 50
"""More sets of one size are not tried one by one: an irreducible set is found by leaving rules out."""
_MOST_NAMED = 5
"""Workloads that a refusal names for one quota."""
_EXCESS = 1e-6
_NEAR = 0.1
"""A spot share that leaves less than this share of its limit unused stands at it: nodes are whole."""


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
                raise PlanError(_message(problem, judge, some))
    left = list(judge.rules)
    for rule in judge.rules:
        fewer = [other for other in left if other != rule]
        if not judge.can_keep(fewer):
            left = fewer
    raise PlanError(_message(problem, judge, left))


def limits_in_words(problem: Problem) -> str:
    """Name all limits of a problem."""
    return _words(problem, _rules(problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """A limit and what a choice makes of it: nodes for a quota, a share of node-hours for spot."""

    words: str
    limit: float
    used: float
    binds: bool
    """The choice stands at the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPrice:
    """A limit, what the plan uses of it, and what it costs a month; None where that was not worked out."""

    use: LimitUse
    cost_usd_mo: float | None


def uses_of_limits(problem: Problem, choice: Sequence[int]) -> dict[Rule, LimitUse]:
    """Return what a choice uses of each limit."""
    usage = total_usage(problem, choice)
    found: dict[Rule, LimitUse] = {}
    for pool, quota in sorted(problem.quotas.items()):
        peak = int(usage[pool].max(initial=0)) / S_PER_HR if pool in usage else 0.0
        found[pool] = LimitUse(words=_words(problem, [pool]), limit=quota, used=peak, binds=peak > quota - 1)
    if problem.spot_max_frac is not None:
        total = sum(int(use.sum()) for use in usage.values())
        spot = sum(int(use.sum()) for pool, use in usage.items() if pool.capacity_type is CapacityType.SPOT)
        share = spot / total if total else 0.0
        found[None] = LimitUse(
            words=_words(problem, [None]),
            limit=problem.spot_max_frac,
            used=share,
            binds=share >= (1 - _NEAR) * problem.spot_max_frac,
        )
    return found


def shortfall(problem: Problem, choice: Sequence[int]) -> str:
    """Say by how many nodes a choice exceeds its quotas in its busiest hour; empty where it exceeds none."""
    over = [
        f"{math.ceil(use.used - use.limit)} more x {rule}"
        for rule, use in uses_of_limits(problem, choice).items()
        if rule is not None and use.used > use.limit
    ]
    return f"the nearest found needs {' and '.join(over)}" if over else ""


def _rules(problem: Problem) -> list[Rule]:
    return [*sorted(problem.quotas), *([None] if problem.spot_max_frac is not None else [])]


class _Judge:
    """Tells which limits can be kept together, on the mean of gathered periods: a refusal is certain."""

    def __init__(self, problem: Problem) -> None:
        self.rules = _rules(problem)
        table = Table(replace(problem, offers={}, spend_offers=(), owned=NO_DISCOUNTS))
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

    def short(self, rules: Sequence[Rule]) -> dict[Pool, int]:
        """Return by how many nodes the quotas among some rules must be raised, in all as little as can be.

        Judged on the mean of gathered periods, as everything here: in single hours more may be needed.
        """
        program = self._master.program().copy()
        program.cost = [0.0] * len(program.cost)
        most = {}
        for rule in rules:
            if rule is not None:
                most[rule] = program.add_column(1.0)
            for excess in self._master.excess_of[rule]:
                if rule is None:
                    program.upper[excess] = 0.0
                    continue
                row = program.add_row(-INFINITY, 0.0)
                program.put(row, np.array([excess, most[rule]]), np.array([1.0, -1.0]))
        try:
            answer = mix(program, self._columns, gap_frac=0.0, max_nodes=_MAX_NODES, integral=self._integral)
        except PlanError:
            return {}
        nodes = {pool: math.ceil(float(answer.shared[column]) - _EXCESS) for pool, column in most.items()}
        return {pool: count for pool, count in nodes.items() if count > 0}


def _message(problem: Problem, judge: _Judge, rules: Sequence[Rule]) -> str:
    together = " together" if len(rules) > 1 else ""
    short = judge.short(rules)
    missing = " and ".join(f"{nodes} more x {pool}" for pool, nodes in sorted(short.items()))
    cure = f"at least {missing} would be needed" if missing else "raise a limit"
    least = {rule: least_nodes(problem, rule) for rule in rules if rule is not None}
    holders = [_holders(one) + (f" x {rule}" if len(rules) > 1 else "") for rule, one in least.items() if one]
    held = f" (whatever is chosen, {'; '.join(holders)})" if holders else ""
    return f"no plan keeps {_words(problem, rules)}{together}: every option of some workload needs more{held}; {cure}"


def _holders(least: dict[str, int]) -> str:
    """Say who holds how many nodes whatever is chosen."""
    named = [f"{name} holds {nodes}" for name, nodes in list(least.items())[:_MOST_NAMED]]
    more = len(least) - len(named)
    return ", ".join([*named, f"{more} more workloads {sum(list(least.values())[_MOST_NAMED:])}"] if more else named)


def _words(problem: Problem, rules: Sequence[Rule]) -> str:
    words = [
        f"the spot limit of {problem.spot_max_frac:.0%} of node-hours"
        if rule is None
        else f"the quota of {problem.quotas[rule]} x {rule}"
        for rule in rules
    ]
    return " and ".join(words)
