"""What couplings are made of: the use of pools, option by option, and their parts in the program, its prices and a search.

Each coupling plays some of them; whoever asks loops over those that do and knows none by name.

| asked by | part | what it says |
|---|---|---|
| `Master` | `NodeRows` | what a node of a pool costs in a period: node commitments, spend plans, quotas |
| | `CountingRows` | the rows that count a pool's nodes: node commitments, quotas |
| | `OptionRows` | what an option costs beside its own nodes: shared nodes, spot share, held nodes, one-time costs |
| `Improver` | `UseOfChoices` | the nodes that choices use jointly: held nodes, shared nodes |
| | `Cover` | the nodes that are paid for already: node commitments, spend plans |
| | `LimitBreach` | by how much a use breaks a limit: quotas, spot share |
| `limits` | `Limit` | whether a use breaks it, in words, and the problem without it: quotas, spot share |

linked[g,w]: sum_{o of w in g} x[o] <= z[g]        for each workload w with options in g

Held nodes (`retain`) and one-time costs (`enter`) both have this form. z[g] is a column of the program that belongs to no
workload; what it costs and uses is in a table row of its own. Row by row and workload by workload, not summed over all, the
relaxation is as tight as single choices are: z is paid in full by the workload that has most of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trimtab.catalog.pools import Pool, SharedPool, Site
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.plan.problem import Problem
from trimtab.plan.program.highs import INFINITY, Program
from trimtab.units import S_PER_HR

_CHUNK = 2_000
"""Rows gathered at a time, to keep memory small."""

Uses = Mapping[Pool, IntArray]
"""Node-seconds per pool and hour (n_hours,)."""
Slots = Mapping[SharedPool, IntArray]
"""Slots per shared pool and hour (n_hours,)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sharing:
    """Nodes that slots share: the table rows with any there (n,), and the room each takes per hour (n_measures, n_hours)."""

    site: Site
    rows: IntArray
    taken: tuple[IntArray, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrackedPool:
    """One pool that couples workloads: the table rows that use it (n,), and each one's node-seconds per hour."""

    pool: Pool
    rows: IntArray
    seconds: tuple[IntArray, ...]
    sharing: tuple[Sharing, ...] = ()
    cut_with: str = ""
    """Pools with the same are coupled within the hour: their hours are gathered together. Empty for one that is cut alone."""
    is_limited: bool = False
    """Its busiest hours matter one by one."""

    @property
    def users(self) -> tuple[IntArray, ...]:
        """Return the table rows that use it, on nodes of their own and in each shared pool."""
        return (self.rows, *(sharing.rows for sharing in self.sharing))

    @property
    def count(self) -> int:
        """Return how many rows of numbers that is."""
        return sum(len(rows) for rows in self.users)

    def node_hours(self) -> FloatArray:
        """Return each row's node-hours (n,)."""
        hours = np.empty(len(self.seconds))
        for at in range(0, len(self.seconds), _CHUNK):
            # whole seconds, summed exactly
            hours[at : at + _CHUNK] = np.array(self.seconds[at : at + _CHUNK]).sum(axis=1)
        return hours / S_PER_HR

    def means(self, order: IntArray, first: IntArray, weight_hr: FloatArray) -> FloatArray:
        """Return mean nodes (n, n_periods); periods are runs of hours in `order`, beginning at `first`, `weight_hr` long."""
        mean = np.empty((len(self.seconds), len(first)))
        for at in range(0, len(self.seconds), _CHUNK):
            uses = np.array(self.seconds[at : at + _CHUNK]).take(order, axis=1)
            # whole seconds, summed exactly; where each period is one hour there is nothing to sum
            mean[at : at + _CHUNK] = uses if len(first) == len(order) else np.add.reduceat(uses, first, axis=1)
        # in place: of a large fleet a second copy is half a gigabyte
        mean /= weight_hr * S_PER_HR
        return mean

    def peaks(self, order: IntArray, first: IntArray) -> FloatArray:
        """Return the most nodes (n, n_periods) in any hour; periods are runs of hours in `order`, beginning at `first`."""
        peak = np.empty((len(self.seconds), len(first)))
        for row, use in enumerate(self.seconds):
            peak[row] = np.maximum.reduceat(use[order], first)
        peak /= S_PER_HR
        return peak


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GatheredSharing:
    """Shared nodes in gathered periods: each row's mean nodes' worth of room (n_rows, n_measures, n), and the whole nodes that
    it would need alone (n_rows, n)."""

    nodes: FloatArray
    whole: FloatArray
    exact: bool = False
    """Whether the hours of each period are alike in every row, so that means are what every hour holds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GatheredPeriods:
    """One tracked pool in gathered periods: hours in each (n,), and the mean nodes of each of its table rows (n_rows, n)."""

    weight_hr: FloatArray
    nodes: FloatArray
    peak: FloatArray
    """The most nodes of each of its table rows in any hour gathered; (0, 0) for a pool that is not limited."""
    sharing: tuple[GatheredSharing, ...] = ()
    """(n_rows, n) each, in the order of the tracked pool's shared ones."""


EXCESS_PRICE = 100.0
"""Dollars an excess costs for each dollar that the nodes in excess cost on demand."""
Coefficients = Iterator[tuple[IntArray, FloatArray]]
"""Rows of the program, and a column's coefficients there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowInputs:
    """What rows are made from: the program they go into, the problem, and each tracked pool in gathered periods (by place)."""

    program: Program
    problem: Problem
    tracked: Sequence[TrackedPool]
    gathered: Sequence[GatheredPeriods]
    hourly: bool = False
    """Whether shared nodes are whole in every hour, however many hours there are."""

    @property
    def pools(self) -> list[tuple[Pool, GatheredPeriods]]:
        """Return the tracked pools with their periods, by place."""
        return [(tracked.pool, gathered) for tracked, gathered in zip(self.tracked, self.gathered, strict=True)]


@dataclass(slots=True, kw_only=True, eq=False)
class NodePrices:
    """What a node of each tracked pool costs in each period (n_periods,) at some duals, by place."""

    paid: list[FloatArray]
    """In the rows that pay for it; feasible: nothing that pays for nodes can gain."""
    limited: list[FloatArray]
    """In the rows that limit it."""

    @classmethod
    def none(cls, gathered: Sequence[GatheredPeriods]) -> NodePrices:
        """Return prices of 0."""
        zeros = [0 * pool.weight_hr for pool in gathered]
        return cls(paid=[*zeros], limited=[*zeros])

    def total(self, place: int) -> FloatArray:
        """Return the price of a node in all rows."""
        return self.paid[place] + self.limited[place]


class NodeRows(Protocol):
    """Rows that give the nodes of pools a price."""

    def price_nodes(self, duals: FloatArray, prices: NodePrices) -> None:
        """Set the prices that duals (n_rows,) stand for, or scale those set already, so that the shared columns cannot gain."""
        ...

    def paid_anyway_usd(self, prices: NodePrices) -> float:
        """Return what the right-hand sides are worth at final prices: the bound is lower by it."""
        ...


class CountingRows(Protocol):
    """Rows that count the nodes of pools in use."""

    def lines(self, place: int) -> IntArray:
        """Return the rows that count a tracked pool's nodes, one a period; empty where none do."""
        ...

    def nodes(self, place: int) -> FloatArray:
        """Return the nodes that each of the pool's table rows counts there (n_rows, n_periods)."""
        ...


class OptionRows(Protocol):
    """Rows in which options stand beside those that count their nodes."""

    def coefficients(self, row: int) -> Coefficients:
        """Yield the rows that a table row's column is in."""
        ...

    def price_options(self, duals: FloatArray, prices: NodePrices, value_usd: FloatArray) -> None:
        """Add, in place, what each table row (n_table_rows,) pays in these rows at some duals."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TriedUse:
    """What options of one workload, the present one first, make of the pools that any of them touches."""

    added: Uses
    """What each adds to the use that the other workloads make (n_tried, n_hours)."""
    use: Uses
    """The whole use with each (n_tried, n_hours)."""
    present: Uses
    """The present use of every pool (n_hours,)."""


class UseOfChoices(Protocol):
    """Nodes that several workloads' choices use jointly, kept up to date move by move."""

    def added(self, workload: int, tried: Sequence[int]) -> Iterator[tuple[int, Pool, IntArray]]:
        """Yield what some options of a workload, the present one first, add to what the others use, by place among them."""
        ...

    def move(self, workload: int, before: int, after: int) -> list[tuple[Pool, IntArray]]:
        """Make a move and return by what the use of each pool changes."""
        ...


class Cover(Protocol):
    """Commitments that stand while options are tried."""

    def take(self, left: dict[Pool, IntArray], present: Uses) -> None:
        """Take what is covered, as the ledger does, from rows of use (n_tried, n_hours) of the pools that a move touches.

        Pools that it does not touch enter `left`, from their `present` use, where more or less of them is covered for it.
        """
        ...


class LimitBreach(Protocol):
    """Limits that weigh in where options are tried."""

    def breach_hr(self, tried: TriedUse) -> FloatArray | float:
        """Return the node-hours by which the fleet breaks them with each option tried (n_tried,)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """A limit and what a choice makes of it: nodes for a quota, a share of node-hours for spot."""

    words: str
    limit: float
    used: float
    binds: bool
    """The choice stands at the limit."""


class Limit(Protocol):
    """One limit on a plan; equal to another of the same sort and size."""

    @property
    def words(self) -> str:
        """Name it."""
        ...

    def used(self, usage: Mapping[Pool, IntArray]) -> LimitUse:
        """Return what a use makes of it."""
        ...

    def is_broken(self, usage: Mapping[Pool, IntArray]) -> bool:
        """Return whether a use breaks it in some hour."""
        ...

    def lifted(self, problem: Problem) -> Problem:
        """Return a problem without it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkedRow:
    """A table row that is paid once where any of these rows (by workload) is chosen."""

    row: int
    users: Mapping[int, IntArray]


class LinkedRows:
    """The rows of some linked table rows, one per table row and workload."""

    def __init__(self, program: Program, linked: Sequence[LinkedRow]) -> None:
        self._links: list[tuple[LinkedRow, dict[int, int]]] = []
        self._coefficients: dict[int, list[tuple[int, float]]] = {}
        for link in linked:
            # x - z <= 0
            lines = {workload: program.add_row(-INFINITY, 0.0) for workload in link.users}
            self._links.append((link, lines))
            self._coefficients[link.row] = [(line, -1.0) for line in lines.values()]
            for workload, line in lines.items():
                for row in link.users[workload].tolist():
                    self._coefficients.setdefault(row, []).append((line, 1.0))

    def coefficients(self, row: int) -> Coefficients:
        """Yield the rows that a table row's column is in: as a user, or as what is paid."""
        known = self._coefficients.get(row)
        if known:
            yield np.array([line for line, _ in known], dtype=np.int64), np.array([value for _, value in known])

    def price_options(self, duals: FloatArray, prices: NodePrices, value_usd: FloatArray) -> None:
        """Add to each user what it pays of the shared sum, and take it off what is left of that."""
        for linked, lines in self._links:
            for workload, line in lines.items():
                # duals of `<=` rows are at most 0 in a minimisation; solvers may leave a tiny positive one
                share = max(-float(duals[line]), 0.0)
                # what users pay comes off what is paid once, so that in sum nothing is charged twice
                value_usd[linked.users[workload]] += share
                value_usd[linked.row] -= share
