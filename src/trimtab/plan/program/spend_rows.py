"""The rows of one spend plan: what it covers of each pool takes of its spend, which is bought or stands."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trimtab.fleet.model import FloatArray, IntArray
from trimtab.plan.program.highs import INFINITY, Program


class SpendRows:
    """The rows `sum_p rate[p] y[p,t] <= s`, the columns y[p,t] and, where the plan is on offer, s.

    A node-hour of a pool costs its balance price where a plan covers it, so that a dollar of spend in a period is worth what
    the pool that returns most for it would pay: `price / rate`, the least price of the row that leaves no gain in y.
    """

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
        rows = np.array([program.add_row(-INFINITY, owned_usd_hr or 0.0) for _ in range(periods)])
        for place, rate in rates_usd_hr.items():
            covered = np.array([program.add_column(0.0) for _ in range(periods)])
            program.put(balance[place], covered, -1.0)
            program.put(rows, covered, rate)
        if owned_usd_hr is None:
            program.put(rows, program.add_column(float(hours)), -1.0)

    def make_feasible(self, prices: list[FloatArray]) -> None:
        """Scale the balance prices of its pools, in place, so that spend cannot gain: a dollar an hour costs its hours."""
        if self._owned_usd_hr is None:
            worth = float(self._worth(prices).sum())
            for place in self._rates_usd_hr if worth > self._hours else ():
                prices[place] = prices[place] * (self._hours / worth)

    def covered_by_owned(self, prices: list[FloatArray]) -> float:
        """Return what the spend of an owned plan is worth at feasible balance prices, dollars; 0 for one on offer."""
        return float(self._worth(prices).sum()) * (self._owned_usd_hr or 0.0)

    def _worth(self, prices: list[FloatArray]) -> FloatArray:
        return np.asarray(
            np.max([prices[place] / rate for place, rate in self._rates_usd_hr.items()], axis=0), dtype=np.float64
        )
