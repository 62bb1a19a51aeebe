"""Whole hours of a window: readings by hour, and the intervals in which a thing was there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np

from trimtab.errors import UsageError
from trimtab.sources.prometheus.client import Floats, Ints, Prometheus, Series
from trimtab.units import MS_PER_S, S_PER_DAY, S_PER_HR, floor_hour, hours_between

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

    def looks(self, every_hr: int) -> tuple[float, float, float]:
        """Return the first and the last of the moments at which to look so often, and their distance, in seconds.

        The last hour is among them: a server that has been up for an afternoon has readings there alone.
        """
        every_hr = min(every_hr, self.hours)
        first_hr = (self.hours - 1) % every_hr
        return self.first_evaluation_s + first_hr * S_PER_HR, self.last_evaluation_s, every_hr * S_PER_HR

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
    """Readings by statistic, key and hour; NaN if there are none."""

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


_WHOLE_FRAC = 0.9
"""An hour with this share of its samples counts as whole: a scrape or two may fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """An interval in seconds since 1970; `end_s` is None while the thing is still there at the end of the window."""

    start_s: float
    end_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """When somebody was watching: the samples by hour of a source that is always there (0 = it was down)."""

    grid: HourGrid
    samples: Floats

    @property
    def step_s(self) -> float:
        """Return the scrape interval: an hour over the most samples in one."""
        most = float(self.samples.max(initial=0.0))
        return S_PER_HR / most if most else float(S_PER_HR)


def kube_watch(server: Prometheus, grid: HourGrid) -> Watch:
    """Return when kube-state-metrics was scraped."""
    query = f"max(count_over_time(kube_node_info{server.matching()}[1h]))"
    samples = np.zeros(grid.hours)
    for series in server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, S_PER_HR):
        samples[grid.hour_of(series.times_ms)] = series.values
    return Watch(grid=grid, samples=samples)


def presence(
    server: Prometheus, selector: str, labels: Sequence[str], grid: HourGrid, *, statistic: str = "count_over_time"
) -> dict[tuple[str, ...], Floats]:
    """Count a metric's samples by hour and by the named labels; `sum_over_time` counts those of a 0/1 metric that are 1."""
    query = f"max by ({', '.join(labels)}) ({statistic}({selector}[1h]))"
    by_key: dict[tuple[str, ...], Floats] = {}
    for series in server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, S_PER_HR):
        key = tuple(series.labels.get(label, "") for label in labels)
        row = by_key.setdefault(key, np.zeros(grid.hours))
        row[grid.hour_of(series.times_ms)] = series.values
    return {key: row for key, row in by_key.items() if row.any()}


def by_day(server: Prometheus, query: str, grid: HourGrid) -> Iterator[Series]:
    """Evaluate an expression over `[1d]` once a day, so that the days cover the window: for values that hardly change."""
    first_s = min(grid.start_s + S_PER_DAY, grid.end_s)
    days = -(-(grid.end_s - first_s) // S_PER_DAY)
    return server.range(query, first_s, first_s + days * S_PER_DAY, S_PER_DAY)


def lifetimes(counts: Floats, watch: Watch) -> list[Life]:
    """Return the intervals in which counts are positive; hours without observation bridge two of them.

    A thing that is absent for a whole watched hour has gone; one that comes back has a new one. Boundaries are placed within
    their hour by the number of samples, so they are right to about a scrape interval.
    """
    runs: list[tuple[int, int]] = []
    for hour in np.flatnonzero(counts > 0).tolist():
        if runs and not (watch.samples[runs[-1][1] + 1 : hour] > 0).any():
            runs[-1] = (runs[-1][0], hour)
        else:
            runs.append((hour, hour))
    return [_life(counts, watch, first, last) for first, last in runs]


def _life(counts: Floats, watch: Watch, first: int, last: int) -> Life:
    opening, closing = (watch.grid.start_s + hour * S_PER_HR for hour in (first, last))
    start_s = float(opening)
    if first != last and not _is_whole(counts, watch, first) and not _watch_begins(watch.samples, first):
        start_s = opening + S_PER_HR - counts[first] * watch.step_s
    if _is_whole(counts, watch, last) and not (watch.samples[last + 1 :] > 0).any():
        return Life(start_s=start_s, end_s=None)
    return Life(start_s=start_s, end_s=closing + min(float(S_PER_HR), counts[last] * watch.step_s))


def _is_whole(counts: Floats, watch: Watch, hour: int) -> bool:
    """Return whether a thing was seen nearly as often in an hour as could be: a scrape or two may fail."""
    return bool(counts[hour] >= _WHOLE_FRAC * watch.samples[hour])


def _watch_begins(watched: Floats, hour: int) -> bool:
    """Return whether nothing was watched before an hour: what is there then was there before."""
    return not (watched[:hour] > 0).any()


def moment(seconds: float) -> datetime:
    """Return seconds since 1970 as an aware moment in UTC."""
    return datetime.fromtimestamp(seconds, tz=UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    """Return the moment, or None."""
    return None if seconds is None else moment(seconds)


def whole_hours(start: datetime, end: datetime) -> HourGrid:
    """Return the whole hours within a window. Raises UsageError if there is none."""
    first = floor_hour(start)
    if first < start:
        first = moment(first.timestamp() + S_PER_HR)
    hours = int(hours_between(first, floor_hour(end)))
    if hours < 1:
        raise UsageError(f"the window {start.isoformat()} .. {end.isoformat()} holds no whole hour; widen --from/--to")
    return HourGrid(start_s=int(first.timestamp()), hours=hours)
