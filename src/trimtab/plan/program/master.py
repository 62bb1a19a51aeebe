"""The joint problem as blocks that share rows: one block per workload, its listed options as columns.

Rows in order: convexity[w]; retain[g,w] and enter[e,w]; per tracked pool balance[p,t] (where a commitment is sold, or nodes
are shared); spend[k,t] per spend plan; quota[p,t] (where there is a quota); shared[s,m,t] and floor[s,w,t]; spot_share. Each
coupling adds its own rows with the columns that belong to no block (`couplings`): metered u[p,t], committed c[p], spend s[k]
and what it covers y[k,p,t], shared n[s,t], and an excess over each limit at a price above anything it could save, so that
prices exist before a plan within the limits is known. Last come the columns z[g] and z[e] of what is paid once. The order
decides which of several equally good plans is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trimtab.fleet.model import FloatArray, IntArray
from trimtab.plan.program.couplings.linked_rows import LinkedRows
from trimtab.plan.program.couplings.node_commitments import NodeCommitmentRows
from trimtab.plan.program.couplings.parts import CountingRows, Limit, NodePrices, NodeRows, OptionRows, RowInputs
from trimtab.plan.program.couplings.quotas import QuotaRows
from trimtab.plan.program.couplings.shared_nodes import SharedNodeRows
from trimtab.plan.program.couplings.spend_plans import SpendPlanRows
from trimtab.plan.program.couplings.spot_share import SpotShareRow
from trimtab.plan.program.decompose import BlockAnswers
from trimtab.plan.program.highs import Program, ProgramColumn
from trimtab.plan.program.pool_use import Gathered
from trimtab.plan.program.table import OptionTable


class Master:
    """A table in gathered periods as a program; also the owner of its blocks.

    Quota rows count the mean nodes of gathered periods, so that the program is a relaxation; with `safe_quotas` they count
    each option's most nodes in any of them, so that its plans keep the quotas in every period, at the price of being no bound.
    """

    def __init__(self, table: OptionTable, gathered: Sequence[Gathered], *, safe_quotas: bool = False) -> None:
        self.table = table
        self.gathered = gathered
        self._program = program = Program()
        inputs = RowInputs(program=program, problem=table.problem, tracked=table.tracked, gathered=gathered)
        # the order of what follows is that of the rows, which decides between equally good plans
        self.convexity = [program.add_row(1.0, 1.0) for _ in range(table.problem.workloads)]
        held = LinkedRows(program, table.linked_groups)
        paid_once = LinkedRows(program, table.linked_costs)
        nodes = NodeCommitmentRows(inputs, table.balanced)
        spend = SpendPlanRows(inputs, nodes)
        quotas = QuotaRows(inputs, safe=safe_quotas)
        shared = SharedNodeRows(inputs, table.workload, (nodes, quotas))
        spot = SpotShareRow(inputs, table.spot_excess_hr)
        self._counting: tuple[CountingRows, ...] = (nodes, quotas)
        # Plans scale the prices that node commitments set; the price of a quota comes on top.
        self._node_rows: tuple[NodeRows, ...] = (nodes, spend, quotas)
        self._option_rows: tuple[OptionRows, ...] = (shared, spot, held, paid_once)
        self.excess_of: dict[Limit, list[int]] = {**quotas.excess, **spot.excess}
        """Columns that break a limit where they are above 0."""
        self._where = [{int(row): at for at, row in enumerate(tracked.rows)} for tracked in table.tracked]
        # what is paid once belongs to no block: it is part of the shared program, between 0 and 1
        for row in range(table.rows, len(table.fixed_usd)):
            rows, values = self._coefficients(row)
            program.put(rows, program.add_column(float(table.fixed_usd[row]), 1.0), values)

    def program(self) -> Program:
        """Return the shared part."""
        return self._program

    @property
    def excess(self) -> list[int]:
        """Return all columns that break a limit where they are above 0."""
        return [column for columns in self.excess_of.values() for column in columns]

    def strict(self) -> Program:
        """Return the shared part without leave to break a limit."""
        program = self._program.copy()
        for column in self.excess:
            program.upper[column] = 0.0
        return program

    def size(self, rows: Sequence[int]) -> int:
        """Return about how many coefficients the columns of some table rows have."""
        wanted = np.zeros(len(self.table.fixed_usd), dtype=bool)
        wanted[list(rows)] = True
        return sum(
            int(wanted[rows].sum()) * len(gathered.weight_hr)
            for tracked, gathered in zip(self.table.tracked, self.gathered, strict=True)
            for rows in tracked.users
        )

    def column(self, row: int) -> ProgramColumn:
        """Return the column of a table row."""
        rows, values = self._coefficients(row)
        workload = int(self.table.workload[row])
        return ProgramColumn(block=workload, key=row, cost=float(self.table.fixed_usd[row]), rows=rows, values=values)

    def _coefficients(self, row: int) -> tuple[IntArray, FloatArray]:
        found = list(self._stands_in(row))
        if not found:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        line, value = np.concatenate([lines for lines, _ in found]), np.concatenate([values for _, values in found])
        return line[value != 0], value[value != 0]

    def _stands_in(self, row: int) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield the rows that a table row's column stands in: for its own nodes, pool by pool, and beside them."""
        for place, at in ((place, where[row]) for place, where in enumerate(self._where) if row in where):
            for counting in self._counting:
                lines = counting.lines(place)
                if len(lines):
                    yield lines, counting.nodes(place)[at]
        for rows in self._option_rows:
            yield from rows.coefficients(row)

    def price(self, duals: FloatArray) -> BlockAnswers:
        """Price every option at once; the bound holds at any prices, which are first made feasible for the shared part."""
        table = self.table
        prices = NodePrices.none(self.gathered)
        for node_rows in self._node_rows:
            node_rows.price_nodes(duals, prices)
        value_usd = table.fixed_usd.copy()
        for place, (tracked, gathered) in enumerate(zip(table.tracked, self.gathered, strict=True)):
            # a node costs what pays for it and what standing under a limit costs
            value_usd[tracked.rows] += gathered.nodes @ prices.total(place)
        for option_rows in self._option_rows:
            option_rows.price_options(duals, prices, value_usd)
        value_usd, linked_usd = value_usd[: table.rows], value_usd[table.rows :]
        # rows of a workload stand together, so that one reduction finds the least of each
        least = np.minimum.reduceat(value_usd, table.first[:-1]) if table.rows else np.zeros(0)
        # Each block takes its best option; what is paid once is taken where it is below 0; the rest of the bound is what the
        # right-hand sides are worth.
        bound = float(least.sum() + np.minimum(linked_usd, 0.0).sum())
        bound -= sum(rows.paid_anyway_usd(prices) for rows in self._node_rows)
        reduced = value_usd - least[table.workload]
        return BlockAnswers(
            bound=bound, columns=[self.column(row) for row in self._first_least(reduced)], reduced=reduced
        )

    def _first_least(self, reduced: FloatArray) -> list[int]:
        """Return the first row of each workload with reduced cost 0."""
        least = np.flatnonzero(reduced == 0.0)
        _, first = np.unique(self.table.workload[least], return_index=True)
        return [int(row) for row in least[first]]
