"""Capacity blocks under a way of running a workload: the calendars that suit what its runs would use there on demand."""

from __future__ import annotations

import math

import numpy as np

from trimtab.fleet.effects import BookBlocks
from trimtab.fleet.kinds import RUN_KINDS
from trimtab.fleet.market import Market
from trimtab.fleet.model import IntArray
from trimtab.levers import capacity_blocks
from trimtab.plan.outcomes.evaluate import Evaluator
from trimtab.plan.outcomes.jobs_outcome import nodes_of_runs
from trimtab.plan.outcomes.outcome import Case, Effects, Placement, placement


def can_book(case: Case, effects: Effects, market: Market) -> bool:
    """Tell whether blocks of the nodes that a way leads to have a known rate, for a workload that consists of runs."""
    if case.workload.kind not in RUN_KINDS or case.workload.jobs is None or not case.settings.limits.use_blocks:
        return False
    place = placement(case.workload, effects)
    return place.shared is None and market.block_price(place.pool) is not None


def booked_ways(evaluator: Evaluator, effects: Effects, market: Market) -> tuple[BookBlocks, ...]:
    """Return the calendars to try with a way of running on demand that can be booked (`can_book`)."""
    case = evaluator.case
    place = placement(case.workload, effects)
    return capacity_blocks.propose(
        evaluator.outcome(effects).on_demand,
        case.window,
        place.pool,
        market,
        unit=_unit(evaluator, place),
        may_end=bool(case.workload.spec.interruptible),
    )


def _unit(evaluator: Evaluator, place: Placement) -> int:
    """Return how many nodes runs there take at once: the largest number that divides what each of them needs."""
    jobs = evaluator.case.workload.jobs
    nodes: IntArray = np.ones(1, dtype=np.int64) if jobs is None or not jobs.count else nodes_of_runs(jobs, place)
    return math.gcd(*(int(count) for count in np.unique(nodes)))
