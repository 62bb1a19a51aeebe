"""Runs `trimtab collect`: reads the named sources, each cluster separately, and merges the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trimtab.catalog import CapacityType, load_catalog
from trimtab.catalog.model_servers import ServerMetrics
from trimtab.cli.collect import CURRENT, PlaceOptions, endpoints_of
from trimtab.cli.options import is_typed
from trimtab.cli.progress import Tell
from trimtab.cli.server_options import ServerOptions, parse_window
from trimtab.emit.manifests.cluster_file import parse_cluster_file
from trimtab.errors import SourceError, UsageError
from trimtab.inputs.files import read_text
from trimtab.sources.clouds import CloudMonitor
from trimtab.sources.clouds.aws import CloudWatch
from trimtab.sources.clouds.azure import LOGS_SCOPE, LOGS_URL, AzureMonitor
from trimtab.sources.clouds.clients import azure_headers, google_headers
from trimtab.sources.clouds.fleet import cloud_fleet
from trimtab.sources.clouds.google import COMPUTE_URL, MONITORING_URL, GoogleMonitoring
from trimtab.sources.collected import Collected, merge_clusters, with_bills
from trimtab.sources.hour_grid import whole_hours
from trimtab.sources.kubernetes.api import cluster_api
from trimtab.sources.kubernetes.objects import Objects, read_dumps
from trimtab.sources.kubernetes.snapshot import collect_snapshot, heartbeats_note, snapshot_moment, with_snapshot
from trimtab.sources.prometheus.collect import collect_prometheus
from trimtab.sources.prometheus.gpu_series import Tally, rules_text
from trimtab.sources.prometheus.gpu_usage import find_gpu_metrics
from trimtab.sources.prometheus.journal import Journal
from trimtab.sources.slurm import collect_slurm, read_slurm
from trimtab.sources.slurm.dumps import zone_of
from trimtab.sources.traces import read_trace, repeated
from trimtab.sources.traces.runs import machine_of

RULES_LOOK_HR = 6
"""Hours inspected to find out which metrics exist and how to read them."""


def collect_servers(source: ServerOptions, tell: Tell, journal: Journal | None = None) -> Collected:
    """Collect from every named server, and each cluster of a central one; node and workload names carry the cluster."""
    window = source.window()
    named = _declared_metrics(source.cluster_file)
    parts = {}
    for name, url in source.addresses():
        for cluster, selector in _clusters(source, name, url, window):
            with source.client(url, selector) as server:
                declared = _of_cluster(named, cluster)
                parts[cluster] = collect_prometheus(server, *window, journal=journal, declared=declared, report=tell)
    return merge_clusters(parts)


def _declared_metrics(path: Path | None) -> dict[str, ServerMetrics]:
    """Return the metric names in a cluster file, by workload. Raises BundleError."""
    if path is None:
        return {}
    declared = parse_cluster_file(read_text(path), where=str(path)).workloads
    return {name: of.metrics.as_metrics() for name, of in declared.items() if of.metrics is not None}


def _of_cluster(named: Mapping[str, ServerMetrics], cluster: str) -> dict[str, ServerMetrics]:
    """Return what is declared for one cluster: workloads without a cluster (`prod/chat`), and its own (`prod/chat@east`)."""
    return {
        name.partition("@")[0]: metrics for name, metrics in named.items() if name.partition("@")[2] in ("", cluster)
    }


def _clusters(source: ServerOptions, name: str, url: str, window: tuple[datetime, datetime]) -> list[tuple[str, str]]:
    """Return (cluster, label matchers) for each cluster on a server: one, or each value of --cluster-label."""
    if not source.cluster_label:
        return [(name, source.selector)]
    with source.client(url, source.selector) as server:
        values = server.label_values(source.cluster_label, window[0].timestamp(), window[1].timestamp())
    return [
        (value, ",".join(part for part in (source.selector, f'{source.cluster_label}="{value}"') if part))
        for value in values
    ]


def write_rules(source: ServerOptions, out: Path) -> str:
    """Write recording rules for what the first server exports; return a one-sentence summary."""
    end = source.window()[1]
    with source.server() as server:
        server.check()
        metrics = find_gpu_metrics(server, whole_hours(end - timedelta(hours=RULES_LOOK_HR), end), Tally())
    if not metrics.present:
        raise SourceError(f"{source.url} has no GPU metrics in the last {RULES_LOOK_HR} hours: nothing to record")
    out.write_text(rules_text(metrics.present, metrics.scales, metrics.step_s, source.selector), encoding="utf-8")
    return f"{out}: rules for {len(metrics.present)} metrics; load it with rule_files, and later collects read it"


def gather(source: ServerOptions, places: PlaceOptions, tell: Tell, journal: Journal | None = None) -> Collected:
    """Collect from every named source. Raises UsageError if there is none. A journal keeps partial results."""
    elsewhere = bool(places.slurm or places.trace or places.clouds)
    places.check(source.url if is_typed("urls") or not elsewhere else None)
    return with_bills(_fleet(source, places, tell, journal), source.bills)


def _fleet(source: ServerOptions, places: PlaceOptions, tell: Tell, journal: Journal | None) -> Collected:
    if places.slurm:
        return _slurm(source, places)
    if places.trace is not None:
        return _trace(places.trace, places)
    if places.clouds:
        return _clouds(source, places, tell)
    found = collect_servers(source, tell, journal) if source.url else None
    if not places.kubernetes and found is not None:
        return found
    objects, name = _cluster(places, tell)
    if found is not None:
        return with_snapshot(found, objects, source=name)
    newest = snapshot_moment(objects) if places.kube_dumps else datetime.now(UTC)
    made = collect_snapshot(objects, *parse_window(source.start, source.end, newest), source=name)
    if not places.kube_dumps or is_typed("end"):
        return made
    notes = (*made.meta.notes, *heartbeats_note(objects, newest))
    return replace(made, meta=made.meta.model_copy(update={"notes": notes}))


def _clouds(source: ServerOptions, places: PlaceOptions, tell: Tell) -> Collected:
    """Read the clouds' monitors, completed from a cluster if one was named."""
    found = _read_clouds(places, parse_window(source.start, source.end, datetime.now(UTC)), tell)
    if not places.kubernetes:
        return found
    objects, name = _cluster(places, tell)
    return with_snapshot(found, objects, source=name)


def _slurm(source: ServerOptions, places: PlaceOptions) -> Collected:
    """Read all of Slurm's dumps, unless a window was given."""
    boards = places.boards()
    dump = read_slurm(places.slurm, zone_of(places.timezone))
    first, last = dump.span
    start, end = parse_window(source.start if is_typed("start") else first.isoformat(), source.end, last)
    name = "Slurm " + ", ".join(path.name for path in places.slurm)
    return collect_slurm(dump, start, end, gpu_names=boards, source=name)


def _trace(path: Path, places: PlaceOptions) -> Collected:
    """Make a fleet from a recorded trace, over the trace's own time span. Raises UsageError if a window was given."""
    if is_typed("start") or is_typed("end"):
        raise UsageError("a --trace is used whole, with its own time span: omit --from and --to")
    made = read_trace(path, machine_of(places.machine) if places.machine else None)
    return repeated(made, places.repeat) if places.repeat else made


def _cluster(places: PlaceOptions, tell: Tell) -> tuple[Objects, str]:
    if places.kube_dumps:
        return read_dumps(places.kube_dumps), "Kubernetes dump " + ", ".join(path.name for path in places.kube_dumps)
    context = None if places.context in (None, CURRENT) else places.context
    with cluster_api(context, places.kubeconfig) as api:
        return api.read(tell), f"Kubernetes {context or 'current context'}"


def missing_prices(collected: Collected) -> Iterator[str]:
    """Return the lines of a price file for a fleet's owned nodes, to be filled in; none if it owns none."""
    rows = collected.tables["nodes"].select(["instance_type", "gpu", "gpu_count", "capacity_type"]).to_pylist()
    owned = {row["instance_type"]: row for row in rows if row["capacity_type"] == CapacityType.OWNED.value}
    if not owned:
        return
    yield "  owned nodes have no price until you say what they cost: fill in owned.yaml, then trimtab audit --prices owned.yaml"
    yield "    owned:"
    for name, row in sorted(owned.items()):
        yield f"      - instance_type: {name}"
        yield f"        gpu: {row['gpu'] or '...'}"
        yield f"        gpu_count: {row['gpu_count']}"
        yield "        capital_usd: ...          # price of a node with its share of racks and network"
        yield "        years: ...                # life over which it is written off"
        yield "        power_w: ...              # average draw at the plug"
        yield "        pue: ...                  # power of the site over power of the machines"
        yield "        electricity_usd_kwh: ..."


def _read_clouds(places: PlaceOptions, window: tuple[datetime, datetime], tell: Tell) -> Collected:
    """Collect from every named monitor; with several, names carry the cluster. Raises SourceError, UsageError."""
    grid, catalog = whole_hours(*window), load_catalog()
    return merge_clusters({name: cloud_fleet(monitor.read(grid, tell), catalog) for name, monitor in _monitors(places)})


def _monitors(places: PlaceOptions) -> Iterator[tuple[str, CloudMonitor]]:
    urls = endpoints_of(places.cloud_endpoints)
    for region in places.cloudwatch:
        yield region, CloudWatch(region=region, endpoint=urls.get("aws"))
    for project in places.gcp_project:
        yield (
            project,
            GoogleMonitoring(
                project=project,
                headers=google_headers(),
                url=urls.get("gcp-monitoring", MONITORING_URL),
                compute_url=urls.get("gcp-compute", COMPUTE_URL),
            ),
        )
    for workspace in places.azure:
        url = urls.get("azure-logs", LOGS_URL)
        yield workspace, AzureMonitor(workspace=workspace, headers=azure_headers(LOGS_SCOPE), url=url)
