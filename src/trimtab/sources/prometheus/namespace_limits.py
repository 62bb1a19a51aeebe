"""What namespaces let pods ask for, as kube-state-metrics tells it at the end of a window: ResourceQuotas and LimitRanges.

It tells no scopes of a quota: where the resources of a quota allow none it has none, else they are unknown. Names and labels:
kube-state-metrics internal/store/resourcequota.go and limitrange.go; a Prometheus without honorLabels keeps its own
`namespace`. Of several exporters that tell of one limit none is more right than another: the strictest counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from trimtab.sources.hour_grid import HourGrid
from trimtab.sources.kubernetes.namespace_limits import BOUNDS, limit_range_row, quota_row, scopes_by_resources
from trimtab.sources.prometheus.client import Prometheus

Row = dict[str, object]

_STRICTER: Mapping[str, Callable[[float, float], float]] = {
    "hard": min, "used": max,
    "min": max, "max": min, "default": max, "defaultRequest": max, "maxLimitRequestRatio": min,
}  # fmt: skip
"""What is told of a quota and of a LimitRange -> which of two tellings counts."""


def quota_rows(server: Prometheus, grid: HourGrid) -> list[Row]:
    """Return the rows of `resource_quotas`."""
    found: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    resources: dict[tuple[str, str], set[str]] = defaultdict(set)
    for labels, value in _last(server, grid, "kube_resourcequota"):
        namespace, name, resource = _namespace(labels), labels.get("resourcequota", ""), labels.get("resource", "")
        resources[namespace, name].add(resource)
        _tell(found[namespace, name, resource], labels.get("type", ""), value)
    rows = [
        (quota_row(namespace, name, resource, hard=told.get("hard"), used=told.get("used")), resources[namespace, name])
        for (namespace, name, resource), told in sorted(found.items())
        if name
    ]
    return [row | {"scopes": scopes_by_resources(beside)} for row, beside in rows if row is not None]


def limit_range_rows(server: Prometheus, grid: HourGrid) -> list[Row]:
    """Return the rows of `limit_ranges`; at which place of its list an item stands is not told."""
    found: dict[tuple[str, str, str, str], dict[str, float]] = defaultdict(dict)
    for labels, value in _last(server, grid, "kube_limitrange"):
        key = (_namespace(labels), labels.get("limitrange", ""), labels.get("type", ""), labels.get("resource", ""))
        if labels.get("constraint") in BOUNDS:
            _tell(found[key], labels["constraint"], value)
    rows = [limit_range_row(*key, told) for key, told in sorted(found.items()) if key[1]]
    return [row for row in rows if row is not None]


def _last(server: Prometheus, grid: HourGrid, metric: str) -> Iterator[tuple[Mapping[str, str], float]]:
    query = f"last_over_time({metric}{server.matching()}[1h])"
    for series in server.instant(query, grid.last_evaluation_s):
        yield series.labels, float(series.values[-1])


def _namespace(labels: Mapping[str, str]) -> str:
    return labels.get("exported_namespace") or labels.get("namespace", "")


def _tell(told: dict[str, float], kind: str, value: float) -> None:
    known = told.get(kind)
    told[kind] = value if known is None else _STRICTER.get(kind, max)(value, known)
