"""The bill: usage x rates x commitments -> charges per pool and hour in whole micro-dollars, their owners, FOCUS rows.

History, the plan's objective and the replay are all priced here, so that the three agree to the cent. A commitment is paid
every hour, used or not. Those to nodes apply first and those to spend to what these leave, as providers do, one after the other
(`ledger.commitments`).

A node-hour is split by GPU time held on that node in that hour; unheld time is idle. The parts sum to the bill exactly.

As FOCUS has it: a commitment's fee is a Purchase with billed cost and no effective cost; the use that it covers and what it
leaves unused carry the effective cost. Both columns therefore sum to the bill.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.errors import MissingPrice
from trimtab.ledger.arrays import FloatArray, IntArray, apportion_groups, charge
from trimtab.ledger.commitments import Commitment, CommitmentOffer, cover
from trimtab.tables.arrow import arrow_schema
from trimtab.units import S_PER_HR, MicroUsd, usd


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


IDLE = -1
"""The owner index of node time that no workload held."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Holdings:
    """Who held which share of which pool's node time, as sparse cells (n_cells,): pool row, hour, node, owner, node-seconds.

    `owner` is a workload index or `IDLE`; `node_seconds` may be fractional: half the GPUs of a node for an hour are 1,800. Per
    pool and hour the cells should add up to the node time that was billed (`build` in `fleet` makes them so).
    """

    pool: IntArray
    hour: IntArray
    node: IntArray
    owner: IntArray
    node_seconds: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocation:
    """The bill by cell of the holdings (micro-dollars), and what commitments cost that nothing used."""

    holdings: Holdings
    cost: IntArray
    unused_commitment: int

    @property
    def idle(self) -> int:
        """Return the cost of node time that no workload held."""
        return int(self.cost[self.holdings.owner == IDLE].sum())

    def by_owner(self, owners: int) -> IntArray:
        """Return the cost per workload index (owners,), idle excluded."""
        return self._summed(self.holdings.owner, owners)

    def by_owner_hour(self, owners: int, hours: int) -> IntArray:
        """Return the cost per workload and hour (owners, hours), idle excluded."""
        mine = self.holdings.owner != IDLE
        flat = self.holdings.owner[mine] * hours + self.holdings.hour[mine]
        summed = np.zeros(owners * hours, dtype=np.int64)
        np.add.at(summed, flat, self.cost[mine])
        return summed.reshape(owners, hours)

    def idle_by_node(self, nodes: int) -> IntArray:
        """Return the idle cost per node index (nodes,)."""
        idle = self.holdings.owner == IDLE
        summed = np.zeros(nodes, dtype=np.int64)
        np.add.at(summed, self.holdings.node[idle], self.cost[idle])
        return summed

    def _summed(self, owner: IntArray, owners: int) -> IntArray:
        mine = owner != IDLE
        summed = np.zeros(owners, dtype=np.int64)
        np.add.at(summed, owner[mine], self.cost[mine])
        return summed


def allocate(bill: Bill, holdings: Holdings) -> Allocation:
    """Split a bill over its holdings. Raises ValueError if billed node time has no holder, not even idle."""
    hours = bill.metered.shape[1]
    group = holdings.pool * hours + holdings.hour
    order = np.argsort(group, kind="stable")
    parts = apportion_groups(bill.effective().reshape(-1), group[order], holdings.node_seconds[order])
    cost = np.empty_like(parts)
    cost[order] = parts
    return Allocation(holdings=holdings, cost=cost, unused_commitment=bill.unused)


FocusRow = dict[str, object]
"""A charge by the names of FOCUS' columns."""


def focus_rows(bill: Bill, start: datetime) -> pa.Table:
    """Return a bill whose first hour begins at `start` as a table with the columns of `costs` (FOCUS 1.0 names)."""
    rows = [*_metered(bill, start), *_committed(bill, start)]
    schema = arrow_schema("costs")
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)


def _metered(bill: Bill, start: datetime) -> Iterator[FocusRow]:
    for row, pool in enumerate(bill.pools):
        seconds = bill.node_seconds[row] - bill.covered_seconds[:, row].sum(axis=0)
        for hour in seconds.nonzero()[0].tolist():
            cost = usd(int(bill.metered[row, hour]))
            yield {
                **_where(pool, start, hour),
                "ChargeCategory": "Usage",
                "PricingCategory": "Dynamic" if pool.capacity_type is CapacityType.SPOT else "Standard",
                "BilledCost": cost,
                "EffectiveCost": cost,
                "ListCost": cost,
                "ContractedCost": cost,
                "PricingQuantity": float(seconds[hour]) / S_PER_HR,
            }


def _committed(bill: Bill, start: datetime) -> Iterator[FocusRow]:
    paid, used, unused = bill.committed, bill.used_commitment(), bill.unused_commitment()
    to_nodes = sum(not commitment.offer.is_spend for commitment in bill.commitments)  # these apply first
    for index, commitment in enumerate(bill.commitments):
        discount = _discount(commitment.offer, index - to_nodes if commitment.offer.is_spend else index)
        for hour in range(paid.shape[1]):
            place = {**_bought_for(commitment.offer, start, hour), **discount}
            yield _fee(place, int(paid[index, hour]))
            yield from _amortized(place, "Unused", int(unused[index, hour]))
            for row, pool in enumerate(bill.pools):
                yield from _amortized({**_where(pool, start, hour), **discount}, "Used", int(used[index, row, hour]))


def _bought_for(offer: CommitmentOffer, start: datetime, hour: int) -> FocusRow:
    """Return what a commitment is to: nodes of a pool, or a provider's nodes at large."""
    if offer.is_spend:
        return {**_when(start, hour), "ProviderName": offer.provider}
    return _where(offer.pool, start, hour)


def _fee(place: FocusRow, micro_usd: int) -> FocusRow:
    return {**place, "ChargeCategory": "Purchase", "BilledCost": usd(micro_usd), "EffectiveCost": 0.0}


def _amortized(place: FocusRow, status: str, micro_usd: int) -> Iterator[FocusRow]:
    if micro_usd:
        yield {
            **place,
            "ChargeCategory": "Usage",
            "PricingCategory": "Committed",
            "CommitmentDiscountStatus": status,
            "BilledCost": 0.0,
            "EffectiveCost": usd(micro_usd),
        }


def _when(start: datetime, hour: int) -> FocusRow:
    begin = start + timedelta(hours=hour)
    return {"ChargePeriodStart": begin, "ChargePeriodEnd": begin + timedelta(hours=1), "BillingCurrency": "USD"}


def _where(pool: Pool, start: datetime, hour: int) -> FocusRow:
    return {
        **_when(start, hour),
        "ProviderName": pool.provider,
        "RegionId": pool.region,
        "ResourceType": "Instance",
        "SkuMeter": pool.instance_type,
        "PricingUnit": "Hours",
        "instance_type": pool.instance_type,
    }


def _discount(offer: CommitmentOffer, index: int) -> FocusRow:
    what = (offer.option.value,) if offer.is_spend else (offer.option.value, offer.pool.instance_type)
    return {
        "CommitmentDiscountId": "-".join((*what, str(index))),
        "CommitmentDiscountType": offer.option.value,
    }
