"""What `kubectl kustomize` makes of people's manifests with the emitted patches, and of the same manifests rolled back."""

import subprocess
from functools import reduce

import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.emitted import CHAT, PLAN, RUNS, SAME, knowing, of_action, patch_of, spot_emission, text_of
from tests.emit.example import P3_SMALL, P4D

from trimtab.catalog.pools import SharedPool
from trimtab.deployment.effects import (
    SetGpuCount,
    UseSlots,
)
from trimtab.emit.manifests.facts import GpuContainer, Toleration, WorkloadFacts
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.emit.manifests.workload_patch import pod_component
from trimtab.plan.model import Change
from trimtab_runtime.policies.checkpointing import REQUEUE_EXIT_CODE


def spot_patch():
    return patch_of(spot_emission(), "workloads/research/vision-exp/kustomization.yaml")


def test_a_lost_spot_node_does_not_use_up_a_runs_tries():
    """kubernetes.io, Jobs: `podFailurePolicy` asks for restartPolicy Never."""
    patch = spot_patch()

    evicted, told = patch["spec"]["podFailurePolicy"]["rules"]
    assert evicted == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert told == {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [REQUEUE_EXIT_CODE]}}
    assert patch["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_a_run_on_spot_has_the_whole_notice_to_save_in_and_its_command_is_left_to_a_person():
    grace_s = spot_patch()["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    left = [piece.reason for piece in spot_emission().withheld if piece.subject == "research/vision-exp"]

    assert grace_s == 120  # EC2, "Spot Instance interruption notices": two minutes
    assert any("trimtab-runtime spot-run --" in reason and "TRIMTAB_GRACE_S=120" in reason for reason in left)


def built(kubectl, folder, manifest, component, namespace=None):
    """What `kubectl kustomize` makes of a manifest beside a Component."""
    (folder / "c").mkdir(parents=True)
    (folder / "c" / "kustomization.yaml").write_text(component, encoding="utf-8")
    (folder / "m.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
    root = {"resources": ["m.yaml"], "components": ["c"], **({"namespace": namespace} if namespace else {})}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(root), encoding="utf-8")
    run = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=True)
    return yaml.safe_load(run.stdout)


def manifest(kind="Deployment", name="chat-api", api="apps/v1", metadata=(), **pod):
    containers = [{"name": "a", "image": "b", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": name, **dict(metadata)},
        "spec": {"template": {"spec": {**pod, "containers": containers}}},
    }


@pytest.mark.parametrize("written", [{}, {"namespace": "prod"}])
@pytest.mark.parametrize("set_to", [None, "prod"])
def test_a_patch_is_applied_wherever_the_namespace_is_written(written, set_to, kubectl_bin, tmp_path):
    component = text_of(emit_plan(of_action("a8"), example_facts()), "workloads/prod/chat-api/kustomization.yaml")

    one = built(kubectl_bin, tmp_path, manifest(metadata=written), component, set_to)

    assert one["metadata"]["annotations"]["trimtab.dev/action"].startswith("autoscaling-")
    assert one["metadata"].get("namespace") == (set_to or written.get("namespace"))


@pytest.mark.parametrize("name", ["vision-exp", "vision-exp-0412", "vision-exp-2026-04-12"])
def test_a_patch_of_runs_is_applied_whatever_their_number_or_date(name, kubectl_bin, tmp_path):
    component = text_of(spot_emission(), "workloads/research/vision-exp/kustomization.yaml")

    one = built(kubectl_bin, tmp_path, manifest("Job", name, "batch/v1"), component)

    assert one["metadata"]["name"] == name
    assert one["spec"]["template"]["spec"]["nodeSelector"]["karpenter.sh/nodepool"].endswith("spot-runs")


def test_a_patch_keeps_the_tolerations_it_does_not_replace_and_drops_selectors_of_other_nodes(kubectl_bin, tmp_path):
    mine = {"key": "team", "operator": "Equal", "value": "assistant", "effect": "NoExecute", "tolerationSeconds": 60}
    facts = knowing(
        CHAT,
        pods_were_read=True,
        tolerations=(
            Toleration(key="team", operator="Equal", value="assistant", effect="NoExecute", seconds=60),
            Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute", seconds=300),
            Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule"),
        ),
        node_selector={"our.org/rack": "7", "topology.kubernetes.io/zone": "us-east-1a"},
    )
    component = text_of(emit_plan(of_action("a8"), facts), "workloads/prod/chat-api/kustomization.yaml")
    before = {
        "eks.amazonaws.com/nodegroup": "gpu-p4d",
        "our.org/rack": "7",
        "topology.kubernetes.io/zone": "us-east-1a",
    }

    one = built(kubectl_bin, tmp_path, manifest(nodeSelector=before, tolerations=[mine]), component)

    pod = one["spec"]["template"]["spec"]
    assert set(pod["nodeSelector"]) == {"topology.kubernetes.io/zone", "karpenter.sh/nodepool"}
    assert pod["tolerations"] == [
        mine,
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
    ]


OWNERS = {
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", ("leaderWorkerTemplate", "workerTemplate", "spec")),
    "InferenceService": ("serving.kserve.io/v1beta1", ("predictor",)),
    "Rollout": ("argoproj.io/v1alpha1", ("template", "spec")),
    "StatefulSet": ("apps/v1", ("template", "spec")),
    "Notebook": ("kubeflow.org/v1", ("template", "spec")),
}
"""Where each keeps what it says of its pods: LeaderWorkerSet v1, KServe v1beta1 PredictorSpec, Argo Rollouts v1alpha1,
Kubeflow v1."""


@pytest.mark.parametrize("kind", OWNERS)
def test_owners_are_patched_where_they_keep_their_pods(kind, kubectl_bin, tmp_path):
    api, path = OWNERS[kind]
    pods = {"nodeSelector": {"eks.amazonaws.com/nodegroup": "old"}, "model": {"modelFormat": {"name": "vllm"}}}
    spec = pods
    for name in reversed(path):
        spec = {name: spec}
    emission = emit_plan(of_action("a8"), knowing(CHAT, owner_kind=kind))
    owner = {"apiVersion": api, "kind": kind, "metadata": {"name": "chat-api"}, "spec": spec}

    one = built(kubectl_bin, tmp_path, owner, text_of(emission, "workloads/prod/chat-api/kustomization.yaml"))

    found = one["spec"]
    for name in path:
        found = found[name]
    assert set(found["nodeSelector"]) == {"karpenter.sh/nodepool"}
    assert found["model"] == pods["model"]
    assert [taint["key"] for taint in found["tolerations"]] == ["nvidia.com/gpu"]


@pytest.mark.parametrize(
    ("kind", "name", "api", "workload", "path"),
    [
        ("InferenceService", "chat", "serving.kserve.io/v1beta1", "chat-predictor", ("predictor",)),
        ("LLMInferenceService", "llm", "serving.kserve.io/v1alpha1", "llm-kserve", ("template",)),
        ("LLMInferenceService", "llm", "serving.kserve.io/v1alpha1", "llm-kserve-prefill", ("prefill", "template")),
    ],
)
def test_what_kserve_makes_is_patched_in_the_object_that_a_person_wrote(
    kind, name, api, workload, path, kubectl_bin, tmp_path
):
    pod = {"containers": [{"name": "main", "image": "vllm", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]}
    own = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": {"template": pod, "predictor": pod}}
    own["spec"]["prefill"] = {"template": pod}
    known = WorkloadFacts(name=f"prod/{workload}", owner_kind=kind)

    component = yaml.safe_dump(pod_component(known, "moved", {"nodeSelector": {"pool": "new"}}, "note"))
    changed = built(kubectl_bin, tmp_path, own, component)["spec"]

    places = {("predictor",), ("template",), ("prefill", "template")}
    found = {place: reduce(lambda spec, key: spec[key], place, changed) for place in places}
    assert {place for place, spec in found.items() if "nodeSelector" in spec} == {path}
    assert all(spec["containers"] == pod["containers"] for spec in found.values())


def test_a_manifest_is_rolled_back_to_the_nodes_and_tolerations_that_were_read(kubectl_bin, tmp_path):
    former = {"eks.amazonaws.com/nodegroup": "gpu-p4d"}
    team = Toleration(key="team", operator="Equal", value="assistant", effect="NoSchedule")
    known = knowing(CHAT, pods_were_read=True, node_selector=former, tolerations=(team,))
    component = text_of(emit_plan(of_action("a8"), known), "rollback/prod/chat-api/kustomization.yaml")

    forward = text_of(emit_plan(of_action("a8"), known), "workloads/prod/chat-api/kustomization.yaml")
    (tmp_path / "forward").mkdir()
    moved = built(kubectl_bin, tmp_path / "forward", manifest(nodeSelector=former), forward)
    assert not former.items() <= moved["spec"]["template"]["spec"]["nodeSelector"].items()

    one = built(kubectl_bin, tmp_path, moved, component)

    pod = one["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == former
    assert pod["tolerations"] == [team.as_plain()]


def ray_service(*groups):
    """A RayService with worker groups (ray.io/v1, RayClusterSpec)."""
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "ray-head", "image": "a"}]}}}
    workers = [
        {
            "groupName": name,
            "replicas": 8,
            "minReplicas": 8,
            "maxReplicas": 8,
            "rayStartParams": {},
            "template": {"spec": {
                "nodeSelector": {"eks.amazonaws.com/nodegroup": "old", "topology.kubernetes.io/zone": "us-east-1a"},
                "containers": [{"name": "ray-worker", "image": "a", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            }},
        }
        for name in groups
    ]  # fmt: skip
    spec = {"rayClusterConfig": {"headGroupSpec": head, "workerGroupSpecs": workers}}
    return {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "chat-api"}, "spec": spec}


def test_a_ray_service_is_patched_in_its_first_worker_group_and_nowhere_else(kubectl_bin, tmp_path):
    kept = {"topology.kubernetes.io/zone": "us-east-1a"}
    known = knowing(CHAT, owner_kind="RayService", pods_were_read=True, node_selector=kept)
    emission = emit_plan(of_action("a8"), known)
    before = ray_service("gpu", "cpu")

    one = built(kubectl_bin, tmp_path, before, text_of(emission, "workloads/prod/chat-api/kustomization.yaml"))

    (head, first, second), now = (
        (before["spec"]["rayClusterConfig"]["headGroupSpec"], *before["spec"]["rayClusterConfig"]["workerGroupSpecs"]),
        one["spec"]["rayClusterConfig"],
    )
    pods = now["workerGroupSpecs"][0]["template"]["spec"]
    assert set(pods["nodeSelector"]) == {"topology.kubernetes.io/zone", "karpenter.sh/nodepool"}
    assert [taint["key"] for taint in pods["tolerations"]] == ["nvidia.com/gpu"]
    assert pods["containers"] == first["template"]["spec"]["containers"]
    assert now["headGroupSpec"] == head
    assert now["workerGroupSpecs"][1] == second
    assert any("first worker group" in item.reason for item in emission.withheld)


def test_a_ray_service_is_rolled_back_in_the_same_place(kubectl_bin, tmp_path):
    known = knowing(CHAT, owner_kind="RayService", pods_were_read=True, node_selector={"our.org/rack": "7"})
    component = text_of(emit_plan(of_action("a8"), known), "rollback/prod/chat-api/kustomization.yaml")

    one = built(kubectl_bin, tmp_path, ray_service("gpu"), component)

    pods = one["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"]
    assert pods["nodeSelector"] == {"our.org/rack": "7"}


def fewer_gpus(**more):
    """Runs that are to ask for 1 GPU and not 4."""
    effect = SetGpuCount(gpus=1, before=4, pool=P3_SMALL, gpus_per_node=1)
    return emit_plan(of_action("a3", Change(subject=RUNS, effect=effect)), knowing(RUNS, **more))


@pytest.mark.parametrize("stated", [("limits",), ("limits", "requests")])
@pytest.mark.parametrize("place", [0, 1])
def test_the_container_that_asks_for_gpus_is_patched_wherever_it_says_so(place, stated, kubectl_bin, tmp_path):
    """kubernetes.io, "Schedule GPUs": GPU requests and limits must be equal."""
    known = GpuContainer(place=place, in_requests="requests" in stated)
    component = text_of(fewer_gpus(gpu_containers=(known,)), "workloads/research/vision-exp/kustomization.yaml")
    job = manifest("Job", "vision-exp-0412", "batch/v1")
    pods = job["spec"]["template"]["spec"]
    pods["containers"][0]["resources"] = {one: {"nvidia.com/gpu": "4"} for one in stated}
    pods["containers"].insert(1 - place, {"name": "sidecar", "image": "c"})

    one = built(kubectl_bin, tmp_path, job, component)

    patched = one["spec"]["template"]["spec"]["containers"][place]["resources"]
    assert patched == {one: {"nvidia.com/gpu": "1"} for one in stated}


def test_gpus_of_several_containers_are_left_to_a_person():
    emission = fewer_gpus(gpu_containers=(GpuContainer(place=0), GpuContainer(place=2)))

    assert not [file for file in emission.files if file.path.startswith("workloads/")]
    assert any("2 containers ask for GPUs" in one.reason for one in emission.withheld if one.subject == RUNS)


@pytest.mark.parametrize("asked", ["4", "1"])
def test_runs_ask_for_their_former_gpus_again_whatever_their_manifest_says_by_now(asked, kubectl_bin, tmp_path):
    known = GpuContainer(place=0, in_requests=True)
    component = text_of(fewer_gpus(gpu_containers=(known,)), "rollback/research/vision-exp/kustomization.yaml")
    job = manifest("Job", "vision-exp-0412", "batch/v1")
    amounts = {"cpu": "8", "nvidia.com/gpu": asked}
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}

    one = built(kubectl_bin, tmp_path, job, component)

    former = {"cpu": "8", "nvidia.com/gpu": "4"}
    assert one["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": former, "requests": former}


@pytest.mark.parametrize("asked", ["nvidia.com/gpu", "nvidia.com/mig-1g.20gb"])
def test_a_service_on_slices_asks_for_a_whole_gpu_again_whatever_its_manifest_says_by_now(asked, kubectl_bin, tmp_path):
    slices = UseSlots(
        shared=SharedPool(P4D, 32, profile="1g.20gb"),
        gpu="A100-SXM4-80GB",
        gpus_per_node=8,
        slots=1,
        memory_gib=19.5,
        speed=SAME,
        work_speed=SAME,
    )
    emission = emit_plan(of_action("a8", Change(subject=CHAT, effect=slices)), example_facts())
    deployment = manifest()
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {asked: "1"}}

    one = built(kubectl_bin, tmp_path, deployment, text_of(emission, "rollback/prod/chat-api/kustomization.yaml"))

    assert one["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "1"}}


def test_the_rollback_takes_the_affinity_off_a_manifest_that_was_changed_by_hand(kubectl_bin, tmp_path):
    emission = emit_plan(of_action("a8"), knowing(CHAT, pods_were_read=True))
    changed = built(
        kubectl_bin, tmp_path / "done", manifest("Deployment", "chat-api", "apps/v1"),
        text_of(emission, "workloads/prod/chat-api/kustomization.yaml"),
    )  # fmt: skip
    assert changed["spec"]["template"]["spec"]["affinity"]["podAffinity"]

    undone = built(
        kubectl_bin, tmp_path / "undone", changed, text_of(emission, "rollback/prod/chat-api/kustomization.yaml")
    )

    assert not undone["spec"]["template"]["spec"].get("affinity", {}).get("podAffinity")


def test_replicas_are_let_go_only_after_the_autoscaler_holds_them(kubectl_bin, tmp_path):
    """kubernetes.io, "Migrating Deployments and StatefulSets to horizontal autoscaling": a plain apply would set 1."""
    emission = emit_plan(of_action("a8"), example_facts())
    moving = yaml.safe_load(text_of(emission, "workloads/prod/chat-api/kustomization.yaml"))
    page = text_of(emission, "APPLY.md")

    one = built(
        kubectl_bin,
        tmp_path,
        {**manifest(), "spec": {**manifest()["spec"], "replicas": 24}},
        text_of(emission, "workloads/prod/chat-api.autoscaled/kustomization.yaml"),
    )

    assert not any("replicas" in patch["patch"] for patch in moving["patches"])
    assert "replicas" not in one["spec"]
    steps = (
        "kubectl apply -k scaling",
        "set-last-applied",
        "NAME.autoscaled",
        "chat-api.autoscaled/kustomization.yaml",
    )
    assert [page.index(step) for step in steps] == sorted(page.index(step) for step in steps)


@pytest.mark.parametrize("folder", ["monitoring", "nodes", "scaling", "commitments"])
def test_the_folder_of_a_stage_is_built_whole_and_holds_nothing_else(folder, kubectl_bin, tmp_path):
    emission = emit_plan(PLAN, example_facts())
    for file in emission.files:
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")

    run = subprocess.run([kubectl_bin, "kustomize", str(tmp_path / folder)], capture_output=True, text=True, check=True)

    made = [one["kind"] for one in yaml.safe_load_all(run.stdout)]
    written = [
        one["kind"]
        for file in emission.files
        if file.path.startswith(f"{folder}/") and file.path.endswith(".yaml") and file.kind != "Kustomization"
        for one in yaml.safe_load_all(file.text)
    ]
    dashboards = ["ConfigMap"] if folder == "monitoring" else []
    assert sorted(made) == sorted([*written, *dashboards])
    assert "Component" not in made
