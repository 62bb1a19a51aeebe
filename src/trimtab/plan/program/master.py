"""The joint problem as blocks that share rows: one block per workload, its listed options as columns.

Rows in order: convexity[w]; retain[g,w] and enter[e,w] (`table.Gate`); per tracked pool balance[p,t] (where a commitment is
sold, or nodes are shared); spend[k,t] per spend plan (`SpendRows`); quota[p,t] (where there is a quota); shared[s,t] and
floor[s,w,t] (`SharedNodes`); spot_share. Columns that belong to no block: z[g] and z[e], metered u[p,t], committed c[p], spend
s[k] and what it covers y[k,p,t], shared n[s,t], and for each quota row and the spot share an excess at a price above anything
it could save, so that prices exist before a plan within the limits is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.fleet.model import FloatArray, IntArray
from trimtab.plan.program.decompose import Priced
from trimtab.plan.program.highs import INFINITY, Column, Program
from trimtab.plan.program.periods import Gathered
from trimtab.plan.program.shared_nodes import SharedNodes
from trimtab.plan.program.spend_rows import SpendRows
from trimtab.plan.program.table import Table
from trimtab.units import usd

EXCESS_PRICE = 100.0
"""Dollars an excess costs for each dollar that the nodes in excess cost on demand."""


class Master:
    """A table in gathered periods as a program; also the owner of its blocks.

    Quota rows count the mean nodes of gathered periods, so that the program is a relaxation; with `safe_quotas` they count
    each option's most nodes in any of them, so that its plans keep the quotas in every period, at the price of being no bound.
    """

    def __init__(self, table: Table, gathered: Sequence[Gathered], *, safe_quotas: bool = False) -> None:
        self.table = table
        self._safe_quotas = safe_quotas
        self.gathered = gathered
        self._program = Program()
        problem = table.problem
        self.convexity = [self._program.add_row(1.0, 1.0) for _ in range(problem.workloads)]
        self._gated = self._gate_rows()
        self.committed: dict[int, int] = {}
        """Column of the committed count per tracked pool that has one."""
        self.excess_of: dict[Pool | None, list[int]] = {}
        """Columns that break a limit where they are above 0: of a pool's quota, or (None) of the spot limit."""
        self._balance = [self._balance_rows(place) for place in range(len(gathered))]
        self._spend = self._spend_rows()
        self._quota = [self._quota_rows(place) for place in range(len(gathered))]
        self._shared_nodes = [self._shared_rows(place) for place in range(len(gathered))]
        self._spot = self._spot_row()
        self._gates_of = self._lines_by_row()
        self._where = [{int(row): at for at, row in enumerate(one.rows)} for one in table.tracked]
        self._add_shared()

    # --- the shared part ------------------------------------------------------------------------------------------

    def _gate_rows(self) -> dict[tuple[int, int], int]:
        return {
            (gate, workload): self._program.add_row(-INFINITY, 0.0)
            for gate, one in enumerate(self.table.gates)
            for workload in one.rows
        }

    def _lines_by_row(self) -> dict[int, list[int]]:
        """Return the gates' rows of the program that each table row stands in."""
        lines: dict[int, list[int]] = {}
        for (gate, workload), line in self._gated.items():
            for row in self.table.gates[gate].rows[workload].tolist():
                lines.setdefault(row, []).append(line)
        return lines

    def _balance_rows(self, place: int) -> IntArray:
        """Add `use - metered - committed <= owned` per period, with the columns that pay for it."""
        pool = self.table.tracked[place].pool
        problem = self.table.problem
        if pool not in self.table.balanced:
            return np.zeros(0, dtype=np.int64)
        program = self._program
        weights = self.gathered[place].weight_hr
        owned = float(problem.owned_nodes.get(pool, 0))
        rows = np.array([program.add_row(-INFINITY, owned) for _ in weights])
        if pool in problem.offers:
            uses = [self.gathered[place].nodes, *(one.whole for one in self.gathered[place].sharing)]
            most = max(float(np.ceil(use.max(initial=0.0))) for use in uses) * problem.workloads
            committed = program.add_column(self._committed_usd(place), most + 1.0, integer=True)
            self.committed[place] = committed
            program.put(rows, committed, -1.0)
        rate = usd(problem.rates_micro_usd_hr[pool])
        metered = np.array([program.add_column(rate * float(weight)) for weight in weights])
        program.put(rows, metered, -1.0)
        return rows

    def _spend_rows(self) -> list[SpendRows]:
        """Add the rows and columns of each spend plan, on offer or owned, that covers a tracked pool."""
        problem = self.table.problem
        plans: list[tuple[Mapping[Pool, int], float | None]] = [
            (offer.rates_micro_usd_hr, None) for offer in problem.spend_offers
        ]
        plans += [(plan.rates_micro_usd_hr, usd(plan.spend_micro_usd_hr)) for plan in problem.owned.spend_plans]
        place_of = {tracked.pool: place for place, tracked in enumerate(self.table.tracked)}
        found = []
        for rates, owned_usd_hr in plans:
            covered = {place_of[pool]: usd(rate) for pool, rate in sorted(rates.items()) if pool in place_of}
            if covered:
                balance = {place: self._balance[place] for place in covered}
                found.append(SpendRows(self._program, covered, balance, hours=problem.hours, owned_usd_hr=owned_usd_hr))
        return found

    def _quota_rows(self, place: int) -> IntArray:
        """Add `use - excess <= quota` per period."""
        pool = self.table.tracked[place].pool
        problem = self.table.problem
        if pool not in problem.quotas:
            return np.zeros(0, dtype=np.int64)
        weights = self.gathered[place].weight_hr
        quota = float(problem.quotas[pool])
        rows = np.array([self._program.add_row(-INFINITY, quota) for _ in weights])
        price = EXCESS_PRICE * usd(problem.rates_micro_usd_hr[pool])
        excess = np.array([self._program.add_column(price * float(weight)) for weight in weights])
        self._program.put(rows, excess, -1.0)
        self.excess_of[pool] = excess.tolist()
        return rows

    def _shared_rows(self, place: int) -> tuple[SharedNodes, ...]:
        """Add the rows and columns of each shared pool; its nodes are part of the use of the pool they belong to."""
        one, tracked = self.gathered[place], self.table.tracked[place]
        return tuple(
            SharedNodes(
                self._program,
                sharing,
                gathered,
                workloads=self.table.workload[sharing.rows],
                weight_hr=one.weight_hr,
                used_in=(self._balance[place], self._quota[place]),
            )
            for sharing, gathered in zip(tracked.sharing, one.sharing, strict=True)
        )

    def _spot_row(self) -> int | None:
        if self.table.problem.spot_max_frac is None:
            return None
        row = self._program.add_row(-INFINITY, 0.0)
        dearest = usd(max(self.table.problem.rates_micro_usd_hr.values(), default=0))
        excess = self._program.add_column(EXCESS_PRICE * dearest)
        self._program.put(row, excess, -1.0)
        self.excess_of[None] = [excess]
        return row

    def _add_shared(self) -> None:
        """Add a column z per gate: nodes that several workloads held, and entries."""
        for gate, one in enumerate(self.table.gates):
            rows, values = self._coefficients(self.table.rows + gate)
            column = self._program.add_column(float(self.table.fixed_usd[self.table.rows + gate]), 1.0)
            self._program.put(rows, column, values)
            lines = np.array([self._gated[gate, workload] for workload in one.rows], dtype=np.int64)
            self._program.put(lines, column, -1.0)

    def _committed_usd(self, place: int) -> float:
        problem = self.table.problem
        return usd(problem.offers[self.table.tracked[place].pool].rate_micro_usd_hr) * problem.hours

    # --- blocks -----------------------------------------------------------------------------------------------------

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

    def entries(self, rows: Sequence[int]) -> int:
        """Return about how many coefficients the columns of some table rows have."""
        wanted = np.zeros(len(self.table.fixed_usd), dtype=bool)
        wanted[list(rows)] = True
        return sum(
            int(wanted[rows].sum()) * len(gathered.weight_hr)
            for tracked, gathered in zip(self.table.tracked, self.gathered, strict=True)
            for rows in tracked.users
        )

    def column(self, row: int) -> Column:
        """Return the column of a table row."""
        workload = int(self.table.workload[row])
        rows, values = self._coefficients(row)
        gates = self._gates_of.get(row, [])
        if gates:
            rows = np.concatenate((rows, np.array(gates, dtype=np.int64)))
            values = np.concatenate((values, np.ones(len(gates))))
        return Column(block=workload, key=row, cost=float(self.table.fixed_usd[row]), rows=rows, values=values)

    def _coefficients(self, row: int) -> tuple[IntArray, FloatArray]:
        rows: list[IntArray] = []
        values: list[FloatArray] = []
        for place, at in ((place, where[row]) for place, where in enumerate(self._where) if row in where):
            one = self.gathered[place]
            limited = one.peak if self._safe_quotas else one.nodes
            for lines, nodes in ((self._balance[place], one.nodes), (self._quota[place], limited)):
                if len(lines):
                    rows.append(lines)
                    values.append(nodes[at])
        for shared in (shared for nodes in self._shared_nodes for shared in nodes):
            for lines, nodes in shared.coefficients(row):
                rows.append(lines)
                values.append(nodes)
        if self._spot is not None:
            rows.append(np.array([self._spot]))
            values.append(self.table.spot_excess_hr[row : row + 1])
        if not rows:
            return np.zeros(0, dtype=np.int64), np.zeros(0)
        line, value = np.concatenate(rows), np.concatenate(values)
        return line[value != 0], value[value != 0]

    def price(self, duals: FloatArray) -> Priced:
        """Price every option at once; the bound holds at any prices, which are first made feasible for the shared part."""
        table = self.table
        prices = [self._feasible(place, duals) for place in range(len(self.gathered))]
        for spend in self._spend:
            spend.make_feasible(prices)
        limits = [np.maximum(-duals[rows], 0.0) for rows in self._quota]
        value = table.fixed_usd.copy()
        for place, (tracked, gathered) in enumerate(zip(table.tracked, self.gathered, strict=True)):
            total = sum((part for part in (prices[place], limits[place]) if len(part)), start=0 * gathered.weight_hr)
            value[tracked.rows] += gathered.nodes @ total
            for shared in self._shared_nodes[place]:
                value[shared.rows] += shared.value(duals, total)
        if self._spot is not None:
            value += max(-float(duals[self._spot]), 0.0) * table.spot_excess_hr
        gates = value[table.rows :]
        value = value[: table.rows]
        for (gate, workload), line in self._gated.items():
            share = max(-float(duals[line]), 0.0)
            value[table.gates[gate].rows[workload]] += share
            gates[gate] -= share
        least = np.minimum.reduceat(value, table.first[:-1]) if table.rows else np.zeros(0)
        bound = float(least.sum() + np.minimum(gates, 0.0).sum())
        bound -= self._paid_for_limits(limits) + self._covered_by_owned(prices)
        reduced = value - least[table.workload]
        return Priced(bound=bound, columns=[self.column(row) for row in self._first_least(reduced)], reduced=reduced)

    def _feasible(self, place: int, duals: FloatArray) -> FloatArray:
        """Return balance prices with `0 <= price <= metered` and `sum <= committed`, so that u and c cannot gain."""
        rows = self._balance[place]
        if not len(rows):
            return np.zeros(0)
        rate = usd(self.table.problem.rates_micro_usd_hr[self.table.tracked[place].pool])
        price = np.clip(-duals[rows], 0.0, rate * self.gathered[place].weight_hr)
        if place not in self.committed:
            return price
        allowed = self._committed_usd(place)
        return np.asarray(price * min(1.0, allowed / max(float(price.sum()), 1e-300)))

    def _covered_by_owned(self, prices: list[FloatArray]) -> float:
        owned = self.table.problem.owned_nodes
        return sum(
            owned.get(tracked.pool, 0) * float(price.sum())
            for tracked, price in zip(self.table.tracked, prices, strict=True)
        ) + sum(spend.covered_by_owned(prices) for spend in self._spend)

    def _paid_for_limits(self, limits: Sequence[FloatArray]) -> float:
        quotas = self.table.problem.quotas
        return sum(
            quotas[tracked.pool] * float(limit.sum())
            for tracked, limit in zip(self.table.tracked, limits, strict=True)
            if tracked.pool in quotas
        )

    def _first_least(self, reduced: FloatArray) -> list[int]:
        """Return the first row of each workload with reduced cost 0."""
        least = np.flatnonzero(reduced == 0.0)
        _, first = np.unique(self.table.workload[least], return_index=True)
        return [int(row) for row in least[first]]
