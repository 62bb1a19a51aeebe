"""Generated planning problems in our own form: options per workload, shared nodes, commitments, whole nodes hour by hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool
from trimtab.ledger import CommitmentOffer
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.plan.problem import NodeGroup, Option, Problem
from trimtab.plan.program.table import total_usage
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, MICRO_PER_USD, S_PER_HR

HOURS = 30 * HR_PER_DAY
TYPES = 12
SPOT_FRAC = 0.38
COMMITTED_FRAC = 0.62
SPEND_1Y_FRAC, SPEND_3Y_FRAC = (0.65, 0.78), (0.55, 0.75)
"""What a spend plan of one year and of three asks of the on-demand rate, low to high over the types."""
QUOTA_FRAC = 0.9
SPOT_MAX_FRAC = 0.2
SHARED_EVERY = 8
"""One workload in so many shares its present nodes with the one before it."""


def generated(workloads: int, options: int, *, seed: int = 0, hours: int = HOURS) -> Problem:
    """Draw a fleet: services with a daily and weekly rhythm, noise, growth or decline, on whole nodes of a dozen types.

    An option is a type, a capacity type and a policy (at peak, or following the demand by the hour); prices per unit of
    work scatter by a third, as between GPU generations.
    """
    rng = np.random.default_rng(seed)
    rate_usd_hr = rng.uniform(0.5, 40, TYPES)
    speed = rate_usd_hr * rng.lognormal(0, 0.3, TYPES)
    pools = [Pool("aws", f"type-{number}.large", "region-1") for number in range(TYPES)]
    rates = {pool: int(rate * MICRO_PER_USD) for pool, rate in zip(pools, rate_usd_hr, strict=True)}
    rates |= {pool.held_as(CapacityType.SPOT): int(rates[pool] * SPOT_FRAC) for pool in pools}
    rows, groups = [], []
    for workload in range(workloads):
        demand = _demand(rng, hours)
        row, present = _options(rng, demand, speed, pools, options)
        shared = workload % SHARED_EVERY == SHARED_EVERY - 1
        rows.append(row)
        groups.append(NodeGroup(usage=present, holders=frozenset({workload, workload - 1} if shared else {workload})))
    return Problem(
        options=tuple(rows),
        groups=tuple(groups),
        rates_micro_usd_hr=rates,
        offers=tuple(
            CommitmentOffer(
                option=BuyingOption.RESERVED_1Y, rates_micro_usd_hr={pool: int(rates[pool] * COMMITTED_FRAC)}
            )
            for pool in pools
        ),
        hours=hours,
    )


def with_spend(problem: Problem, *, terms: int = 1, seed: int = 0) -> Problem:
    """Return a problem where the provider also sells spend, for one year or also for three, cheaper on most types, not all."""
    rng = np.random.default_rng(seed)
    on_demand = {
        pool: rate
        for pool, rate in sorted(problem.rates_micro_usd_hr.items())
        if pool.capacity_type is CapacityType.ON_DEMAND
    }
    sold = ((BuyingOption.SAVINGS_PLAN_3Y, SPEND_3Y_FRAC), (BuyingOption.SAVINGS_PLAN_1Y, SPEND_1Y_FRAC))[-terms:]
    offers = [
        CommitmentOffer(
            option=option, rates_micro_usd_hr={pool: int(rate * rng.uniform(*frac)) for pool, rate in on_demand.items()}
        )
        for option, frac in sold
    ]
    return replace(problem, offers=(*problem.offers, *offers))


def limited(problem: Problem, choice: Sequence[int]) -> Problem:
    """Return a problem with quotas at 90 % of a choice's peak on every other pool, and at most 20 % of node-hours on spot."""
    peaks = {pool: int(seconds.max()) // S_PER_HR for pool, seconds in total_usage(problem, choice).items()}
    quotas = {pool: int(peaks[pool] * QUOTA_FRAC) for pool in sorted(peaks)[::2]}
    return replace(problem, quotas=quotas, spot_max_frac=SPOT_MAX_FRAC)


def tiny(seed: int) -> Problem:
    """Draw a fleet small enough to try every choice: up to three workloads with three options, shared nodes, commitments."""
    rng = np.random.default_rng(seed)
    hours, workloads = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    pools = [Pool("aws", name, "region-1") for name in ("a.large", "b.large")]
    known = [*pools, pools[0].held_as(CapacityType.SPOT)]
    rates = {pool: int(rng.integers(100_000, 9_000_000)) for pool in known}
    offered = [pool for pool in pools if rng.random() < 0.6]

    def use(most: int) -> dict[Pool, IntArray]:
        chosen = rng.permutation(len(known))[: int(rng.integers(1, most + 1))]
        return {known[at]: rng.integers(0, 4, hours) * (S_PER_HR // 2) for at in sorted(chosen.tolist())}

    return Problem(
        options=tuple(tuple(Option(usage=use(2)) for _ in range(int(rng.integers(0, 4)))) for _ in range(workloads)),
        groups=tuple(
            NodeGroup(
                usage=use(1),
                holders=frozenset(rng.permutation(workloads)[: int(rng.integers(1, workloads + 1))].tolist()),
            )
            for _ in range(int(rng.integers(1, 4)))
        ),
        rates_micro_usd_hr=rates,
        offers=tuple(
            CommitmentOffer(
                option=BuyingOption.RESERVED_1Y, rates_micro_usd_hr={pool: int(rates[pool] * rng.uniform(0.3, 0.9))}
            )
            for pool in offered
        ),
        hours=hours,
    )


def _demand(rng: np.random.Generator, hours: int) -> FloatArray:
    """Return work per hour: a level, a day, a quieter weekend, a trend over the window, noise."""
    hour = np.arange(hours)
    day = 1 + rng.uniform(0, 0.9) * np.sin(2 * np.pi * (hour / HR_PER_DAY + rng.random()))
    weekend = np.where(hour // HR_PER_DAY % DAYS_PER_WEEK >= DAYS_PER_WEEK - 2, rng.uniform(0.3, 1.0), 1.0)
    trend = np.linspace(1, rng.uniform(0.7, 1.5), hours)
    return np.asarray(rng.lognormal(3, 1.2) * day * weekend * trend * rng.lognormal(0, 0.1, hours), dtype=np.float64)


def _options(
    rng: np.random.Generator, demand: FloatArray, speed: FloatArray, pools: list[Pool], options: int
) -> tuple[tuple[Option, ...], dict[Pool, IntArray]]:
    """Return a workload's options and its present nodes: a static peak of a type drawn at random."""
    made: list[Option] = []
    mine = speed * rng.lognormal(0, 0.25, len(speed))
    while len(made) < options:
        at = int(rng.integers(len(pools)))
        nodes = np.ceil(demand * rng.uniform(1.0, 1.3) / mine[at])
        if rng.random() < 0.5:
            nodes = np.full_like(nodes, np.ceil(np.quantile(nodes, 0.999)))
        capacity = CapacityType.SPOT if rng.random() < 0.3 else CapacityType.ON_DEMAND
        penalty = rng.uniform(1.2, 2.6) if capacity is CapacityType.SPOT else 1.0
        seconds = np.asarray(np.ceil(nodes * penalty) * S_PER_HR, dtype=np.int64)
        made.append(Option(usage={pools[at].held_as(capacity): seconds}))
    home = int(rng.integers(len(pools)))
    peak = int(np.ceil(demand.max() * 1.3 / mine[home])) * S_PER_HR
    return tuple(made), {pools[home]: np.full(len(demand), peak, dtype=np.int64)}
