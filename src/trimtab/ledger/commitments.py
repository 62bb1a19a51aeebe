"""Commitment discounts as FOCUS has them, to nodes (its usage) and to spend: what they cost and cover, and how much is best.

Both are paid every hour, used or not, and take node time at rates of their own. One to nodes covers whole nodes of one pool, as
instance reservations do. One to spend buys node time of many pools, those with the highest discount first, the lowest rate
first among equals; what an hour does not use is lost. AWS' words (Savings Plans User Guide, "How Savings Plans apply to your
usage"); Azure's savings plans and Google's spend-based commitments are billed alike.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.ledger.arrays import IntArray, charge
from trimtab.units import S_PER_HR


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentOffer:
    """A commitment that is sold: its option, which says whether to nodes or to spend, and its rates."""

    option: BuyingOption
    rates_micro_usd_hr: Mapping[Pool, int]
    """What an hour of a pool's nodes takes of it: of one pool where it commits to nodes. Others are not covered."""

    def __post_init__(self) -> None:
        rates = self.rates_micro_usd_hr
        if any(pool.capacity_type is not CapacityType.ON_DEMAND for pool in rates):
            raise ValueError(f"a commitment covers on-demand nodes, not {', '.join(map(str, rates))}")
        if len({pool.provider for pool in rates}) > 1:
            raise ValueError("a commitment is one provider's")
        if self.is_spend and min(rates.values(), default=1) <= 0:
            raise ValueError("the rates of a commitment to spend must be above 0")
        if not self.is_spend and (len(rates) != 1 or min(rates.values()) < 0):
            raise ValueError("a commitment to nodes covers one pool, at a rate that is not negative")

    @property
    def is_spend(self) -> bool:
        """Return whether it commits to spend so much an hour, and not to nodes of one pool."""
        return self.option.commits_spend

    @property
    def provider(self) -> str:
        """Return whose it is; empty if it covers nothing."""
        return next((pool.provider for pool in self.rates_micro_usd_hr), "")

    @property
    def pool(self) -> Pool:
        """Return the pool of a commitment to nodes."""
        (pool,) = self.rates_micro_usd_hr
        return pool

    @property
    def rate_micro_usd_hr(self) -> int:
        """Return what a node costs an hour under a commitment to nodes."""
        return self.rates_micro_usd_hr[self.pool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """A commitment that is held or bought: so much of an offer."""

    offer: CommitmentOffer
    quantity: int
    """In the offer's unit, as FOCUS has it: whole nodes, or micro-dollars of spend an hour."""

    def __post_init__(self) -> None:
        if self.quantity < 0:
            raise ValueError("a commitment's quantity must not be negative")

    @property
    def micro_usd_hr(self) -> int:
        """Return what it costs an hour, used or not."""
        return self.quantity * (1 if self.offer.is_spend else self.offer.rate_micro_usd_hr)


def nodes_committed(commitments: Iterable[Commitment]) -> dict[Pool, int]:
    """Return the nodes that commitments to nodes cover, by pool."""
    nodes: dict[Pool, int] = {}
    for commitment in commitments:
        if not commitment.offer.is_spend:
            nodes[commitment.offer.pool] = nodes.get(commitment.offer.pool, 0) + commitment.quantity
    return nodes


def order_of_application(plan_rates: Mapping[Pool, int], on_demand: Mapping[Pool, int]) -> tuple[Pool, ...]:
    """Return the pools that spend covers in the order in which it does: highest discount first, then lowest rate.

    It is also the order that saves most for any spend: each dollar goes where it replaces most on-demand dollars. Pools
    without a rate on demand have no discount, and are left out.
    """
    known = [pool for pool in plan_rates if pool in on_demand]
    return tuple(sorted(known, key=lambda pool: (plan_rates[pool] / max(on_demand[pool], 1), plan_rates[pool], pool)))


def cover(commitment: Commitment, pools: Sequence[Pool], left: IntArray, on_demand: Mapping[Pool, int]) -> IntArray:
    """Return the node-seconds of each pool and hour that a commitment covers, given those still uncovered.

    Both are (n_pools, ..., n_hours): several uses may be asked about at once. Whole seconds, never above the spend of an
    hour: the price of less than one second may stay unused.
    """
    offer, covered = commitment.offer, np.zeros_like(left)
    row_of = {pool: row for row, pool in enumerate(pools)}
    if not offer.is_spend:
        if offer.pool in row_of:
            row = row_of[offer.pool]
            covered[row] = np.minimum(left[row], commitment.quantity * S_PER_HR)
        return covered
    spend = np.full(left.shape[1:], commitment.quantity, dtype=np.int64)
    for pool in order_of_application(offer.rates_micro_usd_hr, on_demand):
        if pool in row_of:
            row, rate = row_of[pool], offer.rates_micro_usd_hr[pool]
            covered[row] = np.minimum(left[row], spend * S_PER_HR // rate)
            spend -= charge(rate, covered[row])
    return covered


def best_count(node_seconds: IntArray, on_demand_micro_usd_hr: int, committed_micro_usd_hr: int) -> int:
    """Return the number of committed nodes that makes the bill of known use (n_hours,) least; the smallest on ties.

    The cost is convex in the count, so the first count whose next unit does not pay is the optimum. For whole nodes this
    is the newsvendor rule: the k-th unit pays if and only if it is used in more than committed/on-demand of the hours.
    """
    most = int(np.ceil(node_seconds.max(initial=0) / S_PER_HR))
    unit = committed_micro_usd_hr * S_PER_HR * len(node_seconds)

    def pays_no_more(count: int) -> bool:
        used = np.clip(node_seconds - count * S_PER_HR, 0, S_PER_HR)
        return int(used.sum()) * on_demand_micro_usd_hr <= unit

    # no unit is used for longer than the one before it, so that those that pay come first
    return bisect_left(range(most), True, key=pays_no_more)


def spend_needed(plan_rates: Mapping[Pool, int], pools: Sequence[Pool], left: IntArray) -> IntArray:
    """Return the spend that would cover all of a use, micro-dollars by hour (n_hours,)."""
    needed = np.zeros(left.shape[1], dtype=np.int64)
    for row, pool in enumerate(pools):
        if pool in plan_rates:
            needed += charge(plan_rates[pool], left[row])
    return needed


def best_spend(
    plan_rates: Mapping[Pool, int], pools: Sequence[Pool], left: IntArray, on_demand: Mapping[Pool, int]
) -> int:
    """Return the spend an hour (micro-dollars) that makes the bill of known use least; the smallest on ties.

    One more dollar of it costs a dollar in every hour and replaces on-demand/rate dollars of the pool that is next in line
    in each hour, so the bill is convex and piecewise linear in the spend. Its corners are where an hour's spend
    has covered a pool whole: the first corner beyond which a dollar replaces less than it costs is the best.
    """
    corners = spend_corners(plan_rates, pools, left, on_demand)
    if not corners.size:
        return 0
    order = [pool for pool in order_of_application(plan_rates, on_demand) if pool in pools]
    worth = np.array([on_demand[pool] / plan_rates[pool] for pool in order])
    lost = np.repeat((worth - np.append(worth[1:], 0.0))[:, None], left.shape[1], axis=1)
    at, loss = corners.reshape(-1), lost.reshape(-1)
    by_spend = np.argsort(at, kind="stable")
    slope = worth[0] * left.shape[1] - np.cumsum(loss[by_spend]) - left.shape[1]
    ends = np.flatnonzero(slope <= _FLAT * left.shape[1])
    return 0 if worth[0] <= 1 else int(at[by_spend[ends[0]]])


def spend_corners(
    plan_rates: Mapping[Pool, int], pools: Sequence[Pool], left: IntArray, on_demand: Mapping[Pool, int]
) -> IntArray:
    """Return the spends at which each hour is covered up to each pool, in the order in which the plan applies to them.

    Shape (n_covered_pools, n_hours), micro-dollars an hour, ascending along the pools; rounded up, so that no second is
    left uncovered because of rounding.
    """
    row_of = {pool: row for row, pool in enumerate(pools)}
    order = [pool for pool in order_of_application(plan_rates, on_demand) if pool in row_of]
    costs = np.array([-(-left[row_of[pool]] * plan_rates[pool] // S_PER_HR) for pool in order], dtype=np.int64)
    return np.asarray(np.cumsum(costs.reshape(len(order), left.shape[1]), axis=0), dtype=np.int64)


_FLAT = 1e-9
"""A slope this small, per hour, is rounding: a dollar more replaces just a dollar."""
