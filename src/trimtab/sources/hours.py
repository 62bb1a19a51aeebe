"""Whole hours of a window, and readings by key, statistic and hour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from trimtab.sources.promql import Floats, Ints
from trimtab.units import MS_PER_S, S_PER_HR

EDGE_S = 1 / MS_PER_S
"""How long before the end of an hour `[1h]` is evaluated, so that it is `[start, end)` to the millisecond: range selectors of
Prometheus 2 include both ends, those of 3 the later one only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HourGrid:
    """Whole hours from `start_s` (seconds since 1970, on the hour)."""

    start_s: int
    hours: int

    @property
    def end_s(self) -> int:
        """End of the last hour, exclusive."""
        return self.start_s + self.hours * S_PER_HR

    @property
    def first_evaluation_s(self) -> float:
        """Moment at which `[1h]` is the first hour."""
        return self.start_s + S_PER_HR - EDGE_S

    @property
    def last_evaluation_s(self) -> float:
        """Moment at which `[1h]` is the last hour."""
        return self.end_s - EDGE_S

    def hour_of(self, times_ms: Ints) -> Ints:
        """Return the hour that each moment lies in, counted from the first; may lie outside the grid."""
        return np.asarray((times_ms - self.start_s * MS_PER_S) // (S_PER_HR * MS_PER_S), dtype=np.int64)

    def chunks(self, hours: int) -> Iterator[HourGrid]:
        """Cut the grid into pieces of at most that many hours."""
        for first in range(0, self.hours, hours):
            size = min(hours, self.hours - first)
            yield HourGrid(start_s=self.start_s + first * S_PER_HR, hours=size)

    def aligned_chunks(self, hours: int) -> Iterator[HourGrid]:
        """Cut the grid where the hours since 1970 are multiples of `hours`: windows that overlap have pieces in common."""
        first_hr = self.start_s // S_PER_HR
        cuts = [at for at in range(first_hr, first_hr + self.hours + 1) if at % hours == 0]
        for left, right in pairwise(sorted({first_hr, *cuts, first_hr + self.hours})):
            yield HourGrid(start_s=left * S_PER_HR, hours=right - left)


@dataclass(frozen=True, slots=True)
class UsageKey:
    """Who the readings are of: a device while a pod held it (empty = unallocated)."""

    device: str
    namespace: str
    pod: str


@dataclass(slots=True, kw_only=True)
class Cube:
    """Readings by statistic, key and hour; NaN where there are none."""

    grid: HourGrid
    values: dict[str, dict[UsageKey, Floats]] = field(default_factory=dict)

    def of(self, statistic: str, key: UsageKey) -> Floats:
        """Return the hours of a statistic, to read; all NaN where nothing was put."""
        found = self.values.get(statistic, {}).get(key)
        return np.full(self.grid.hours, np.nan) if found is None else found

    def put(self, statistic: str, key: UsageKey, hours: Ints, values: Floats) -> None:
        """Put readings where there are none yet: the first spelling of a metric wins."""
        row = self._row(statistic, key)
        inside = (hours >= 0) & (hours < self.grid.hours)
        hours, values = hours[inside], values[inside]
        fresh = np.isnan(row[hours])
        row[hours[fresh]] = values[fresh]

    def add(self, statistic: str, key: UsageKey, hours: Ints, values: Floats) -> None:
        """Add to what is there (counts)."""
        row = self._row(statistic, key)
        inside = (hours >= 0) & (hours < self.grid.hours)
        row[hours[inside]] = np.nan_to_num(row[hours[inside]]) + values[inside]

    def replace(self, statistic: str, key: UsageKey, hour: int, value: float) -> None:
        """Overwrite one reading; NaN takes it away."""
        self._row(statistic, key)[hour] = value

    def keys(self, statistic: str) -> list[UsageKey]:
        """Return the keys that have a statistic, in the order in which they came."""
        return list(self.values.get(statistic, {}))

    def _row(self, statistic: str, key: UsageKey) -> Floats:
        rows = self.values.setdefault(statistic, {})
        if key not in rows:
            rows[key] = np.full(self.grid.hours, np.nan)
        return rows[key]
