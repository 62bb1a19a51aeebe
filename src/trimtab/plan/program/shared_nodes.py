"""Shared nodes as rows of the joint program: the room that all workloads take of them, and the whole nodes that have it.

    shared[s,m,t]: sum_o room[o,s,m,t] / room[s,m] x[o] <= n[s,t]          for each measure m of a site's nodes
    floor[s,w,t]:  sum_{o of w} nodes[o,s,t] x[o] <= n[s,t]                for each workload w: what it would need alone

In gathered periods both are means over the hours gathered, so that what the exact bill rounds up, hour by hour, is never less:
the program stays a relaxation. Floors are implied by whole nodes and make the relaxation tight where few workloads share
(the strong form of facility location; Cornuejols, Nemhauser and Wolsey, 1990). n[s,t] is whole where a
period is one hour, or hours that are alike.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.fleet.model import FloatArray, IntArray
from trimtab.plan.program.highs import INFINITY, Program
from trimtab.plan.program.periods import GatheredSharing
from trimtab.plan.program.table import Sharing

_MAX_FLOORS = 20_000
"""Rows of floors per shared pool; beyond, so many workloads share that rounding up no longer matters."""
_MAX_WHOLE = 100
"""Periods per shared pool in which n is whole: more only slow the search down."""


class SharedNodes:
    """The rows of one shared pool, its columns n[s,t], and what they make of an option."""

    def __init__(
        self,
        program: Program,
        sharing: Sharing,
        gathered: GatheredSharing,
        *,
        workloads: IntArray,
        weight_hr: FloatArray,
        used_in: tuple[IntArray, ...],
    ) -> None:
        self.rows = sharing.rows
        self._gathered = gathered
        self._workloads = workloads
        self._at = {int(row): at for at, row in enumerate(sharing.rows)}
        periods = len(weight_hr)
        whole = (weight_hr == 1.0) | gathered.exact if periods <= _MAX_WHOLE else np.zeros(periods, dtype=bool)
        self._shared = np.array([[program.add_row(-INFINITY, 0.0) for _ in weight_hr] for _ in sharing.site.room])
        floored = sorted(set(workloads.tolist())) if periods * len(set(workloads.tolist())) <= _MAX_FLOORS else []
        self._floors = {
            workload: np.array([program.add_row(-INFINITY, 0.0) for _ in weight_hr]) for workload in floored
        }
        columns = np.array([program.add_column(0.0, integer=bool(one)) for one in whole])
        for lines in (*self._shared, *self._floors.values()):
            program.put(lines, columns, -1.0)
        for lines in used_in:
            if len(lines):
                program.put(lines, columns, 1.0)

    def coefficients(self, row: int) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield the rows that an option's column stands in, with its coefficients."""
        at = self._at.get(row)
        if at is None:
            return
        yield from zip(self._shared, self._gathered.nodes[at], strict=True)
        floor = self._floors.get(int(self._workloads[at]))
        if floor is not None:
            yield floor, self._gathered.whole[at]

    def value(self, duals: FloatArray, node_price: FloatArray) -> FloatArray:
        """Return what each option's slots cost (n_rows,) at prices that leave no gain in n[s,t].

        `node_price` (n_periods,) is the price of a node in the rows of its pool: what the slots and floors of a period may
        sum to at most.
        """
        room = np.maximum(-duals[self._shared], 0.0)
        floors = {workload: np.maximum(-duals[lines], 0.0) for workload, lines in self._floors.items()}
        total = room.sum(axis=0) + sum(floors.values(), start=0 * node_price)
        scale = np.minimum(1.0, node_price / np.maximum(total, 1e-300))
        value = np.einsum("rmt,mt->r", self._gathered.nodes, room * scale)
        for workload, price in floors.items():
            mine = np.flatnonzero(self._workloads == workload)
            value[mine] += self._gathered.whole[mine] @ (price * scale)
        return np.asarray(value, dtype=np.float64)
