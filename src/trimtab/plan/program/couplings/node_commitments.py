"""Commitments to nodes of one pool: paid every hour, they cover whatever is used of it, by whomever.

    balance[p,t]: sum_o n[o,p,t] x[o] + sum_g n[g,p,t] z[g] <= u[p,t] + c[p] + owned[p] + sum_k y[k,p,t]

u is paid on demand, c[p] is bought for the whole window (`committed`), owned[p] runs already and is paid for anyway; what spend
plans cover, y, and whole shared nodes enter these rows from their own modules. A price of a row is feasible where neither u nor
c can gain: at most the on-demand rate in each period, and in sum at most what a committed node costs over the window.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.ledger import Commitment, nodes_committed
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.plan.problem import Problem
from trimtab.plan.program.couplings.parts import GatheredPeriods, NodePrices, RowInputs, Uses
from trimtab.plan.program.highs import INFINITY
from trimtab.units import S_PER_HR, usd

_TINY = 1e-300
"""A divisor in place of 0."""


def beyond(node_seconds: IntArray, nodes: int) -> IntArray:
    """Return the use by hour (..., n_hours) that so many nodes leave uncovered."""
    return np.maximum(node_seconds - nodes * S_PER_HR, 0) if nodes else node_seconds


def committed_pools(problem: Problem) -> frozenset[Pool]:
    """Return the pools of which committed nodes are on offer or owned."""
    return frozenset({*problem.node_offers, *nodes_committed(problem.owned)})


class NodeCommitmentRows:
    """The rows `balance` of each pool whose use is paid by the program, and the columns u and c that pay for it."""

    def __init__(self, inputs: RowInputs, balanced: Collection[Pool]) -> None:
        """Add them for the tracked pools among `balanced`; all others are paid by a fixed sum per option."""
        self._problem = inputs.problem
        self._gathered = inputs.gathered
        self._pools = [pool for pool, _ in inputs.pools]
        self._offers = inputs.problem.node_offers
        self._owned = nodes_committed(inputs.problem.owned)
        # what owned nodes and spend are worth grows with the prices: to raise those could lower the bound
        self._kept = {*self._owned, *inputs.problem.spend_pools}
        self._lines = [
            self._add(inputs, pool, gathered) if pool in balanced else np.zeros(0, dtype=np.int64)
            for pool, gathered in inputs.pools
        ]

    def _add(self, inputs: RowInputs, pool: Pool, gathered: GatheredPeriods) -> IntArray:
        program, weights = inputs.program, gathered.weight_hr
        owned = float(self._owned.get(pool, 0))
        lines = np.array([program.add_row(-INFINITY, owned) for _ in weights])
        if pool in self._offers:
            # More than every workload's largest option together is never committed to: a finite bound helps the MILP.
            uses = [gathered.nodes, *(sharing.whole for sharing in gathered.sharing)]
            most = max(float(np.ceil(use.max(initial=0.0))) for use in uses) * self._problem.workloads
            committed = program.add_column(self._committed_usd(pool), most + 1.0, integer=True)
            program.put(lines, committed, -1.0)
        rate = usd(self._problem.rates_micro_usd_hr[pool])
        metered = np.array([program.add_column(rate * float(weight)) for weight in weights])
        program.put(lines, metered, -1.0)
        return lines

    def lines(self, place: int) -> IntArray:
        """Return the rows that count a tracked pool's nodes, one a period; empty where a fixed sum pays for them."""
        return self._lines[place]

    def nodes(self, place: int) -> FloatArray:
        """Return the mean nodes of each of the pool's table rows (n_rows, n_periods)."""
        return self._gathered[place].nodes

    def price_nodes(self, duals: FloatArray, prices: NodePrices) -> None:
        """Set prices with `0 <= price <= metered` and `sum <= committed`, so that u and c cannot gain; then raise them."""
        for place, (pool, lines) in enumerate(zip(self._pools, self._lines, strict=True)):
            if not len(lines):
                continue
            rate = usd(self._problem.rates_micro_usd_hr[pool])
            # a row counts nodes of a whole period, so its cap is the rate times the period's hours
            caps = rate * self._gathered[place].weight_hr
            price = np.clip(-duals[lines], 0.0, caps)
            if pool in self._offers:
                # scaled as a whole: lowered prices stay below their on-demand caps
                price = price * min(1.0, self._committed_usd(pool) / max(float(price.sum()), _TINY))
            if pool not in self._kept:
                price = self._raised(pool, price, caps)
            prices.paid[place] = price

    def _raised(self, pool: Pool, price: FloatArray, caps: FloatArray) -> FloatArray:
        """Return feasible prices raised as far as they stay so: no bound falls by it.

        The duals of pools that the program does not use yet say nothing. Raised, their ways cost about what they would.
        """
        room = caps - price
        free = float(room.sum())
        if pool in self._offers and free > 0:
            room = room * min(1.0, max(0.0, self._committed_usd(pool) - float(price.sum())) / free)
        return price + room

    def paid_anyway_usd(self, prices: NodePrices) -> float:
        """Return what owned nodes are worth at final prices."""
        return sum(
            self._owned.get(pool, 0) * float(price.sum()) for pool, price in zip(self._pools, prices.paid, strict=True)
        )

    def _committed_usd(self, pool: Pool) -> float:
        return usd(self._offers[pool].rate_micro_usd_hr) * self._problem.hours


class HeldNodeCommitments:
    """Counts of committed nodes, owned and bought, that stand while options are tried."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._offers = problem.node_offers
        self._owned = nodes_committed(problem.owned)
        self.counts: Mapping[Pool, int] = {}
        """Nodes that are bought."""

    def hold(self, bought: Iterable[Commitment]) -> None:
        """Hold what is bought."""
        self.counts = nodes_committed(bought)

    def take(self, left: dict[Pool, IntArray], present: Uses) -> None:
        """Take what the committed nodes of each pool cover; no other pool's use matters."""
        for pool in left:
            left[pool] = self.uncovered(pool, left[pool])

    def uncovered(self, pool: Pool, use: IntArray) -> IntArray:
        """Return the part of a use (..., n_hours) that the committed nodes leave."""
        return beyond(use, self.counts.get(pool, 0) + self._owned.get(pool, 0))

    def renew(self, use: Uses) -> None:
        """Hold the counts that are best for a use where no spend plan competes with them."""
        self.counts = {pool: self._best_count(pool, use[pool]) for pool in self._offers if pool in use}

    def _best_count(self, pool: Pool, use: IntArray) -> int:
        """Return the best count for a use, found from the present one: the bill is convex in it."""
        rate, offer = self._problem.rates_micro_usd_hr[pool], self._offers[pool]
        # micro-dollars an hour times seconds, on both sides of the comparison: nothing is divided, so nothing is
        # rounded
        unit = offer.rate_micro_usd_hr * S_PER_HR * self._problem.hours
        left, count = beyond(use, self._owned.get(pool, 0)), self.counts.get(pool, 0)
        # convex: the first count at which one more does not pay is the best; from the last one it is few steps away
        while _nth_node_seconds(left, count + 1) * rate > unit:
            count += 1
        while count and _nth_node_seconds(left, count) * rate <= unit:
            count -= 1
        return count


def _nth_node_seconds(use: IntArray, number: int) -> int:
    """Return how long at least `number` nodes were in use."""
    return int(np.clip(use - (number - 1) * S_PER_HR, 0, S_PER_HR).sum())
