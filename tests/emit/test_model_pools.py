"""Pods whose models take turns on one GPU: what llama-swap is told, and objects that Kubernetes accepts."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
import yaml
from tests.emit.validity import schema_faults

from trimtab.emit.manifests.facts import EmitFacts
from trimtab.emit.manifests.model_pools import PoolMember, SharedGpu, awake_together, pool_files, router_config
from trimtab.emit.manifests.own_replicas import OwnReplicas, requests_query
from trimtab.policies.pooling import OWN_REPLICAS

SMALL = PoolMember(workload="apps/a", model="Qwen/Qwen3-4B", awake_gib=12, asleep_gib=1.2, at_once=16, own_at_once=64)
MEDIUM = replace(SMALL, workload="apps/b", model="Qwen/Qwen3-14B", awake_gib=33)
LARGE = replace(SMALL, workload="apps/c", model="Qwen/Qwen3-32B", awake_gib=66, sleeps_after_s=2)
GPU = SharedGpu(
    number=1,
    instance_type="p5.4xlarge",
    gpu="H100-SXM5-80GB",
    gpu_gib=79.6,
    usable_gib=75.6,
    members=(SMALL, MEDIUM, LARGE),
)


def test_models_may_be_awake_together_as_far_as_memory_goes():
    assert awake_together(GPU) == [(0, 1), (2,)]
    assert router_config(GPU)["matrix"]["sets"] == {"set0": "m0 & m1", "set1": "m2"}


def test_each_server_starts_on_loopback_with_its_share_of_memory_and_sleeps_when_told():
    model = router_config(GPU)["models"]["Qwen/Qwen3-14B"]

    assert "vllm serve Qwen/Qwen3-14B --served-model-name Qwen/Qwen3-14B" in model["cmd"]
    assert "--host 127.0.0.1 --port 9002" in model["cmd"]
    assert "--enable-sleep-mode --gpu-memory-utilization 0.39" in model["cmd"]
    assert model["cmdStop"] == "vllm-wrapper sleep --vllm-url http://127.0.0.1:9002 --stop-pid ${PID}"
    assert "ttl" not in model
    assert router_config(GPU)["models"]["Qwen/Qwen3-32B"]["ttl"] == 2


def test_two_services_of_one_model_are_told_apart_by_their_own_names():
    twins = replace(GPU, members=(SMALL, replace(SMALL, workload="apps/b")))

    assert list(router_config(twins)["models"]) == ["apps/a", "apps/b"]
    assert router_config(twins)["hooks"]["on_startup"]["preload"] == ["apps/a", "apps/b"]


def test_the_objects_are_valid_and_the_pod_asks_for_one_gpu_and_memory_for_all_weights(shared_dir):
    files = pool_files([GPU])

    objects = list(yaml.safe_load_all(files["pool-p5-4xlarge-1.yaml"]))

    assert [each["kind"] for each in objects] == ["ConfigMap", "Deployment", "Service"]
    for each in objects:
        assert schema_faults(each, shared_dir / "data" / "k8s-schemas") == []
    container = objects[1]["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"memory": "111Gi"}, "limits": {"nvidia.com/gpu": "1"}}
    assert "COPY --from=router" in files["Dockerfile"]


OWN = OwnReplicas(policy=OWN_REPLICAS, facts=EmitFacts(prometheus_url="http://prometheus:9090"))


def own_objects():
    return list(yaml.safe_load_all(pool_files([GPU], OWN)["pool-p5-4xlarge-1.yaml"]))


def test_own_replicas_are_valid_objects_with_a_router_and_an_autoscaler_for_each_model(shared_dir):
    objects = own_objects()

    kinds = [each["kind"] for each in objects[3:]]
    each_model = ["Service", "Service", "Deployment", "ScaledObject"]
    assert kinds == ["ConfigMap", "Deployment", "PodMonitor", *each_model * 3]
    for each in objects:
        assert schema_faults(each, shared_dir / "data" / "k8s-schemas") == []


def test_clients_of_each_model_reach_its_port_of_the_router_and_own_replicas_start_from_none():
    objects = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in own_objects() if "spec" in each}

    assert objects["Service", "pool-apps-b"]["ports"] == [{"name": "http", "port": 80, "targetPort": 8101}]
    assert objects["Service", "pool-apps-b"]["selector"] == {"app.kubernetes.io/name": "pool-p5-4xlarge-1-router"}
    assert objects["Service", "own-apps-b"]["clusterIP"] == "None"
    own = objects["Deployment", "own-apps-b"]
    assert own["replicas"] == 0
    container = own["template"]["spec"]["containers"][0]
    assert container["command"][:3] == ["vllm", "serve", "Qwen/Qwen3-14B"]
    assert container["command"][-2:] == ["--max-num-seqs", "64"]


def test_the_router_prefers_own_replicas_and_requests_wait_for_whichever_server_is_free():
    objects = {each["metadata"]["name"]: each for each in own_objects() if each["kind"] == "ConfigMap"}
    config = objects["pool-p5-4xlarge-1-router"]["data"]["haproxy.cfg"]

    part = config[config.index("listen own-apps-b") : config.index("listen own-apps-c")]
    assert "option allbackups" in part
    assert "server-template own 16 own-apps-b.apps.svc.cluster.local:8000 check" in part
    assert "init-addr none maxconn 64" in part
    assert "server shared pool-p5-4xlarge-1.apps.svc.cluster.local:8080 backup" in part
    assert part.rstrip().endswith("maxconn 16")


def test_the_autoscaler_only_adds_and_gives_all_back_after_five_minutes_without_a_request():
    spec = next(each["spec"] for each in own_objects() if each["kind"] == "ScaledObject")

    assert (spec["minReplicaCount"], spec["maxReplicaCount"], spec["cooldownPeriod"]) == (0, 16, 300)
    behaviour = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behaviour["scaleDown"] == {"selectPolicy": "Disabled"}
    trigger = spec["triggers"][0]
    assert trigger["metricType"] == "AverageValue"
    assert trigger["metadata"]["threshold"] == "64"
    assert trigger["metadata"]["activationThreshold"] == "0"
    assert trigger["metadata"]["serverAddress"] == "http://prometheus:9090"
    requests = 'sum(haproxy_backend_current_sessions{namespace="apps",proxy="own-apps-a"})'
    held = 'sum(kube_deployment_spec_replicas{namespace="apps",deployment="own-apps-a"})'
    assert trigger["metadata"]["query"] == f"{requests} * clamp_max(({requests} >= bool 8) + ({held} > bool 0), 1)"


def test_prometheus_counts_requests_from_the_first_replicas_limit_on_and_all_of_them_while_replicas_are_held(
    promtool_bin, tmp_path
):
    query = requests_query("own-apps-a", "apps", OWN_REPLICAS)
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "pool", "rules": [{"record": "wanted", "expr": query}]}]})
    )
    series = {
        'haproxy_backend_current_sessions{namespace="apps",proxy="own-apps-a"}': "0 7 8 20 5 0",
        'kube_deployment_spec_replicas{namespace="apps",deployment="own-apps-a"}': "0 0 0 1 1 1",
    }
    samples = [
        {"expr": "wanted", "eval_time": f"{15 * at}s", "exp_samples": [{"labels": "wanted", "value": value}]}
        for at, value in enumerate((0, 0, 8, 20, 5, 0))
    ]
    case = {
        "interval": "15s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": samples,
    }
    (tmp_path / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": [case]})
    )

    run = subprocess.run([promtool_bin, "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, text=True)

    assert run.returncode == 0, run.stdout + run.stderr


def test_without_shared_gpus_nothing_is_written():
    assert pool_files([]) == {}


def test_too_many_models_for_one_gpu_are_refused():
    crowd = tuple(replace(SMALL, workload=f"apps/{number}", awake_gib=2) for number in range(17))

    with pytest.raises(ValueError, match="17 models"):
        awake_together(replace(GPU, members=crowd))


def test_a_pod_for_services_of_several_namespaces_says_whose_quota_it_uses():
    mixed = replace(GPU, members=(SMALL, replace(MEDIUM, workload="legal/b")))

    assert (
        "come from apps, legal; the pod has the quota and secrets of apps"
        in pool_files([mixed])["pool-p5-4xlarge-1.yaml"]
    )
