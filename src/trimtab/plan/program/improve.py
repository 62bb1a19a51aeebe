"""Improve a choice on the exact hourly use, one workload at a time, by what the move changes in the pools that it touches.

Only the pools that a move touches are priced again, and all of a workload's moves at once. The committed counts stand during
a sweep and are renewed after it. Limits come first: a move that breaks a quota or the spot share less always wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from trimtab.catalog.pools import Pool, Site
from trimtab.fleet.model import FloatArray, IntArray
from trimtab.ledger import Discounts
from trimtab.ledger.spend import cover
from trimtab.plan.problem import KEEP, Problem, beyond, taken, total_usage, whole_nodes
from trimtab.plan.program.best_discounts import best_discounts
from trimtab.plan.program.table import Table
from trimtab.units import S_PER_HR, usd

MAX_SWEEPS = 20
_LEAST_GAIN_USD = 1e-7
_LEAST_SWEEP_FRAC = 1e-6
"""Sweeps go on while one gains more than this share of the use at its rates."""
_LIMIT_USD = 1e6
"""What breaking a limit by one node-hour weighs in a comparison: more than any plan saves with it."""


class Improver:
    """A choice with the use of every pool that it implies, kept up to date move by move."""

    def __init__(self, table: Table, choice: Sequence[int], bought: Discounts | None = None) -> None:
        """Begin at a choice; `bought` is what was best for one much like it."""
        self.table = table
        self.problem: Problem = table.problem
        self.choice = list(choice)
        self.use: dict[Pool, IntArray] = dict(total_usage(self.problem, choice))
        self._room: dict[Site, IntArray] = {}
        for workload, option in enumerate(self.choice):
            for site, room in self._taken(workload, option).items():
                self._room[site] = self._room_of(site) + room
        self._groups_of: list[list[int]] = [[] for _ in self.choice]
        for group, nodes in enumerate(self.problem.groups):
            for workload in nodes.holders:
                self._groups_of[workload].append(group)
        self._needing: Counter[str] = Counter()
        """How many chosen options need each entry."""
        for workload, option in enumerate(self.choice):
            self._needing.update(self._needs(workload, option))
        self._keepers = [sum(self.choice[w] == KEEP for w in group.holders) for group in self.problem.groups]
        self.owned = self.problem.owned_nodes
        self.bought = bought
        """What is bought for the present use, as far as it is kept up to date: after each sweep."""
        self._hold_best()

    def sweep(self, candidates: Sequence[Sequence[int]]) -> float:
        """Try every candidate (option index or KEEP) of each workload; return the dollars gained."""
        gained = 0.0
        for workload, options in enumerate(candidates):
            tried = [option for option in options if option != self.choice[workload]]
            if tried:
                gains = self.gains(workload, tried)
                best = int(np.argmax(gains))
                if gains[best] > _LEAST_GAIN_USD:
                    self.move(workload, tried[best])
                    gained += float(gains[best])
        if self.problem.spend_pools:
            self._hold_best()
        else:
            self.counts = {pool: self._renewed(pool) for pool in self.problem.offers if pool in self.use}
        return gained

    def _hold_best(self) -> None:
        """Hold the commitments that are best for the present use, to nodes and to spend."""
        self.bought = best = best_discounts(self.problem, self.use, self.bought)
        self.counts = {commitment.pool: commitment.count for commitment in best.commitments}
        self.plans = (*self.problem.owned.spend_plans, *best.spend_plans)
        self._covered = frozenset(pool for plan in self.plans for pool in plan.rates_micro_usd_hr)

    def _uses(self, workload: int, option: int) -> list[Mapping[Pool, IntArray]]:
        """Return what a workload's choice adds to the nodes that stay billed anyway."""
        if option != KEEP:
            return [self.problem.options[workload][option].usage]
        mine = self.choice[workload] == KEEP
        return [
            self.problem.groups[group].usage
            for group in self._groups_of[workload]
            if self._keepers[group] - (1 if mine else 0) == 0
        ]

    def _taken(self, workload: int, option: int) -> Mapping[Site, IntArray]:
        """Return the room that a workload's choice takes of shared nodes."""
        return {} if option == KEEP else taken(self.problem.options[workload][option].slots)

    def _needs(self, workload: int, option: int) -> frozenset[str]:
        """Return the entries that a workload's choice needs."""
        return frozenset() if option == KEEP else self.problem.options[workload][option].needs

    def _own_usd(self, workload: int, option: int) -> float:
        """Return what a workload's choice costs besides nodes, entries that nobody else needs included."""
        if option == KEEP:
            return 0.0
        mine = self._needs(workload, self.choice[workload])
        entries = sum(
            self.problem.entries_micro_usd[name]
            for name in self._needs(workload, option)
            if self._needing[name] == (name in mine)
        )
        return usd(self.problem.options[workload][option].own_micro_usd + entries)

    def gains(self, workload: int, options: Sequence[int]) -> FloatArray:
        """Return what moving a workload to each of some options (or KEEP) saves, dollars, limits weighed in."""
        changes: list[tuple[int, Pool, IntArray]] = []
        for at, option in enumerate((self.choice[workload], *options)):
            changes += [(at, pool, seconds) for use in self._uses(workload, option) for pool, seconds in use.items()]
        held = [self._taken(workload, option) for option in (self.choice[workload], *options)]
        for site in sorted({site for rooms in held for site in rooms}):
            others = self._room_of(site) - held[0].get(site, 0)
            least = whole_nodes(site, others)
            for at, rooms in enumerate(held):
                if site in rooms:
                    changes.append((at, site.pool, (whole_nodes(site, others + rooms[site]) - least) * S_PER_HR))
        cost = np.array([self._own_usd(workload, option) for option in (self.choice[workload], *options)])
        covered: dict[Pool, IntArray] = {}
        spot_hr, all_hr = np.zeros(len(cost)), np.zeros(len(cost))
        for pool in sorted({pool for _, pool, _ in changes}):
            with_it = np.zeros((len(cost), self.problem.hours), dtype=np.int64)
            for at, touched, seconds in changes:
                if touched == pool:
                    with_it[at] += seconds
            if self.problem.spot_max_frac is not None:
                hours = with_it.sum(axis=1) / S_PER_HR
                all_hr += hours
                spot_hr += hours if pool.capacity == "spot" else 0.0
            seconds = self._use_of(pool) - with_it[0] + with_it
            cost += self._quota_cost(pool, seconds)
            left = np.maximum(seconds - self._nodes(pool) * S_PER_HR, 0)
            if pool in self._covered:
                covered[pool] = left
            else:
                cost += self._metered(pool, left)
        cost += self._cost_beside_plans(covered)
        if self.problem.spot_max_frac is not None:
            cost += _LIMIT_USD * self._spot_excess_hr(spot_hr - spot_hr[0], all_hr - all_hr[0])
        return np.asarray(cost[0] - cost[1:])

    def _nodes(self, pool: Pool) -> int:
        return self.counts.get(pool, 0) + self.owned.get(pool, 0)

    def _metered(self, pool: Pool, left: IntArray) -> FloatArray:
        """Return what rows of use (n, n_hours) that nothing covers cost, dollars."""
        return np.asarray(usd(self.problem.rates_micro_usd_hr[pool]) * left.sum(axis=-1) / S_PER_HR, dtype=np.float64)

    def _quota_cost(self, pool: Pool, seconds: IntArray) -> FloatArray:
        quota = self.problem.quotas.get(pool)
        if quota is None:
            return np.zeros(len(seconds))
        return np.asarray(_LIMIT_USD * np.maximum(seconds - quota * S_PER_HR, 0).sum(axis=1) / S_PER_HR)

    def _cost_beside_plans(self, changed: Mapping[Pool, IntArray]) -> FloatArray | float:
        """Return what providers' covered pools cost on demand if rows of use beyond committed nodes (n, n_hours) change.

        The present plans apply to each row as the ledger applies them: what one pool no longer takes, another may.
        """
        cost: FloatArray | float = 0.0
        for provider in sorted({pool.provider for pool in changed}):
            plans = [plan for plan in self.plans if plan.provider == provider]
            pools = sorted(
                pool for pool in self._covered if pool.provider == provider and pool in {*self.use, *changed}
            )
            rows = len(next(use for pool, use in changed.items() if pool.provider == provider))
            left = np.empty((len(pools), rows, self.problem.hours), dtype=np.int64)
            for at, pool in enumerate(pools):
                known = changed.get(pool)
                left[at] = np.maximum(self._use_of(pool) - self._nodes(pool) * S_PER_HR, 0) if known is None else known
            for plan in plans:
                left -= cover(plan, pools, left, self.problem.rates_micro_usd_hr)
            cost = cost + sum(self._metered(pool, left[at]) for at, pool in enumerate(pools))
        return cost

    def _spot_excess_hr(self, spot_hr: FloatArray, all_hr: FloatArray) -> FloatArray:
        """Return node-hours on spot beyond the allowed share when the present use changes by these."""
        now_spot = sum(int(use.sum()) for pool, use in self.use.items() if pool.capacity == "spot") / S_PER_HR
        now = sum(int(use.sum()) for use in self.use.values()) / S_PER_HR
        allowed = 1.0 if self.problem.spot_max_frac is None else self.problem.spot_max_frac
        return np.maximum(now_spot + spot_hr - allowed * (now + all_hr), 0.0)

    def _use_of(self, pool: Pool) -> IntArray:
        known = self.use.get(pool)
        return np.zeros(self.problem.hours, dtype=np.int64) if known is None else known

    def _room_of(self, site: Site) -> IntArray:
        known = self._room.get(site)
        return np.zeros((len(site.room), self.problem.hours), dtype=np.int64) if known is None else known

    def _hold(self, site: Site, change: IntArray) -> None:
        """Change the room that is taken of shared nodes, and with it their number."""
        before = self._room_of(site)
        self._room[site] = before + change
        nodes = whole_nodes(site, self._room[site]) - whole_nodes(site, before)
        self.use[site.pool] = self._use_of(site.pool) + nodes * S_PER_HR

    def move(self, workload: int, option: int) -> None:
        """Make a move: give a workload another option (or KEEP)."""
        gone, come = self._uses(workload, self.choice[workload]), self._uses(workload, option)
        for sign, uses in ((-1, gone), (1, come)):
            for use in uses:
                for pool, seconds in use.items():
                    self.use[pool] = self._use_of(pool) + sign * seconds
        for sign, held in ((-1, self._taken(workload, self.choice[workload])), (1, self._taken(workload, option))):
            for site, room in held.items():
                self._hold(site, sign * room)
        self._needing.subtract(self._needs(workload, self.choice[workload]))
        self._needing.update(self._needs(workload, option))
        step = int(option == KEEP) - int(self.choice[workload] == KEEP)
        for group in self._groups_of[workload]:
            self._keepers[group] += step
        self.choice[workload] = option

    def _renewed(self, pool: Pool) -> int:
        """Return the best committed count for the present use, found from the present one: the bill is convex in it."""
        rate, offer = self.problem.rates_micro_usd_hr[pool], self.problem.offers[pool]
        unit = offer.rate_micro_usd_hr * S_PER_HR * self.problem.hours
        use, count = beyond(self.use[pool], self.owned.get(pool, 0)), self.counts.get(pool, 0)
        while _nth_node_seconds(use, count + 1) * rate > unit:
            count += 1
        while count and _nth_node_seconds(use, count) * rate <= unit:
            count -= 1
        return count

    def scale_usd(self) -> float:
        """Return the use at its rates, without commitments."""
        return (
            sum(usd(self.problem.rates_micro_usd_hr[pool]) * int(use.sum()) for pool, use in self.use.items())
            / S_PER_HR
        )


def _nth_node_seconds(use: IntArray, number: int) -> int:
    """Return how long at least `number` nodes were in use."""
    return int(np.clip(use - (number - 1) * S_PER_HR, 0, S_PER_HR).sum())


def improved(
    table: Table, choice: Sequence[int], candidates: Sequence[Sequence[int]], bought: Discounts | None = None
) -> Improver:
    """Return the choice after sweeps until nothing pays; ties keep what is. `bought` was best for a choice much like it."""
    improver = Improver(table, choice, bought)
    for _ in range(MAX_SWEEPS):
        if improver.sweep(candidates) <= _LEAST_SWEEP_FRAC * improver.scale_usd():
            break
    return improver
