"""Column generation with a certified bound, for any problem of blocks that share rows.

Each block (a workload) must be served by exactly one column out of a set that may be too large to write down; the blocks
share rows (balance, quota). A linear program over the columns known so far gives prices on the shared rows; at these prices
the blocks' owner names the best column of every block, and with them a Lagrangian bound: no combination of any columns,
known or not, costs less. Columns enter until the bound meets the program.
Dantzig and Wolfe (1960); bound: Geoffrion (1974); prices smoothed towards the best bound's: Wentges (1997).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trimtab.errors import PlanError
from trimtab.ledger.arrays import FloatArray
from trimtab.plan.program.highs import GrowingProgram, Program, ProgramColumn, solve_integral

MAX_ROUNDS = 200
SMOOTHING = 0.5
"""Weight of the best bound's prices in those that blocks are priced at."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockAnswers:
    """What the blocks answer to prices: a bound on the whole cost, the best column per block, and reduced costs by key.

    `reduced` (n_keys,) says by how much more than its block's best each known way costs; empty where ways are not listed.
    """

    bound: float
    columns: Sequence[ProgramColumn]
    reduced: FloatArray


class BlockOwner(Protocol):
    """The owner of the blocks."""

    def program(self) -> Program:
        """Return the shared part: one row `= 1` per block first, then shared rows and the columns that belong to no block."""
        ...

    def price(self, duals: FloatArray) -> BlockAnswers:
        """Answer prices; `duals` (n_rows,) are of the whole program and need not be feasible."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relaxation:
    """The relaxation at its end: the bound, its value, reduced costs at the bound, columns and their weights (n_columns,)."""

    bound: float
    value: float
    reduced: FloatArray
    columns: tuple[ProgramColumn, ...]
    weights: FloatArray
    shared: FloatArray
    """Values of the columns that belong to no block."""


def relax(blocks: BlockOwner, start: Sequence[ProgramColumn], gap_frac: float) -> Relaxation:
    """Solve the linear relaxation over all columns until bound and value differ by at most a share of the value."""
    program = blocks.program()
    growing = GrowingProgram(program)
    columns = {(column.block, column.key): column for column in start}
    growing.add(start)
    best: tuple[float, FloatArray, FloatArray] | None = None
    for _ in range(MAX_ROUNDS):
        solution = growing.solve()
        new: list[ProgramColumn] = []
        # smoothed prices first; only where they bring no new column the program's own
        for duals in _prices(solution.duals, None if best is None else best[2]):
            priced = blocks.price(duals)
            if best is None or priced.bound > best[0]:
                # its prices stay the centre of the smoothing until a better bound is found
                best = (priced.bound, priced.reduced, duals)
            new = [column for column in priced.columns if (column.block, column.key) not in columns]
            # a best answer to smoothed prices need not pay at the program's own: it would never enter the basis
            new = [column for column in new if _pays(column, solution.duals)]
            if new:
                break
        # nothing pays any more, or value and bound are near enough
        if best is None or not new or solution.objective - best[0] <= gap_frac * abs(solution.objective):
            break
        growing.add(new)
        columns |= {(column.block, column.key): column for column in new}
    if best is None:
        raise PlanError("the relaxation of the plan has no price; report the fleet that caused it")
    own = len(program.cost)
    return Relaxation(
        bound=best[0],
        value=solution.objective,
        reduced=best[1],
        columns=tuple(columns.values()),
        weights=solution.values[own : own + len(columns)],
        shared=solution.values[:own],
    )


def _prices(duals: FloatArray, best: FloatArray | None) -> list[FloatArray]:
    return [duals] if best is None else [SMOOTHING * best + (1 - SMOOTHING) * duals, duals]


def _pays(column: ProgramColumn, duals: FloatArray) -> bool:
    worth = duals[column.block] + float(column.values @ duals[column.rows])
    # relative to the cost, so that rounding in large costs lets no column in again and again
    return bool(column.cost < worth - 1e-9 * (1 + abs(column.cost)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntegerSolution:
    """An integral answer: the key of each block's column, a bound over the columns given, the shared columns' values."""

    keys: list[int]
    bound: float
    shared: FloatArray


def mix(
    program: Program,
    columns: Sequence[ProgramColumn],
    *,
    gap_frac: float,
    max_nodes: int,
    start: Collection[tuple[int, int]] = (),
    integral: bool = True,
) -> IntegerSolution:
    """Choose one of some columns per block: a MILP over them, or its relaxation (then only the bound means anything).

    `start` holds the (block, key) of a known choice.
    """
    whole = program.copy()
    where = [whole.add_column(column.cost, 1.0, integer=integral) for column in columns]
    for at, column in zip(where, columns, strict=True):
        whole.put(column.block, at, 1.0)
        whole.put(column.rows, at, column.values)
    known = {at: 1.0 for at, column in zip(where, columns, strict=True) if (column.block, column.key) in start}
    solution = solve_integral(whole, gap_frac=gap_frac, max_nodes=max_nodes, start=known)
    own = len(program.cost)
    blocks = 1 + max((column.block for column in columns), default=-1)
    return IntegerSolution(
        keys=heaviest(columns, solution.values[own:], blocks),
        bound=solution.bound,
        shared=solution.values[:own],
    )


def heaviest(columns: Sequence[ProgramColumn], weights: FloatArray, blocks: int) -> list[int]:
    """Return the key of each block's column with most weight; ties to the smaller key."""
    keys = np.array([column.key for column in columns])
    # the last key sorts first: by block, then by weight, then by key
    order = np.lexsort((keys, -weights, np.array([column.block for column in columns])))
    chosen = [-1] * blocks
    # backwards, so that the best of each block is the last one written
    for place in reversed(order.tolist()):
        chosen[columns[place].block] = columns[place].key
    return chosen
