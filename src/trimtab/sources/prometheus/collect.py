"""A fleet bundle's tables from a Prometheus server: GPUs, nodes, who held what, hourly use, demand, runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from urllib.parse import urlsplit

import pyarrow as pa

from trimtab.catalog import Catalog, load_catalog
from trimtab.errors import SourceError
from trimtab.sources.collected import Collected
from trimtab.sources.hour_grid import HourGrid, Watch, by_day, kube_watch, moment, whole_hours
from trimtab.sources.kubernetes.holds import (
    Hold,
    collect_job_facts,
    device_holds,
    job_rows,
    nodes_of_pods,
    other_holds,
)
from trimtab.sources.kubernetes.nodes import KubeNode, collect_nodes, spot_event_rows
from trimtab.sources.kubernetes.owners import Owner, Owners, collect_owners
from trimtab.sources.kubernetes.shared_holds import (
    BoardSharing,
    asked_pods,
    fraction_holds,
    hami_holds,
    hami_nodes,
    nodes_with_parts,
    requested_holds,
    with_boards,
    without_reservations,
)
from trimtab.sources.prometheus.client import Prometheus
from trimtab.sources.prometheus.dcgm import ExportedMetric, read_labels
from trimtab.sources.prometheus.demand import collect_demand
from trimtab.sources.prometheus.faults import fault_rows
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
from trimtab.tables.arrow import empty_table, table_from_rows
from trimtab.tables.bundle import BundleMeta
from trimtab.units import BYTES_PER_MIB

logger = logging.getLogger(__name__)

Report = Callable[[str, float], None]
"""Told the stage and its share done, in 0..1."""


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
    report: Report = lambda stage, done_frac: None,
) -> Collected:
    """Collect the whole hours of `[start, end)`; what a journal holds is not asked for again.

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
    resolver = _Resolver(owners=collect_owners(server, grid.start_s, grid.end_s, ()), tally=tally)
    holdings = PodHoldings(grid=grid)
    usage = _usage(server, grid, metrics, holdings, resolver, raw_sample_limit, journal, report)
    boards = Boards(
        devices=tally.devices,
        node_of=_node_names(server, grid, tally, nodes),
        memory_gib=collect_memory(server, metrics, grid),
    )
    report("pods and runs", 0.0)
    nodes, shared = _shared_nodes(server, grid, nodes, boards, tally)
    holds = _holds(server, watch, holdings, boards, nodes, shared, resolver)
    jobs = job_rows(holds, resolver.known, collect_job_facts(server, grid), grid.start_s)
    demand = collect_demand(server, grid, workload_of=resolver.workload, report=report)
    facts = catalog or load_catalog()
    billed, held = node_rows(nodes, boards, holdings, facts, tally), allocation_rows(holds, resolver.known)
    tables = {
        "devices": table_from_rows("devices", device_rows(boards, facts, tally)),
        "nodes": table_from_rows("nodes", billed),
        "allocations": table_from_rows("allocations", held),
        "spot_events": table_from_rows("spot_events", spot_event_rows(billed, held, moment(grid.start_s))),
        "gpu_usage": usage,
        "demand": demand,
        "jobs": table_from_rows("jobs", jobs),
        "faults": table_from_rows("faults", _faults(server, watch, boards, billed)),
    }
    return Collected(tables=tables, meta=_meta(server, grid, metrics, tally))


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
    found, shared = [], {}
    for node in nodes:
        counted, how = with_boards(node, boards.count_on(node.name), node.name in in_parts, tally)
        found.append(counted)
        shared[node.name] = replace(how, board_mib=boards.mib_on(node.name))
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
