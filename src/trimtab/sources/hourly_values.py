"""One statistic of a metric by device, pod and hour: from recording rules where they ran, else pushed down to the server.

A rule's value for the hour that ends at H is recorded within the hour after H (see `recording_rules`), so it is read an hour
later than it is of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from trimtab.sources.dcgm import Metric
from trimtab.sources.gpu_series import Statistic, group_of, selector, uuid_label
from trimtab.sources.hours import HourGrid
from trimtab.sources.promql import AnswerTooLarge, Floats, Prometheus, Series
from trimtab.sources.recording_rules import BIN_LABEL, HISTOGRAM, recorded_name, statistics_of
from trimtab.units import MS_PER_S, S_PER_HR

logger = logging.getLogger(__name__)

_NEARLY_ALL_FRAC = 0.99
"""Rules that saw this share of an hour's devices saw them all: a board that fails within an hour is in one count only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One question: a statistic of a metric, over some hours."""

    statistic: Statistic
    metric: Metric
    grid: HourGrid


Ask = Callable[[Wanted], list[Series]]
"""Answers a question with series whose times are the ends of the hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyValues:
    """Asks one server; `recorded` are the names of the recorded series that it has."""

    server: Prometheus
    recorded: frozenset[str] = frozenset()
    _known: dict[tuple[str, HourGrid], list[tuple[bool, HourGrid]]] = field(default_factory=dict, repr=False)

    def ask(self, wanted: Wanted) -> list[Series]:
        """Return the series of a statistic: of hours in which rules ran from them, of others from the samples."""
        name = recorded_name(wanted.metric.name, wanted.statistic.label)
        if name not in self.recorded:
            return self._pushed_down(wanted)
        query = _query(wanted, f"last_over_time({name}{self.server.matching()}[1h])")
        return [
            series
            for ruled, run in self.runs(wanted.metric, wanted.grid)
            for series in (self._from_rules(query, run) if ruled else self._pushed_down(replace(wanted, grid=run)))
        ]

    def histograms(self, metric: Metric, grid: HourGrid) -> list[Series]:
        """Return the recorded counts by device, pod and bin, of the hours in which rules ran."""
        name = recorded_name(metric.name, HISTOGRAM)
        if name not in self.recorded:
            return []
        query = f"sum by ({group_of(metric)}, {BIN_LABEL}) (last_over_time({name}{self.server.matching()}[1h]))"
        runs = [run for ruled, run in self.runs(metric, grid) if ruled]
        return [series for run in runs for series in self._from_rules(query, run)]

    def _from_rules(self, query: str, grid: HourGrid) -> list[Series]:
        later = self._over(query, _an_hour_later(grid))
        return [replace(series, times_ms=series.times_ms - S_PER_HR * MS_PER_S) for series in later]

    def runs(self, metric: Metric, grid: HourGrid) -> list[tuple[bool, HourGrid]]:
        """Cut a grid into runs of hours in which rules recorded as many series as there were, and of others."""
        key = (metric.name, grid)
        if key not in self._known:
            ruled = enumerate(self._is_ruled(metric, grid).tolist())
            grouped = [(is_so, [hour for hour, _ in run]) for is_so, run in groupby(ruled, key=itemgetter(1))]
            self._known[key] = [
                (is_so, HourGrid(start_s=grid.start_s + hours[0] * S_PER_HR, hours=len(hours)))
                for is_so, hours in grouped
            ]
        return self._known[key]

    def _is_ruled(self, metric: Metric, grid: HourGrid) -> npt.NDArray[np.bool_]:
        """Tell by hour whether rules recorded as many series of a metric as there were in the middle of it."""
        # The energy counter has no count of its own: its rise is recorded.
        label = statistics_of(metric)[0].label
        name = recorded_name(metric.name, label)
        ruled = self._counted(f"last_over_time({name}{self.server.matching()}[1h])", _an_hour_later(grid), 0)
        inner = f"count by ({group_of(metric)}) ({selector(self.server, metric)})"
        seen = self._counted(inner, grid, S_PER_HR // 2)
        return np.asarray(ruled >= _NEARLY_ALL_FRAC * seen, dtype=np.bool_)

    def _counted(self, inner: str, grid: HourGrid, before_end_s: int) -> Floats:
        """Return how many series an expression has in each hour, asked that long before the hour's end."""
        counts = np.zeros(grid.hours)
        first_s, last_s = (at - before_end_s for at in (grid.first_evaluation_s, grid.last_evaluation_s))
        for series in self.server.range(f"count({inner})", first_s, last_s, S_PER_HR):
            counts[grid.hour_of(series.times_ms)] = series.values
        return counts

    def _pushed_down(self, wanted: Wanted) -> list[Series]:
        """Push a statistic down; where the server refuses even one hour of it, a sixteenth of the boards at a time."""
        try:
            return list(self._sampled(wanted))
        except AnswerTooLarge as error:
            logger.info("asking by shards: %s", error)
        label = uuid_label(wanted.metric)
        digits = [f'{label}=~".*{digit:x}"' for digit in range(16)]
        shards = (*digits, f'{label}!~".*[0-9a-f]"')
        return [series for shard in shards for series in self._sampled(wanted, shard)]

    def _sampled(self, wanted: Wanted, *shard: str) -> Iterator[Series]:
        samples = f"{selector(self.server, wanted.metric, *shard)}[1h]"
        return self._over(_query(wanted, wanted.statistic.function.format(samples=samples)), wanted.grid)

    def _over(self, query: str, grid: HourGrid) -> Iterator[Series]:
        return self.server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, S_PER_HR)


def _query(wanted: Wanted, value: str) -> str:
    below = " < 0" if wanted.statistic.only_below_zero else ""
    return f"{wanted.statistic.joined} by ({group_of(wanted.metric)}) ({value}){below}"


def _an_hour_later(grid: HourGrid) -> HourGrid:
    return replace(grid, start_s=grid.start_s + S_PER_HR)
