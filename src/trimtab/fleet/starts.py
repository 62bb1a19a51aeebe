"""How long starts took in a fleet's own history: until a pod got a node that began for it, and from its node to ready.

Both are read off the pods that a cluster knew when it was read, which are those that ran then or had ended shortly before. The
wait for a node lasts from a pod's creation to its place on a node that began in between, so that the time in which no node
could be had is in it; pods of a queue (Kueue, Volcano) are left out, since nobody knows how long that kept them. Runs of
`jobs` do not tell the start of their node from their time in a queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

POD_COLUMNS = ("workload", "node", "gpus", "created", "scheduled", "ready", "queue")
NODE_COLUMNS = ("node", "start")
SLOW_FRAC = 0.9
"""Starts beyond this quantile are the slowest tenth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStarts:
    """How long starts take where all are as slow as the slowest tenth measured; what was not measured is not there."""

    node_s: float | None = None
    own_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    """From its node to ready, by workload: the image, and the load of a model."""

    def run_start_s(self, workload: str, planned_s: float) -> float:
        """Return how long a run takes from asking for a node to its work; never less than planned."""
        return max(planned_s, (self.node_s or 0.0) + self.own_s.get(workload, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStarts:
    """Every start that was measured, in seconds."""

    node_s: tuple[float, ...] = ()
    own_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By workload."""

    @property
    def slow(self) -> SlowStarts:
        """Return the least of the slowest tenth of each; of fewer than ten, the slowest."""
        return SlowStarts(
            node_s=_slow(self.node_s) if self.node_s else None,
            own_s={name: _slow(starts) for name, starts in self.own_s.items()},
        )


def _slow(starts: Sequence[float]) -> float:
    return float(np.quantile(starts, SLOW_FRAC, method="higher"))


def measured_starts(pods: pa.Table, nodes: pa.Table) -> MeasuredStarts:
    """Return the starts that a history tells; `pods` has POD_COLUMNS, `nodes` NODE_COLUMNS."""
    begun = defaultdict(list)
    for row in nodes.to_pylist():
        begun[row["node"]].append(row["start"])
    node_s: list[float] = []
    own_s: dict[str, list[float]] = defaultdict(list)
    for row in pods.to_pylist():
        created, scheduled, ready = row["created"], row["scheduled"], row["ready"]
        if scheduled is None or not row["gpus"]:
            continue
        if not row["queue"] and any(created < start <= scheduled for start in begun[row["node"]]):
            node_s.append((scheduled - created).total_seconds())
        if ready is not None and ready >= scheduled:
            own_s[row["workload"]].append((ready - scheduled).total_seconds())
    return MeasuredStarts(
        node_s=tuple(sorted(node_s)), own_s={name: tuple(sorted(own_s[name])) for name in sorted(own_s)}
    )
