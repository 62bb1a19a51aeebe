"""Metrics of model servers, and of the proxies in front of them, as they spell them. Facts, no queries.

Names: the published wheels vllm 0.33.0, sglang 0.5.23, ray 2.60.0, bentoml 1.4.40 (`_internal/server/http/instruments.py`),
torchserve 0.12.0 (`ts/configs/metrics.yaml`) and kserve 0.21.0 (`metrics.py`); triton-inference-server/server
docs/user_guide/metrics.md; huggingface/text-generation-inference docs/source/reference/metrics.md; NVIDIA NIM for LLMs,
observability page; ai-dynamo/dynamo lib/runtime/src/metrics/prometheus_names.rs at 04070c75 and docs/observability/metrics.md;
llm-d/llm-d-inference-scheduler pkg/epp/metrics/metrics.go at 13383090; istio/istio.io reference/config/metrics at 0d3a9e89;
kubernetes/ingress-nginx internal/ingress/metric/collectors/socket.go at 038b023d; envoyproxy/envoy, cluster statistics (all
November 2026). Workers of Dynamo pass the series of the engine that they run (vLLM, SGLang) on under its names. LitServe
(wheel 0.2.19, `loggers.py`) exports nothing that its users do not write themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trimtab.units import MS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyTarget:
    """How series that are not of the pods that serve say whose requests they count: labels, the surest first."""

    name: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    """Forms of the name's value that hold both, as groups `namespace` and `name`."""
    suffix: str = ""
    """Of a router, which is named by its own pod: what its workload's name has after that of what it serves."""
    reporters: tuple[str, ...] = ()
    """Values of the label `reporter`: where several report the same requests, the first that is there counts."""

    def of(self, labels: Mapping[str, str]) -> tuple[str, str] | None:
        """Return (namespace, name) of what a series is of; None where its labels do not say.

        >>> ProxyTarget(name=("cluster",), patterns=("kube_(?P<namespace>[^_]+)_(?P<name>[^_]+)_[0-9]+",)).of(
        ...     {"cluster": "kube_prod_chat_8000"}
        ... )
        ('prod', 'chat')
        """
        name, namespace = (first_label(labels, names) for names in (self.name, self.namespace))
        for pattern in self.patterns:
            found = re.fullmatch(pattern, name)
            if found is not None:
                return found["namespace"], found["name"]
        return (namespace, name) if name and not self.patterns else None

    def chosen_by(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels that select the series of the same target."""
        names = [next((name for name in tried if labels.get(name)), "") for tried in (self.namespace, self.name)]
        return {name: labels[name] for name in (*names, *(["reporter"] if self.reporters else [])) if labels.get(name)}


def first_label(labels: Mapping[str, str], names: Iterable[str]) -> str:
    """Return the value of the first of some labels that is there; empty where none is."""
    return next((labels[name] for name in names if labels.get(name)), "")


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
    only: tuple[str, ...] = ()
    """Matchers without which its series count other things too, such as probes."""
    told_by: tuple[str, ...] = ()
    """Names that tell it from others, where those of its counters could be anybody's."""
    target: ProxyTarget | None = None
    """Whose requests a proxy counts; None where the pods that serve export the series themselves."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that tell that such a server is there, the surest first."""
        return self.told_by or (*self.completed, *self.running)

    @property
    def times_requests(self) -> bool:
        """Return whether it has a histogram of requests or of first tokens, by which targets can be judged."""
        return bool(self.latency or self.ttft)


_POD = ("exported_pod", "pod")
_NAMESPACE = ("exported_namespace", "namespace")
"""A scrape without `honorLabels` renames labels that it has itself."""

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
    ServerMetrics(
        server="dynamo",
        title="NVIDIA Dynamo",
        # what failed is in it; `errors_total` counts clients that went away too, so it is not taken for failures
        completed=("dynamo_component_requests_total",),
        only=('dynamo_endpoint="generate"',),
        running=("dynamo_component_inflight_requests",),
        latency="dynamo_component_request_duration_seconds",
    ),
    ServerMetrics(
        server="nim",
        title="NVIDIA NIM",
        told_by=("num_requests_running", "request_finish_total"),
        completed=("request_success_total",),
        failed="request_failure_total",
        running=("num_requests_running",),
        waiting=("num_requests_waiting",),
        kv_cache=("gpu_cache_usage_perc",),
        latency="e2e_request_latency_seconds",
        ttft="time_to_first_token_seconds",
        input_tokens="request_prompt_tokens",
        output_tokens="request_generation_tokens",
        prompt_tokens=("prompt_tokens_total",),
        answer_tokens=("generation_tokens_total",),
    ),
    ServerMetrics(
        server="bentoml",
        title="BentoML",
        completed=("bentoml_service_request_total",),
        # kubelet's probes are requests to it like any other
        only=('endpoint!~"/(healthz|livez|readyz|metrics)"',),
        failed='http_response_code=~"5.."',
        running=("bentoml_service_request_in_progress",),
        latency="bentoml_service_request_duration_seconds",
    ),
    ServerMetrics(server="torchserve", title="TorchServe", completed=("ts_inference_requests_total",)),
    ServerMetrics(
        server="kserve",
        title="KServe",
        completed=("request_predict_seconds_count",),
        latency="request_predict_seconds",
    ),
)
"""Every server known whose pods export their own requests; of several that one pod exports, the first is read."""

PROXIES: tuple[ServerMetrics, ...] = (
    ServerMetrics(
        # since llm-d-router renamed its series (docs of llm-d, observability); the former names below are deprecated aliases
        server="llm-d-router",
        title="llm-d's router",
        arrived="llm_d_epp_request_total",
        completed=("llm_d_epp_request_duration_seconds_count",),
        failed="llm_d_epp_request_error_total",
        running=("llm_d_epp_request_running",),
        latency="llm_d_epp_request_duration_seconds",
        ttft="llm_d_epp_request_ttft_seconds",
        input_tokens="llm_d_epp_request_input_tokens",
        output_tokens="llm_d_epp_request_output_tokens",
        target=ProxyTarget(name=_POD, namespace=_NAMESPACE, suffix="-epp"),
    ),
    ServerMetrics(
        server="llm-d",
        title="llm-d's and the Gateway API's endpoint picker",
        arrived="inference_objective_request_total",
        completed=("inference_objective_request_duration_seconds_count",),
        running=("inference_objective_running_requests",),
        latency="inference_objective_request_duration_seconds",
        ttft="inference_objective_request_ttft_seconds",
        input_tokens="inference_objective_input_tokens",
        output_tokens="inference_objective_output_tokens",
        target=ProxyTarget(name=_POD, namespace=_NAMESPACE, suffix="-epp"),
    ),
    ServerMetrics(
        server="dynamo-frontend",
        title="NVIDIA Dynamo's frontend",
        completed=("dynamo_frontend_requests_total",),
        failed='status="error"',
        running=("dynamo_frontend_active_requests", "dynamo_frontend_inflight_requests"),
        latency="dynamo_frontend_request_duration_seconds",
        ttft="dynamo_frontend_time_to_first_token_seconds",
        input_tokens="dynamo_frontend_input_sequence_tokens",
        output_tokens="dynamo_frontend_output_sequence_tokens",
        target=ProxyTarget(name=_POD, namespace=_NAMESPACE, suffix="-frontend"),
    ),
    ServerMetrics(
        server="istio",
        title="Istio",
        completed=("istio_requests_total",),
        failed='response_code=~"5.."',
        latency="istio_request_duration_milliseconds",
        bucket_s=1 / MS_PER_S,
        target=ProxyTarget(
            name=("destination_workload",),
            namespace=("destination_workload_namespace",),
            reporters=("destination", "waypoint", "source"),
        ),
    ),
    ServerMetrics(
        server="ingress-nginx",
        title="Ingress NGINX",
        completed=("nginx_ingress_controller_requests",),
        failed='status=~"5.+"',
        latency="nginx_ingress_controller_request_duration_seconds",
        target=ProxyTarget(name=("exported_service", "service"), namespace=_NAMESPACE),
    ),
    ServerMetrics(
        server="envoy",
        title="Envoy",
        completed=("envoy_cluster_upstream_rq_xx",),
        failed='envoy_response_code_class="5"',
        running=("envoy_cluster_upstream_rq_active",),
        waiting=("envoy_cluster_upstream_rq_pending_active",),
        latency="envoy_cluster_upstream_rq_time",
        bucket_s=1 / MS_PER_S,
        target=ProxyTarget(
            name=("envoy_cluster_name", "cluster_name"),
            # Envoy Gateway, Istio, kgateway, Cilium, Contour: names of clusters as their gateways write them
            patterns=(
                r"(http|grpc)route/(?P<namespace>[^/]+)/(?P<name>[^/]+)/rule/.+",
                r"outbound\|[0-9]+\|[^|]*\|(?P<name>[^.]+)\.(?P<namespace>[^.]+)\.svc\..+",
                r"kube_(?P<namespace>[^_/]+)_(?P<name>[^_/]+)_[0-9]+",
                r"([^/]+/)?cilium-gateway-[^/]+/(?P<namespace>[^_:/]+)[_:](?P<name>[^_:/]+)[_:][0-9]+",
                r"(?P<namespace>[^/]+)/(?P<name>[^/]+)/[0-9]+(/.+)?",
            ),
        ),
    ),
)
"""Routers, meshes and gateways; read only for workloads whose own pods export none, the closest to them first."""
