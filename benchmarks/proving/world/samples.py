"""What a Prometheus server holds: series by name and labels, their samples in order of time, and where a series ended.

Written from prometheus.io/docs/prometheus/latest/querying/basics (instant and range selectors, staleness): an instant selector
takes a series' last sample of the last five minutes unless the series was marked as ended; a range selector takes the samples
that are younger than its length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Labels = tuple[tuple[str, str], ...]
"""Pairs (label, value) in order of the label, the series' name left out."""
LOOKBACK_S = 300.0
"""`--query.lookback-delta`, by default."""
_FIRST_ROOM = 64


def labels_of(pairs: Mapping[str, str]) -> Labels:
    """Return labels in the order in which they are compared."""
    return tuple(sorted(pairs.items()))


class Series:
    """The samples of one series, in order of time."""

    def __init__(self) -> None:
        """Begin without a sample."""
        self._at_s, self._values = np.empty(_FIRST_ROOM), np.empty(_FIRST_ROOM)
        self._count = 0
        self._ended_s = -np.inf
        self.newest_s = -np.inf
        """When its last sample was taken."""

    def add(self, at_s: float, value: float) -> None:
        """Add a sample; times must rise."""
        if at_s <= self.newest_s:
            raise ValueError(f"a sample at {at_s:g} s after one at {self.newest_s:g} s")
        if self._count == len(self._at_s):
            self._at_s, self._values = (
                np.concatenate([room, np.empty_like(room)]) for room in (self._at_s, self._values)
            )
        self._at_s[self._count], self._values[self._count] = at_s, value
        self._count += 1
        self.newest_s = at_s

    def end(self, at_s: float) -> None:
        """Mark it as ended: an instant selector finds nothing from now on, until there is a further sample."""
        self._ended_s = at_s

    def last(self, at_s: float, lookback_s: float = LOOKBACK_S) -> float | None:
        """Return what an instant selector finds at a moment; None for nothing."""
        # long ended, or not there yet: nearly every pod that there was
        if self.newest_s <= at_s - lookback_s or not (count := self._before(at_s)):
            return None
        last_s = self._at_s[count - 1]
        # a mark at the moment of a sample, or before it, is of an earlier life
        if last_s <= at_s - lookback_s or last_s < self._ended_s <= at_s:
            return None
        return float(self._values[count - 1])

    def within(self, from_s: float, to_s: float) -> tuple[Floats, Floats]:
        """Return (moments, values) of the samples after one moment and up to another."""
        first, count = int(np.searchsorted(self._at_s[: self._count], from_s, side="right")), self._before(to_s)
        return self._at_s[first:count], self._values[first:count]

    def _before(self, at_s: float) -> int:
        # nearly always it is asked for the present, which the last sample is not later than
        if self.newest_s <= at_s:
            return self._count
        return int(np.searchsorted(self._at_s[: self._count], at_s, side="right"))


class Store:
    """All series, by name and labels."""

    def __init__(self, reach_s: Mapping[str, float] | None = None, lookback_s: float = LOOKBACK_S) -> None:
        """Begin without series; one that ended longer ago than `reach_s` says by its name is forgotten."""
        self.lookback_s = lookback_s
        self._reach_s = reach_s
        self._series: dict[str, dict[Labels, Series]] = {}
        self._current: dict[str, set[Labels]] = {}
        self._ended: dict[str, dict[Labels, float]] = {}

    def named(self, name: str) -> Iterator[tuple[Labels, Series]]:
        """Yield every series of a name with its labels."""
        yield from self._series.get(name, {}).items()

    def write(self, name: str, at_s: float, values: Mapping[Labels, float]) -> None:
        """Add a sample to each series named; those of the same name that were written last time and now are not have ended."""
        known, ended = self._series.setdefault(name, {}), self._ended.setdefault(name, {})
        for labels, value in values.items():
            if labels not in known:
                known[labels] = Series()
            known[labels].add(at_s, value)
        before, now = self._current.get(name, set()), set(values)
        for labels in before - now:
            known[labels].end(at_s)
            ended[labels] = at_s
        self._current[name] = now
        if ended and self._reach_s is not None:
            self._forget(known, ended, at_s - self._reach_s.get(name, 0.0))

    @staticmethod
    def _forget(known: dict[Labels, Series], ended: dict[Labels, float], before_s: float) -> None:
        for labels in [labels for labels, at_s in ended.items() if at_s < before_s]:
            del ended[labels]
            # it may have come back
            if known[labels].newest_s < before_s:
                del known[labels]
