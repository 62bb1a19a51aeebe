"""The series of each model server that a scaling rule reads, under one set of names.

Names: vllm 0.33.0 and sglang 0.5.23 (their published wheels), text-generation-inference and Triton (their metrics pages), Ray
Serve 2.60.0; read in November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

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


SERVERS: Mapping[str, ServerSignals] = MappingProxyType(
    {
        signals.server: signals
        for signals in (
            ServerSignals(
                server="vllm",
                completed="vllm:request_success_total",
                waiting="vllm:num_requests_waiting",
                kv_cache="vllm:kv_cache_usage_perc",
                ttft="vllm:time_to_first_token_seconds",
                latency="vllm:e2e_request_latency_seconds",
            ),
            ServerSignals(
                server="sglang",
                completed="sglang:num_requests_total",
                waiting="sglang:num_queue_reqs",
                kv_cache="sglang:token_usage",
                ttft="sglang:time_to_first_token_seconds",
                latency="sglang:e2e_request_latency_seconds",
            ),
            ServerSignals(
                server="tgi",
                completed="tgi_request_success",
                arrived="tgi_request_count",
                waiting="tgi_queue_size",
                latency="tgi_request_duration",
            ),
            ServerSignals(
                server="triton",
                completed="nv_inference_request_success",
                waiting="nv_inference_pending_request_count",
            ),
            ServerSignals(
                server="ray-serve",
                completed="ray_serve_deployment_request_counter_total",
                waiting="ray_serve_deployment_queued_queries",
            ),
        )
    }
)


def server_signals(server: str) -> ServerSignals:
    """Return a server's series; raises UnknownName with near matches."""
    if server not in SERVERS:
        raise UnknownName("model server", server, SERVERS)
    return SERVERS[server]
