"""Series of GPU readings: the statistics, selectors and scales that every query shares, and who each series is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from trimtab.sources.dcgm import KEPT_LABELS, GpuLabels, Metric, read_labels
from trimtab.sources.hours import UsageKey
from trimtab.sources.promql import Prometheus, Series

_GROUP = ", ".join(label for label in KEPT_LABELS if label not in ("instance", "exported_container"))
_GROUP_BY_INSTANCE = f"{_GROUP}, instance"


class Statistic(Enum):
    """A value that a device and pod have in each hour: how it is had from samples, and how series of one device are joined."""

    COUNT = ("count", "sum", "count_over_time({samples})")
    MIN = ("min", "min", "min_over_time({samples})")
    MAX = ("max", "max", "max_over_time({samples})")
    MEAN = ("mean", "avg", "avg_over_time({samples})")
    P50 = ("p50", "avg", "quantile_over_time(0.5, {samples})")
    P95 = ("p95", "avg", "quantile_over_time(0.95, {samples})")
    RISE = ("rise", "max", "increase({samples})")

    def __init__(self, label: str, joined: str, function: str) -> None:
        self.label = label
        self.joined = joined
        self.function = function

    @property
    def only_below_zero(self) -> bool:
        """Tell whether only negative values matter: a minimum shows a bad reading that the maximum and the mean hide."""
        return self is Statistic.MIN


GAUGE_STATISTICS = (Statistic.MAX, Statistic.MEAN, Statistic.P50, Statistic.P95)
"""Maximum first: it decides which hours need their raw samples."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What was seen on the way: devices by name, and readings clamped or dropped by reason."""

    devices: dict[str, GpuLabels] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    known: dict[tuple[tuple[str, str], ...], tuple[UsageKey, GpuLabels] | None] = field(
        default_factory=dict, repr=False
    )
    """Label sets that were read before: every statistic of every span comes with the same ones."""

    def count(self, reason: str, number: int = 1) -> None:
        """Add to a reason."""
        if number:
            self.counts[reason] = self.counts.get(reason, 0) + number

    def take(self, part: Tally) -> None:
        """Add what a part of the work saw."""
        self.devices.update(part.devices)
        for reason, number in part.counts.items():
            self.count(reason, number)

    def key_of(self, series: Series) -> tuple[UsageKey, GpuLabels] | None:
        """Return whose readings a series holds, noting the device; None where its labels name none."""
        said = tuple(series.labels.items())
        if said not in self.known:
            labels = read_labels(series.labels)
            key = UsageKey(labels.device, labels.namespace, labels.pod) if labels else None
            self.known[said] = (key, labels) if key and labels else None
        found = self.known[said]
        if found is None:
            self.count("GPU series without a device label ignored", len(series.values))
            return None
        self.devices[found[1].device] = found[1]
        return found


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


def group_of(metric: Metric) -> str:
    """Return the labels that a metric's queries group by; nvidia_smi series name their node by `instance` alone."""
    return _GROUP_BY_INSTANCE if metric.name.startswith("nvidia_smi") else _GROUP


def grouped(query: str, metric: Metric, chosen: str) -> str:
    """Fill a query's template with the labels to group by and a selector."""
    return query.format(group=group_of(metric), name=chosen)


def uuid_label(metric: Metric) -> str:
    """Return the label in which a metric carries a board's UUID."""
    return "uuid" if metric.name.startswith("nvidia_smi") else "UUID"


def device_matcher(metric: Metric, labels: GpuLabels) -> str:
    """Return a matcher of a device's board, by the label that carries its UUID."""
    if labels.uuid.startswith(f"{labels.node}/gpu"):
        return f'gpu="{labels.uuid.rpartition("/gpu")[2]}"'
    return f'{uuid_label(metric)}="{labels.uuid}"'
