"""GPU metrics of Google Cloud Monitoring as the tables of a bundle."""

import json
from datetime import UTC, datetime

import pytest
from tests.sources.answering_server import answering

from trimtab.catalog import load_catalog
from trimtab.errors import CredentialsError, SourceError
from trimtab.sources.clouds.fleet import cloud_fleet
from trimtab.sources.clouds.google import GoogleMonitoring
from trimtab.sources.hour_grid import HourGrid

START_S = 1_790_000_000 // 3600 * 3600
GRID = HourGrid(start_s=START_S, hours=2)
GCE = {"type": "gce_instance", "labels": {"instance_id": "42", "zone": "us-central1-a", "project_id": "p"}}
POD = {
    "type": "prometheus_target",
    "labels": {"location": "us-central1", "cluster": "prod", "namespace": "gmp", "instance": "n1:9400"},
}
CONTAINER = {"type": "k8s_container", "labels": {"cluster_name": "prod", "location": "europe-west4", "namespace_name": "chat",
                                                 "pod_name": "llm-7d9f8b6c5d-x2x4z", "container_name": "vllm"}}  # fmt: skip
VALUES = {
    "ALIGN_MEAN": 0.5,
    "ALIGN_MAX": 1.0,
    "ALIGN_PERCENTILE_50": 0.4,
    "ALIGN_PERCENTILE_95": 0.9,
    "ALIGN_COUNT": 60,
}


def series(resource, labels, value, *, first=0, hours=2):
    def at(hour):
        return datetime.fromtimestamp(START_S + 3600 * hour, tz=UTC).isoformat()

    points = [
        {"interval": {"startTime": at(hour), "endTime": at(hour + 1)}, "value": value} for hour in range(first, hours)
    ]
    return {"metric": {"labels": labels}, "resource": resource, "points": points}


def told(metric, aligner):
    value = VALUES[aligner]
    if metric == "agent.googleapis.com/gpu/utilization":
        whole = {"int64Value": "60"} if aligner == "ALIGN_COUNT" else {"doubleValue": value * 100}
        return [
            series(GCE, {"gpu_number": "0", "model": "NVIDIA L4"}, whole),
            series(GCE, {"model": "NVIDIA L4"}, whole),
        ]
    if metric == "agent.googleapis.com/gpu/memory/bytes_used":
        return [series(GCE, {"gpu_number": "0", "model": "NVIDIA L4"}, {"doubleValue": 3 * 1024**3})]
    if metric == "kubernetes.io/container/accelerator/duty_cycle":
        labels = {"accelerator_id": "nvidia0", "make": "nvidia", "model": "nvidia-tesla-t4"}
        return [series(CONTAINER, labels, {"int64Value": str(round(value * 100))})]
    if metric == "prometheus.googleapis.com/DCGM_FI_PROF_SM_ACTIVE/gauge":
        labels = {"UUID": "GPU-1", "Hostname": "gke-n1", "modelName": "NVIDIA H100 80GB HBM3", "exported_pod": "train-0",
                  "exported_namespace": "research"}  # fmt: skip
        return [series(POD, labels, {"doubleValue": 60 if aligner == "ALIGN_COUNT" else value})]
    return []


INSTANCES = {
    "items": {
        "zones/us-central1-a": {
            "instances": [
                {
                    "id": "42", "name": "box", "zone": "https://x/zones/us-central1-a",
                    "machineType": "https://x/machineTypes/g2-standard-8", "scheduling": {"provisioningModel": "SPOT"},
                },
                {
                    "id": "43", "name": "gke-n1", "zone": "https://x/zones/us-central1-b",
                    "machineType": "https://x/machineTypes/a3-highgpu-8g",
                },
            ]
        },
        "zones/europe-west4-a": {"warning": {"code": "NO_RESULTS_ON_PAGE"}},
    }
}  # fmt: skip


def google(asked):
    if asked.path.startswith("/compute/"):
        return 200, {}, json.dumps(INSTANCES).encode()
    metric = asked.query["filter"].split('"')[1]
    aligner = asked.query["aggregation.perSeriesAligner"]
    if metric.startswith("kubernetes.io") and aligner.startswith("ALIGN_PERCENTILE"):
        return 400, {}, b'{"error": {"message": "aligner not supported"}}'
    found = told(metric, aligner)
    if asked.query.get("pageToken"):
        return 200, {}, json.dumps({"timeSeries": found[1:]}).encode()
    page = {"timeSeries": found[:1], **({"nextPageToken": "more"} if len(found) > 1 else {})}
    return 200, {}, json.dumps(page).encode()


def read(url):
    monitor = GoogleMonitoring(project="p", headers={"Authorization": "Bearer t"}, url=url, compute_url=url)
    return monitor.read(GRID, lambda stage, done: None)


@pytest.fixture
def collected():
    with answering(google) as (script, url):
        reading = read(url)
    assert all(asked.headers["Authorization"] == "Bearer t" for asked in script.seen)
    return cloud_fleet(reading, load_catalog())


def by_device(collected, table):
    return {row["device"]: row for row in collected.tables[table].to_pylist()}


def test_the_agents_percents_land_as_shares_by_hour(collected):
    rows = [row for row in collected.tables["gpu_usage"].to_pylist() if row["device"] == "42:0"]

    assert [row["hour"].timestamp() for row in rows] == [START_S, START_S + 3600]
    assert (rows[0]["gpu_util_mean"], rows[0]["gpu_util_p50"], rows[0]["gpu_util_p95"], rows[0]["gpu_util_max"]) == (
        0.5, 0.4, 0.9, 1.0)  # fmt: skip
    assert rows[0]["memory_used_gib_mean"] == 3.0
    assert rows[0]["samples"] == 60


def test_dcgm_in_managed_prometheus_names_board_and_pod(collected):
    row = by_device(collected, "allocations")["GPU-1"]

    assert (row["workload"], row["pod"], row["namespace"]) == ("research/train", "train-0", "research")
    assert by_device(collected, "devices")["GPU-1"]["gpu"] == "H100-SXM5-80GB"
    assert by_device(collected, "gpu_usage")["GPU-1"]["sm_active_p95"] == 0.9


def test_gkes_own_metrics_name_the_pod_and_a_refused_percentile_is_missing(collected):
    device = "prod:llm-7d9f8b6c5d-x2x4z:nvidia0"

    assert by_device(collected, "allocations")[device]["workload"] == "chat/llm"
    row = by_device(collected, "gpu_usage")[device]
    assert (row["gpu_util_mean"], row["gpu_util_p95"]) == (0.5, None)
    assert collected.meta.counts[
        "statistics that Google does not make of kubernetes.io/container/accelerator/duty_cycle"
    ] == 2  # fmt: skip


def test_machines_come_with_type_zone_and_spot(collected):
    nodes = {row["node"]: row for row in collected.tables["nodes"].to_pylist()}

    assert (nodes["42"]["instance_type"], nodes["42"]["capacity_type"], nodes["42"]["region"]) == (
        "g2-standard-8", "spot", "us-central1")  # fmt: skip
    assert (nodes["gke-n1"]["instance_type"], nodes["gke-n1"]["zone"]) == ("a3-highgpu-8g", "us-central1-b")


def test_a_series_without_a_board_is_counted(collected):
    assert collected.meta.counts["time series of Google that name no board"] == 5


def test_a_token_that_is_refused_is_a_matter_of_credentials():
    with answering(lambda asked: (401, {}, b"invalid token")) as (_, url), pytest.raises(CredentialsError):
        read(url)


def test_an_answer_that_is_no_page_is_an_error():
    with answering(lambda asked: (200, {}, b"<html>")) as (_, url), pytest.raises(SourceError, match="no page"):
        read(url)


def test_pages_that_go_round_in_a_ring_end_in_an_error():
    def ring(asked):
        following = {"": "b", "b": "c", "c": "b"}[asked.query.get("pageToken", "")]
        return 200, {}, json.dumps({"timeSeries": [], "nextPageToken": following}).encode()

    with answering(ring) as (script, url), pytest.raises(SourceError, match="time series do not end"):
        read(url)
    assert len(script.seen) == 3
