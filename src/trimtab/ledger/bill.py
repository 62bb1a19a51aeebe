"""The one bill: usage x rates x commitments -> charges per pool and hour, in whole micro-dollars.

History, the plan's objective and the replay are all priced here, so that the three agree to the cent. A commitment is paid
every hour, used or not, and covers on-demand nodes of its type and region, as instance reservations do. Spend plans apply to
what these leave, one after the other (`ledger.spend`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.errors import MissingPrice
from trimtab.ledger.arrays import IntArray, charge
from trimtab.ledger.spend import SpendPlan, cover
from trimtab.units import S_PER_HR, MicroUsd


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """Nodes paid every hour: it covers `count` on-demand nodes of `pool` at `rate_micro_usd_hr` each."""

    pool: Pool
    option: BuyingOption
    count: int
    rate_micro_usd_hr: int

    def __post_init__(self) -> None:
        if self.count < 0 or self.rate_micro_usd_hr < 0:
            raise ValueError("a commitment's count and rate must not be negative")
        if self.pool.capacity_type is not CapacityType.ON_DEMAND:
            raise ValueError(f"a commitment covers on-demand nodes, not {self.pool}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Usage:
    """Node-seconds per pool and hour: `node_seconds` (n_pools, n_hours), whole seconds."""

    pools: tuple[Pool, ...]
    node_seconds: IntArray

    def __post_init__(self) -> None:
        if self.node_seconds.ndim != 2 or len(self.node_seconds) != len(self.pools):
            raise ValueError("usage needs one row of node-seconds per pool")
        if self.node_seconds.size and self.node_seconds.min() < 0:
            raise ValueError("node-seconds must not be negative")

    @property
    def hours(self) -> int:
        """Return the number of hours."""
        return int(self.node_seconds.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bill:
    """What usage costs, in whole micro-dollars: rows follow `pools`, `commitments` and `spend_plans`, columns are hours."""

    pools: tuple[Pool, ...]
    commitments: tuple[Commitment, ...]
    spend_plans: tuple[SpendPlan, ...]
    metered: IntArray
    """(n_pools, n_hours): node time that no commitment or plan covers."""
    committed: IntArray
    """(n_commitments, n_hours): what the commitments cost, used or not."""
    covered_seconds: IntArray
    """(n_commitments, n_hours): node-seconds that each commitment covered."""
    plan_seconds: IntArray
    """(n_spend_plans, n_pools, n_hours): node-seconds that each spend plan covered."""
    node_seconds: IntArray
    """(n_pools, n_hours): the usage that was billed."""

    def use_of(self, pool: Pool) -> IntArray:
        """Return a pool's node-seconds by hour (n_hours,); 0 for one that is not in the bill."""
        none = np.zeros(self.node_seconds.shape[1], dtype=np.int64)
        return self.node_seconds[self.pools.index(pool)] if pool in self.pools else none

    @property
    def hourly(self) -> IntArray:
        """Return the bill per hour (n_hours,)."""
        return np.asarray(
            self.metered.sum(axis=0) + self.committed.sum(axis=0) + self.spend.sum(axis=0), dtype=np.int64
        )

    @property
    def total(self) -> MicroUsd:
        """Return the whole bill."""
        return MicroUsd(int(self.metered.sum() + self.committed.sum() + self.spend.sum()))

    @property
    def spend(self) -> IntArray:
        """Return what the spend plans cost, used or not (n_spend_plans, n_hours)."""
        paid = np.array([plan.spend_micro_usd_hr for plan in self.spend_plans], dtype=np.int64)
        return np.repeat(paid[:, None], self.metered.shape[1], axis=1)

    def used_spend(self) -> IntArray:
        """Return what each plan's spend bought of each pool (n_spend_plans, n_pools, n_hours)."""
        used = np.zeros_like(self.plan_seconds)
        for index, plan in enumerate(self.spend_plans):
            for row, pool in enumerate(self.pools):
                if pool in plan.rates_micro_usd_hr:
                    used[index, row] = charge(plan.rates_micro_usd_hr[pool], self.plan_seconds[index, row])
        return used

    def unused_spend(self) -> IntArray:
        """Return the part of each plan's spend that bought nothing (n_spend_plans, n_hours)."""
        return np.asarray(self.spend - self.used_spend().sum(axis=1), dtype=np.int64)

    @property
    def unused(self) -> MicroUsd:
        """Return what commitments and spend plans cost that nothing used."""
        return MicroUsd(int(self.unused_commitment().sum() + self.unused_spend().sum()))

    def used_commitment(self) -> IntArray:
        """Return the part of each commitment's hourly cost that covered nodes (n_commitments, n_hours)."""
        return np.array(
            [charge(c.rate_micro_usd_hr, row) for c, row in zip(self.commitments, self.covered_seconds, strict=True)],
            dtype=np.int64,
        ).reshape(self.committed.shape)

    def unused_commitment(self) -> IntArray:
        """Return the part of each commitment's hourly cost that covered nothing (n_commitments, n_hours)."""
        return self.committed - self.used_commitment()

    def effective(self) -> IntArray:
        """Return what each pool's nodes cost per hour, commitments and plans amortized onto the nodes they covered."""
        cost: IntArray = self.metered + self.used_spend().sum(axis=0)
        row_of = {pool: row for row, pool in enumerate(self.pools)}
        for commitment, used in zip(self.commitments, self.used_commitment(), strict=True):
            if commitment.pool in row_of:
                cost[row_of[commitment.pool]] += used
        return cost


def bill(
    usage: Usage,
    rates_micro_usd_hr: Mapping[Pool, int],
    commitments: Sequence[Commitment] = (),
    spend_plans: Sequence[SpendPlan] = (),
) -> Bill:
    """Price usage exactly.

    `rates_micro_usd_hr` holds one hourly rate per pool; a pool that is used and has none raises MissingPrice. Commitments on
    one pool apply in the order given, each hour, use it or lose it; then the spend plans in the order given.
    """
    remaining = usage.node_seconds.copy()
    row_of = {pool: row for row, pool in enumerate(usage.pools)}
    covered = np.zeros((len(commitments), usage.hours), dtype=np.int64)
    for index, commitment in enumerate(commitments):
        row = row_of.get(commitment.pool)
        if row is not None:
            covered[index] = np.minimum(remaining[row], commitment.count * S_PER_HR)
            remaining[row] -= covered[index]
    used = {pool: _rate(rates_micro_usd_hr, pool) for row, pool in enumerate(usage.pools) if remaining[row].any()}
    planned = np.zeros((len(spend_plans), *remaining.shape), dtype=np.int64)
    for index, plan in enumerate(spend_plans):
        planned[index] = cover(plan, usage.pools, remaining, used)
        remaining -= planned[index]
    metered = np.zeros_like(remaining)
    for pool, rate in used.items():
        metered[row_of[pool]] = charge(rate, remaining[row_of[pool]])
    paid = np.array([c.count * c.rate_micro_usd_hr for c in commitments], dtype=np.int64)
    return Bill(
        pools=usage.pools,
        commitments=tuple(commitments),
        spend_plans=tuple(spend_plans),
        metered=metered,
        committed=np.repeat(paid[:, None], usage.hours, axis=1),
        covered_seconds=covered,
        plan_seconds=planned,
        node_seconds=usage.node_seconds,
    )


def _rate(rates: Mapping[Pool, int], pool: Pool) -> int:
    if pool not in rates:
        raise MissingPrice(f"no rate for {pool}; add a row to your rates file (see `trimtab prices --help`)")
    return rates[pool]
