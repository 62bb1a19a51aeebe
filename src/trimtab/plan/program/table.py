"""Every option of a problem in arrays: what costs a fixed sum, and the nodes per hour of the pools that are shared.

Row 0 of each workload is staying as it is, with the nodes that it alone held; then come its options; after all workloads the
linked rows: groups of nodes that several of them held, and costs that are paid once for several options. A pool is tracked if a
commitment, a quota or shared nodes couple the workloads on it; use of any other pool is a fixed sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.fleet.model import FloatArray, IntArray
from trimtab.ledger.arrays import charge
from trimtab.plan.problem import Problem
from trimtab.plan.program.couplings.held_nodes import held_alone, held_together, linked_groups
from trimtab.plan.program.couplings.node_commitments import committed_pools
from trimtab.plan.program.couplings.one_time_costs import linked_costs
from trimtab.plan.program.couplings.shared_nodes import sharing_of, worth_in_nodes
from trimtab.plan.program.couplings.spend_plans import cut_together, spend_pools
from trimtab.plan.program.couplings.spot_share import spot_excess_hr
from trimtab.plan.program.exact_cost import total_usage
from trimtab.plan.program.pool_use import Sharing, Slots, Tracked, Uses
from trimtab.units import S_PER_HR, usd


class OptionTable:
    """A problem's options as rows; everything about it that does not change while it is being solved."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        uses: list[Uses] = []
        slots: list[Slots] = []
        sizes = []
        for staying, options in zip(held_alone(problem), problem.options, strict=True):
            uses += [staying, *(option.usage for option in options)]
            slots += [{}, *(option.slots for option in options)]
            sizes.append(len(options) + 1)
        self.rows = len(uses)
        self.first: IntArray = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        self.workload: IntArray = np.repeat(np.arange(len(sizes)), sizes)
        self.linked_groups = linked_groups(problem, self.row, self.rows)
        self.linked_costs = linked_costs(problem, self.row, self.rows + len(self.linked_groups))
        # groups use what was held; costs that are paid once use no nodes
        uses += [*(group.usage for group in held_together(problem)), *({} for _ in self.linked_costs)]
        sharing = sharing_of(slots)
        shared_pools = {shared.site.pool for shared in sharing}
        self.balanced = frozenset({*committed_pools(problem), *spend_pools(problem), *shared_pools})
        """Pools whose use is paid by rows of the program; of all others by a fixed sum."""
        self.fixed_usd = _fixed_usd(problem, uses, self.balanced) + self._own_usd()
        self.spot_excess_hr = spot_excess_hr(problem, uses, sharing)
        self.tracked = _tracked(problem, uses, sharing, self.balanced)
        # paid whatever is chosen: added to every bound and part of no row
        self.owned_usd = usd(sum(commitment.micro_usd_hr for commitment in problem.owned) * problem.hours)

    def _own_usd(self) -> FloatArray:
        """Return what each row, linked ones too, costs besides nodes, in dollars."""
        costs = self.problem.entries_micro_usd
        own = [
            usd(micro)
            for options in self.problem.options
            for micro in (0, *(option.own_micro_usd for option in options))
        ]
        return np.array([*own, *(0.0 for _ in self.linked_groups), *(usd(costs[name]) for name in sorted(costs))])

    def row(self, workload: int, option: int) -> int:
        """Return the row of an option index or KEEP."""
        # KEEP is -1, and staying is the first row of each workload
        return int(self.first[workload]) + option + 1

    def option(self, row: int) -> int:
        """Return the option index, or KEEP, that a row stands for."""
        return row - int(self.first[self.workload[row]]) - 1

    def choice(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Return one option index or KEEP per workload from one row per workload."""
        return tuple(self.option(row) for row in rows)

    def use_of(self, choice: Sequence[int]) -> list[FloatArray]:
        """Return the nodes per hour of each tracked pool under a choice."""
        total = total_usage(self.problem, choice)
        none = np.zeros(self.problem.hours, dtype=np.int64)
        return [total.get(tracked.pool, none) / S_PER_HR for tracked in self.tracked]

    def on_demand_usd(self) -> FloatArray:
        """Return what each workload's rows cost if nobody sold commitments; slots at what their share of a node costs."""
        cost = self.fixed_usd[: self.rows].copy()
        for tracked in self.tracked:
            if tracked.pool in self.balanced:
                # linked rows belong to no workload
                of_workloads = tracked.rows < self.rows
                rate = usd(self.problem.rates_micro_usd_hr[tracked.pool])
                cost[tracked.rows[of_workloads]] += rate * tracked.node_hours()[of_workloads]
                for sharing in tracked.sharing:
                    # by the measure of which it takes the largest part, as whole nodes are counted
                    cost[sharing.rows] += rate * worth_in_nodes(sharing).max(axis=1).sum(axis=1)
        return cost


def _fixed_usd(problem: Problem, uses: Sequence[Uses], balanced: frozenset[Pool]) -> FloatArray:
    """Return what each use costs in pools whose use the program does not pay, as the ledger charges it."""
    fixed = np.zeros(len(uses))
    for row, use in enumerate(uses):
        for pool, seconds in use.items():
            if pool not in balanced:
                # in whole micro-dollars hour by hour, as in the bill
                fixed[row] += usd(int(charge(problem.rates_micro_usd_hr[pool], seconds).sum()))
    return fixed


def _tracked(
    problem: Problem, uses: Sequence[Uses], sharing: Sequence[Sharing], balanced: frozenset[Pool]
) -> tuple[Tracked, ...]:
    """Return each pool whose use the program pays or limits, with how its hours may be gathered."""
    together, limited = cut_together(problem), problem.quotas.keys()
    users: dict[Pool, list[int]] = {}
    for row, use in enumerate(uses):
        for pool in use:
            users.setdefault(pool, []).append(row)
    found = []
    for pool in sorted(balanced | limited):
        rows = users.get(pool, [])
        found.append(
            Tracked(
                pool=pool,
                rows=np.array(rows, dtype=np.int64),
                seconds=tuple(uses[row][pool] for row in rows),
                sharing=tuple(shared for shared in sharing if shared.site.pool == pool),
                cut_with=together.get(pool, ""),
                is_limited=pool in limited,
            )
        )
    return tuple(found)
