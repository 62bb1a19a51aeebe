"""The referees' purchase problem through the planner's own solver: workloads are blocks, mixes of options their columns.

The instance is that of `fleet_instance` in the referees' folder, imported from there and never copied. A workload's mix of
options and ways to buy is priced exactly (`referee_pricing`); column generation, its bound and the choice among the mixes
found are `trimtab.plan.program.decompose`, the code that plans every fleet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from benchmarks.referee_pricing import price_all
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.plan.program.decompose import BlockAnswers
from trimtab.plan.program.highs import INFINITY, Program, ProgramColumn

TOLERANCE_FRAC = 1e-4
MAX_NODES = 20_000
EXCESS_PRICE = 1e4
"""Dollars for a unit beyond a quota, while prices are being found: no unit costs more than 40."""


class Instance(Protocol):
    """What the referees' program draws; arrays by option `(O,)`, workload `(W,)` or both `(W, O)`."""

    @property
    def feasible(self) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """Return which options a workload can run on."""
        ...

    @property
    def throughput(self) -> FloatArray:
        """Return what one unit serves (W, O)."""
        ...

    @property
    def demand(self) -> FloatArray:
        """Return what a workload must serve (W,)."""
        ...

    @property
    def max_spot_frac(self) -> FloatArray:
        """Return the largest share of a workload's capacity on spot (W,)."""
        ...

    @property
    def quota(self) -> FloatArray:
        """Return the most units of each option over all workloads (O,)."""
        ...

    def unit_costs(self, workload: int) -> FloatArray:
        """Return the cost of one unit per option and way to buy, spot last (O, 4)."""
        ...


class RefereeFleet:
    """The owner of the blocks: prices on quotas in, the best mix of each workload out."""

    def __init__(self, instance: Instance, fixed_cost: float) -> None:
        self.instance = instance
        self.fixed_cost = fixed_cost
        self.workloads, self.options = instance.throughput.shape
        self.workload, self.option = np.nonzero(instance.feasible)
        self.first = np.searchsorted(self.workload, np.arange(self.workloads + 1))
        costs = np.array([instance.unit_costs(w) for w in range(self.workloads)])[self.workload, self.option]
        self.steady_cost, self.spot_cost = costs[:, :-1].min(axis=1), costs[:, -1].copy()
        self.capacity = instance.throughput[self.workload, self.option]
        self.most = np.ceil(instance.demand[self.workload] / self.capacity).astype(np.int64) + 1
        self._known: dict[tuple[int, bytes], int] = {}
        self._units: list[IntArray] = []

    def program(self) -> Program:
        """Return the shared part: one row per workload, then the quotas."""
        program = Program()
        for _ in range(self.workloads):
            program.add_row(1.0, 1.0)
        for quota in self.instance.quota:
            row = program.add_row(-INFINITY, float(quota))
            program.put(row, program.add_column(EXCESS_PRICE), -1.0)
        return program

    def price(self, duals: FloatArray) -> BlockAnswers:
        """Price every workload's mixes exactly (or within a proved tolerance)."""
        quota_price = np.maximum(-duals[self.workloads :], 0.0)
        _, least, units = price_all(
            self.first, self.steady_cost, self.spot_cost, quota_price[self.option], self.capacity, self.most,
            self.instance.demand, self.instance.max_spot_frac, self.fixed_cost, TOLERANCE_FRAC, MAX_NODES,
        )  # fmt: skip
        bound = float(least.sum() - quota_price @ self.instance.quota)
        return BlockAnswers(
            bound=bound, columns=[self._column(w, units) for w in range(self.workloads)], reduced=np.zeros(0)
        )

    def _column(self, workload: int, units: IntArray) -> ProgramColumn:
        """Return a workload's mix as a column: its cost without prices, and its units of each option."""
        mine = slice(self.first[workload], self.first[workload + 1])
        steady, spot = units[0, mine], units[1, mine]
        together = steady + spot
        used = together > 0
        cost = self.fixed_cost * int(used.sum()) + steady @ self.steady_cost[mine] + spot @ self.spot_cost[mine]
        key = self._known.setdefault((workload, units[:, mine].tobytes()), len(self._known))
        if key == len(self._units):
            self._units.append(units[:, mine].copy())
        return ProgramColumn(
            block=workload,
            key=key,
            cost=float(cost),
            rows=self.workloads + self.option[mine][used],
            values=together[used].astype(np.float64),
        )

    def start(self) -> list[ProgramColumn]:
        """Return each workload's best mix if no quota cost anything."""
        return list(self.price(np.zeros(self.workloads + self.options)).columns)

    def audit(self, keys: Sequence[int]) -> float:
        """Return the cost of a choice, added up afresh; raises ValueError where it breaks any rule of the instance."""
        used = np.zeros(self.options)
        total = 0.0
        for workload, key in enumerate(keys):
            mine = slice(self.first[workload], self.first[workload + 1])
            steady, spot = self._units[key] * self.capacity[mine]
            demand, cap = self.instance.demand[workload], self.instance.max_spot_frac[workload]
            if (steady + spot).sum() < demand * (1 - 1e-6) or spot.sum() > cap * (steady + spot).sum() * (1 + 1e-6):
                raise ValueError(f"workload {workload}: the mix does not serve its demand within its share of spot")
            units = self._units[key]
            np.add.at(used, self.option[mine], units.sum(axis=0))
            total += self.fixed_cost * int((units.sum(axis=0) > 0).sum())
            total += float(units[0] @ self.steady_cost[mine] + units[1] @ self.spot_cost[mine])
        if np.any(used > self.instance.quota + 1e-6):
            raise ValueError("a quota is exceeded")
        return total
