"""HiGHS behind one function: a linear or mixed-integer program in arrays, solved the same way on every run.

Limits are gaps and nodes, never seconds, and one thread is used, so that the same input gives the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import highspy
import numpy as np

from trimtab.errors import PlanError
from trimtab.fleet.model import FloatArray

INFINITY = float(highspy.kHighsInf)


@dataclass(slots=True)
class Program:
    """A program under construction: columns with cost and bounds, rows with bounds and coefficients."""

    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    row_low: list[float] = field(default_factory=list)
    row_high: list[float] = field(default_factory=list)
    _row: list[FloatArray] = field(default_factory=list)
    _column: list[FloatArray] = field(default_factory=list)
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

    def put(self, rows: FloatArray | int, column: int, values: FloatArray | float) -> None:
        """Add coefficients of one column in one or several rows; zeros are dropped."""
        where = np.atleast_1d(np.asarray(rows, dtype=np.float64))
        what = np.broadcast_to(np.asarray(values, dtype=np.float64), where.shape)
        kept = what != 0
        self._row.append(where[kept])
        self._column.append(np.full(int(kept.sum()), float(column)))
        self._value.append(what[kept])

    def model(self) -> highspy.HighsLp:
        """Return the program as HiGHS takes it."""
        column = np.concatenate(self._column).astype(np.int32)
        order = np.argsort(column, kind="stable")
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self.row_low)
        lp.col_cost_ = np.array(self.cost)
        lp.col_lower_ = np.zeros(len(self.cost))
        lp.col_upper_ = np.array(self.upper)
        lp.row_lower_, lp.row_upper_ = np.array(self.row_low), np.array(self.row_high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.concatenate(([0], np.cumsum(np.bincount(column, minlength=len(self.cost)))))
        lp.a_matrix_.index_ = np.concatenate(self._row).astype(np.int32)[order]
        lp.a_matrix_.value_ = np.concatenate(self._value)[order]
        return lp


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Values (n_columns,), duals (n_rows,; of a linear program), the objective and a lower bound on it."""

    values: FloatArray
    duals: FloatArray
    objective: float
    bound: float


def solve(program: Program, *, integral: bool, gap_frac: float = 0.0, max_nodes: int = 0) -> Solution:
    """Solve a program as a linear one, or with its integer columns integral; raises PlanError where nothing is feasible."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy ships no annotation for its constructor
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    model = program.model()
    if integral:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[is_integer] for is_integer in program.integer]
        solver.setOptionValue("mip_rel_gap", gap_frac)
        solver.setOptionValue("mip_max_nodes", max_nodes)
    solver.passModel(model)
    solver.run()
    values = np.array(solver.getSolution().col_value)
    if len(values) != len(program.cost):
        status = solver.modelStatusToString(solver.getModelStatus())
        raise PlanError(f"no plan satisfies the rules ({status}); relax a quota, a target or a pinned choice")
    info = solver.getInfo()
    return Solution(
        values=values,
        duals=np.array(solver.getSolution().row_dual),
        objective=info.objective_function_value,
        bound=info.mip_dual_bound if integral else info.objective_function_value,
    )
