"""Series of GPU readings: the selectors, groupings and scales that every query shares, and who each series is of."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trimtab.sources.dcgm import KEPT_LABELS, GpuLabels, Metric, read_labels
from trimtab.sources.hours import HourGrid, UsageKey
from trimtab.sources.promql import AnswerTooLarge, Prometheus, Series
from trimtab.units import S_PER_HR

logger = logging.getLogger(__name__)

_GROUP = ", ".join(label for label in KEPT_LABELS if label not in ("instance", "exported_container"))
_GROUP_BY_INSTANCE = f"{_GROUP}, instance"

STATISTICS = {
    "max": "max by ({group}) (max_over_time({name}[1h]))",
    "mean": "avg by ({group}) (avg_over_time({name}[1h]))",
    "p50": "avg by ({group}) (quantile_over_time(0.5, {name}[1h]))",
    "p95": "avg by ({group}) (quantile_over_time(0.95, {name}[1h]))",
}
"""Maximum first: it decides which hours need their raw samples."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What was seen on the way: devices by name, and readings clamped or dropped by reason."""

    devices: dict[str, GpuLabels] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, reason: str, number: int = 1) -> None:
        """Add to a reason."""
        if number:
            self.counts[reason] = self.counts.get(reason, 0) + number

    def key_of(self, series: Series) -> tuple[UsageKey, GpuLabels] | None:
        """Return whose readings a series holds, noting the device; None where its labels name none."""
        labels = read_labels(series.labels)
        if labels is None:
            self.count("GPU series without a device label ignored", len(series.values))
            return None
        self.devices[labels.device] = labels
        return UsageKey(labels.device, labels.namespace, labels.pod), labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What a metric's values are multiplied with, on most nodes and on some."""

    usual: float
    by_node: Mapping[str, float] = field(default_factory=dict)

    def of(self, node: str) -> float:
        """Return the factor on a node."""
        return self.by_node.get(node, self.usual)


def selector(server: Prometheus, metric: Metric, *matchers: str) -> str:
    """Return the selector of a metric under the client's own label filter."""
    return metric.name + server.matching(*matchers)


def grouped(query: str, metric: Metric, chosen: str) -> str:
    """Fill a query's template; nvidia_smi series name their node by `instance` alone."""
    group = _GROUP_BY_INSTANCE if metric.name.startswith("nvidia_smi") else _GROUP
    return query.format(group=group, name=chosen)


def hourly(server: Prometheus, template: str, metric: Metric, grid: HourGrid) -> Iterator[Series]:
    """Evaluate a query over the hours; where the server refuses even one hour of it, a sixteenth of the boards at a time."""
    try:
        whole = list(_range(server, template, metric, grid))
    except AnswerTooLarge as error:
        logger.info("asking by shards: %s", error)
        label = uuid_label(metric)
        digits = [f'{label}=~".*{digit:x}"' for digit in range(16)]
        whole = [
            series
            for shard in (*digits, f'{label}!~".*[0-9a-f]"')
            for series in _range(server, template, metric, grid, shard)
        ]
    yield from whole


def _range(server: Prometheus, template: str, metric: Metric, grid: HourGrid, *shard: str) -> Iterator[Series]:
    query = grouped(template, metric, selector(server, metric, *shard))
    return server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, S_PER_HR)


def uuid_label(metric: Metric) -> str:
    """Return the label in which a metric carries a board's UUID."""
    return "uuid" if metric.name.startswith("nvidia_smi") else "UUID"


def device_matcher(metric: Metric, labels: GpuLabels) -> str:
    """Return a matcher of a device's board, by the label that carries its UUID."""
    if labels.uuid.startswith(f"{labels.node}/gpu"):
        return f'gpu="{labels.uuid.rpartition("/gpu")[2]}"'
    return f'{uuid_label(metric)}="{labels.uuid}"'
