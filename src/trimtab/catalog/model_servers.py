"""Metrics of model servers as they spell them: vLLM (V0, V1), SGLang, TGI, Triton, Ray Serve, our batcher. Facts, no queries.

Names: the published wheels vllm 0.33.0, sglang 0.5.23 and ray 2.60.0; triton-inference-server/server
docs/user_guide/metrics.md; huggingface/text-generation-inference docs/source/reference/metrics.md (all November 2026).
Workers of Dynamo pass the series of the engine that they run (vLLM, SGLang) on under its names.
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
    tpot: str = ""
    """Histogram, without `_bucket`, of each request's mean time per token after the first."""
    prompt_tokens: tuple[str, ...] = ()
    """Counter of prompt tokens, those that the prefix cache held included."""
    answer_tokens: tuple[str, ...] = ()
    cached_tokens: tuple[str, ...] = ()
    """Counter of prompt tokens that the prefix cache held."""
    step_s: tuple[str, ...] = ()
    """Counter of the time of the engine's own steps, by phase: `prefill` and `decode` select its series.

    Times of requests (`vllm:request_prefill_time_seconds`) are not this: a step that decodes 30 requests counts 30 times there.
    """
    prefill: str = ""
    """Matcher of the steps that compute prompts."""
    decode: str = ""
    """Matcher of the steps that only compute answers."""
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
        tpot="vllm:request_time_per_output_token_seconds",
        prompt_tokens=("vllm:prompt_tokens_total",),
        answer_tokens=("vllm:generation_tokens_total",),
        cached_tokens=(
            "vllm:prompt_tokens_cached_total",
            "vllm:prefix_cache_hits_total",
            "vllm:gpu_prefix_cache_hits_total",
        ),
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
        tpot="sglang:request_time_per_output_token_seconds",
        prompt_tokens=("sglang:prompt_tokens_total",),
        answer_tokens=("sglang:generation_tokens_total",),
        cached_tokens=("sglang:cached_tokens_total",),
        step_s=("sglang:forward_execution_seconds_total", "sglang:gpu_execution_seconds_total"),
        prefill='category=~"(forward_)?(extend|prefill)"',
        decode='category=~"(forward_)?decode"',
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
        tpot="tgi_request_mean_time_per_token_duration",
        prompt_tokens=("tgi_request_input_length_sum",),
        answer_tokens=("tgi_request_generated_tokens_sum",),
        step_s=("tgi_batch_inference_duration_sum",),
        prefill='method="prefill"',
        decode='method=~"decode|next_token"',
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
