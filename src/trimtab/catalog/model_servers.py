"""Metrics of model servers as they spell them: vLLM (V0, V1), SGLang, TGI, Triton, Ray Serve, our batcher. Facts, no queries.

Names: the published wheels vllm 0.33.0, sglang 0.5.23 and ray 2.60.0; triton-inference-server/server
docs/user_guide/metrics.md; huggingface/text-generation-inference docs/source/reference/metrics.md (all November 2026).
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.units import MS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMetrics:
    """How one kind of server spells what demand is read from and scaling rules go by; empty where it does not export it.

    Tuples hold spellings of several versions, the newest first.
    """

    server: str
    """As it is named in files."""
    title: str
    """As its makers write it."""
    completed: tuple[str, ...]
    """Counter of requests that ended; without those that failed where `failed` is a counter of its own."""
    arrived: str = ""
    """Counter of requests as they come, where it has one."""
    failed: str = ""
    """Counter of requests that failed, or a matcher `{...}` of the completed ones that did."""
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv_cache: tuple[str, ...] = ()
    latency: str = ""
    """Histogram, without `_bucket`."""
    ttft: str = ""
    input_tokens: str = ""
    """Histogram whose `_sum` and `_count` give the mean prompt length."""
    output_tokens: str = ""
    bucket_s: float = 1.0
    """Seconds in the unit of the latency buckets."""
    flops: str = ""
    """Counter of the floating point operations that the server estimates for a GPU; the two below likewise."""
    read_bytes: str = ""
    write_bytes: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that tell that such a server is there, the surest first."""
        return (*self.completed, *self.running)


SERVERS: tuple[ServerMetrics, ...] = (
    ServerMetrics(
        server="vllm",
        title="vLLM",
        completed=("vllm:request_success_total",),
        failed='finished_reason=~"abort|error"',
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        kv_cache=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        latency="vllm:e2e_request_latency_seconds",
        ttft="vllm:time_to_first_token_seconds",
        flops="vllm:estimated_flops_per_gpu_total",
        read_bytes="vllm:estimated_read_bytes_per_gpu_total",
        write_bytes="vllm:estimated_write_bytes_per_gpu_total",
        input_tokens="vllm:request_prompt_tokens",
        output_tokens="vllm:request_generation_tokens",
    ),
    ServerMetrics(
        server="sglang",
        title="SGLang",
        completed=("sglang:num_requests_total",),
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        kv_cache=("sglang:token_usage",),
        latency="sglang:e2e_request_latency_seconds",
        ttft="sglang:time_to_first_token_seconds",
        flops="sglang:estimated_flops_per_gpu_total",
        read_bytes="sglang:estimated_read_bytes_per_gpu_total",
        write_bytes="sglang:estimated_write_bytes_per_gpu_total",
    ),
    ServerMetrics(
        server="tgi",
        title="TGI",
        completed=("tgi_request_success",),
        failed="tgi_request_failure",
        arrived="tgi_request_count",
        running=("tgi_batch_current_size",),
        waiting=("tgi_queue_size",),
        latency="tgi_request_duration",
        input_tokens="tgi_request_input_length",
        output_tokens="tgi_request_generated_tokens",
    ),
    ServerMetrics(
        server="triton",
        title="Triton",
        completed=("nv_inference_request_success",),
        failed="nv_inference_request_failure",
        waiting=("nv_inference_pending_request_count",),
        ttft="nv_inference_first_response_histogram_ms",
        bucket_s=1 / MS_PER_S,
    ),
    ServerMetrics(
        server="ray-serve",
        title="Ray Serve",
        completed=("ray_serve_deployment_request_counter_total", "ray_serve_deployment_request_counter"),
        running=("ray_serve_num_ongoing_requests_at_replicas",),
        waiting=("ray_serve_deployment_queued_queries",),
        latency="ray_serve_deployment_processing_latency_ms",
        bucket_s=1 / MS_PER_S,
    ),
    ServerMetrics(
        server="trimtab-batcher",
        title="trimtab's batcher",
        completed=("trimtab_batcher_requests_total",),
        # those that it refused came all the same: they count as demand
        failed='outcome=~"failed|refused_.+"',
        running=("trimtab_batcher_running",),
        waiting=("trimtab_batcher_waiting",),
        latency="trimtab_batcher_latency_seconds",
    ),
)
"""Every server known."""
