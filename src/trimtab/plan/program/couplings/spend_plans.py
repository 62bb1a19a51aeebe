"""Commitments to spend: a sum an hour that covers nodes of several of a provider's pools, each at its own rate.

    spend[k,t]: sum_p rate[k,p] y[k,p,t] <= s[k]

s[k] is bought where plan k is on offer and stands where it is owned; y[k,p,t] are the nodes of pool p that it covers, part of
what pays for them in `balance[p,t]`. What an hour does not use is lost, so that a plan couples its pools within the hour and
their hours are gathered together. Providers apply a plan to the highest discount first (`ledger.commitments`), which is what
the program would do. A node-hour of a pool costs its balance price where a plan covers it, so that a dollar of spend in a
period is worth what the pool that returns most for it would pay: `price / rate`, the least price of the row that leaves no gain
in y.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.ledger import Commitment
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.ledger.commitments import cover
from trimtab.plan.problem import Problem
from trimtab.plan.program.couplings.node_commitments import HeldNodeCommitments
from trimtab.plan.program.couplings.parts import CountingRows, NodePrices, RowInputs, Uses
from trimtab.plan.program.highs import INFINITY, Program
from trimtab.units import usd


def cut_together(problem: Problem) -> dict[Pool, str]:
    """Return the pools that must share their periods, each with the name of its set: the provider, whose spend couples them."""
    return {pool: pool.provider for pool in problem.spend_pools}


class SpendPlanRows:
    """The rows and columns of every spend plan, on offer or owned, that covers a tracked pool."""

    def __init__(self, inputs: RowInputs, paying: CountingRows) -> None:
        """Add them; `paying` are the rows that pay for nodes, which plans help with."""
        problem = inputs.problem
        plans: list[tuple[Mapping[Pool, int], float | None]] = [
            (offer.rates_micro_usd_hr, None) for offer in problem.spend_offers
        ]
        plans += [
            (commitment.offer.rates_micro_usd_hr, usd(commitment.micro_usd_hr)) for commitment in problem.owned_spend
        ]
        place_of = {tracked.pool: place for place, tracked in enumerate(inputs.tracked)}
        self._plans = []
        for rates, owned_usd_hr in plans:
            covered = {place_of[pool]: usd(rate) for pool, rate in sorted(rates.items()) if pool in place_of}
            if covered:
                balance = {place: paying.lines(place) for place in covered}
                self._plans.append(
                    _PlanRows(inputs.program, covered, balance, hours=problem.hours, owned_usd_hr=owned_usd_hr)
                )

    def price_nodes(self, duals: FloatArray, prices: NodePrices) -> None:
        """Scale the prices that are set so that no plan's spend can gain; scaled down, they stay feasible for all else."""
        for plan in self._plans:
            plan.make_feasible(prices.paid)

    def paid_anyway_usd(self, prices: NodePrices) -> float:
        """Return what the spend of owned plans is worth at final prices."""
        return sum(plan.covered_by_owned_usd(prices.paid) for plan in self._plans)


class _PlanRows:
    """One plan's rows `sum_p rate[p] y[p,t] <= s`, the columns y[p,t] and, where the plan is on offer, s."""

    def __init__(
        self,
        program: Program,
        rates_usd_hr: Mapping[int, float],
        balance: Mapping[int, IntArray],
        *,
        hours: int,
        owned_usd_hr: float | None,
    ) -> None:
        """Add them; `rates_usd_hr` and `balance` are by place of the tracked pool, whose periods are the same.

        `owned_usd_hr` is the spend of a plan that is held already, None for one on offer.
        """
        self._rates_usd_hr = rates_usd_hr
        self._hours = hours
        self._owned_usd_hr = owned_usd_hr
        periods = len(next(iter(balance.values())))
        # the spend of an owned plan is a number, that of one on offer a column
        lines = np.array([program.add_row(-INFINITY, owned_usd_hr or 0.0) for _ in range(periods)])
        for place, rate in rates_usd_hr.items():
            # covering is free: the spend is paid whether used or not
            covered = np.array([program.add_column(0.0) for _ in range(periods)])
            program.put(balance[place], covered, -1.0)
            program.put(lines, covered, rate)
        if owned_usd_hr is None:
            # a dollar an hour is paid in every hour of the window
            program.put(lines, program.add_column(float(hours)), -1.0)

    def make_feasible(self, paid: list[FloatArray]) -> None:
        """Scale the prices of its pools, in place, so that spend cannot gain: a dollar an hour costs its hours."""
        if self._owned_usd_hr is None:
            worth = float(self._worth(paid).sum())
            # only ever scaled down: lower prices stay feasible for all rows set before
            for place in self._rates_usd_hr if worth > self._hours else ():
                paid[place] = paid[place] * (self._hours / worth)

    def covered_by_owned_usd(self, paid: list[FloatArray]) -> float:
        """Return what the spend of an owned plan is worth at feasible prices; 0 for one on offer."""
        return float(self._worth(paid).sum()) * (self._owned_usd_hr or 0.0)

    def _worth(self, paid: list[FloatArray]) -> FloatArray:
        """Return what a dollar of spend replaces at most in each period (n_periods,)."""
        return np.asarray(
            np.max([paid[place] / rate for place, rate in self._rates_usd_hr.items()], axis=0), dtype=np.float64
        )


class HeldSpendPlans:
    """Spend plans, owned and bought, that stand while options are tried."""

    def __init__(self, problem: Problem, nodes: HeldNodeCommitments) -> None:
        """Begin with none bought; `nodes` cover before them."""
        self._rates = problem.rates_micro_usd_hr
        self._owned = problem.owned_spend
        self._nodes = nodes
        self.hold(())

    def hold(self, bought: Iterable[Commitment]) -> None:
        """Hold what is bought; owned plans apply first."""
        self._plans = (*self._owned, *(commitment for commitment in bought if commitment.offer.is_spend))
        self._covered = frozenset(pool for plan in self._plans for pool in plan.offer.rates_micro_usd_hr)

    def take(self, left: dict[Pool, IntArray], present: Uses) -> None:
        """Take what the plans cover: what one pool no longer takes of a plan's spend, another of the provider may."""
        touched = [pool for pool in left if pool in self._covered]
        for provider in sorted({pool.provider for pool in touched}):
            plans = [plan for plan in self._plans if plan.offer.provider == provider]
            # pools that no option touches may take what a touched one leaves of the spend
            pools = sorted(pool for pool in self._covered if pool.provider == provider and pool in {*left, *present})
            shape = next(left[pool].shape for pool in touched if pool.provider == provider)
            uncovered = np.empty((len(pools), *shape), dtype=np.int64)
            for at, pool in enumerate(pools):
                uncovered[at] = left[pool] if pool in left else self._nodes.uncovered(pool, present[pool])
            # owned plans first, as the ledger applies them
            for plan in plans:
                uncovered -= cover(plan, pools, uncovered, self._rates)
            left.update(zip(pools, uncovered, strict=True))
