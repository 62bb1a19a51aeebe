"""From samples counted by hour to the intervals in which a thing was there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from trimtab.sources.hours import HourGrid
from trimtab.sources.promql import Floats, Prometheus, Series
from trimtab.units import S_PER_DAY, S_PER_HR

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


def lives(counts: Floats, watch: Watch) -> list[Life]:
    """Return the intervals in which counts are positive; hours in which nobody watched bridge two of them.

    A thing that is absent for a whole watched hour has gone; one that comes back has a new life. Boundaries are placed within
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
    """Tell whether a thing was seen nearly as often in an hour as could be: a scrape or two may fail."""
    return bool(counts[hour] >= _WHOLE_FRAC * watch.samples[hour])


def _watch_begins(watched: Floats, hour: int) -> bool:
    """Tell whether nothing was watched before an hour: what is there then was there before."""
    return not (watched[:hour] > 0).any()


def moment(seconds: float) -> datetime:
    """Return seconds since 1970 as an aware moment in UTC."""
    return datetime.fromtimestamp(seconds, tz=UTC)


def moment_or_none(seconds: float | None) -> datetime | None:
    """Return the moment, or None."""
    return None if seconds is None else moment(seconds)
