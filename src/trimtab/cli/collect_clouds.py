"""Collect from the monitors of clouds that were named, each region, project and workspace for itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from trimtab.catalog import load_catalog
from trimtab.cli.place_options import Places
from trimtab.cli.progress import Tell
from trimtab.errors import UsageError
from trimtab.sources.clouds import CloudMonitor
from trimtab.sources.clouds.aws import CloudWatch
from trimtab.sources.clouds.azure import LOGS_SCOPE, LOGS_URL, AzureMonitor
from trimtab.sources.clouds.clients import azure_headers, google_headers
from trimtab.sources.clouds.fleet import cloud_fleet
from trimtab.sources.clouds.google import COMPUTE_URL, MONITORING_URL, GoogleMonitoring
from trimtab.sources.collected import Collected, merge_clusters
from trimtab.sources.hour_grid import whole_hours

ENDPOINTS = ("aws", "gcp-monitoring", "gcp-compute", "azure-logs", "azure-management")


def collect_clouds(places: Places, window: tuple[datetime, datetime], tell: Tell) -> Collected:
    """Collect from every monitor that was named; with several their names keep apart. Raises SourceError, UsageError."""
    grid, catalog = whole_hours(*window), load_catalog()
    return merge_clusters({name: cloud_fleet(monitor.read(grid, tell), catalog) for name, monitor in _monitors(places)})


def endpoints_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the addresses given instead of the clouds' own, by name; raises UsageError."""
    found = {}
    for pair in pairs:
        name, equals, url = pair.partition("=")
        if not equals or name not in ENDPOINTS:
            raise UsageError(f"--cloud-endpoint {pair!r}: write NAME=URL; the names are {', '.join(ENDPOINTS)}")
        found[name] = url
    return found


def _monitors(places: Places) -> Iterator[tuple[str, CloudMonitor]]:
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
