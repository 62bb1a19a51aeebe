"""A fleet bundle's tables from a Prometheus server: GPUs, nodes, who held what, hourly use, demand, faults.

DCGM shows the last XID until the driver is loaded again, so that one begins where the number changes; its moment is that of the
first scrape that shows it. Thermal throttling is known by its counter, whose unit differs by version, so that only whether it
rises counts; what it cost in speed is the SM clock of a busy board against the same board's in hours without it.
Of CPU, cAdvisor in every kubelet counts the time of containers; kube-state-metrics tells their limits. A container without a
limit may use what its node has. Of a pod the container that works most counts: sidecars tell nothing.
kube-state-metrics tells no scopes of a ResourceQuota: where the resources of a quota allow none it has none, else they are
unknown. A Prometheus without honorLabels keeps its own `namespace`. Of several exporters that report one limit none is more
right than another: the strictest counts.
Names: NVIDIA/dcgm-exporter etc/default-counters.csv; kube-state-metrics docs/metrics/cluster/node-metrics.md,
internal/store/resourcequota.go and limitrange.go.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trimtab.catalog import Catalog, load_catalog
from trimtab.catalog.model_servers import ServerMetrics
from trimtab.errors import SourceError
from trimtab.sources.collected import Collected
from trimtab.sources.hour_grid import (
    HourGrid,
    Life,
    Watch,
    by_day,
    kube_watch,
    lifetimes,
    moment,
    moment_or_none,
    presence,
    whole_hours,
)
from trimtab.sources.kubernetes.holds import Hold, collect_job_facts, device_holds, job_rows, nodes_of_pods, other_holds
from trimtab.sources.kubernetes.namespace_limits import BOUNDS, limit_range_row, quota_row, scopes_by_resources
from trimtab.sources.kubernetes.nodes import KubeNode, collect_nodes, spot_event_rows
from trimtab.sources.kubernetes.owners import Owner, Owners, collect_owners, namespace_matchers, selectors, subject
from trimtab.sources.kubernetes.shared_holds import (
    BoardSharing,
    asked_pods,
    fraction_holds,
    hami_holds,
    hami_nodes,
    nodes_with_parts,
    renamed_resources,
    requested_holds,
    with_boards,
    without_reservations,
)
from trimtab.sources.prometheus.client import Floats, Prometheus
from trimtab.sources.prometheus.dcgm import ExportedMetric, GpuLabels, read_labels
from trimtab.sources.prometheus.demand import ServedWorkloads, collect_demand
from trimtab.sources.prometheus.fleet_rows import (
    Boards,
    allocation_rows,
    device_rows,
    node_names,
    node_rows,
    on_kubernetes_node,
)
from trimtab.sources.prometheus.gpu_series import Tally, grouped, selector
from trimtab.sources.prometheus.gpu_usage import (
    RAW_SAMPLE_LIMIT,
    GpuMetrics,
    PodHoldings,
    collect_gpu_usage,
    find_gpu_metrics,
)
from trimtab.sources.prometheus.journal import Journal
from trimtab.tables.arrow import Row, empty_table, table_from_rows
from trimtab.tables.bundle import BundleMeta
from trimtab.units import BYTES_PER_MIB, S_PER_HR

_STRICTER: Mapping[str, Callable[[float, float], float]] = {
    "hard": min, "used": max,
    "min": max, "max": min, "default": max, "defaultRequest": max, "maxLimitRequestRatio": min,
}  # fmt: skip
"""What is reported of a quota and of a LimitRange -> which of two reports counts."""


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
    """Return the rows of `limit_ranges`; the place of an item in its list is not recorded."""
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


NodeOf = Callable[[GpuLabels], str]
"""Names the node of a device as the bundle does."""
_XID, _ECC, _REMAP = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ROW_REMAP_FAILURE"
_THERMAL, _CLOCK, _UTIL = "DCGM_FI_DEV_THERMAL_VIOLATION", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL"
_BUSY_PERCENT = 90
"""A board so busy runs at the clock that it is allowed; one that rests clocks down by itself."""
_USUAL_QUANTILE = 0.9
"""Of the hours of a board without throttling: their clock is its usual one."""
_FEWEST_HOURS = 3
"""What fewer hours show is taken for chance."""
_FEWEST_PEERS = 3
"""Boards of a model whose clocks say what is usual for another one."""
_REASONS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
_POWER_BRAKE = 0x80
"""The power supply asks the board to slow down (NVML, nvmlClocksEventReasonHwPowerBrakeSlowdown)."""


def fault_rows(server: Prometheus, watch: Watch, node_of: NodeOf) -> list[Row]:
    """Return the rows of `faults` of a window, in order of time."""
    rows = [
        *_xids(server, watch.grid, node_of),
        *_counted(server, watch.grid, node_of, "ecc", f"increase({_ECC}{server.matching()}[1h])"),
        *_counted(server, watch.grid, node_of, "row-remap", f"max_over_time({_REMAP}{server.matching()}[1h])"),
        *_throttled(server, watch.grid, node_of),
        *_out_of_service(server, watch),
    ]
    return sorted(rows, key=lambda row: (str(row["start"]), str(row["node"]), str(row["device"])))


def _hourly(server: Prometheus, query: str, grid: HourGrid) -> dict[str, tuple[GpuLabels, Floats]]:
    """Return an expression over `[1h]` by device and hour (n_hours,); NaN where there was no reading."""
    found: dict[str, tuple[GpuLabels, Floats]] = {}
    for series in server.range(query, grid.first_evaluation_s, grid.last_evaluation_s, S_PER_HR):
        labels = read_labels(series.labels)
        if labels is not None:
            _, values = found.setdefault(labels.uuid, (labels, np.full(grid.hours, np.nan)))
            hours = grid.hour_of(series.times_ms)
            values[hours] = np.fmax(values[hours], series.values)
    return found


def _xids(server: Prometheus, grid: HourGrid, node_of: NodeOf) -> Iterator[Row]:
    """Yield a row where a board's last XID becomes another: it stands until the next one, or until the number is gone."""
    query = f"max_over_time({_XID}{server.matching()}[1h])"
    for labels, values in _hourly(server, query, grid).values():
        # hours without a reading go on with the last one: a gap neither ends an XID nor begins it again
        last_read = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(grid.hours)))
        codes = np.where(last_read < 0, 0, values[last_read]).astype(np.int64)
        changes = np.flatnonzero(np.diff(codes, prepend=0))
        for at, hour in enumerate(changes.tolist()):
            if not codes[hour]:
                continue
            until = changes[at + 1] if at + 1 < len(changes) else None
            yield {
                "node": node_of(labels),
                "device": labels.uuid,
                "start": moment(_first_seen_s(server, labels.uuid, int(codes[hour]), grid, hour)),
                "end": None if until is None else moment(grid.start_s + int(until) * S_PER_HR),
                "fault": "xid",
                "code": int(codes[hour]),
            }


def _first_seen_s(server: Prometheus, uuid: str, code: int, grid: HourGrid, hour: int) -> float:
    """Return when an XID was first scraped within an hour; the hour's beginning where the server does not say."""
    begin_s = grid.start_s + hour * S_PER_HR
    end_s = begin_s + S_PER_HR - 1
    matched = server.matching(f'UUID="{uuid}"')
    query = f"min_over_time(timestamp({_XID}{matched} == {code})[1h:30s])"
    seen = [float(series.values.min()) for series in server.range(query, end_s, end_s, S_PER_HR) if len(series.values)]
    return min((at_s for at_s in seen if begin_s <= at_s <= end_s), default=float(begin_s))


def _counted(server: Prometheus, grid: HourGrid, node_of: NodeOf, fault: str, query: str) -> Iterator[Row]:
    """Yield a row for each board from the first hour in which an expression is above 0."""
    for labels, values in _hourly(server, query, grid).values():
        hours = np.flatnonzero(np.nan_to_num(values) > 0)
        if len(hours):
            start = moment(grid.start_s + int(hours[0]) * S_PER_HR)
            yield {"node": node_of(labels), "device": labels.uuid, "start": start, "end": None, "fault": fault}


def _throttled(server: Prometheus, grid: HourGrid, node_of: NodeOf) -> Iterator[Row]:
    """Yield the hours in which heat or the power supply held a busy board back, with the share of its clock that this took.

    A software power cap is no fault: a board at its limit is what training wants. An hour with both causes counts once, as
    heat.
    """
    heat = _hourly(server, f"increase({_THERMAL}{server.matching()}[1h])", grid)
    braked = " or ".join(f"floor({name}{server.matching()} / {_POWER_BRAKE}) % 2" for name in _REASONS)
    power = _hourly(server, f"avg_over_time(({braked})[1h:1m])", grid)
    if not any((values > 0).any() for readings in (heat, power) for _, values in readings.values()):
        return
    busy = f"{_CLOCK}{server.matching()} and {_UTIL}{server.matching()} > {_BUSY_PERCENT}"
    clocks = _hourly(server, f"avg_over_time(({busy})[1h:1m])", grid)
    unread = np.full(grid.hours, np.nan)
    causes = {
        uuid: _causes(*(readings[uuid][1] if uuid in readings else unread for readings in (heat, power)))
        for uuid in clocks
    }
    usual = _usual_clocks(clocks, causes)
    for uuid, (labels, clock) in clocks.items():
        lost = 1.0 - clock / usual[uuid]
        for hour in np.flatnonzero(np.isin(causes[uuid], (_HEAT, _POWER)) & (lost > 0)).tolist():
            yield {
                "node": node_of(labels),
                "device": uuid,
                "start": moment(grid.start_s + hour * S_PER_HR),
                "end": moment(grid.start_s + (hour + 1) * S_PER_HR),
                "fault": "thermal-throttle" if causes[uuid][hour] == _HEAT else "power-throttle",
                "lost_frac": float(lost[hour]),
            }


_UNREAD, _FREE, _HEAT, _POWER = range(4)


def _causes(heat: Floats, power: Floats) -> npt.NDArray[np.int64]:
    """Return what held a board back in each hour (n_hours,), given readings that are above 0 where it did, NaN for none."""
    read = np.where(np.isnan(heat) & np.isnan(power), _UNREAD, _FREE)
    return np.where(heat > 0, _HEAT, np.where(power > 0, _POWER, read))


def _usual_clocks(
    clocks: Mapping[str, tuple[GpuLabels, Floats]], causes: Mapping[str, npt.NDArray[np.int64]]
) -> dict[str, float]:
    """Return the usual clock of each busy board: that of its own free hours, else that of other boards of its model."""
    own: dict[str, float] = {}
    of_model: dict[str, list[float]] = defaultdict(list)
    for uuid, (labels, clock) in clocks.items():
        free = clock[(causes[uuid] == _FREE) & ~np.isnan(clock)]
        if len(free) >= _FEWEST_HOURS:
            own[uuid] = float(np.quantile(free, _USUAL_QUANTILE))
            of_model[labels.product].append(own[uuid])
    known = {product: float(np.median(peers)) for product, peers in of_model.items() if len(peers) >= _FEWEST_PEERS}
    return {uuid: own.get(uuid, known.get(labels.product, math.nan)) for uuid, (labels, _) in clocks.items()}


_NODE_LABELS = ("node", "exported_node")


def _out_of_service(server: Prometheus, watch: Watch) -> Iterator[Row]:
    """Yield the stretches in which nodes were cordoned, or not ready."""
    cordoned = "kube_node_spec_unschedulable" + server.matching()
    unready = "kube_node_status_condition" + server.matching('condition="Ready"', 'status=~"false|unknown"')
    for fault, chosen in (("cordoned", cordoned), ("not-ready", unready)):
        seen = presence(server, chosen, _NODE_LABELS, watch.grid, statistic="sum_over_time")
        for node, lives in _stretches(seen, watch).items():
            for life in lives:
                end = moment_or_none(life.end_s)
                yield {"node": node, "device": None, "start": moment(life.start_s), "end": end, "fault": fault}


def _stretches(seen: Mapping[tuple[str, ...], Floats], watch: Watch) -> dict[str, list[Life]]:
    counts: dict[str, list[Floats]] = defaultdict(list)
    for (node, exported), samples in seen.items():
        counts[exported or node].append(samples)
    return {node: lifetimes(np.max(np.stack(samples), axis=0), watch) for node, samples in counts.items()}


logger = logging.getLogger(__name__)

Report = Callable[[str, float], None]
"""Called with the stage and its share done, in 0..1."""


@dataclass(slots=True, kw_only=True)
class _Resolver:
    """Resolves pods to workloads, and remembers which it was asked for."""

    owners: Owners
    tally: Tally
    known: dict[tuple[str, str], Owner] = field(default_factory=dict)

    def workload(self, namespace: str, pod: str) -> str:
        key = (namespace, pod)
        if key not in self.known:
            self.known[key] = self.owners.of(namespace, pod)
            if not self.owners.knows(namespace, pod):
                self.tally.count("pods whose owner was guessed from their name")
        return self.known[key].workload


def collect_prometheus(
    server: Prometheus,
    start: datetime,
    end: datetime,
    *,
    catalog: Catalog | None = None,
    raw_sample_limit: int = RAW_SAMPLE_LIMIT,
    journal: Journal | None = None,
    declared: Mapping[str, ServerMetrics] | None = None,
    report: Report = lambda stage, done_frac: None,
) -> Collected:
    """Collect the whole hours of `[start, end)`; what a journal holds is not asked for again.

    `declared` are the series that a person named for workloads whose server is none of those known.

    Raises SourceError where the server fails or has no GPU metrics, CredentialsError where it refuses us, UsageError where
    the window holds no whole hour.
    """
    grid = whole_hours(start, end)
    tally = Tally()
    report("looking around", 0.0)
    server.check()
    metrics = _gpu_metrics(server, grid, tally)
    watch = kube_watch(server, grid)
    nodes = collect_nodes(server, watch)
    resolver = _Resolver(owners=collect_owners(server, grid.start_s, grid.end_s), tally=tally)
    holdings = PodHoldings(grid=grid, step_s=metrics.step_s)
    usage = _usage(server, grid, metrics, holdings, resolver, raw_sample_limit, journal, report)
    boards = Boards(
        devices=tally.devices,
        node_of=_node_names(server, grid, tally, nodes),
        memory_gib=collect_memory(server, metrics, grid),
    )
    report("pods and runs", 0.0)
    nodes, shared = _shared_nodes(server, grid, nodes, boards, tally)
    holds = _holds(server, watch, holdings, boards, nodes, shared, resolver)
    usage = with_cpu(usage, grid, pod_cpu_frac(server, grid, holds, nodes), resolver.workload)
    jobs = job_rows(holds, resolver.known, collect_job_facts(server, grid), grid.start_s)
    served = ServedWorkloads(
        workload_of=resolver.workload, pods=_pods_with_gpus(holds, resolver), declared=declared or {}
    )
    demand = collect_demand(server, grid, served, tally, report)
    facts = catalog or load_catalog()
    billed, held = node_rows(nodes, boards, holdings, facts, tally), allocation_rows(holds, resolver.known)
    tables = {
        "devices": table_from_rows("devices", device_rows(boards, billed, facts, tally)),
        "nodes": table_from_rows("nodes", billed),
        "allocations": table_from_rows("allocations", held),
        "spot_events": table_from_rows("spot_events", spot_event_rows(billed, held, moment(grid.start_s))),
        "gpu_usage": usage,
        "demand": demand,
        "jobs": table_from_rows("jobs", jobs),
        "faults": table_from_rows("faults", _faults(server, watch, boards, billed)),
        "resource_quotas": table_from_rows("resource_quotas", quota_rows(server, grid)),
        "limit_ranges": table_from_rows("limit_ranges", limit_range_rows(server, grid)),
    }
    return Collected(tables=tables, meta=_meta(server, grid, metrics, tally))


def _pods_with_gpus(holds: Sequence[Hold], resolver: _Resolver) -> dict[str, list[list[Life]]]:
    """Return when pods held GPUs: by workload, and in it pod by pod."""
    found: dict[str, dict[str, list[Life]]] = {}
    for hold in holds:
        if hold.gpus > 0:
            pods = found.setdefault(resolver.workload(hold.namespace, hold.pod), {})
            pods.setdefault(f"{hold.namespace}/{hold.pod}", []).append(hold.life)
    return {workload: list(pods.values()) for workload, pods in found.items()}


def _faults(
    server: Prometheus, watch: Watch, boards: Boards, billed: Sequence[Mapping[str, object]]
) -> list[dict[str, object]]:
    """Return the faults of the nodes and devices that the bundle has."""
    nodes = {row["node"] for row in billed}
    return [row for row in fault_rows(server, watch, boards.node) if row["node"] in nodes]


def _node_names(server: Prometheus, grid: HourGrid, tally: Tally, nodes: Sequence[KubeNode]) -> dict[str, str]:
    hosts = {labels.node for labels in tally.devices.values()} - {node.name for node in nodes}
    return node_names(tally.devices.values(), nodes, nodes_of_pods(server, grid, hosts))


def _gpu_metrics(server: Prometheus, grid: HourGrid, tally: Tally) -> GpuMetrics:
    metrics = find_gpu_metrics(server, grid, tally)
    if metrics.counted:
        return metrics
    window = f"{moment(grid.start_s):%Y-%m-%d %H:%M} .. {moment(grid.end_s):%Y-%m-%d %H:%M} UTC"
    raise SourceError(
        f"{server.url} has no GPU metrics in {window}; is dcgm-exporter scraped, is the window within retention, "
        "and does --selector leave something?"
    )


def _usage(
    server: Prometheus,
    grid: HourGrid,
    metrics: GpuMetrics,
    holdings: PodHoldings,
    resolver: _Resolver,
    raw_sample_limit: int,
    journal: Journal | None,
    report: Report,
) -> pa.Table:
    done_hr = 0

    def advance(hours: int) -> None:
        nonlocal done_hr
        done_hr += hours
        report("GPU use", done_hr / grid.hours)

    pieces = collect_gpu_usage(
        server,
        grid,
        metrics,
        resolver.tally,
        holdings,
        workload_of=resolver.workload,
        raw_sample_limit=raw_sample_limit,
        journal=journal,
        progress=advance,
    )
    found = list(pieces)
    return pa.concat_tables(found) if found else empty_table("gpu_usage", None)


def _holds(
    server: Prometheus,
    watch: Watch,
    holdings: PodHoldings,
    boards: Boards,
    nodes: Sequence[KubeNode],
    shared: Mapping[str, BoardSharing],
    resolver: _Resolver,
) -> list[Hold]:
    named = [on_kubernetes_node(hold, boards.node_of) for hold in device_holds(holdings, boards.devices)]
    holds = _shared_holds(server, watch, named, boards, shared, resolver.tally)
    gpu_nodes = {node.name for node in nodes if node.gpu_count} | {
        boards.node(labels) for labels in boards.devices.values()
    }
    gpu_pods = {(hold.namespace, hold.pod) for hold in holds}
    holds += other_holds(server, watch, gpu_nodes, resolver.owners, gpu_pods)
    for hold in holds:
        resolver.workload(hold.namespace, hold.pod)
    return holds


def _shared_holds(
    server: Prometheus,
    watch: Watch,
    named: Sequence[Hold],
    boards: Boards,
    shared: Mapping[str, BoardSharing],
    tally: Tally,
) -> list[Hold]:
    """Return the holds that DCGM tells, corrected and completed by what is known of parts of boards and of requests."""
    fractions = fraction_holds(server, watch, shared, tally)
    told = hami_holds(server, watch, boards.devices.keys())
    stated = fractions.stated | told.stated
    asked = asked_pods(server, watch.grid, shared, tally)
    requested = requested_holds(server, watch, asked, named, stated)
    replaced = stated | {(hold.namespace, hold.pod) for hold in requested}
    left = [hold for hold in named if (hold.namespace, hold.pod) not in replaced]
    return [*without_reservations(left, fractions.holds, tally), *fractions.holds, *told.holds, *requested]


def _shared_nodes(
    server: Prometheus, grid: HourGrid, nodes: Sequence[KubeNode], boards: Boards, tally: Tally
) -> tuple[list[KubeNode], dict[str, BoardSharing]]:
    """Return nodes with the number of their boards, not of the shares that they advertise, and how each shares them."""
    in_parts = nodes_with_parts(server, grid) | hami_nodes(server, grid)
    seen = {node.name: boards.count_on(node.name) for node in nodes if not node.gpu_count}
    renamed = renamed_resources(server, grid, {name: count for name, count in seen.items() if count})
    found, shared = [], {}
    for node in nodes:
        counted, how = with_boards(node, boards.count_on(node.name), node.name in in_parts, tally)
        found.append(counted)
        shared[node.name] = replace(how, board_mib=boards.mib_on(node.name), renamed=renamed.get(node.name, {}))
    return found, shared


def _meta(server: Prometheus, grid: HourGrid, metrics: GpuMetrics, tally: Tally) -> BundleMeta:
    found = {metric.canonical for metric in metrics.present}
    missing = [name for name in ("sm_active", "tensor_active", "dram_active", "gpu_util") if name not in found]
    notes = [f"scrape interval of the GPU metrics: {metrics.step_s:g} s"]
    if missing:
        notes.append(f"not exported: {', '.join(missing)}; what they would show is missing, not 0")
    for warning, times in server.warnings.items():
        notes.append(f"{times} answer(s) may be partial: the server warned {warning!r}")
    host = urlsplit(server.url).hostname or server.url
    received = f"{server.requests} requests, {server.received_bytes / BYTES_PER_MIB:.1f} MiB"
    return BundleMeta(
        start=moment(grid.start_s),
        end=moment(grid.end_s),
        sources=(f"Prometheus {host} ({received})",),
        notes=tuple(notes),
        counts=dict(sorted(tally.counts.items())),
    )


_LAST = "max by ({group}) (last_over_time({name}[1d]))"
_MOST_GIB = 1024.0


def collect_memory(server: Prometheus, metrics: GpuMetrics, grid: HourGrid) -> dict[str, float]:
    """Return visible memory in GiB by device; a device that exports too little for it is left out."""
    used, free, reserved, total = (
        _by_device(server, metrics.of(f"memory_{part}_gib"), grid) for part in ("used", "free", "reserved", "total")
    )
    found = {device: max(days.values()) for device, days in total.items()}
    for device in used.keys() & free.keys() - found.keys():
        days = used[device].keys() & free[device].keys()
        if days:
            last = max(days)
            found[device] = used[device][last] + free[device][last] + reserved.get(device, {}).get(last, 0.0)
    return found


def _by_device(server: Prometheus, spellings: Sequence[ExportedMetric], grid: HourGrid) -> dict[str, dict[int, float]]:
    """Return the last reading of each day by device; the parts of one day belong together."""
    found: dict[str, dict[int, float]] = {}
    for metric in spellings:
        for series in by_day(server, grouped(_LAST, metric, selector(server, metric)), grid):
            labels = read_labels(series.labels)
            if labels is None:
                continue
            for at, value in zip(series.times_ms.tolist(), series.values.tolist(), strict=True):
                if 0.0 <= value * metric.unit.factor <= _MOST_GIB:
                    found.setdefault(labels.device, {})[at] = value * metric.unit.factor
    return found
