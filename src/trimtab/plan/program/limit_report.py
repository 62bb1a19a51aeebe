"""What each limit on a plan costs: bill and work of the plan with it, less those of the best plan without it.

The bill alone may fall where a limit tightens, since the plan then does work that did not pay before: both together cannot.
"""

from __future__ import annotations

from trimtab.fleet.settings import Planning
from trimtab.plan.problem import Problem
from trimtab.plan.program.couplings.parts import Limit
from trimtab.plan.program.limits import LimitPrice, uses_of_limits
from trimtab.plan.program.solve import Chosen, solve_problem
from trimtab.units import per_month, usd

MOST_PRICED = 8
"""More binding limits than this are named without their price: each price is a plan of its own."""


def price_limits(problem: Problem, chosen: Chosen, planning: Planning) -> tuple[LimitPrice, ...]:
    """Price the limits at which a plan stands; one with room to spare costs nothing."""
    found, priced = [], 0
    for limit, use in uses_of_limits(problem, chosen.choice).items():
        cost: float | None = 0.0
        if use.binds:
            priced += 1
            cost = _cost(problem, chosen, limit, planning) if priced <= MOST_PRICED else None
        found.append(LimitPrice(use=use, cost_usd_mo=cost))
    return tuple(found)


def _cost(problem: Problem, chosen: Chosen, limit: Limit, planning: Planning) -> float:
    without = solve_problem(limit.lifted(problem), planning, start=chosen.choice)
    saved = max(0, chosen.cost_micro_usd - without.cost_micro_usd)
    return per_month(usd(saved), problem.hours)
