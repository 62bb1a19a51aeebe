"""Quotas: the most nodes of a pool at once that a provider lets an account hold, whoever of its workloads uses them.

    quota[p,t]: sum_o n[o,p,t] x[o] + sum_g n[g,p,t] z[g] - excess[p,t] <= quota[p]

The excess has a price above anything that it could save, so that prices exist before a plan within the limits is known. Rows
count the mean nodes of gathered periods, so that the program is a relaxation; safe rows count each option's most nodes in any
hour of a period, so that its plans keep the quota in every hour, at the price of being no bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.plan.problem import Problem
from trimtab.plan.program.couplings.parts import (
    EXCESS_PRICE,
    GatheredPeriods,
    Limit,
    LimitUse,
    NodePrices,
    RowInputs,
    TriedUse,
)
from trimtab.plan.program.highs import INFINITY
from trimtab.units import S_PER_HR, usd


@dataclass(frozen=True, slots=True)
class PoolQuota:
    """The quota of one pool (a `Limit`): nodes at once, by the mean of an hour."""

    pool: Pool
    nodes: int

    @property
    def words(self) -> str:
        """Name it."""
        return f"the quota of {self.nodes} x {self.pool}"

    def used(self, usage: Mapping[Pool, IntArray]) -> LimitUse:
        """Return the most nodes that a use holds in any hour; nodes are whole, so that less than one left is none."""
        peak = int(usage[self.pool].max(initial=0)) / S_PER_HR if self.pool in usage else 0.0
        return LimitUse(words=self.words, limit=self.nodes, used=peak, binds=peak > self.nodes - 1)

    def is_broken(self, usage: Mapping[Pool, IntArray]) -> bool:
        """Return whether a use holds more in some hour."""
        return self.pool in usage and int(usage[self.pool].max(initial=0)) > self.nodes * S_PER_HR

    def lifted(self, problem: Problem) -> Problem:
        """Return a problem without it."""
        return replace(problem, quotas={pool: nodes for pool, nodes in problem.quotas.items() if pool != self.pool})


def quotas_in(problem: Problem) -> list[PoolQuota]:
    """Return the quotas of a problem, in the order of their pools."""
    return [PoolQuota(pool, nodes) for pool, nodes in sorted(problem.quotas.items())]


def least_nodes(problem: Problem, pool: Pool) -> dict[str, int]:
    """Return the nodes of a pool that workloads with names hold in their busiest hour whatever is chosen, the most first."""
    least: dict[str, int] = {}
    for workload, (name, options) in enumerate(zip(problem.names, problem.options, strict=False)):
        uses = [option.usage.get(pool) for option in options]
        kept = [group.usage[pool] for group in problem.groups if workload in group.holders and pool in group.usage]
        # staying holds all of the workload's groups at once
        uses.append(np.asarray(sum(kept)) if kept else None)
        least[name] = min(0 if use is None else ceil(int(use.max(initial=0)) / S_PER_HR) for use in uses)
    return {name: nodes for name, nodes in sorted(least.items(), key=lambda item: (-item[1], item[0])) if nodes}


class QuotaRows:
    """The rows of every pool with a quota, with the columns of what exceeds it."""

    def __init__(self, inputs: RowInputs, *, safe: bool) -> None:
        self._quotas = inputs.problem.quotas
        self._gathered = inputs.gathered
        self._safe = safe
        self._pools = [pool for pool, _ in inputs.pools]
        self.excess: dict[Limit, list[int]] = {}
        """Columns that break a quota where they are above 0."""
        self._lines = [
            self._add(inputs, PoolQuota(pool, self._quotas[pool]), gathered)
            if pool in self._quotas
            else np.zeros(0, dtype=np.int64)
            for pool, gathered in inputs.pools
        ]

    def _add(self, inputs: RowInputs, quota: PoolQuota, gathered: GatheredPeriods) -> IntArray:
        program = inputs.program
        lines = np.array([program.add_row(-INFINITY, float(quota.nodes)) for _ in gathered.weight_hr])
        price = EXCESS_PRICE * usd(inputs.problem.rates_micro_usd_hr[quota.pool])
        excess = np.array([program.add_column(price * float(weight)) for weight in gathered.weight_hr])
        program.put(lines, excess, -1.0)
        self.excess[quota] = excess.tolist()
        return lines

    def lines(self, place: int) -> IntArray:
        """Return the rows that count a tracked pool's nodes, one a period; empty for one without a quota."""
        return self._lines[place]

    def nodes(self, place: int) -> FloatArray:
        """Return the nodes that each of the pool's table rows counts (n_rows, n_periods): its mean, or its most."""
        return self._gathered[place].peak if self._safe else self._gathered[place].nodes

    def price_nodes(self, duals: FloatArray, prices: NodePrices) -> None:
        """Set what a node costs for standing under a quota."""
        for place, lines in enumerate(self._lines):
            if len(lines):
                # duals of `<=` rows are at most 0; the price of a limit comes on top of what nodes cost
                prices.limited[place] = np.maximum(-duals[lines], 0.0)

    def paid_anyway_usd(self, prices: NodePrices) -> float:
        """Return what the nodes that quotas allow are worth."""
        return sum(
            self._quotas[pool] * float(price.sum())
            for pool, price in zip(self._pools, prices.limited, strict=True)
            if pool in self._quotas
        )


class QuotaBreach:
    """By how much use breaks the quotas."""

    def __init__(self, problem: Problem) -> None:
        self._quotas = problem.quotas

    def breach_hr(self, tried: TriedUse) -> FloatArray | float:
        """Return the node-hours above the quotas of the pools that a move touches: the others stay as they are."""
        over: FloatArray | float = 0.0
        for pool, use in tried.use.items():
            if pool in self._quotas:
                over = over + np.maximum(use - self._quotas[pool] * S_PER_HR, 0).sum(axis=1) / S_PER_HR
        return over
