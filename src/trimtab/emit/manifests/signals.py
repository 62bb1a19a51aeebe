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
    and `latency` histograms in seconds without their suffix; the others are counters of tokens, those of prompts with what the
    prefix cache held.
    """

    server: str
    completed: str
    arrived: str | None = None
    waiting: str | None = None
    kv_cache: str | None = None
    ttft: str | None = None
    latency: str | None = None
    prompt_tokens: str | None = None
    answer_tokens: str | None = None
    cached_tokens: str | None = None
    only: tuple[str, ...] = ()
    """Matchers without which its series count other things too."""

    @property
    def counts_tokens(self) -> bool:
        """Return whether a rule can go by its tokens."""
        return self.prompt_tokens is not None and self.answer_tokens is not None


def signals_of(metrics: ServerMetrics) -> ServerSignals:
    """Return the series that rules read; histograms of other units than seconds are none of them."""
    in_seconds = metrics.bucket_s == 1
    return ServerSignals(
        server=metrics.server,
        completed=metrics.completed[0],
        arrived=metrics.arrived or None,
        waiting=_newest(metrics.waiting),
        kv_cache=_newest(metrics.kv_cache),
        ttft=(metrics.ttft or None) if in_seconds else None,
        latency=(metrics.latency or None) if in_seconds else None,
        prompt_tokens=_newest(metrics.prompt_tokens),
        answer_tokens=_newest(metrics.answer_tokens),
        cached_tokens=_newest(metrics.cached_tokens),
        only=metrics.only,
    )


def _newest(names: tuple[str, ...]) -> str | None:
    return names[0] if names else None


SERVERS: Mapping[str, ServerSignals] = MappingProxyType(
    {server.server: signals_of(server) for server in model_servers.SERVERS}
)


def server_signals(server: str) -> ServerSignals:
    """Return a server's series; raises UnknownName with near matches."""
    if server not in SERVERS:
        raise UnknownName("model server", server, SERVERS)
    return SERVERS[server]
