import json

import pytest
from hypothesis import given, strategies as st

from trimtab.sources.kubernetes.objects import read_dumps
from trimtab.sources.kubernetes.owners import Owners, name_of_family, name_without_suffix, owners_of

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
