"""Dumps as operators leave them, written by hand from their documents: who holds what, and for which workload."""

from __future__ import annotations

from datetime import UTC, datetime

from trimtab.fleet.model import Window, workload_kind
from trimtab.sources.kubernetes.objects import Objects
from trimtab.sources.kubernetes.snapshot import collect_snapshot
from trimtab.tables.workloads import WorkloadKind, WorkloadSpec

CREATED = "2026-09-10T00:00:00Z"
START, END = datetime(2026, 9, 1, tzinfo=UTC), datetime(2026, 9, 15, tzinfo=UTC)


def node(name, **allocatable):
    room = {"cpu": "192", "memory": "2048Gi", **allocatable}
    labels = {
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "topology.kubernetes.io/region": "us-east-1",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": "8",
    }
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": CREATED, "labels": labels},
        "spec": {"providerID": f"aws:///us-east-1a/i-{name}"},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip


def owned(kind, name, version):
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": f"u-{name}", "controller": True}]


def pod(namespace, name, owner, limits=None, *, on="n1", labels=None, annotations=None, claim=None):
    resources = {"limits": limits or {}, "requests": limits or {}}
    spec, status = {"nodeName": on, "containers": [{"name": "main", "resources": resources}]}, {"phase": "Running"}
    if claim is not None:
        resources["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
        status["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": claim}]
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": namespace, "name": name, "uid": f"u-{name}", "creationTimestamp": CREATED,
            "labels": labels or {}, "annotations": annotations or {}, "ownerReferences": owner,
        },
        "spec": spec, "status": status | {"startTime": CREATED},
    }  # fmt: skip


def held(*items):
    objects = Objects()
    objects.take({"apiVersion": "v1", "kind": "List", "items": list(items)})
    rows = collect_snapshot(objects, START, END, source="a dump").tables["allocations"].to_pylist()
    return {row["pod"]: (row["workload"], row["gpus"]) for row in rows if row["gpus"]}


def test_pods_of_dynamo_belong_to_the_clique_that_its_autoscaler_scales():
    # ai-dynamo/grove, docs/user-guide: cliques are `<set>-<replica>-<name>`, those of a scaling group
    # `<set>-<replica>-<group>-<replica>-<name>`
    def of(clique):
        return owned("PodClique", clique, "grove.io/v1alpha1")

    found = held(
        node("n1", **{"nvidia.com/gpu": "8"}),
        node("n2", **{"nvidia.com/gpu": "8"}),
        pod("dyn", "disagg-0-frontend-ab12c", of("disagg-0-frontend")),
        pod("dyn", "disagg-0-decode-x1y2z", of("disagg-0-decode"), {"nvidia.com/gpu": "2"}),
        pod("dyn", "disagg-0-decode-q9w8e", of("disagg-0-decode"), {"nvidia.com/gpu": "2"}),
        pod(
            "dyn", "disagg-0-prefill-0-leader-7hh2k", of("disagg-0-prefill-0-leader"), {"nvidia.com/gpu": "8"}, on="n2"
        ),
    )

    assert found == {
        "disagg-0-decode-x1y2z": ("dyn/disagg-0-decode", 2.0),
        "disagg-0-decode-q9w8e": ("dyn/disagg-0-decode", 2.0),
        "disagg-0-prefill-0-leader-7hh2k": ("dyn/disagg-0-prefill-0-leader", 8.0),
    }


def test_a_job_of_run_ai_with_whole_gpus_stands_beside_a_fraction():
    group = {"runai-gpu-group": "g1"}

    found = held(
        node("n1", **{"nvidia.com/gpu": "8"}),
        pod("runai-vision", "train-0-0", owned("RunaiJob", "train", "run.ai/v1"), {"nvidia.com/gpu": "4"}),
        pod(
            "runai-vision", "nb-0-0", owned("StatefulSet", "nb", "apps/v1"), labels=group, annotations={"gpu-fraction": "0.5"}
        ),
        pod("runai-reservation", "runai-reservation-gpu-n1-abcde", [], {"nvidia.com/gpu": "1"}, labels=group),
    )  # fmt: skip

    # the reservation holds its board for those who have a part of it
    assert found == {"train-0-0": ("runai-vision/train", 4.0), "nb-0-0": ("runai-vision/nb", 0.5)}


def gpu_slice(name):
    devices = [
        {"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{name}-{number}"}}}
        for number in range(8)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{name}-gpus"},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": devices},
    }  # fmt: skip


def claim(name, of_pod, request, devices):
    alternatives = [
        {"name": "four", "deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 4},
        {"name": "two", "deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 2},
    ]
    results = [
        {"request": request, "driver": "gpu.nvidia.com", "pool": "n1", "device": f"gpu-{number}"} for number in devices
    ]
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "ml", "name": name, "ownerReferences": owned("Pod", of_pod, "v1")},
        "spec": {"devices": {"requests": [{"name": "gpu", "firstAvailable": alternatives}]}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": of_pod, "uid": f"u-{of_pod}"}],
        },
    }  # fmt: skip


def test_pods_of_a_train_job_hold_the_alternative_that_each_got():
    # kubeflow/trainer v2: a TrainJob makes a JobSet of its name, and this a Job; kubernetes.io, "Prioritized list" (v1.34)
    job = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "namespace": "ml", "name": "llama-node-0", "creationTimestamp": CREATED,
            "ownerReferences": owned("JobSet", "llama", "jobset.x-k8s.io/v1alpha2"),
        },
        "spec": {"parallelism": 2, "completions": 2}, "status": {"active": 2, "startTime": CREATED},
    }  # fmt: skip
    names = ("llama-node-0-0-k2j4h", "llama-node-0-1-p7d9s")

    found = held(
        node("n1"),
        gpu_slice("n1"),
        job,
        *(pod("ml", name, owned("Job", "llama-node-0", "batch/v1"), claim=f"c-{name}") for name in names),
        claim(f"c-{names[0]}", names[0], "gpu/four", range(4)),
        claim(f"c-{names[1]}", names[1], "gpu/two", range(4, 6)),
    )

    assert found == {names[0]: ("ml/llama", 4.0), names[1]: ("ml/llama", 2.0)}


def test_a_clique_of_dynamo_without_request_metrics_serves():
    window = Window(start=START, hours=14 * 24)

    kind, reason = workload_kind("dyn/disagg-0-decode", "PodClique", WorkloadSpec(), None, None, window)

    assert kind is WorkloadKind.SERVING
    assert reason == "a PodClique runs forever; no request metrics were found"
