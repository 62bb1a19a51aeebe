"""The use of pools that couple workloads, option by option: by the hour, and in gathered periods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.pools import Pool, SharedPool, Site
from trimtab.fleet.model import FloatArray, IntArray
from trimtab.units import S_PER_HR

_CHUNK = 2_000
"""Rows gathered at a time, to keep memory small."""

Uses = Mapping[Pool, IntArray]
"""Node-seconds per pool and hour (n_hours,)."""
Slots = Mapping[SharedPool, IntArray]
"""Slots per shared pool and hour (n_hours,)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sharing:
    """Nodes that slots share: the table rows with any there (n,), and the room each takes per hour (n_measures, n_hours)."""

    site: Site
    rows: IntArray
    taken: tuple[IntArray, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tracked:
    """One pool that couples workloads: the table rows that use it (n,), and each one's node-seconds per hour."""

    pool: Pool
    rows: IntArray
    seconds: tuple[IntArray, ...]
    sharing: tuple[Sharing, ...] = ()
    cut_with: str = ""
    """Pools with the same are coupled within the hour: their hours are gathered together. Empty for one that is cut alone."""
    is_limited: bool = False
    """Its busiest hours matter one by one."""

    @property
    def users(self) -> tuple[IntArray, ...]:
        """Return the table rows that use it, on nodes of their own and in each shared pool."""
        return (self.rows, *(sharing.rows for sharing in self.sharing))

    @property
    def count(self) -> int:
        """Return how many rows of numbers that is."""
        return sum(len(rows) for rows in self.users)

    def node_hours(self) -> FloatArray:
        """Return each row's node-hours (n,)."""
        return np.array([float(use.sum()) for use in self.seconds]) / S_PER_HR

    def means(self, share: FloatArray) -> FloatArray:
        """Return mean nodes (n, n_periods) under `share` (n_hours, n_periods): each hour's share of its period."""
        mean = np.empty((len(self.seconds), share.shape[1]))
        for at in range(0, len(self.seconds), _CHUNK):
            mean[at : at + _CHUNK] = np.array(self.seconds[at : at + _CHUNK], dtype=np.float64) @ share
        return mean / S_PER_HR

    def peaks(self, order: IntArray, first: IntArray) -> FloatArray:
        """Return the most nodes (n, n_periods) in any hour; periods are runs of hours in `order`, beginning at `first`."""
        peak = np.empty((len(self.seconds), len(first)))
        for row, use in enumerate(self.seconds):
            peak[row] = np.maximum.reduceat(use[order], first)
        return peak / S_PER_HR


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GatheredSharing:
    """Shared nodes in gathered periods: each row's mean nodes' worth of room (n_rows, n_measures, n), and the whole nodes that
    it would need alone (n_rows, n)."""

    nodes: FloatArray
    whole: FloatArray
    exact: bool = False
    """Whether the hours of each period are alike in every row, so that means are what every hour holds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gathered:
    """One tracked pool in gathered periods: hours in each (n,), and the mean nodes of each of its table rows (n_rows, n)."""

    weight_hr: FloatArray
    nodes: FloatArray
    peak: FloatArray
    """The most nodes of each of its table rows in any hour gathered; (0, 0) for a pool that is not limited."""
    sharing: tuple[GatheredSharing, ...] = ()
    """(n_rows, n) each, in the order of the tracked pool's shared ones."""


def summed(parts: Iterable[Uses]) -> dict[Pool, IntArray]:
    """Return the sum of several uses, pool by pool."""
    total: dict[Pool, IntArray] = {}
    for part in parts:
        for pool, seconds in part.items():
            # a sum is a new array: what was taken over from a part is never written to
            total[pool] = np.asarray(total[pool] + seconds) if pool in total else seconds
    return total
