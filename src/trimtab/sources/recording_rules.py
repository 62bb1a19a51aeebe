"""Recording rules that keep each hour's statistics on the server, so that the next collect reads one value an hour.

A rule runs twice an hour, at a moment of the server's choosing, yet records whole hours of the clock: the steps of a subquery
lie on multiples of its step, so `(...)[1h:1h]` is the last full hour whenever it is evaluated (Prometheus documentation,
"Querying basics", subqueries). The histogram counts the readings that an hour's scrapes saw by hundredths with `count_values`;
only bins that hold something are recorded. `[1h] offset 1ms` is `[start, end)`, as everywhere here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import yaml

from trimtab.sources.dcgm import SHARES, Metric
from trimtab.sources.gpu_series import GAUGE_STATISTICS, Scale, Statistic, group_of

RECORDED = "trimtab:"
BIN_LABEL = "bin"
HISTOGRAM = "bins"
_INTERVAL = "30m"
_MEAN_AND_MAX = (Statistic.MAX, Statistic.MEAN)
_HISTOGRAMS_OF = ("sm_active", "gpu_util", "gr_engine_active")


def recorded_name(metric: str, label: str) -> str:
    """Return the name under which a statistic of a metric is recorded."""
    return f"{RECORDED}{metric}:{label}_1h"


def statistics_of(metric: Metric) -> tuple[Statistic, ...]:
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


def rules_text(metrics: Iterable[Metric], scales: Mapping[str, Scale], step_s: float, selector: str = "") -> str:
    """Return a rule file for Prometheus, Thanos Ruler, Mimir's ruler or vmalert, for the metrics that are there.

    `scales` says how to read a share as 0..1, `step_s` is the scrape interval, `selector` the matchers that every query has.
    """
    matchers = f"{{{selector}}}" if selector else ""
    groups = [
        {"name": f"trimtab-{metric.name}", "interval": _INTERVAL, "rules": rules}
        for metric in metrics
        if (rules := [*_statistic_rules(metric, matchers), *_histogram_rules(metric, scales, step_s, matchers)])
    ]
    head = "# Hourly statistics of GPU metrics, for `trimtab collect`. Load with `rule_files:`; made by trimtab.\n"
    return head + yaml.safe_dump({"groups": groups}, sort_keys=False, width=10_000)


def _statistic_rules(metric: Metric, matchers: str) -> Iterable[dict[str, str]]:
    for statistic in statistics_of(metric):
        samples = f"{metric.name}{matchers}[1h] offset 1ms"
        value = f"{statistic.joined} by ({group_of(metric)}) ({statistic.function.format(samples=samples)})"
        yield {"record": recorded_name(metric.name, statistic.label), "expr": _last_full_hour(value)}


def _histogram_rules(
    metric: Metric, scales: Mapping[str, Scale], step_s: float, matchers: str
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
