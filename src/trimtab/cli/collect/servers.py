"""Collect from the Prometheus servers that were named, each cluster for itself, and write recording rules for them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from trimtab.cli.progress import Tell
from trimtab.cli.server_options import ServerOptions
from trimtab.errors import SourceError
from trimtab.sources.collected import Collected, merge_clusters
from trimtab.sources.hour_grid import whole_hours
from trimtab.sources.prometheus.collect import collect_prometheus
from trimtab.sources.prometheus.gpu_series import Tally, rules_text
from trimtab.sources.prometheus.gpu_usage import find_gpu_metrics
from trimtab.sources.prometheus.journal import Journal

RULES_LOOK_HR = 6
"""Hours looked at to tell which metrics there are and how they are to be read."""


def collect_servers(source: ServerOptions, tell: Tell, journal: Journal | None = None) -> Collected:
    """Collect from every server that was named, and each cluster of a central one; their names keep apart."""
    window = source.window()
    parts = {}
    for name, url in source.addresses():
        for cluster, selector in _clusters(source, name, url, window):
            with source.client(url, selector) as server:
                parts[cluster] = collect_prometheus(server, *window, journal=journal, report=tell)
    return merge_clusters(parts)


def _clusters(source: ServerOptions, name: str, url: str, window: tuple[datetime, datetime]) -> list[tuple[str, str]]:
    """Return (cluster, label matchers) of what a server holds: one, or each value of --cluster-label."""
    if not source.cluster_label:
        return [(name, source.selector)]
    with source.client(url, source.selector) as server:
        values = server.label_values(source.cluster_label, window[0].timestamp(), window[1].timestamp())
    return [
        (value, ",".join(part for part in (source.selector, f'{source.cluster_label}="{value}"') if part))
        for value in values
    ]


def write_rules(source: ServerOptions, out: Path) -> str:
    """Write recording rules for what the first server exports; returns what was written, in a sentence."""
    end = source.window()[1]
    with source.server() as server:
        server.check()
        metrics = find_gpu_metrics(server, whole_hours(end - timedelta(hours=RULES_LOOK_HR), end), Tally())
    if not metrics.present:
        raise SourceError(f"{source.url} has no GPU metrics in the last {RULES_LOOK_HR} hours: nothing to record")
    out.write_text(rules_text(metrics.present, metrics.scales, metrics.step_s, source.selector), encoding="utf-8")
    return f"{out}: rules for {len(metrics.present)} metrics; load it with rule_files, and later collects read it"
