"""How much of the CPU that it may use each pod with GPUs used, hour by hour: what a GPU waits for when its input is prepared.

cAdvisor, in every kubelet, counts the CPU time of containers; kube-state-metrics tells their limits. A container without a
limit may use what its node has. Of a pod the container that works most counts: sidecars tell nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from trimtab.sources.hour_grid import HourGrid, by_day
from trimtab.sources.kubernetes.holds import Hold
from trimtab.sources.kubernetes.nodes import KubeNode
from trimtab.sources.kubernetes.owners import namespace_matchers, selectors, subject
from trimtab.sources.prometheus.client import Floats, Prometheus
from trimtab.units import S_PER_HR

COLUMN = "cpu_used_frac_mean"
_USED = "container_cpu_usage_seconds_total"
_LIMITS = "kube_pod_container_resource_limits"
_GROUP = "namespace, exported_namespace, pod, exported_pod, container, exported_container"
_OF_CONTAINERS = ('container!=""', 'container!="POD"')
"""cAdvisor counts each pod as a whole too, and the container that holds its network."""

Pod = tuple[str, str]
"""(namespace, pod)"""


def pod_cpu_frac(
    server: Prometheus, grid: HourGrid, holds: Sequence[Hold], nodes: Iterable[KubeNode]
) -> dict[Pod, Floats]:
    """Return the share of its CPUs that each pod with GPUs used, (n_hours,) in 0..1; NaN where it is not known."""
    node_of = {(hold.namespace, hold.pod): hold.node for hold in holds if hold.gpus > 0}
    if not node_of:
        return {}
    cpus_of_node = {node.name: node.vcpus for node in nodes if node.vcpus}
    matchers = namespace_matchers(namespace for namespace, _ in node_of)
    used = _used_cores(server, grid, matchers, node_of)
    limits = _limits(server, grid, matchers) if used else {}
    found = {}
    for pod, containers in used.items():
        # hour by hour the container that works most
        cores, shares = np.full(grid.hours, -np.inf), np.full(grid.hours, np.nan)
        for name, values in containers.items():
            most = limits.get((pod, name)) or cpus_of_node.get(node_of[pod]) or np.nan
            is_most = np.nan_to_num(values, nan=-np.inf) > cores
            cores, shares = np.where(is_most, values, cores), np.where(is_most, values / most, shares)
        found[pod] = np.minimum(shares, 1.0)
    return found


def _used_cores(
    server: Prometheus, grid: HourGrid, matchers: Sequence[str], pods: Mapping[Pod, str]
) -> dict[Pod, dict[str, Floats]]:
    """Return the cores that containers of some pods used, (n_hours,): by pod and container."""
    used: dict[Pod, dict[str, Floats]] = defaultdict(dict)
    for matcher in matchers:
        chosen = _USED + server.matching(*(part for part in (matcher, *_OF_CONTAINERS) if part))
        # two jobs may scrape one kubelet, and a container that starts again has a series of its own
        query = f"max by ({_GROUP}) (rate({chosen}[1h]))"
        for series in server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, S_PER_HR):
            pod = subject(series.labels, "pod")
            if pod in pods:
                row = used[pod].setdefault(_container(series.labels), np.full(grid.hours, np.nan))
                row[grid.hour_of(series.times_ms)] = series.values
    return used


def _limits(server: Prometheus, grid: HourGrid, matchers: Sequence[str]) -> dict[tuple[Pod, str], float]:
    """Return the CPUs to which containers are limited, by pod and container."""
    found = {}
    for matcher in matchers:
        for chosen in selectors(server, _LIMITS, [",".join(part for part in (matcher, 'resource="cpu"') if part)]):
            for series in by_day(server, f"max by ({_GROUP}) (max_over_time({chosen}[1d]))", grid):
                found[subject(series.labels, "pod"), _container(series.labels)] = float(series.values[-1])
    return found


def _container(labels: Mapping[str, str]) -> str:
    return labels.get("exported_container") or labels.get("container", "")


def with_cpu(
    usage: pa.Table, grid: HourGrid, pods: Mapping[Pod, Floats], workload_of: Callable[[str, str], str]
) -> pa.Table:
    """Return rows of `gpu_usage` with the share of their CPUs that the pods of each workload used, in the mean of its pods."""
    by_workload: dict[str, list[Floats]] = defaultdict(list)
    for (namespace, pod), shares in pods.items():
        by_workload[workload_of(namespace, pod)].append(shares)
    # the last row is that of workloads of which nothing is known
    means = np.stack([*(_mean(np.stack(rows)) for rows in by_workload.values()), np.full(grid.hours, np.nan)])
    place = {name: number for number, name in enumerate(by_workload)}
    names = usage["workload"].combine_chunks().dictionary_encode()
    rows = np.array([place.get(name, -1) for name in names.dictionary.to_pylist()] + [-1])
    workload = rows[np.asarray(names.indices.fill_null(-1))]
    hour = grid.hour_of(np.asarray(usage["hour"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())))
    column = pa.array(means[workload, hour], type=pa.float64(), from_pandas=True)
    return usage.set_column(usage.schema.get_field_index(COLUMN), usage.schema.field(COLUMN), column)


def _mean(rows: Floats) -> Floats:
    """Return the mean of each hour over the pods (n_pods, n_hours) of which it is known."""
    known = np.isfinite(rows)
    count = known.sum(axis=0)
    total = np.where(known, rows, 0.0).sum(axis=0)
    return np.asarray(np.divide(total, count, out=np.full(rows.shape[1], np.nan), where=count > 0), dtype=np.float64)
