"""The rows of what is paid once where any of several options is chosen, whoever's they are.

    linked[g,w]: sum_{o of w in g} x[o] <= z[g]        for each workload w with options in g

Held nodes (`retain`) and one-time costs (`enter`) both have this form. z[g] is a column of the program that belongs to no
workload; what it costs and uses stands in a table row of its own. Row by row and workload by workload, not summed over all, the
relaxation is as tight as single choices are: z is paid in full by the workload that has most of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.fleet.model import FloatArray, IntArray
from trimtab.plan.program.couplings.parts import Coefficients, NodePrices
from trimtab.plan.program.highs import INFINITY, Program


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinkedRow:
    """A table row that is paid once where any of these rows (by workload) is chosen."""

    row: int
    users: Mapping[int, IntArray]


class LinkedRows:
    """The rows of some linked table rows, one per table row and workload."""

    def __init__(self, program: Program, linked: Sequence[LinkedRow]) -> None:
        self._links: list[tuple[LinkedRow, dict[int, int]]] = []
        self._coefficients: dict[int, list[tuple[int, float]]] = {}
        for link in linked:
            # x - z <= 0
            lines = {workload: program.add_row(-INFINITY, 0.0) for workload in link.users}
            self._links.append((link, lines))
            self._coefficients[link.row] = [(line, -1.0) for line in lines.values()]
            for workload, line in lines.items():
                for row in link.users[workload].tolist():
                    self._coefficients.setdefault(row, []).append((line, 1.0))

    def coefficients(self, row: int) -> Coefficients:
        """Yield the rows that a table row's column stands in: as a user, or as what is paid."""
        known = self._coefficients.get(row)
        if known:
            yield np.array([line for line, _ in known], dtype=np.int64), np.array([value for _, value in known])

    def price_options(self, duals: FloatArray, prices: NodePrices, value_usd: FloatArray) -> None:
        """Add to each user what it pays of the shared sum, and take it off what is left of that."""
        for linked, lines in self._links:
            for workload, line in lines.items():
                # duals of `<=` rows are at most 0 in a minimisation; solvers may leave a tiny positive one
                share = max(-float(duals[line]), 0.0)
                # what users pay comes off what is paid once, so that in sum nothing is charged twice
                value_usd[linked.users[workload]] += share
                value_usd[linked.row] -= share
