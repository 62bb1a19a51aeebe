"""HiGHS behind two doors: a program solved at once, and a linear program that columns are added to.

Limits are gaps and nodes, never seconds, and one thread is used, so that the same input gives the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np

from trimtab.errors import PlanError
from trimtab.ledger.arrays import FloatArray, IntArray

INFINITY = float(highspy.kHighsInf)


@dataclass(slots=True)
class Program:
    """A program under construction: columns with cost and bounds, rows with bounds and coefficients."""

    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    row_low: list[float] = field(default_factory=list)
    row_high: list[float] = field(default_factory=list)
    _row: list[IntArray] = field(default_factory=list)
    _column: list[IntArray] = field(default_factory=list)
    _value: list[FloatArray] = field(default_factory=list)

    def add_column(self, cost: float, upper: float = INFINITY, *, integer: bool = False) -> int:
        """Add a column with lower bound 0 and return its index."""
        self.cost.append(cost)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.cost) - 1

    def add_row(self, low: float, high: float) -> int:
        """Add an empty row and return its index."""
        self.row_low.append(low)
        self.row_high.append(high)
        return len(self.row_low) - 1

    def put(self, rows: IntArray | int, columns: IntArray | int, values: FloatArray | float) -> None:
        """Add coefficients at rows and columns, broadcast against each other; zeros are dropped."""
        where, column, what = np.broadcast_arrays(rows, columns, np.asarray(values, dtype=np.float64))
        # explicit zeros would be kept as entries of the matrix
        kept = what != 0
        self._row.append(where[kept].astype(np.int64))
        self._column.append(column[kept].astype(np.int64))
        self._value.append(what[kept])

    def copy(self) -> Program:
        """Return a program to be extended apart from this one."""
        return Program(
            cost=[*self.cost],
            upper=[*self.upper],
            integer=[*self.integer],
            row_low=[*self.row_low],
            row_high=[*self.row_high],
            _row=[*self._row],
            _column=[*self._column],
            _value=[*self._value],
        )

    def triplets(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the coefficients as (rows, columns, values), by column."""
        if not self._row:
            none = np.zeros(0, dtype=np.int64)
            return none, none, np.zeros(0)
        column = np.concatenate(self._column)
        # by column, as HiGHS takes it; a stable sort keeps the order of the rows, and with it the answer
        order = np.argsort(column, kind="stable")
        return np.concatenate(self._row)[order], column[order], np.concatenate(self._value)[order]

    def model(self) -> highspy.HighsLp:
        """Return the program as HiGHS takes it."""
        row, column, value = self.triplets()
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.row_low)
        lp.col_cost_ = np.array(self.cost)
        lp.col_lower_ = np.zeros(len(self.cost))
        lp.col_upper_ = np.array(self.upper)
        lp.row_lower_, lp.row_upper_ = np.array(self.row_low), np.array(self.row_high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        # where each column's entries begin, and where the last one's end
        lp.a_matrix_.start_ = np.concatenate(([0], np.cumsum(np.bincount(column, minlength=len(self.cost)))))
        lp.a_matrix_.index_ = row.astype(np.int32)
        lp.a_matrix_.value_ = value
        return lp


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProgramColumn:
    """One way to serve a block: its cost, its coefficients in the shared rows, and what it stands for."""

    block: int
    key: int
    """What the block's owner knows it by."""
    cost: float
    rows: IntArray
    values: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Values (n_columns,), duals (n_rows,; of a linear program), the objective and a lower bound on it."""

    values: FloatArray
    duals: FloatArray
    objective: float
    bound: float


class GrowingProgram:
    """A linear program that is solved again and again while columns are added, each time from the last basis.

    Row `b` below the number of blocks is the convexity row of block `b`: every added column has 1 there.
    """

    def __init__(self, program: Program) -> None:
        self._solver = _solver()
        self._solver.passModel(program.model())

    def add(self, columns: Sequence[ProgramColumn]) -> None:
        """Add columns, continuous and non-negative."""
        if not columns:
            return
        # one more each: the convexity row comes with every column
        starts = np.cumsum([0] + [len(column.rows) + 1 for column in columns])[:-1]
        index = np.concatenate([np.concatenate(([column.block], column.rows)) for column in columns])
        value = np.concatenate([np.concatenate(([1.0], column.values)) for column in columns])
        count = len(columns)
        self._solver.addCols(
            count,
            np.array([column.cost for column in columns]),
            np.zeros(count),
            np.full(count, INFINITY),
            len(index),
            starts.astype(np.int32),
            index.astype(np.int32),
            value,
        )

    def solve(self) -> Solution:
        """Solve from the last basis; raises PlanError where nothing is feasible."""
        self._solver.run()
        return _solution(self._solver, integral=False)


def solve_integral(
    program: Program, *, gap_frac: float, max_nodes: int, start: Mapping[int, float] | None = None
) -> Solution:
    """Solve a program with its integer columns integral; raises PlanError where nothing is feasible.

    `start` holds values of some columns, from which HiGHS completes a first solution.
    """
    solver = _solver()
    model = program.model()
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    model.integrality_ = [kinds[is_integer] for is_integer in program.integer]
    solver.setOptionValue("mip_rel_gap", gap_frac)
    solver.setOptionValue("mip_max_nodes", max_nodes)
    solver.passModel(model)
    if start:
        known = sorted(start)
        solver.setSolution(len(known), np.array(known, dtype=np.int32), np.array([start[column] for column in known]))
    solver.run()
    return _solution(solver, integral=any(program.integer))


class _Silent(highspy.Highs):
    """A solver that writes nothing: its banner on standard output would be in the way of `-o json`."""

    def enableCallbacks(self) -> None:
        # since 1.16 the constructor, which calls this, prints the banner here, before any option could be set from outside
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]  # highspy ships no annotation for it


def _solver() -> highspy.Highs:
    solver = _Silent()  # type: ignore[no-untyped-call]  # highspy ships no annotation for its constructor
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    return solver


def _solution(solver: highspy.Highs, *, integral: bool) -> Solution:
    info = solver.getInfo()
    # not the model's status: a MILP that ends at its node limit has a plan all the same
    if info.primal_solution_status != int(highspy.SolutionStatus.kSolutionStatusFeasible):
        status = solver.modelStatusToString(solver.getModelStatus())
        raise PlanError(f"no plan satisfies the rules ({status}); relax a quota, a target or a pinned choice")
    answer = solver.getSolution()
    return Solution(
        values=np.array(answer.col_value),
        duals=np.array(answer.row_dual),
        objective=info.objective_function_value,
        # the optimum of a linear program is its own bound
        bound=info.mip_dual_bound if integral else info.objective_function_value,
    )
