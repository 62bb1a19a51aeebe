"""What each limit on a plan costs: bill and work of the plan with it, less those of the best plan without it.

The bill alone may fall where a limit tightens, since the plan then does work that did not pay before: both together cannot.
A quota does more than bar plans: replays stood under it, so that options which it made miss their targets are not in the
problem. Who asks says which problem there is without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimtab.fleet.settings import Planning
from trimtab.plan.problem import Problem
from trimtab.plan.program.couplings.one_time_costs import one_time_micro_usd
from trimtab.plan.program.couplings.parts import Limit
from trimtab.plan.program.limits import LimitPrice, uses_of_limits
from trimtab.plan.program.solve import ChosenPlan, solve_problem
from trimtab.units import per_month, usd

MOST_PRICED = 8
"""More binding limits than this are named without their price: each price is a plan of its own."""


Lifted = tuple[Problem, Sequence[int]]
"""A problem without a limit, and the plan's choice in it, to start from."""


def price_limits(
    problem: Problem, chosen: ChosenPlan, planning: Planning, lifted: Callable[[Limit], Lifted | None]
) -> tuple[LimitPrice, ...]:
    """Price the limits that shape a plan; one at which neither the plan nor any option stands costs nothing.

    `lifted` tells of a limit that options were replayed under which problem there is without it; None where none was.
    """
    found, priced = [], 0
    for limit, use in uses_of_limits(problem, chosen.choice).items():
        without = lifted(limit)
        # neither the plan nor any option stands at it, so that lifting it changes nothing
        if without is None and not use.binds:
            found.append(LimitPrice(use=use, cost_usd_mo=0.0, bill_usd_mo=0.0))
            continue
        priced += 1
        if priced > MOST_PRICED:
            found.append(LimitPrice(use=use, cost_usd_mo=None, bill_usd_mo=None))
            continue
        other, start = without or (limit.lifted(problem), chosen.choice)
        cost, bill = _saved(problem, chosen, other, solve_problem(other, planning, start=start))
        found.append(LimitPrice(use=use, cost_usd_mo=cost, bill_usd_mo=bill))
    return tuple(found)


def _saved(problem: Problem, chosen: ChosenPlan, other: Problem, free: ChosenPlan) -> tuple[float, float]:
    """Return what bill and work together, and the bill alone, would be less; nothing where the plan without is no better."""
    # a search that ends dearer without the limit than with it has found no price, only its own gap
    saved = chosen.cost_micro_usd - free.cost_micro_usd
    if saved <= 0:
        return 0.0, 0.0
    work = one_time_micro_usd(problem, chosen.choice) - one_time_micro_usd(other, free.choice)
    return per_month(usd(saved), problem.hours), per_month(usd(saved - work), problem.hours)
