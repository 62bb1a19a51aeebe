"""Requests as other servers, routers, meshes and gateways count them, and as somebody declares, through a real Prometheus.

The pages are of our own making, from names and labels that the projects' sources give (see `catalog.model_servers`).
"""

from datetime import UTC, datetime

import pyarrow.compute as pc
import pytest
from tests.e2e.conftest import collected_from

from trimtab.catalog.model_servers import PROXIES, SERVERS
from trimtab.emit.manifests.cluster_file import parse_cluster_file

START = datetime(2026, 9, 1, tzinfo=UTC)
HOURS, STEP_S = 3, 60
STEPS = HOURS * 60

DYNAMO = """
dynamo_component_inflight_requests{dynamo_namespace="d",dynamo_component="backend",dynamo_endpoint="generate"} 4
dynamo_component_requests_total{dynamo_namespace="d",dynamo_component="backend",dynamo_endpoint="generate"} 600
dynamo_component_requests_total{dynamo_namespace="d",dynamo_component="backend",dynamo_endpoint="clear_kv_blocks"} 9000
dynamo_component_request_duration_seconds_bucket{dynamo_component="backend",dynamo_endpoint="generate",le="1.0"} 450
dynamo_component_request_duration_seconds_bucket{dynamo_component="backend",dynamo_endpoint="generate",le="+Inf"} 600
"""
NIM = """
num_requests_running{model_name="m"} 3
num_requests_waiting{model_name="m"} 1
gpu_cache_usage_perc{model_name="m"} 0.4
request_success_total{model_name="m"} 500
request_failure_total{model_name="m"} 10
prompt_tokens_total{model_name="m"} 50000
generation_tokens_total{model_name="m"} 20000
e2e_request_latency_seconds_bucket{model_name="m",le="2.5"} 400
e2e_request_latency_seconds_bucket{model_name="m",le="+Inf"} 500
"""
BENTOML = """
bentoml_service_request_in_progress{endpoint="/predict",service_name="b",service_version="v"} 2
bentoml_service_request_total{endpoint="/predict",service_name="b",service_version="v",http_response_code="200"} 300
bentoml_service_request_total{endpoint="/predict",service_name="b",service_version="v",http_response_code="500"} 30
bentoml_service_request_total{endpoint="/livez",service_name="b",service_version="v",http_response_code="200"} 5000
bentoml_service_request_duration_seconds_bucket{endpoint="/predict",http_response_code="200",le="0.5"} 300
bentoml_service_request_duration_seconds_bucket{endpoint="/predict",http_response_code="200",le="+Inf"} 300
bentoml_service_request_duration_seconds_bucket{endpoint="/livez",http_response_code="200",le="0.5"} 5000
bentoml_service_request_duration_seconds_bucket{endpoint="/livez",http_response_code="200",le="+Inf"} 5000
"""
TORCHSERVE = """
ts_inference_requests_total{model_name="resnet",model_version="1.0",hostname="h"} 720
ts_inference_latency_microseconds{model_name="resnet",model_version="1.0",hostname="h"} 3600000
"""
KSERVE = """
request_predict_seconds_count{model_name="iris"} 180
request_predict_seconds_bucket{model_name="iris",le="0.1"} 90
request_predict_seconds_bucket{model_name="iris",le="+Inf"} 180
request_preprocess_seconds_count{model_name="iris"} 180
"""
OWN = """
infer_done_total{code="200"} 240
infer_done_total{code="503"} 12
infer_ms_bucket{le="100"} 126
infer_ms_bucket{le="+Inf"} 252
"""
ISTIO = """
istio_requests_total{reporter="destination",response_code="200",WORKLOAD} 400
istio_requests_total{reporter="destination",response_code="503",WORKLOAD} 8
istio_requests_total{reporter="source",response_code="200",WORKLOAD} 400
istio_request_duration_milliseconds_bucket{reporter="destination",le="500",WORKLOAD} 204
istio_request_duration_milliseconds_bucket{reporter="destination",le="+Inf",WORKLOAD} 408
istio_request_duration_milliseconds_bucket{reporter="source",le="500",WORKLOAD} 1
istio_request_duration_milliseconds_bucket{reporter="source",le="+Inf",WORKLOAD} 408
"""
NGINX = """
nginx_ingress_controller_requests{exported_namespace="prod",ingress="i",exported_service="SERVICE",status="200"} 350
nginx_ingress_controller_requests{exported_namespace="prod",ingress="i",exported_service="SERVICE",status="502"} 7
nginx_ingress_controller_request_duration_seconds_bucket{exported_namespace="prod",exported_service="SERVICE",le="1"} 350
nginx_ingress_controller_request_duration_seconds_bucket{exported_namespace="prod",exported_service="SERVICE",le="+Inf"} 357
"""
ENVOY = """
envoy_cluster_upstream_rq_xx{envoy_response_code_class="2",envoy_cluster_name="CLUSTER"} 280
envoy_cluster_upstream_rq_xx{envoy_response_code_class="5",envoy_cluster_name="CLUSTER"} 4
envoy_cluster_upstream_rq_active{envoy_cluster_name="CLUSTER"} 2
envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="CLUSTER",le="1000"} 71
envoy_cluster_upstream_rq_time_bucket{envoy_cluster_name="CLUSTER",le="+Inf"} 284
"""
EPP = """
inference_objective_request_total{model_name="m",target_model_name="m",priority="0"} 200
inference_objective_running_requests{model_name="m"} 5
inference_objective_request_duration_seconds_count{model_name="m",target_model_name="m"} 190
inference_objective_request_duration_seconds_bucket{model_name="m",target_model_name="m",le="5"} 95
inference_objective_request_duration_seconds_bucket{model_name="m",target_model_name="m",le="+Inf"} 190
"""
ROUTER = """
llm_d_epp_request_total{model_name="m"} 220
llm_d_epp_request_error_total{model_name="m"} 4
llm_d_epp_request_running{model_name="m"} 5
llm_d_epp_request_duration_seconds_count{model_name="m"} 210
llm_d_epp_request_duration_seconds_bucket{model_name="m",le="5"} 105
llm_d_epp_request_duration_seconds_bucket{model_name="m",le="+Inf"} 210
"""
FRONTEND = """
dynamo_frontend_active_requests{model="m"} 6
dynamo_frontend_requests_total{model="m",endpoint="chat_completions",request_type="stream",status="success"} 160
dynamo_frontend_requests_total{model="m",endpoint="chat_completions",request_type="stream",status="error"} 2
dynamo_frontend_request_duration_seconds_bucket{model="m",le="10"} 162
dynamo_frontend_request_duration_seconds_bucket{model="m",le="+Inf"} 162
dynamo_frontend_time_to_first_token_seconds_bucket{model="m",le="0.5"} 81
dynamo_frontend_time_to_first_token_seconds_bucket{model="m",le="+Inf"} 162
"""
VLLM = """
vllm:num_requests_running{model_name="m"} 2
vllm:request_success_total{model_name="m",finished_reason="stop"} 400
vllm:e2e_request_latency_seconds_bucket{model_name="m",le="1.0"} 200
vllm:e2e_request_latency_seconds_bucket{model_name="m",le="+Inf"} 400
"""
GAUGES = (
    "_running",
    "_waiting",
    "_inflight_requests",
    "_running_requests",
    "_active_requests",
    "_progress",
    "_active",
    "_perc",
)
OWN_PODS = {
    "dynamo": DYNAMO,
    "nim": NIM,
    "bento": BENTOML,
    "torch": TORCHSERVE,
    "kserve": KSERVE,
    "own": OWN,
    "both": VLLM,
}
BEHIND = (
    "meshed",
    "ingressed",
    "sliced",
    "gatewayed",
    "pool-decode",
    "newer-decode",
    "graph-worker",
    "graphs-worker",
    "named",
    "twice",
)
"""Workloads with GPUs whose pods export nothing."""
CLUSTER = """
workloads:
  prod/own:
    metrics: {completed: infer_done_total, failed: 'code=~"5.."', latency: infer_ms, unit: milliseconds}
  prod/named:
    metrics:
      completed: nginx_ingress_controller_requests
      failed: 'status=~"5.."'
      latency: nginx_ingress_controller_request_duration_seconds
      labels: {exported_namespace: prod, exported_service: front-door}
  prod/gone:
    metrics: {completed: nobody_exports_this_total}
"""


def series(page, labels):
    """Let the counters of a page rise evenly to what it says over the history; gauges stand."""
    for line in page.strip().splitlines():
        said, value = line.rsplit(" ", 1)
        metric, _, own = said.partition("{")
        named = ",".join(part for part in (labels, own.rstrip("}")) if part)
        for step in range(STEPS):
            at = float(value) if metric.endswith(GAUGES) else float(value) * step / (STEPS - 1)
            yield f"{metric}{{{named}}} {at!r} {int(START.timestamp()) + step * STEP_S}\n"


def of_workload(name):
    return f'destination_workload_namespace="prod",destination_workload="{name}"'


def history():
    """Yield the lines of all that Prometheus scraped."""
    for name, page in OWN_PODS.items():
        yield from series(page, f'namespace="prod",pod="{name}-0"')
    for number, name in enumerate((*OWN_PODS, *BEHIND)):
        pods = (0, 1) if name == "meshed" else (0,)
        for pod in pods:
            board = f'UUID="GPU-{number}-{pod}",gpu="{number}",modelName="Tesla T4",Hostname="n{number}"'
            yield from series(f"DCGM_FI_DEV_GPU_UTIL{{{board}}} 50", f'namespace="prod",pod="{name}-{pod}"')
    scrape = 'namespace="ingress-nginx",pod="controller-0"'
    for name in ("meshed", "both", "a-web-page"):
        yield from series(ISTIO.replace("WORKLOAD", of_workload(name)), 'pod="some-proxy-0"')
    for service in ("ingressed", "chat-svc", "front-door", "twice", "a-shop"):
        yield from series(NGINX.replace("SERVICE", service), scrape)
    for cluster in ("httproute/prod/gatewayed/rule/0", "outbound|8000||twice.prod.svc.cluster.local", "xds_cluster"):
        yield from series(ENVOY.replace("CLUSTER", cluster), 'namespace="envoy",pod="envoy-0"')
    yield from series(EPP, 'namespace="prod",pod="pool-epp-0"')
    # a newer router exports the former names too
    yield from series(ROUTER, 'namespace="prod",pod="newer-epp-0"')
    yield from series(EPP, 'namespace="prod",pod="newer-epp-0"')
    yield from series(FRONTEND, 'namespace="prod",pod="graph-frontend-0"')
    slice_of = 'namespace="prod",endpointslice="chat-svc-x7k2p",targetref_kind="Pod",targetref_namespace="prod"'
    yield from series('kube_endpointslice_endpoints{targetref_name="sliced-0"} 1', slice_of)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, prometheus_bin, promtool_bin):
    folder = tmp_path_factory.mktemp("servers")
    said = parse_cluster_file(CLUSTER, where="cluster.yaml").workloads
    declared = {name: workload.metrics.as_metrics() for name, workload in said.items()}
    binaries = (prometheus_bin, promtool_bin)
    return collected_from("".join(history()), folder, binaries, START, HOURS, declared=declared)


def demand(bundle, name):
    table = bundle.table("demand")
    return table.filter(pc.equal(table["workload"], f"prod/{name}")).to_pylist()


def total(rows, column):
    return sum(row[column] for row in rows[1:])


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("name", "server", "arrived", "failed", "le_s", "within"),
    [
        ("dynamo", "dynamo", 600, None, 1.0, 0.75),
        ("nim", "nim", 510, 10, 2.5, 0.8),
        ("bento", "bentoml", 330, 30, 0.5, 1.0),
        ("kserve", "kserve", 180, None, 0.1, 0.5),
        ("own", "declared", 252, 12, 0.1, 0.5),
        ("meshed", "istio", 408, 8, 0.5, 0.5),
        ("ingressed", "ingress-nginx", 357, 7, 1.0, 350 / 357),
        ("sliced", "ingress-nginx", 357, 7, 1.0, 350 / 357),
        ("named", "declared", 357, 7, 1.0, 350 / 357),
        ("gatewayed", "envoy", 284, 4, 1.0, 0.25),
        ("pool-decode", "llm-d", 200, None, 5.0, 0.5),
        ("newer-decode", "llm-d-router", 220, 4, 5.0, 0.5),
        ("graph-worker", "dynamo-frontend", 162, 2, 10.0, 1.0),
    ],
)
def test_requests_are_read_as_they_were_counted(bundle, name, server, arrived, failed, le_s, within):
    rows = demand(bundle, name)

    assert {row["server"] for row in rows} == {server}
    assert len(rows) == len({row["start"] for row in rows})
    assert total(rows, "arrivals") == pytest.approx(arrived)
    assert (failed is None and rows[5]["failed"] is None) or total(rows, "failed") == pytest.approx(failed)
    assert rows[5]["latency_le_s"][0] == pytest.approx(le_s)
    assert rows[5]["latency_count"][0] / sum(rows[5]["latency_count"]) == pytest.approx(within)


@pytest.mark.prometheus
def test_requests_that_server_and_mesh_count_are_counted_once(bundle):
    rows = demand(bundle, "both")

    assert {row["server"] for row in rows} == {"vllm"}
    assert total(rows, "arrivals") == pytest.approx(400)
    assert bundle.meta.counts["services that Istio counts too: read from vLLM alone"] == 1


@pytest.mark.prometheus
def test_of_two_proxies_the_closer_counts(bundle):
    rows = demand(bundle, "twice")

    assert {row["server"] for row in rows} == {"ingress-nginx"}
    assert total(rows, "arrivals") == pytest.approx(357)


@pytest.mark.prometheus
def test_replicas_behind_a_proxy_are_the_pods_that_hold_gpus(bundle):
    assert {row["replicas_ready"] for row in demand(bundle, "meshed")[1:-1]} == {2.0}
    assert {row["replicas_ready"] for row in demand(bundle, "ingressed")[1:-1]} == {1.0}


@pytest.mark.prometheus
def test_a_server_without_latencies_is_judged_by_activity_and_says_so(bundle):
    rows = demand(bundle, "torch")

    assert total(rows, "arrivals") == pytest.approx(720)
    assert {row["latency_le_s"] for row in rows} == {None}
    (said,) = (reason for reason in bundle.meta.counts if "TorchServe" in reason)
    assert "judged by GPU activity" in said


@pytest.mark.prometheus
def test_what_proxies_count_for_no_workload_with_gpus_is_no_demand_and_is_counted(bundle):
    assert demand(bundle, "a-web-page") == demand(bundle, "a-shop") == []
    counted = {
        reason: number for reason, number in bundle.meta.counts.items() if "no workload with GPUs by any name" in reason
    }
    assert {reason.split(" counts ")[0].removeprefix("services that ") for reason in counted} == {
        "Istio",
        "Ingress NGINX",
    }


@pytest.mark.prometheus
def test_declared_metrics_that_nobody_exports_are_counted(bundle):
    assert (
        bundle.meta.counts["workloads whose declared metrics have no series: check their names and labels in --cluster"]
        == 1
    )


@pytest.mark.prometheus
def test_a_router_that_may_serve_several_workloads_is_taken_for_none(bundle):
    # `graphs-worker` begins like the graph's name, and is not of it
    assert demand(bundle, "graphs-worker") == []


def test_every_server_and_proxy_has_a_name_of_its_own_and_a_counter():
    names = [metrics.server for metrics in (*SERVERS, *PROXIES)]

    assert len(set(names)) == len(names)
    assert all(metrics.completed for metrics in (*SERVERS, *PROXIES))
    assert {metrics.server for metrics in PROXIES if metrics.target is None} == set()
