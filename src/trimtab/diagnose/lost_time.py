"""What stretches of GPU time cost: each is looked up in the bill by node, hour and holder, and nothing is counted twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.fleet.model import Fleet, FloatArray, IntArray
from trimtab.fleet.occupancy import cut_by_hour
from trimtab.ledger import IDLE, Allocation
from trimtab.ledger.arrays import apportion_groups

NOBODY = ""
"""The holder of GPU time that no workload held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostSpan:
    """GPUs of one node that one workload held (or NOBODY) from `start_s` to `end_s`, seconds since 1970."""

    finding: int
    """Number of the finding that it belongs to."""
    node: str
    holder: str
    gpus: float
    start_s: float
    end_s: float
    lost_frac: float = 1.0
    """Share of the time that was lost."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LostTime:
    """Parts of the bill (n_parts,): of which finding, of which cell of the allocation, how many micro-dollars."""

    finding: IntArray
    cell: IntArray
    micro_usd: IntArray

    def by_finding(self, findings: int) -> IntArray:
        """Return what each finding cost (findings,)."""
        summed = np.zeros(findings, dtype=np.int64)
        np.add.at(summed, self.finding, self.micro_usd)
        return summed


def lost_time(fleet: Fleet, allocation: Allocation, spans: Sequence[LostSpan]) -> LostTime:
    """Price spans from the bill of a fleet's window; what lies outside it, or was not billed to that holder, is left out.

    Spans that claim the same GPU time share it, so that the parts of a cell never exceed its cost.
    """
    cells = allocation.holdings
    names = {name: index for index, name in enumerate(dict.fromkeys(node.name for node in fleet.nodes))}
    owners = {workload.name: index for index, workload in enumerate(fleet.workloads)} | {NOBODY: IDLE}
    known = [span for span in spans if span.node in names and span.holder in owners]
    began_s = fleet.window.start.timestamp()
    cut = cut_by_hour(
        np.array([span.start_s - began_s for span in known], dtype=np.float64),
        np.array([span.end_s - began_s for span in known], dtype=np.float64),
        fleet.window,
    )
    slots = len(fleet.workloads) + 1

    def key(name: IntArray, hour: IntArray, owner: IntArray) -> IntArray:
        return np.asarray((name * fleet.window.hours + hour) * slots + owner + 1, dtype=np.int64)

    name_of_node = np.array([names[node.name] for node in fleet.nodes], dtype=np.int64)
    of_cell = key(name_of_node[cells.node], cells.hour, cells.owner)
    order = np.argsort(of_cell, kind="stable")
    asked = key(
        np.array([names[span.node] for span in known], dtype=np.int64)[cut.index],
        cut.hour,
        np.array([owners[span.holder] for span in known], dtype=np.int64)[cut.index],
    )
    at = np.minimum(np.searchsorted(of_cell[order], asked), max(len(order) - 1, 0))
    found = of_cell[order][at] == asked if len(order) else np.zeros(len(asked), dtype=np.bool_)
    cell = order[at[found]] if len(order) else np.zeros(0, dtype=np.int64)
    taken = np.array([span.gpus * span.lost_frac for span in known], dtype=np.float64)[cut.index] * cut.seconds
    finding = np.array([span.finding for span in known], dtype=np.int64)[cut.index]
    return _shared(fleet, allocation, cell, taken[found], finding[found])


def _shared(
    fleet: Fleet, allocation: Allocation, cell: IntArray, gpu_seconds: FloatArray, finding: IntArray
) -> LostTime:
    """Divide what each cell lost among those that claim it (n_claims,)."""
    gpus = np.array([node.gpu_count for node in fleet.nodes], dtype=np.float64)
    cells = allocation.holdings
    held = cells.node_seconds * gpus[cells.node]
    order = np.argsort(cell, kind="stable")
    cell, gpu_seconds, finding = cell[order], gpu_seconds[order], finding[order]
    claimed, group = np.unique(cell, return_inverse=True)
    total = np.bincount(group, weights=gpu_seconds, minlength=len(claimed)).astype(np.float64)
    lost_frac = np.minimum(np.divide(total, held[claimed], out=np.ones_like(total), where=held[claimed] > 0), 1.0)
    micro = np.rint(allocation.cost[claimed] * lost_frac).astype(np.int64)
    return LostTime(finding=finding, cell=cell, micro_usd=apportion_groups(micro, group, gpu_seconds))
