"""Every option of a problem in arrays: fixed sums, nodes per hour of coupled pools, and what a choice costs exactly.

The program works on means of gathered hours and on dollars; its objective is a bound, never the answer.

Row 0 of each workload is staying as it is, with the nodes that it alone held; then come its options; after all workloads the
linked rows: groups of nodes that several of them held, and costs that are paid once for several options. A pool is tracked if a
commitment, a quota or shared nodes couple the workloads on it; use of any other pool is a fixed sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.ledger import Bill, Commitment, Usage, bill, nodes_committed
from trimtab.ledger.arrays import FloatArray, IntArray, charge
from trimtab.plan.problem import KEEP, Option, Problem, summed
from trimtab.plan.program.couplings.held_nodes import held_alone, held_together, held_usage, linked_groups
from trimtab.plan.program.couplings.node_commitments import committed_pools
from trimtab.plan.program.couplings.one_time_costs import linked_costs, one_time_micro_usd, options_needing
from trimtab.plan.program.couplings.parts import Sharing, Slots, TrackedPool, Uses
from trimtab.plan.program.couplings.shared_nodes import shared_usage, sharing_of, worth_in_nodes
from trimtab.plan.program.couplings.spend_plans import cut_together
from trimtab.plan.program.couplings.spot_share import spot_excess_hr
from trimtab.units import S_PER_HR, usd


def total_usage(problem: Problem, choice: Sequence[int]) -> dict[Pool, IntArray]:
    """Return node-seconds per pool under a choice (an option index or KEEP per workload); shared nodes round up jointly."""
    options = _chosen(problem, choice)
    alone = [option.usage for option in options]
    return summed([*alone, *held_usage(problem, choice), shared_usage(option.slots for option in options)])


def own_cost(problem: Problem, choice: Sequence[int]) -> int:
    """Return what a choice costs besides nodes, micro-dollars: its options' own sums and each cost they need, once."""
    return sum(option.own_micro_usd for option in _chosen(problem, choice)) + one_time_micro_usd(problem, choice)


def exact_bill(
    usage: Mapping[Pool, IntArray], rates: Mapping[Pool, int], paid: Sequence[Commitment], hours: int
) -> Bill:
    """Return the exact hourly bill of a use under commitments: what is reported."""
    # committed nodes are paid for also where no workload uses the pool
    pools = tuple(sorted({*usage, *nodes_committed(paid)}))
    seconds = np.zeros((len(pools), hours), dtype=np.int64)
    for row, pool in enumerate(pools):
        seconds[row] = usage.get(pool, 0)
    return bill(Usage(pools=pools, node_seconds=seconds), rates, paid)


def cost_with(problem: Problem, choice: Sequence[int], bought: Sequence[Commitment]) -> int:
    """Return the exact bill of a choice under what is owned and bought, with what it costs besides nodes."""
    usage, paid = total_usage(problem, choice), (*problem.owned, *bought)
    return exact_bill(usage, problem.rates_micro_usd_hr, paid, problem.hours).total + own_cost(problem, choice)


def _chosen(problem: Problem, choice: Sequence[int]) -> list[Option]:
    return [problem.options[workload][option] for workload, option in enumerate(choice) if option != KEEP]


class OptionTable:
    """A problem's options as rows; everything about it that does not change while it is being solved."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        uses: list[Uses] = []
        slots: list[Slots] = []
        charged: list[Mapping[Pool, int]] = []
        sizes = []
        for staying, options in zip(held_alone(problem), problem.options, strict=True):
            uses += [staying, *(option.usage for option in options)]
            slots += [{}, *(option.slots for option in options)]
            charged += [{}, *(option.charged_micro_usd for option in options)]
            sizes.append(len(options) + 1)
        self.rows = len(uses)
        self.first: IntArray = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        self.workload: IntArray = np.repeat(np.arange(len(sizes)), sizes)
        self.linked_groups = linked_groups(problem, self.row, self.rows)
        self.needing = options_needing(problem)
        self.linked_costs = linked_costs(self.needing, self.row, self.rows + len(self.linked_groups))
        # groups use what was held; costs that are paid once use no nodes
        uses += [*(group.usage for group in held_together(problem)), *({} for _ in self.linked_costs)]
        sharing = sharing_of(slots)
        shared_pools = {shared.site.pool for shared in sharing}
        self.balanced = frozenset({*committed_pools(problem), *problem.spend_pools, *shared_pools})
        """Pools whose use is paid by rows of the program; of all others by a fixed sum."""
        charged += [{} for _ in range(self.rows, len(uses))]
        self.fixed_usd = _fixed_usd(problem, uses, charged, self.balanced) + self._own_usd()
        self.spot_excess_hr = spot_excess_hr(problem, uses, sharing)
        self.tracked = _tracked(problem, uses, sharing, self.balanced)
        # paid whatever is chosen: added to every bound and part of no row
        self.owned_usd = usd(sum(commitment.micro_usd_hr for commitment in problem.owned) * problem.hours)
        self.in_no_plan = self._breaking_quotas()
        """Rows that are never offered: such an option is in no plan, so that no relaxation may take a half of it either."""

    def _breaking_quotas(self) -> list[int]:
        """Return the rows of options that alone hold more of a pool than its quota in some hour."""
        quotas = self.problem.quotas
        return [
            self.row(workload, number)
            for workload, options in enumerate(self.problem.options if quotas else ())
            for number, option in enumerate(options)
            if any(
                pool in quotas and int(seconds.max(initial=0)) > quotas[pool] * S_PER_HR
                for pool, seconds in option.usage.items()
            )
        ]

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
        """Return what each workload's rows cost if no commitments were sold; slots at what their share of a node costs."""
        cost = self.fixed_usd[: self.rows].copy()
        cost[self.in_no_plan] = np.inf
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


def _fixed_usd(
    problem: Problem, uses: Sequence[Uses], charged: Sequence[Mapping[Pool, int]], balanced: frozenset[Pool]
) -> FloatArray:
    """Return what each use costs in pools whose use the program does not pay, as the ledger charges it."""
    fixed = np.zeros(len(uses))
    for row, (use, known) in enumerate(zip(uses, charged, strict=True)):
        for pool, seconds in use.items():
            if pool not in balanced:
                # in whole micro-dollars hour by hour, as in the bill
                micro_usd = known.get(pool)
                if micro_usd is None:
                    micro_usd = int(charge(problem.rates_micro_usd_hr[pool], seconds).sum())
                fixed[row] += usd(micro_usd)
    return fixed


def _tracked(
    problem: Problem, uses: Sequence[Uses], sharing: Sequence[Sharing], balanced: frozenset[Pool]
) -> tuple[TrackedPool, ...]:
    """Return each pool whose use the program pays or limits, with how its hours may be gathered."""
    together, limited = cut_together(problem), problem.quotas.keys()
    users: dict[Pool, tuple[list[int], list[IntArray]]] = {pool: ([], []) for pool in sorted(balanced | limited)}
    for row, use in enumerate(uses):
        for pool, seconds in use.items():
            user = users.get(pool)
            if user is not None:
                user[0].append(row)
                user[1].append(seconds)
    found = []
    for pool, (rows, used) in users.items():
        found.append(
            TrackedPool(
                pool=pool,
                rows=np.array(rows, dtype=np.int64),
                seconds=tuple(used),
                sharing=tuple(shared for shared in sharing if shared.site.pool == pool),
                cut_with=together.get(pool, ""),
                is_limited=pool in limited,
            )
        )
    return tuple(found)
