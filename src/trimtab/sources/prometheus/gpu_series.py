"""GPU telemetry: metric names, labels and units as exporters spell them, and the selectors and scales of every query.

Names: NVIDIA/dcgm-exporter etc/default-counters.csv (2026), NVIDIA/DCGM dcgmlib/dcgm_fields.h 4.6.0 (its field naming standard
of 2026-07-06), utkuozdemir/nvidia_gpu_exporter docs/METRICS.md, ROCm/device-metrics-exporter
docs/configuration/metricslist.md at 0778d3ab (AMD's GPU operator can put `amd_` in front of its names). A mixed fleet has both
the old and the new names, and both vendors'. AMD's `gpu_gfx_activity` is the share of time in which the shaders had any work,
as GPU_UTIL is; of its memory engine's use no source says what it is a share of, so that it is not read.

A rule runs twice an hour, at a moment of the server's choosing, yet records whole hours of the clock: the steps of a subquery
lie on multiples of its step, so `(...)[1h:1h]` is the last full hour whenever it is evaluated (Prometheus documentation,
"Querying basics", subqueries). The histogram counts the readings that an hour's scrapes saw by hundredths with `count_values`;
only bins that hold something are recorded. `[1h] offset 1ms` is `[start, end)`, as everywhere here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import yaml

from trimtab.sources.hour_grid import UsageKey
from trimtab.sources.prometheus.client import Prometheus, Series
from trimtab.sources.prometheus.dcgm import KEPT_LABELS, SHARES, ExportedMetric, GpuLabels, read_labels

_GROUPED = tuple(label for label in KEPT_LABELS if label not in ("instance", "exported_container"))


class Statistic(Enum):
    """An hourly value of a device and pod: how it is computed from samples, and how series of one device are joined."""

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
        """Return whether only negative values matter: a minimum shows a bad reading that the maximum and the mean hide."""
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
    cores_of: dict[str, int] = field(default_factory=dict, repr=False)
    """NeuronCores of a chip, by EC2 instance."""

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
            labels = read_labels(series.labels, self.cores_of)
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


def selector(server: Prometheus, metric: ExportedMetric, *matchers: str) -> str:
    """Return the selector of a metric under the client's own label filter."""
    return metric.name + server.matching(*metric.only, *matchers)


def group_of(metric: ExportedMetric) -> str:
    """Return the labels that a metric's queries group by."""
    return ", ".join((*_GROUPED, *metric.labels))


def grouped(query: str, metric: ExportedMetric, chosen: str) -> str:
    """Fill a query's template with the labels to group by and a selector."""
    return query.format(group=group_of(metric), name=chosen)


def device_matcher(metric: ExportedMetric, labels: GpuLabels) -> str:
    """Return a matcher of a device's board, by the label that carries its UUID."""
    if labels.uuid.startswith(f"{labels.node}/gpu"):
        return f'{metric.number_label}="{labels.uuid.rpartition("/gpu")[2]}"'
    # the cores of a chip are told from those of others on its instance by whoever reads the answer
    uuid = labels.uuid.partition("/")[0] if metric.of_cores else labels.uuid
    return f'{metric.uuid_label}="{uuid}"'


RECORDED = "trimtab:"
BIN_LABEL = "bin"
HISTOGRAM = "bins"
_INTERVAL = "30m"
_MEAN_AND_MAX = (Statistic.MAX, Statistic.MEAN)
_HISTOGRAMS_OF = ("sm_active", "gpu_util", "gr_engine_active")


def recorded_name(metric: str, label: str) -> str:
    """Return the name under which a statistic of a metric is recorded."""
    return f"{RECORDED}{metric}:{label}_1h"


def statistics_of(metric: ExportedMetric) -> tuple[Statistic, ...]:
    """Return the statistics that are collected of a metric, the count of its samples included."""
    match metric.canonical:
        case "energy_kwh":
            return (Statistic.RISE,)
        case "memory_used_gib" | "power_w":
            return (Statistic.COUNT, *_MEAN_AND_MAX, Statistic.MIN)
        case name if name in SHARES:
            return (Statistic.COUNT, *GAUGE_STATISTICS, Statistic.MIN)
        case _:
            return ()


def rules_text(
    metrics: Iterable[ExportedMetric], scales: Mapping[str, Scale], step_s: float, selector: str = ""
) -> str:
    """Return a rule file for Prometheus, Thanos Ruler, Mimir's ruler or vmalert, for the metrics that are there.

    `scales` says how to read a share as 0..1, `step_s` is the scrape interval, `selector` the matchers that every query has.
    """
    groups = []
    for metric in metrics:
        said = ",".join((*metric.only, *([selector] if selector else [])))
        matchers = f"{{{said}}}" if said else ""
        rules = [*_statistic_rules(metric, matchers), *_histogram_rules(metric, scales, step_s, matchers)]
        if rules:
            groups.append({"name": f"trimtab-{metric.name}", "interval": _INTERVAL, "rules": rules})
    head = "# Hourly statistics of GPU metrics, for `trimtab collect`. Load with `rule_files:`; made by trimtab.\n"
    return head + yaml.safe_dump({"groups": groups}, sort_keys=False, width=10_000)


def _statistic_rules(metric: ExportedMetric, matchers: str) -> Iterable[dict[str, str]]:
    for statistic in statistics_of(metric):
        samples = f"{metric.name}{matchers}[1h] offset 1ms"
        value = f"{statistic.joined} by ({group_of(metric)}) ({statistic.function.format(samples=samples)})"
        yield {"record": recorded_name(metric.name, statistic.label), "expr": _last_full_hour(value)}


def _histogram_rules(
    metric: ExportedMetric, scales: Mapping[str, Scale], step_s: float, matchers: str
) -> Iterable[dict[str, str]]:
    """Yield the rule that counts readings by hundredths; where nodes differ in their scale there is none."""
    scale = scales.get(metric.name)
    if metric.canonical not in _HISTOGRAMS_OF or scale is None or scale.by_node:
        return
    step = f"{max(1, round(step_s))}s"
    reading = f"last_over_time({metric.name}{matchers}[{step}]) * {scale.usual * 100:g}"
    # `without ()`: to labels that are listed Prometheus 2 adds the new one for good, so that the next run of the rule differs.
    counted = f'count_values without () ("{BIN_LABEL}", floor({reading} + 0.5))'
    value = f"sum by ({group_of(metric)}, {BIN_LABEL}) (count_over_time({counted}[1h:{step}] offset 1ms))"
    yield {"record": recorded_name(metric.name, HISTOGRAM), "expr": _last_full_hour(value)}


def _last_full_hour(value: str) -> str:
    return f"last_over_time(({value})[1h:1h])"
