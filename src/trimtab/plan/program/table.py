"""Every option of a problem in arrays: what costs a fixed sum, and the nodes per hour of the pools that are shared.

Row 0 of each workload is staying as it is, with the nodes that it alone held; then come its options; after all workloads the
gates: groups of nodes that several of them held, and entries that several options need. A pool is tracked if a commitment, a
quota or shared nodes couple the workloads on it; use of any other pool is a fixed sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool, SharedPool, Site
from trimtab.fleet.model import FloatArray, IntArray
from trimtab.ledger.arrays import charge
from trimtab.plan.problem import KEEP, NodeGroup, Problem, summed, taken, total_usage, whole_nodes
from trimtab.units import S_PER_HR, usd

_CHUNK = 2_000
"""Rows gathered at a time, to keep memory small."""

Uses = Mapping[Pool, IntArray]
Slots = Mapping[SharedPool, IntArray]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sharing:
    """Nodes that slots share: the table rows with any there (n,), and the room each takes per hour (n_measures, n_hours)."""

    site: Site
    rows: IntArray
    taken: tuple[IntArray, ...]

    def nodes(self) -> FloatArray:
        """Return the nodes' worth of room that each row takes by each measure (n, n_measures, n_hours)."""
        return np.array(self.taken, dtype=np.float64) / np.array(self.site.room, dtype=np.float64)[:, None]

    def whole(self) -> FloatArray:
        """Return the whole nodes that each row would need alone (n, n_hours): what the nodes cannot be fewer than with it."""
        return whole_nodes(self.site, np.array(self.taken, dtype=np.int64)).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tracked:
    """One pool that couples workloads: the table rows that use it (n,), and each one's node-seconds per hour."""

    pool: Pool
    rows: IntArray
    seconds: tuple[IntArray, ...]
    sharing: tuple[Sharing, ...] = ()

    @property
    def users(self) -> tuple[IntArray, ...]:
        """Return the table rows that use it, on nodes of their own and in each shared pool."""
        return (self.rows, *(one.rows for one in self.sharing))

    @property
    def count(self) -> int:
        """Return how many rows of numbers that is."""
        return sum(len(rows) for rows in self.users)

    def node_hours(self) -> FloatArray:
        """Return each row's node-hours (n,)."""
        return np.array([float(use.sum()) for use in self.seconds]) / S_PER_HR

    def means(self, share: FloatArray) -> FloatArray:
        """Return mean nodes (n, n_periods) under `share` (n_hours, n_periods): each hour's share of its period."""
        mean = np.empty((len(self.seconds), share.shape[1]))
        for at in range(0, len(self.seconds), _CHUNK):
            mean[at : at + _CHUNK] = np.array(self.seconds[at : at + _CHUNK], dtype=np.float64) @ share
        return mean / S_PER_HR

    def peaks(self, order: IntArray, first: IntArray) -> FloatArray:
        """Return the most nodes (n, n_periods) in any hour; periods are runs of hours in `order`, beginning at `first`."""
        peak = np.empty((len(self.seconds), len(first)))
        for row, use in enumerate(self.seconds):
            peak[row] = np.maximum.reduceat(use[order], first)
        return peak / S_PER_HR


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gate:
    """What is paid once where any of these rows (by workload) is chosen."""

    rows: Mapping[int, IntArray]


class Table:
    """A problem's options as rows; everything about it that does not change while it is being solved."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        alone, groups = _split(problem)
        uses: list[Uses] = []
        slots: list[Slots] = []
        sizes = []
        for workload, options in enumerate(problem.options):
            uses += [alone[workload], *(option.usage for option in options)]
            slots += [{}, *(option.slots for option in options)]
            sizes.append(len(options) + 1)
        self.rows = len(uses)
        entries = sorted(problem.entries_micro_usd)
        uses += [*(group.usage for group in groups), *({} for _ in entries)]
        self.first: IntArray = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        self.workload: IntArray = np.repeat(np.arange(len(sizes)), sizes)
        self.gates = (
            *(Gate(rows={one: np.array([self.row(one, KEEP)]) for one in sorted(group.holders)}) for group in groups),
            *(Gate(rows=self._needing(name)) for name in entries),
        )
        """Row `rows + g` is gate g's own."""
        sharing = _sharing(slots)
        self.balanced = frozenset({*problem.coupled, *(one.site.pool for one in sharing)})
        """Pools whose use is paid by rows of the program; of all others by a fixed sum."""
        self.fixed_usd, self.spot_excess_hr = _fixed(problem, uses, self.balanced)
        self.fixed_usd += self._own_usd(entries)
        for one in sharing:
            self.spot_excess_hr[one.rows] += _beyond_spot(problem, one.site.pool) * one.whole().sum(axis=1)
        self.tracked = _tracked(problem, uses, sharing, self.balanced)
        self.owned_usd = usd(problem.owned_micro_usd)

    def _needing(self, entry: str) -> dict[int, IntArray]:
        """Return the rows that need an entry, by workload."""
        rows: dict[int, IntArray] = {}
        for workload, options in enumerate(self.problem.options):
            mine = [self.row(workload, at) for at, option in enumerate(options) if entry in option.needs]
            if mine:
                rows[workload] = np.array(mine, dtype=np.int64)
        return rows

    def _own_usd(self, entries: Sequence[str]) -> FloatArray:
        """Return what each row and gate costs besides nodes, in dollars."""
        own = [usd(micro) for options in self.problem.options for micro in (0, *(one.own_micro_usd for one in options))]
        groups = len(self.gates) - len(entries)
        return np.array(
            [*own, *(0.0 for _ in range(groups)), *(usd(self.problem.entries_micro_usd[e]) for e in entries)]
        )

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
        """Return the nodes per hour of each tracked pool under a choice."""
        total = total_usage(self.problem, choice)
        none = np.zeros(self.problem.hours, dtype=np.int64)
        return [total.get(one.pool, none) / S_PER_HR for one in self.tracked]


def _split(problem: Problem) -> tuple[list[Uses], tuple[NodeGroup, ...]]:
    """Return what each workload held alone, summed, and the groups that several held."""
    everyone = [KEEP] * problem.workloads
    mine: list[list[NodeGroup]] = [[] for _ in everyone]
    for group in problem.groups:
        if len(group.holders) == 1:
            mine[min(group.holders)].append(group)
    alone: list[Uses] = [summed([group.usage for group in groups]) for groups in mine]
    return alone, tuple(group for group in problem.groups if len(group.holders) > 1)


def _fixed(problem: Problem, uses: Sequence[Uses], balanced: frozenset[Pool]) -> tuple[FloatArray, FloatArray]:
    """Return per use what is charged at a fixed sum (dollars), and its node-hours on spot beyond the allowed share."""
    fixed = np.zeros(len(uses))
    excess = np.zeros(len(uses))
    for row, use in enumerate(uses):
        for pool, seconds in use.items():
            if pool not in balanced:
                fixed[row] += usd(int(charge(problem.rates_micro_usd_hr[pool], seconds).sum()))
            excess[row] += _beyond_spot(problem, pool) * float(seconds.sum()) / S_PER_HR
    return fixed, excess


def _beyond_spot(problem: Problem, pool: Pool) -> float:
    """Return by how much a node-hour of a pool brings the whole beyond the share of spot that is allowed."""
    allowed = 1.0 if problem.spot_max_frac is None else problem.spot_max_frac
    return (1.0 if pool.capacity_type is CapacityType.SPOT else 0.0) - allowed


def _sharing(slots: Sequence[Slots]) -> list[Sharing]:
    rooms = [taken(held) for held in slots]
    found = []
    for site in sorted({site for room in rooms for site in room}):
        rows = [row for row, room in enumerate(rooms) if site in room]
        mine = tuple(rooms[row][site] for row in rows)
        found.append(Sharing(site=site, rows=np.array(rows, dtype=np.int64), taken=mine))
    return found


def _tracked(
    problem: Problem, uses: Sequence[Uses], sharing: Sequence[Sharing], balanced: frozenset[Pool]
) -> tuple[Tracked, ...]:
    found = []
    for pool in sorted({*balanced, *problem.quotas}):
        rows = [row for row, use in enumerate(uses) if pool in use]
        found.append(
            Tracked(
                pool=pool,
                rows=np.array(rows, dtype=np.int64),
                seconds=tuple(uses[row][pool] for row in rows),
                sharing=tuple(one for one in sharing if one.site.pool == pool),
            )
        )
    return tuple(found)
