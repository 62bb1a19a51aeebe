import json

import pytest
from hypothesis import given, strategies as st

from trimtab.sources.kubernetes.objects import read_dumps
from trimtab.sources.kubernetes.owners import Owners, collect_owners, name_of_family, name_without_suffix, owners_of

NOBODY = Owners(pods={}, parents={}, teams={})


def owners(kind, name, parent=None, teams=None):
    parents = {("ns", kind, name): parent} if parent else {}
    return Owners(pods={("ns", "pod"): (kind, name)}, parents=parents, teams=teams or {})


@pytest.mark.parametrize(
    ("kind", "name", "parent", "workload", "top"),
    [
        ("ReplicaSet", "chat-7c9f8d6b5", ("Deployment", "chat"), "ns/chat", "Deployment"),
        ("ReplicaSet", "chat-7c9f8d6b5", None, "ns/chat", "Deployment"),
        ("StatefulSet", "db", None, "ns/db", "StatefulSet"),
        ("Job", "eval-28934400", ("CronJob", "eval"), "ns/eval", "CronJob"),
        ("Job", "eval-28934400", None, "ns/eval", "CronJob"),
        ("Job", "pretrain-3", None, "ns/pretrain", "Job"),
        ("PyTorchJob", "sweep-2026-09-01", None, "ns/sweep", "PyTorchJob"),
        ("RayCluster", "ray-a", None, "ns/ray-a", "RayCluster"),
    ],
)
def test_a_pod_belongs_to_the_workload_that_people_know(kind, name, parent, workload, top):
    owner = owners(kind, name, parent).of("ns", "pod")

    assert (owner.workload, owner.kind) == (workload, top)


def objects_of_kserve():
    """Pods, ReplicaSets and Deployments as KServe's controllers name them, with and without Knative."""
    chains = {
        "chat-predictor": ("InferenceService", "chat"),
        "llm-kserve": ("LLMInferenceService", "llm"),
        "llm-kserve-prefill": ("LLMInferenceService", "llm"),
        "embed-predictor-00003-deployment": ("Revision", "embed-predictor-00003"),
        "thumbs-00001-deployment": ("Revision", "thumbs-00001"),
        "web": ("Application", "web"),
    }
    for name, (kind, owner) in chains.items():
        pod, replica_set = f"{name}-7c9f8d6b5-x2k9p", f"{name}-7c9f8d6b5"
        for child_kind, child, above in (
            ("Pod", pod, ("ReplicaSet", replica_set)),
            ("ReplicaSet", replica_set, ("Deployment", name)),
            ("Deployment", name, (kind, owner)),
        ):
            owners_said = [{"kind": above[0], "name": above[1], "controller": True}]
            meta = {"namespace": "ns", "name": child, "ownerReferences": owners_said}
            yield {"apiVersion": "v1" if child_kind == "Pod" else "apps/v1", "kind": child_kind, "metadata": meta}


WORKLOADS_OF_KSERVE = {
    "chat-predictor-7c9f8d6b5-x2k9p": ("ns/chat-predictor", "InferenceService"),
    "llm-kserve-7c9f8d6b5-x2k9p": ("ns/llm-kserve", "LLMInferenceService"),
    "llm-kserve-prefill-7c9f8d6b5-x2k9p": ("ns/llm-kserve-prefill", "LLMInferenceService"),
    "embed-predictor-00003-deployment-7c9f8d6b5-x2k9p": ("ns/embed-predictor", "InferenceService"),
    "thumbs-00001-deployment-7c9f8d6b5-x2k9p": ("ns/thumbs", "KnativeService"),
    "web-7c9f8d6b5-x2k9p": ("ns/web", "Deployment"),
}


def test_deployments_that_kserve_and_knative_make_are_theirs_in_dumps(tmp_path):
    dump = tmp_path / "all.json"
    dump.write_text(json.dumps({"kind": "List", "items": list(objects_of_kserve())}))

    found = owners_of(read_dumps([dump]))

    said = {pod: found.of("ns", pod) for pod in WORKLOADS_OF_KSERVE}
    assert {pod: (owner.workload, owner.kind) for pod, owner in said.items()} == WORKLOADS_OF_KSERVE


def test_the_run_keeps_its_own_name():
    assert owners("Job", "pretrain-3").of("ns", "pod").job == "pretrain-3"


@pytest.mark.parametrize(
    ("pod", "name", "kind"),
    [
        ("chat-7c9f8d6b5-x2k9p", "chat", "Deployment"),
        ("db-0", "db", "StatefulSet"),
        ("train-x2k9p", "train", "Job"),
        ("lonely", "lonely", None),
    ],
)
def test_where_nobody_tells_the_generated_suffix_goes(pod, name, kind):
    assert name_without_suffix(pod) == (name, kind)
    assert NOBODY.of("ns", pod).workload == f"ns/{name}"


def test_the_pods_team_beats_the_namespaces():
    teams = {("ns", "pod"): "search", ("ns", ""): "platform"}

    assert owners("StatefulSet", "db", teams=teams).of("ns", "pod").team == "search"
    assert owners("StatefulSet", "db", teams=teams).of("ns", "other").team == "platform"


@given(st.text(min_size=1, max_size=30))
def test_every_run_keeps_a_name(run):
    assert name_of_family(run)


class Answers:
    """Series of kube-state-metrics and KubeRay, by metric."""

    def __init__(self, **series):
        self.by_name = series

    def matching(self, *matchers):
        return f"{{{matchers}}}"

    def series(self, selectors, start_s, end_s):
        return [labels for selector in selectors for labels in self.by_name.get(selector.partition("{")[0], ())]


def told(pods, **series):
    """Owners as Prometheus tells them, of pods in one namespace with their controllers."""
    pod_info = [
        {"namespace": "ml", "pod": pod, "created_by_kind": kind, "created_by_name": name}
        for pod, (kind, name) in pods.items()
    ]
    return collect_owners(Answers(kube_pod_info=pod_info, **series), 0.0, 1.0)


def who(owners, pod):
    owner = owners.of("ml", pod)
    return owner.workload, owner.kind


def owned(child, name, kind, owner):
    return {"namespace": "ml", child: name, "owner_kind": kind, "owner_name": owner}


def test_groups_of_a_leader_worker_set_are_one_workload_where_only_stateful_sets_are_told():
    """kubernetes-sigs/lws, pod_controller.go: the workers of group 0 are the StatefulSet `llm-0`, led by the pod `llm-0`."""
    pods = {
        "llm-0": ("StatefulSet", "llm"), "llm-0-1": ("StatefulSet", "llm-0"), "llm-0-2": ("StatefulSet", "llm-0"),
        "llm-1": ("StatefulSet", "llm"), "llm-1-1": ("StatefulSet", "llm-1"),
        "db-0": ("StatefulSet", "db"), "cache-0-0": ("StatefulSet", "cache-0"),
    }  # fmt: skip

    found = told(pods)

    for pod in ("llm-0", "llm-0-1", "llm-0-2", "llm-1", "llm-1-1"):
        assert who(found, pod) == ("ml/llm", "LeaderWorkerSet")
    assert who(found, "db-0") == ("ml/db", "StatefulSet")
    assert who(found, "cache-0-0") == ("ml/cache-0", "StatefulSet")


def test_ray_clusters_are_told_by_kuberay_or_by_the_older_names():
    """ray-project/kuberay, ray_cluster_metrics.go: kuberay_cluster_info names the kind that made a cluster."""
    pods = {
        "llm-x7k2p-gpu-worker-aaaaa": ("RayCluster", "llm-x7k2p"),
        "tune-4-abcde-gpu-worker-aaaaa": ("RayCluster", "tune-4-abcde"),
        "old-raycluster-x7k2p-gpu-worker-aaaaa": ("RayCluster", "old-raycluster-x7k2p"),
        "ours-gpu-worker-aaaaa": ("RayCluster", "ours-abcde"),
    }
    info = [
        {"namespace": "ml", "name": "llm-x7k2p", "owner_kind": "RayService"},
        {"namespace": "ml", "name": "tune-4-abcde", "owner_kind": "RayJob"},
        {"namespace": "ml", "name": "ours-abcde", "owner_kind": "None"},
    ]

    found = told(pods, kuberay_cluster_info=info)

    assert [who(found, pod) for pod in pods] == [
        ("ml/llm", "RayService"), ("ml/tune", "RayJob"), ("ml/old", "RayCluster"), ("ml/ours-abcde", "RayCluster"),
    ]  # fmt: skip


def test_prometheus_gives_a_deployment_of_kserve_the_name_and_kind_that_a_dump_gives():
    pods = {
        "chat-predictor-7d9f8b6c5d-x7k2p": ("ReplicaSet", "chat-predictor-7d9f8b6c5d"),
        "rank-predictor-00003-deployment-7d9f8b6c5d-x7k2p": (
            "ReplicaSet",
            "rank-predictor-00003-deployment-7d9f8b6c5d",
        ),
        "llm-kserve-prefill-7d9f8b6c5d-x7k2p": ("ReplicaSet", "llm-kserve-prefill-7d9f8b6c5d"),
        "llm-kserve-mn-0": ("StatefulSet", "llm-kserve-mn"),
        "llm-kserve-mn-0-1": ("StatefulSet", "llm-kserve-mn-0"),
        "plain-predictor-7d9f8b6c5d-x7k2p": ("ReplicaSet", "plain-predictor-7d9f8b6c5d"),
    }
    part_of_llm = {"label_app_kubernetes_io_part_of": "llminferenceservice", "label_app_kubernetes_io_name": "llm"}
    labels = [
        {"namespace": "ml", "pod": pod, **(part_of_llm if pod.startswith("llm") else {})}
        | ({"label_serving_kserve_io_inferenceservice": "rank"} if pod.startswith("rank") else {})
        for pod in pods
    ]

    found = told(
        pods,
        kube_deployment_owner=[owned("deployment", "chat-predictor", "InferenceService", "chat")],
        kube_pod_labels=labels,
    )

    assert [who(found, pod) for pod in pods] == [
        ("ml/chat-predictor", "InferenceService"),
        ("ml/rank-predictor", "InferenceService"),
        ("ml/llm-kserve-prefill", "LLMInferenceService"),
        ("ml/llm-kserve-mn", "KServeComponent"),
        ("ml/llm-kserve-mn", "KServeComponent"),
        ("ml/plain-predictor", "Deployment"),
    ]
    assert found.of("ml", "llm-kserve-prefill-7d9f8b6c5d-x7k2p").team is None
