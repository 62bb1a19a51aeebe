"""The largest share of all node-hours that may be on spot, whoever of the workloads uses it.

    spot_share: sum_o excess[o] x[o] + sum_g excess[g] z[g] - over <= 0

An option's excess is its node-hours on spot less the allowed share of all its node-hours (`spot_max_frac`). Every pool counts,
also those whose use costs a fixed sum, so that the row holds one number an option, over the whole window. What goes over has a
price above anything that it could save (`EXCESS_PRICE`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.plan.problem import Problem
from trimtab.plan.program.couplings.parts import (
    EXCESS_PRICE,
    Coefficients,
    Limit,
    LimitUse,
    NodePrices,
    RowInputs,
    Sharing,
    TriedUse,
    Uses,
)
from trimtab.plan.program.couplings.shared_nodes import nodes_alone
from trimtab.plan.program.highs import INFINITY
from trimtab.units import S_PER_HR, usd

_NEAR = 0.1
"""A spot share that leaves less than this share of its limit unused stands at it: nodes are whole."""


@dataclass(frozen=True, slots=True)
class SpotLimit:
    """The limit on spot (a `Limit`): a share of node-hours."""

    max_frac: float

    @property
    def words(self) -> str:
        """Name it."""
        return f"the spot limit of {self.max_frac:.0%} of node-hours"

    def used(self, usage: Mapping[Pool, IntArray]) -> LimitUse:
        """Return the share of a use that is on spot."""
        spot, everything = _node_seconds(usage)
        share = spot / everything if everything else 0.0
        return LimitUse(words=self.words, limit=self.max_frac, used=share, binds=share >= (1 - _NEAR) * self.max_frac)

    def is_broken(self, usage: Mapping[Pool, IntArray]) -> bool:
        """Return whether a larger share of a use is on spot."""
        spot, everything = _node_seconds(usage)
        return spot > self.max_frac * everything

    def lifted(self, problem: Problem) -> Problem:
        """Return a problem without it."""
        return replace(problem, spot_max_frac=None)


def spot_limits_in(problem: Problem) -> list[SpotLimit]:
    """Return the limit on spot of a problem, if it has one."""
    return [] if problem.spot_max_frac is None else [SpotLimit(problem.spot_max_frac)]


def _is_spot(pool: Pool) -> bool:
    return pool.capacity == CapacityType.SPOT.value


def _node_seconds(usage: Mapping[Pool, IntArray]) -> tuple[int, int]:
    """Return a use's node-seconds on spot and in all."""
    spot = sum(int(use.sum()) for pool, use in usage.items() if _is_spot(pool))
    return spot, sum(int(use.sum()) for use in usage.values())


def spot_excess_hr(problem: Problem, uses: Sequence[Uses], sharing: Sequence[Sharing]) -> FloatArray:
    """Return the node-hours of each use (n_uses,) on spot beyond the allowed share; 0 where spot is not limited.

    Shared nodes count as the whole ones that each sharer would need alone. They are never on spot, and alone their sharers need
    no fewer of them than together, so that the row allows no less spot than the exact share does.
    """
    excess = np.zeros(len(uses))
    allowed = problem.spot_max_frac
    if allowed is None:
        return excess
    for row, use in enumerate(uses):
        # spot counts 1 - allowed and all else -allowed: the sum is above 0 where the share is exceeded
        for pool, seconds in use.items():
            excess[row] += (float(_is_spot(pool)) - allowed) * float(seconds.sum()) / S_PER_HR
    for shared in sharing:
        excess[shared.rows] += (float(_is_spot(shared.site.pool)) - allowed) * nodes_alone(shared).sum(axis=1)
    return excess


class SpotShareRow:
    """The one row of the limit on spot, where there is one, with the column of what goes over."""

    def __init__(self, inputs: RowInputs, excess_hr: FloatArray) -> None:
        """Add it; `excess_hr` (n_table_rows,) is each table row's part in it."""
        self._excess_hr = excess_hr
        self.excess: dict[Limit, list[int]] = {}
        """The column that breaks the limit where it is above 0."""
        self._line: int | None = None
        for limit in spot_limits_in(inputs.problem):
            self._line = inputs.program.add_row(-INFINITY, 0.0)
            dearest = usd(max(inputs.problem.rates_micro_usd_hr.values(), default=0))
            # priced by the most expensive pool, so that no saved node-hour pays for an excess
            over = inputs.program.add_column(EXCESS_PRICE * dearest)
            inputs.program.put(self._line, over, -1.0)
            self.excess[limit] = [over]

    def coefficients(self, row: int) -> Coefficients:
        """Yield the row that a table row's column is in."""
        if self._line is not None:
            yield np.array([self._line]), self._excess_hr[row : row + 1]

    def price_options(self, duals: FloatArray, prices: NodePrices, value_usd: FloatArray) -> None:
        """Add what each table row pays for its node-hours on spot, or gains for others'."""
        if self._line is not None:
            value_usd += max(-float(duals[self._line]), 0.0) * self._excess_hr


class SpotBreach:
    """By how much use breaks the limit on spot."""

    def __init__(self, problem: Problem) -> None:
        self._max_frac = problem.spot_max_frac

    def breach_hr(self, tried: TriedUse) -> FloatArray | float:
        """Return the node-hours on spot beyond the allowed share of all."""
        if self._max_frac is None:
            return 0.0
        hours = [(_is_spot(pool), added.sum(axis=1) / S_PER_HR) for pool, added in tried.added.items()]
        all_hr = sum((hr for _, hr in hours), start=np.zeros(1))
        spot_hr = sum((hr for is_spot, hr in hours if is_spot), start=np.zeros(1))
        now_spot, now_all = (seconds / S_PER_HR for seconds in _node_seconds(tried.present))
        # The first option tried is the present one: the use changes by what the others add more than it.
        spot_hr, all_hr = now_spot + (spot_hr - spot_hr[0]), now_all + (all_hr - all_hr[0])
        return np.asarray(np.maximum(spot_hr - self._max_frac * all_hr, 0.0), dtype=np.float64)
