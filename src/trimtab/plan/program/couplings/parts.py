"""The parts that couplings play: in the program and its prices, in a search move by move, and as limits that a use may break.

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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trimtab.catalog.pools import Pool
from trimtab.fleet.model import FloatArray, IntArray
from trimtab.plan.problem import Problem
from trimtab.plan.program.highs import Program
from trimtab.plan.program.pool_use import Gathered, Tracked, Uses

EXCESS_PRICE = 100.0
"""Dollars an excess costs for each dollar that the nodes in excess cost on demand."""
Coefficients = Iterator[tuple[IntArray, FloatArray]]
"""Rows of the program, and a column's coefficients there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowInputs:
    """What rows are made from: the program they go into, the problem, and each tracked pool in gathered periods (by place)."""

    program: Program
    problem: Problem
    tracked: Sequence[Tracked]
    gathered: Sequence[Gathered]

    @property
    def pools(self) -> list[tuple[Pool, Gathered]]:
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
    def none(cls, gathered: Sequence[Gathered]) -> NodePrices:
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
        """Yield the rows that a table row's column stands in."""
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
        """Tell whether a use breaks it in some hour."""
        ...

    def lifted(self, problem: Problem) -> Problem:
        """Return a problem without it."""
        ...
