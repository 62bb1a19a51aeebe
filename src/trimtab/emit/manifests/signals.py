"""The series of each model server that a scaling rule reads: the newest spellings of `catalog.model_servers`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trimtab.catalog import model_servers
from trimtab.catalog.model_servers import ServerMetrics
from trimtab.errors import UnknownName


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSignals:
    """Series that a server exports for each pod; None where it has none.

    `completed` and `arrived` are counters of requests, `waiting` a gauge of requests queued, `kv_cache` a gauge 0..1, `ttft`
    and `latency` histograms in seconds without their suffix.
    """

    server: str
    completed: str
    arrived: str | None = None
    waiting: str | None = None
    kv_cache: str | None = None
    ttft: str | None = None
    latency: str | None = None


def _signals(metrics: ServerMetrics) -> ServerSignals:
    in_seconds = metrics.bucket_s == 1
    return ServerSignals(
        server=metrics.server,
        completed=metrics.completed[0],
        arrived=metrics.arrived or None,
        waiting=metrics.waiting[0] if metrics.waiting else None,
        kv_cache=metrics.kv_cache[0] if metrics.kv_cache else None,
        ttft=(metrics.ttft or None) if in_seconds else None,
        latency=(metrics.latency or None) if in_seconds else None,
    )


SERVERS: Mapping[str, ServerSignals] = MappingProxyType(
    {server.server: _signals(server) for server in model_servers.SERVERS}
)


def server_signals(server: str) -> ServerSignals:
    """Return a server's series; raises UnknownName with near matches."""
    if server not in SERVERS:
        raise UnknownName("model server", server, SERVERS)
    return SERVERS[server]
