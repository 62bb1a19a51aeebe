"""Every option of a problem in arrays: what costs a fixed sum, and the nodes per hour of the pools that are shared.

Row 0 of each workload is staying as it is, with the nodes that it alone held; then come its options; after all workloads the
groups of nodes that several of them held. A pool is tracked if a commitment or a quota couples the workloads on it; use of
any other pool is a fixed sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.fleet.model import FloatArray, IntArray
from trimtab.ledger.arrays import charge
from trimtab.plan.problem import KEEP, NodeGroup, Problem, total_usage
from trimtab.units import HR_PER_WEEK, S_PER_HR, usd

MAX_NUMBERS = 60_000_000
"""Above so many numbers, hours are gathered into the hours of a week (their mean) before anything else."""

Uses = Mapping[Pool, IntArray]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tracked:
    """One pool that couples workloads: the table rows that use it (n,), and their mean nodes per period (n, n_periods)."""

    pool: Pool
    rows: IntArray
    nodes: FloatArray


class Table:
    """A problem's options as rows; everything about it that does not change while it is being solved."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        alone, self.shared = _split(problem)
        uses: list[Uses] = []
        sizes = []
        for workload, options in enumerate(problem.options):
            uses += [alone[workload], *(option.usage for option in options)]
            sizes.append(len(options) + 1)
        self.rows = len(uses)
        uses += [group.usage for group in self.shared]
        self.first: IntArray = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        self.workload: IntArray = np.repeat(np.arange(len(sizes)), sizes)
        self.fixed_usd, self.spot_excess_hr = _fixed(problem, uses)
        self.of_hour, self.weight_hr = _periods(problem.hours, len(uses))
        self.tracked = _tracked(problem, uses, self.of_hour, self.weight_hr)

    @property
    def periods(self) -> int:
        """Return the number of periods."""
        return len(self.weight_hr)

    def row(self, workload: int, option: int) -> int:
        """Return the row of an option index or KEEP."""
        return int(self.first[workload]) + option + 1

    def option(self, row: int) -> int:
        """Return the option index, or KEEP, that a row stands for."""
        return row - int(self.first[self.workload[row]]) - 1

    def choice(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Return one option index or KEEP per workload from one row per workload."""
        return tuple(self.option(row) for row in rows)

    def use_of(self, choice: Sequence[int]) -> list[FloatArray]:
        """Return the nodes per period of each tracked pool under a choice."""
        total = total_usage(self.problem, choice)
        none = np.zeros(self.problem.hours, dtype=np.int64)
        return [
            np.bincount(self.of_hour, weights=total.get(one.pool, none)) / self.weight_hr / S_PER_HR
            for one in self.tracked
        ]


def _split(problem: Problem) -> tuple[list[Uses], tuple[NodeGroup, ...]]:
    """Return what each workload held alone, summed, and the groups that several held."""
    everyone = [KEEP] * problem.workloads
    mine: list[list[NodeGroup]] = [[] for _ in everyone]
    for group in problem.groups:
        if len(group.holders) == 1:
            mine[min(group.holders)].append(group)
    alone = [_sum([group.usage for group in groups]) for groups in mine]
    return alone, tuple(group for group in problem.groups if len(group.holders) > 1)


def _sum(parts: Sequence[Uses]) -> Uses:
    total: dict[Pool, IntArray] = {}
    for part in parts:
        for pool, seconds in part.items():
            total[pool] = total[pool] + seconds if pool in total else seconds
    return total


def _fixed(problem: Problem, uses: Sequence[Uses]) -> tuple[FloatArray, FloatArray]:
    """Return per use what is charged at a fixed sum (dollars), and its node-hours on spot beyond the allowed share."""
    fixed = np.zeros(len(uses))
    excess = np.zeros(len(uses))
    allowed = 1.0 if problem.spot_max_frac is None else problem.spot_max_frac
    for row, use in enumerate(uses):
        for pool, seconds in use.items():
            if pool not in problem.offers:
                fixed[row] += usd(int(charge(problem.rates_micro_usd_hr[pool], seconds).sum()))
            on_spot = 1.0 if pool.capacity_type is CapacityType.SPOT else 0.0
            excess[row] += (on_spot - allowed) * float(seconds.sum()) / S_PER_HR
    return fixed, excess


def _periods(hours: int, uses: int) -> tuple[IntArray, FloatArray]:
    cycle = hours if hours * uses <= MAX_NUMBERS else min(hours, HR_PER_WEEK)
    of_hour = np.arange(hours) % cycle
    return of_hour, np.bincount(of_hour).astype(np.float64)


def _tracked(problem: Problem, uses: Sequence[Uses], of_hour: IntArray, weight_hr: FloatArray) -> tuple[Tracked, ...]:
    found = []
    for pool in sorted({*problem.offers, *problem.quotas}):
        rows = [row for row, use in enumerate(uses) if pool in use]
        nodes = np.empty((len(rows), len(weight_hr)))
        for place, row in enumerate(rows):
            nodes[place] = _means(uses[row][pool], of_hour, weight_hr)
        found.append(Tracked(pool=pool, rows=np.array(rows, dtype=np.int64), nodes=nodes / S_PER_HR))
    return tuple(found)


def _means(seconds: IntArray, of_hour: IntArray, weight_hr: FloatArray) -> FloatArray:
    if len(weight_hr) == len(of_hour):
        return seconds.astype(np.float64)
    return np.asarray(np.bincount(of_hour, weights=seconds) / weight_hr, dtype=np.float64)
