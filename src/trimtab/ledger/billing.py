"""The one bill: usage x rates x commitments -> charges per pool and hour, in whole micro-dollars.

History, the plan's objective and the replay are all priced here, so that the three agree to the cent. A commitment is paid
every hour, used or not. Those to nodes apply first and those to spend to what these leave, as providers do, one after the other
(`ledger.commitments`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.errors import MissingPrice
from trimtab.ledger.arrays import IntArray, charge
from trimtab.ledger.commitments import Commitment, cover
from trimtab.units import MicroUsd


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
    """What usage costs, in whole micro-dollars: rows follow `pools` and `commitments`, columns are hours."""

    pools: tuple[Pool, ...]
    commitments: tuple[Commitment, ...]
    """In the order in which they applied."""
    metered: IntArray
    """(n_pools, n_hours): node time that no commitment covers."""
    covered_seconds: IntArray
    """(n_commitments, n_pools, n_hours): node-seconds that each commitment covered."""
    node_seconds: IntArray
    """(n_pools, n_hours): the usage that was billed."""

    def use_of(self, pool: Pool) -> IntArray:
        """Return a pool's node-seconds by hour (n_hours,); 0 for one that is not in the bill."""
        none = np.zeros(self.node_seconds.shape[1], dtype=np.int64)
        return self.node_seconds[self.pools.index(pool)] if pool in self.pools else none

    @property
    def hourly(self) -> IntArray:
        """Return the bill per hour (n_hours,)."""
        return np.asarray(self.metered.sum(axis=0) + self.committed.sum(axis=0), dtype=np.int64)

    @property
    def total(self) -> MicroUsd:
        """Return the whole bill."""
        return MicroUsd(int(self.metered.sum() + self.committed.sum()))

    @property
    def committed(self) -> IntArray:
        """Return what the commitments cost, used or not (n_commitments, n_hours)."""
        paid = np.array([commitment.micro_usd_hr for commitment in self.commitments], dtype=np.int64)
        return np.repeat(paid[:, None], self.metered.shape[1], axis=1)

    @property
    def unused(self) -> MicroUsd:
        """Return what commitments cost that nothing used."""
        return MicroUsd(int(self.unused_commitment().sum()))

    def used_commitment(self) -> IntArray:
        """Return what each commitment's hourly cost bought of each pool (n_commitments, n_pools, n_hours)."""
        used = np.zeros_like(self.covered_seconds)
        row_of = {pool: row for row, pool in enumerate(self.pools)}
        for index, commitment in enumerate(self.commitments):
            for pool, rate in commitment.offer.rates_micro_usd_hr.items():
                if pool in row_of:
                    used[index, row_of[pool]] = charge(rate, self.covered_seconds[index, row_of[pool]])
        return used

    def unused_commitment(self) -> IntArray:
        """Return the part of each commitment's hourly cost that covered nothing (n_commitments, n_hours)."""
        return np.asarray(self.committed - self.used_commitment().sum(axis=1), dtype=np.int64)

    def effective(self) -> IntArray:
        """Return what each pool's nodes cost per hour, commitments amortized onto the nodes they covered."""
        return np.asarray(self.metered + self.used_commitment().sum(axis=0), dtype=np.int64)


def bill(
    usage: Usage, rates_micro_usd_hr: Mapping[Pool, int | IntArray], commitments: Iterable[Commitment] = ()
) -> Bill:
    """Price usage exactly.

    `rates_micro_usd_hr` holds one hourly rate per pool, or the rate of each hour (n_hours,); a pool that nodes committed to do
    not cover whole and that has none raises MissingPrice. Commitments to nodes apply in the order given, each hour, use it or
    lose it; then those to spend do.
    """
    applied = tuple(sorted(commitments, key=lambda commitment: commitment.offer.is_spend))
    remaining = usage.node_seconds.copy()
    last = {pool: rate if isinstance(rate, int) else int(rate[-1]) for pool, rate in rates_micro_usd_hr.items()}
    row_of = {pool: row for row, pool in enumerate(usage.pools)}
    covered = np.zeros((len(applied), *remaining.shape), dtype=np.int64)
    for index, commitment in enumerate(applied):
        pools = [pool for pool in commitment.offer.rates_micro_usd_hr if pool in row_of]
        rows = [row_of[pool] for pool in pools]
        covered[index, rows] = cover(commitment, pools, remaining[rows], last)
        remaining[rows] -= covered[index, rows]
    metered = np.zeros_like(remaining)
    for row, pool in enumerate(usage.pools):
        if remaining[row].any():
            metered[row] = charge(_rate(rates_micro_usd_hr, pool), remaining[row])
    return Bill(
        pools=usage.pools,
        commitments=applied,
        metered=metered,
        covered_seconds=covered,
        node_seconds=usage.node_seconds,
    )


def _rate(rates: Mapping[Pool, int | IntArray], pool: Pool) -> int | IntArray:
    if pool not in rates:
        raise MissingPrice(f"no rate for {pool}; add a row to your rates file (see `trimtab prices --help`)")
    return rates[pool]
