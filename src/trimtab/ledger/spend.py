"""Commitments to spend: savings plans and spend-based discounts, in the order in which a provider applies them.

A plan pays a sum every hour and buys node time of many pools at its own rates, those with the highest discount first, the
lowest rate first among equals; what an hour does not use is lost. AWS' words (Savings Plans User Guide, "How Savings Plans
apply to your usage"); Azure's savings plans and Google's spend-based commitments are billed alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.ledger.arrays import IntArray, charge
from trimtab.units import S_PER_HR


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendPlan:
    """Spend paid every hour, and what an hour of each pool's nodes takes of it; pools without a rate are not covered."""

    option: BuyingOption
    spend_micro_usd_hr: int
    rates_micro_usd_hr: Mapping[Pool, int]

    def __post_init__(self) -> None:
        if self.spend_micro_usd_hr < 0 or min(self.rates_micro_usd_hr.values(), default=1) <= 0:
            raise ValueError("a plan's spend must not be negative, and its rates must be above 0")
        if any(pool.capacity_type is not CapacityType.ON_DEMAND for pool in self.rates_micro_usd_hr):
            raise ValueError("a spend plan covers on-demand nodes")
        if len({pool.provider for pool in self.rates_micro_usd_hr}) > 1:
            raise ValueError("a spend plan is one provider's")

    @property
    def provider(self) -> str:
        """Return whose plan it is; empty where it covers nothing."""
        return next((pool.provider for pool in self.rates_micro_usd_hr), "")


def order_of_application(plan_rates: Mapping[Pool, int], on_demand: Mapping[Pool, int]) -> tuple[Pool, ...]:
    """Return the pools that a plan covers in the order in which it does: highest discount first, then lowest rate.

    It is also the order that saves most for any spend: each dollar goes where it replaces most on-demand dollars.
    """
    known = [pool for pool in plan_rates if pool in on_demand]
    return tuple(sorted(known, key=lambda pool: (plan_rates[pool] / max(on_demand[pool], 1), plan_rates[pool], pool)))


def cover(plan: SpendPlan, pools: Sequence[Pool], left: IntArray, on_demand: Mapping[Pool, int]) -> IntArray:
    """Return the node-seconds of each pool and hour that a plan covers, given those still uncovered.

    Both are (n_pools, ..., n_hours): several uses may be asked about at once. Whole seconds, never above the spend of an
    hour: the price of less than one second may stay unused.
    """
    covered = np.zeros_like(left)
    row_of = {pool: row for row, pool in enumerate(pools)}
    spend = np.full(left.shape[1:], plan.spend_micro_usd_hr, dtype=np.int64)
    for pool in order_of_application(plan.rates_micro_usd_hr, on_demand):
        if pool in row_of:
            row, rate = row_of[pool], plan.rates_micro_usd_hr[pool]
            covered[row] = np.minimum(left[row], spend * S_PER_HR // rate)
            spend -= charge(rate, covered[row])
    return covered


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
    left uncovered for want of a part of a micro-dollar.
    """
    row_of = {pool: row for row, pool in enumerate(pools)}
    order = [pool for pool in order_of_application(plan_rates, on_demand) if pool in row_of]
    costs = np.array([-(-left[row_of[pool]] * plan_rates[pool] // S_PER_HR) for pool in order], dtype=np.int64)
    return np.asarray(np.cumsum(costs.reshape(len(order), left.shape[1]), axis=0), dtype=np.int64)


_FLAT = 1e-9
"""A slope this small, per hour, is rounding: a dollar more replaces just a dollar."""
