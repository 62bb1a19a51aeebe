"""Limits on a plan: which are broken, and which contradict one another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.errors import PlanError
from trimtab.plan.problem import KEEP, Problem
from trimtab.plan.program.couplings.parts import Limit, LimitUse
from trimtab.plan.program.couplings.quotas import PoolQuota, least_nodes, quotas_in
from trimtab.plan.program.couplings.spot_share import spot_limits_in
from trimtab.plan.program.decompose import mix
from trimtab.plan.program.highs import INFINITY
from trimtab.plan.program.master import Master, gather
from trimtab.plan.program.table import OptionTable, total_usage
from trimtab.units import HR_PER_DAY

_MAX_NODES = 200
_MAX_INTEGRAL_SIZE = 60_000
"""Above so many coefficients the relaxation judges: what it calls impossible is impossible, but it may miss a conflict."""
_MOST_TRIED_TOGETHER = 2
_MOST_SETS = 50
"""More sets of one size are not tried one by one: an irreducible set is found by leaving limits out."""
_MOST_NAMED = 5
"""Workloads that a refusal names for one quota."""
_EXCESS = 1e-6


def limits_of(problem: Problem) -> list[Limit]:
    """Return the limits of a problem, quotas first."""
    return [*quotas_in(problem), *spot_limits_in(problem)]


def broken(problem: Problem, choice: Sequence[int]) -> tuple[Limit, ...]:
    """Return the limits that a choice breaks in some hour."""
    limits = limits_of(problem)
    usage = total_usage(problem, choice) if limits else {}
    return tuple(limit for limit in limits if limit.is_broken(usage))


def refuse_conflict(problem: Problem) -> None:
    """Raise PlanError if no plan can keep the limits, naming those that contradict one another.

    Named are one that is impossible alone, else a pair, else a set from which none can be left out.
    """
    judge = _LimitJudge(problem)
    if judge.can_keep(judge.limits):
        return
    # the smallest sets first: they explain most
    for size in range(1, _MOST_TRIED_TOGETHER + 1):
        sets = list(combinations(judge.limits, size))
        for some in sets if len(sets) <= _MOST_SETS else ():
            if not judge.can_keep(some):
                raise PlanError(_message(problem, judge, some))
    # deletion filter: whatever can be left out of the conflict is left out, one limit after another
    left = list(judge.limits)
    for limit in judge.limits:
        fewer = [other for other in left if other != limit]
        if not judge.can_keep(fewer):
            left = fewer
    raise PlanError(_message(problem, judge, left))


def limits_in_words(problem: Problem) -> str:
    """Name all limits of a problem."""
    return _words(limits_of(problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPrice:
    """A limit, what the plan uses of it, and what it costs a month; None where that was not worked out."""

    use: LimitUse
    cost_usd_mo: float | None
    """Bill and work together."""
    bill_usd_mo: float | None
    """The bill alone: below 0 where the plan without the limit leaves out work that does not pay there."""


def uses_of_limits(problem: Problem, choice: Sequence[int]) -> dict[Limit, LimitUse]:
    """Return what a choice uses of each limit."""
    usage = total_usage(problem, choice)
    return {limit: limit.used(usage) for limit in limits_of(problem)}


def shortfall(problem: Problem, choice: Sequence[int]) -> str:
    """Say by how many nodes a choice exceeds its quotas in its busiest hour; empty where it exceeds none."""
    over = [
        f"{math.ceil(use.used - use.limit)} more x {limit.pool}"
        for limit, use in uses_of_limits(problem, choice).items()
        if isinstance(limit, PoolQuota) and use.used > use.limit
    ]
    return f"the nearest found needs {' and '.join(over)}" if over else ""


class _LimitJudge:
    """Tells which limits can be kept together, on the mean of gathered periods: a refusal is certain."""

    def __init__(self, problem: Problem) -> None:
        self.limits = limits_of(problem)
        # commitments change what a use costs, and not which use there can be
        table = OptionTable(replace(problem, offers=(), owned=()))
        self._master = Master(table, gather(table, table.use_of([KEEP] * problem.workloads), HR_PER_DAY))
        self._columns = [replace(self._master.column(row), cost=0.0) for row in range(table.rows)]
        self._integral = self._master.size(range(table.rows)) <= _MAX_INTEGRAL_SIZE

    def can_keep(self, limits: Sequence[Limit]) -> bool:
        """Return whether some choice breaks none of these limits."""
        program = self._master.program().copy()
        # only excess costs: the least is 0 where all of these limits can be kept together
        program.cost = [0.0] * len(program.cost)
        for limit in limits:
            for excess in self._master.excess_of[limit]:
                program.cost[excess] = 1.0
        answer = mix(program, self._columns, gap_frac=0.0, max_nodes=_MAX_NODES, integral=self._integral)
        # judged by the lower bound, so that what is refused is impossible for certain
        return answer.bound <= _EXCESS

    def short(self, limits: Sequence[Limit]) -> dict[Pool, int]:
        """Return by how many nodes the quotas among some limits must be raised, in all as little as can be.

        Judged on the mean of gathered periods, as everything here: in single hours more may be needed.
        """
        program = self._master.program().copy()
        program.cost = [0.0] * len(program.cost)
        most = {}
        for limit in limits:
            columns = self._master.excess_of[limit]
            # only quotas are raised: other limits must hold
            if not isinstance(limit, PoolQuota):
                for excess in columns:
                    program.upper[excess] = 0.0
                continue
            # A quota is raised for all periods at once: by the most that any of them exceeds it.
            most[limit.pool] = program.add_column(1.0)
            for excess in columns:
                row = program.add_row(-INFINITY, 0.0)
                program.put(row, np.array([excess, most[limit.pool]]), np.array([1.0, -1.0]))
        try:
            answer = mix(program, self._columns, gap_frac=0.0, max_nodes=_MAX_NODES, integral=self._integral)
        except PlanError:
            return {}
        # a tolerance of the solver must not ask for a further node
        nodes = {pool: math.ceil(float(answer.shared[column]) - _EXCESS) for pool, column in most.items()}
        return {pool: count for pool, count in nodes.items() if count > 0}


def _message(problem: Problem, judge: _LimitJudge, limits: Sequence[Limit]) -> str:
    together = " together" if len(limits) > 1 else ""
    short = judge.short(limits)
    missing = " and ".join(f"{nodes} more x {pool}" for pool, nodes in sorted(short.items()))
    cure = f"at least {missing} would be needed" if missing else "raise a limit"
    least = {limit.pool: least_nodes(problem, limit.pool) for limit in limits if isinstance(limit, PoolQuota)}
    holders = [_holders(held) + (f" x {pool}" if len(limits) > 1 else "") for pool, held in least.items() if held]
    held = f" (whatever is chosen, {'; '.join(holders)})" if holders else ""
    return f"no plan keeps {_words(limits)}{together}: every option of some workload needs more{held}; {cure}"


def _holders(least: dict[str, int]) -> str:
    """Say who holds how many nodes whatever is chosen."""
    named = [f"{name} holds {nodes}" for name, nodes in list(least.items())[:_MOST_NAMED]]
    more = len(least) - len(named)
    return ", ".join([*named, f"{more} more workloads {sum(list(least.values())[_MOST_NAMED:])}"] if more else named)


def _words(limits: Sequence[Limit]) -> str:
    return " and ".join(limit.words for limit in limits)
