"""Pods whose models take turns on one GPU: what llama-swap is told, and objects that Kubernetes accepts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from tests.emit.validity import schema_faults

from trimtab.emit.manifests.model_pools import PoolMember, SharedGpu, awake_together, pool_files, router_config

SMALL = PoolMember(workload="apps/a", model="Qwen/Qwen3-4B", awake_gib=12, asleep_gib=1.2, at_once=16)
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
