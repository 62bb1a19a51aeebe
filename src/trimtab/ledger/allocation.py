"""Who caused the bill: every micro-dollar goes to a workload, to idle, or to unused commitment.

A node-hour is split by GPU time held on that node in that hour; what nobody held is idle. The parts sum to the bill exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.ledger.arrays import FloatArray, IntArray, apportion_groups
from trimtab.ledger.billing import Bill

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
        """Return the cost of node time that nobody held."""
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
    """Split a bill over its holdings; raises ValueError where billed node time has no holder, not even idle."""
    hours = bill.metered.shape[1]
    group = holdings.pool * hours + holdings.hour
    order = np.argsort(group, kind="stable")
    parts = apportion_groups(bill.effective().reshape(-1), group[order], holdings.node_seconds[order])
    cost = np.empty_like(parts)
    cost[order] = parts
    return Allocation(holdings=holdings, cost=cost, unused_commitment=bill.unused)
