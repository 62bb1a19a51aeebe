"""Improve a choice on the exact hourly use, one workload at a time, by what the move changes in the pools that it touches.

Only the pools that a move touches are priced again, and all of a workload's moves at once. The committed counts stand during
a sweep and are renewed after it. Limits come first: a move that breaks a quota or the spot share less always wins.

What nodes cost beyond a number of committed ones is convex in their use. So a move saves at most what it saves at the prices of
the present use: the rate where more nodes are in use than committed, else nothing. Most moves of a sweep gain nothing even so,
and are not tried.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.ledger import Commitment
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.plan.problem import KEEP, Problem
from trimtab.plan.program.best_discounts import best_discounts
from trimtab.plan.program.couplings.held_nodes import HeldNodesInUse
from trimtab.plan.program.couplings.node_commitments import HeldNodeCommitments
from trimtab.plan.program.couplings.one_time_costs import OneTimeCostsInUse
from trimtab.plan.program.couplings.parts import Cover, LimitBreach, TriedUse, UseOfChoices
from trimtab.plan.program.couplings.quotas import QuotaBreach
from trimtab.plan.program.couplings.shared_nodes import SharedNodesInUse
from trimtab.plan.program.couplings.spend_plans import HeldSpendPlans
from trimtab.plan.program.couplings.spot_share import SpotBreach
from trimtab.plan.program.table import OptionTable, total_usage
from trimtab.units import S_PER_HR, usd

MAX_SWEEPS = 20
_LEAST_GAIN_USD = 1e-7
_LEAST_SWEEP_FRAC = 1e-6
"""Sweeps go on while one gains more than this share of the use at its rates."""
_LIMIT_USD = 1e6
"""What breaking a limit by one node-hour weighs in a comparison: more than any plan saves with it."""


class Improver:
    """A choice with the use of every pool that it implies, kept up to date move by move."""

    def __init__(self, table: OptionTable, choice: Sequence[int], bought: Sequence[Commitment] | None = None) -> None:
        """Begin at a choice; `bought` is what was best for one much like it."""
        self.problem: Problem = table.problem
        self.choice = list(choice)
        self.use: dict[Pool, IntArray] = dict(total_usage(self.problem, choice))
        self._joint_use: tuple[UseOfChoices, ...] = (
            HeldNodesInUse(self.problem, choice),
            SharedNodesInUse(self.problem, choice),
        )
        self._paid_once = OneTimeCostsInUse(self.problem, choice)
        self.nodes = HeldNodeCommitments(self.problem)
        self._spend = HeldSpendPlans(self.problem, self.nodes)
        # In the order in which the ledger applies them.
        self._covers: tuple[Cover, ...] = (self.nodes, self._spend)
        self._limits: tuple[LimitBreach, ...] = (QuotaBreach(self.problem), SpotBreach(self.problem))
        self._is_joint = bool(self.problem.spend_pools)
        """Nodes and spend compete for the same hours: what is best to buy is found for both together."""
        self.bought = bought
        """What is bought for the present use, as far as it is kept up to date: after each sweep."""
        self._is_convex = not self._is_joint and not self.problem.quotas and self.problem.spot_max_frac is None
        self._paid_hours: dict[Pool, IntArray] = {}
        """1 in each hour in which another node of a pool is paid for, 0 where it is committed anyway."""
        self._hold_best()

    def sweep(self, candidates: Sequence[Sequence[int]]) -> float:
        """Try every candidate (option index or KEEP) of each workload; return the dollars gained."""
        gained = 0.0
        for workload, options in enumerate(candidates):
            tried = [option for option in options if option != self.choice[workload]]
            tried = self.worth_trying(workload, tried)
            if tried:
                gains = self.gains(workload, tried)
                best = int(np.argmax(gains))
                # smaller gains may be rounding, and the next sweep might undo it
                if gains[best] > _LEAST_GAIN_USD:
                    self.move(workload, tried[best])
                    gained += float(gains[best])
        # where spend plans compete with nodes both are found again together, else counts pool by pool
        if self._is_joint:
            self._hold_best()
        else:
            self.nodes.renew(self.use)
            self._paid_hours.clear()
        return gained

    def worth_trying(self, workload: int, options: Sequence[int]) -> list[int]:
        """Return those of some options (or KEEP) of a workload that may gain: all where cost is not convex in use alone."""
        if not self._is_convex or not options:
            return list(options)
        tried = (self.choice[workload], *options)
        cost = self._beside_nodes_usd(workload, tried)
        for at, pool, seconds in self._changes(workload, tried):
            rate_usd = usd(self.problem.rates_micro_usd_hr[pool]) / S_PER_HR
            cost[at] += rate_usd * int(self._paid_in(pool) @ seconds)
        saved = cost[0] - cost[1:]
        return [option for option, most in zip(options, saved, strict=True) if most > _LEAST_GAIN_USD]

    def _paid_in(self, pool: Pool) -> IntArray:
        if pool not in self._paid_hours:
            beyond = self.nodes.uncovered(pool, self._use_of(pool))
            self._paid_hours[pool] = (beyond > 0).astype(np.int64)
        return self._paid_hours[pool]

    def _hold_best(self) -> None:
        """Hold the commitments that are best for the present use, to nodes and to spend."""
        self.bought = best_discounts(self.problem, self.use, self.bought)
        self.nodes.hold(self.bought)
        self._spend.hold(self.bought)
        self._paid_hours.clear()

    def gains(self, workload: int, options: Sequence[int]) -> FloatArray:
        """Return what moving a workload to each of some options (or KEEP) saves, dollars, limits weighed in."""
        # the present option comes first: gains are differences to it
        tried = (self.choice[workload], *options)
        cost = self._beside_nodes_usd(workload, tried)
        use = self._tried_use(workload, tried)
        # a shallow copy: covers put new arrays in place of these and never write into them
        left = dict(use.use)
        for cover in self._covers:
            cover.take(left, self.use)
        for pool, seconds in left.items():
            cost += usd(self.problem.rates_micro_usd_hr[pool]) * seconds.sum(axis=-1) / S_PER_HR
        for limit in self._limits:
            cost += _LIMIT_USD * limit.breach_hr(use)
        return np.asarray(cost[0] - cost[1:])

    def _beside_nodes_usd(self, workload: int, tried: Sequence[int]) -> FloatArray:
        """Return what some options of a workload, the present one first, cost besides nodes."""
        paid_once = self._paid_once.added_micro_usd(workload, tried)
        return np.array(
            [usd(self._own(workload, option) + once) for option, once in zip(tried, paid_once, strict=True)]
        )

    def _own(self, workload: int, option: int) -> int:
        """Return what a workload's choice costs by itself besides nodes, micro-dollars."""
        return 0 if option == KEEP else self.problem.options[workload][option].own_micro_usd

    def _changes(self, workload: int, tried: Sequence[int]) -> list[tuple[int, Pool, IntArray]]:
        """Return what each of some options of a workload, the present one first, adds to the use of pools by others."""
        changes = [
            (at, pool, seconds)
            for at, option in enumerate(tried)
            if option != KEEP
            for pool, seconds in self.problem.options[workload][option].usage.items()
        ]
        for part in self._joint_use:
            changes += part.added(workload, tried)
        return changes

    def _tried_use(self, workload: int, tried: Sequence[int]) -> TriedUse:
        """Return the use of every pool that some options of a workload touch, with each of them in its place."""
        changes = self._changes(workload, tried)
        added = {
            pool: np.zeros((len(tried), self.problem.hours), dtype=np.int64)
            for pool in sorted({pool for _, pool, _ in changes})
        }
        for at, pool, seconds in changes:
            added[pool][at] += seconds
        # the present option's part is taken out, and each option's own put in
        use = {pool: self._use_of(pool) - rows[0] + rows for pool, rows in added.items()}
        return TriedUse(added=added, use=use, present=self.use)

    def _use_of(self, pool: Pool) -> IntArray:
        known = self.use.get(pool)
        return np.zeros(self.problem.hours, dtype=np.int64) if known is None else known

    def move(self, workload: int, option: int) -> None:
        """Make a move: give a workload another option (or KEEP)."""
        before = self.choice[workload]
        changes = [
            (pool, sign * seconds)
            for sign, own in ((-1, before), (1, option))
            if own != KEEP
            for pool, seconds in self.problem.options[workload][own].usage.items()
        ]
        for part in self._joint_use:
            changes += part.move(workload, before, option)
        for pool, seconds in changes:
            self.use[pool] = self._use_of(pool) + seconds
            self._paid_hours.pop(pool, None)
        self._paid_once.move(workload, before, option)
        self.choice[workload] = option

    def scale_usd(self) -> float:
        """Return the use at its rates, without commitments."""
        return (
            sum(usd(self.problem.rates_micro_usd_hr[pool]) * int(use.sum()) for pool, use in self.use.items())
            / S_PER_HR
        )


def improved(
    table: OptionTable,
    choice: Sequence[int],
    candidates: Sequence[Sequence[int]],
    bought: Sequence[Commitment] | None = None,
) -> Improver:
    """Return the choice after sweeps until nothing pays; ties keep what is. `bought` was best for a choice much like it."""
    improver = Improver(table, choice, bought)
    for _ in range(MAX_SWEEPS):
        if improver.sweep(candidates) <= _LEAST_SWEEP_FRAC * improver.scale_usd():
            break
    return improver
