"""What a cluster does with the files, by the rules of the projects that read them: scheduler, Karpenter, kustomize, Prometheus.

The rules are written down here from those projects; nothing of the emitters is used but their output.
"""

import json
import math
import re
import subprocess
from dataclasses import replace
from functools import reduce

import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import P3_SMALL, P4D, example_audit

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import SharedPool
from trimtab.deployment.effects import (
    BatchForm,
    SetBatchPolicy,
    SetCapacityType,
    SetGpuCount,
    SetPrecision,
    SetReplicas,
    SetSchedule,
    StartBeforeRuns,
    UseOffering,
    UseSlots,
)
from trimtab.emit.manifests.cron_files import cron_spans
from trimtab.emit.manifests.demand_rules import DEMAND, pods_of
from trimtab.emit.manifests.facts import GpuContainer, NodeFacts, ServiceFacts, Toleration, WorkloadFacts
from trimtab.emit.manifests.keda import scheduled_object
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.emit.manifests.pool_specs import placed_workloads, pool_specs
from trimtab.emit.manifests.signals import SERVERS
from trimtab.emit.manifests.workload_patch import pod_component
from trimtab.physics.formats import WeightFormat
from trimtab.plan.model import Change
from trimtab.provenance import Basis, Estimate
from trimtab_runtime.policies.checkpointing import REQUEUE_EXIT_CODE

PLAN = example_audit().plan
SAME = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED)
CHAT, RUNS = "prod/chat-api", "research/vision-exp"


def of_action(name, *changes):
    """The example's plan with one action, and these changes in it where they are given."""
    action = next(action for action in PLAN.actions if action.id == name)
    return replace(PLAN, actions=(replace(action, changes=tuple(changes)) if changes else action,))


def knowing(name, **more):
    """The example's cluster, where more is known of a workload."""
    facts = example_facts()
    workloads = tuple(replace(one, **more) if one.name == name else one for one in facts.workloads)
    return replace(facts, workloads=workloads)


def kinds(emission, kind):
    return [
        one
        for file in emission.files
        if file.path.endswith(".yaml") and file.kind != "Helm values"
        for one in yaml.safe_load_all(file.text)
        if one["kind"] == kind
    ]


def text_of(emission, path):
    return next(file.text for file in emission.files if file.path == path)


# --- Taints, as kube-scheduler and the kubelet see them ---------------------------------------------------------------------

NVIDIA_TOLERATES = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
"""GPU operator v25 deployments/gpu-operator/values.yaml `daemonsets.tolerations`; k8s-device-plugin v0.17 values.yaml."""


def tolerates(toleration, taint):
    """k8s.io/api/core/v1/toleration.go, ToleratesTaint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


def spot_emission():
    effect = SetCapacityType(pool=P3_SMALL.held_as(CapacityType.SPOT), loss_per_hr=0.05)
    return emit_plan(of_action("a6", Change(subject=RUNS, effect=effect)), example_facts())


def patched_pod(emission, path):
    patch = yaml.safe_load(yaml.safe_load(text_of(emission, path))["patches"][0]["patch"])
    return patch["spec"]["template"]["spec"]


def test_the_device_plugin_comes_up_on_every_node_that_is_made():
    """With a taint that it does not tolerate no node offers a GPU, and Karpenter never takes one for initialised."""
    pools = [*kinds(emit_plan(PLAN, example_facts()), "NodePool"), *kinds(spot_emission(), "NodePool")]

    for pool in pools:
        for taint in pool["spec"]["template"]["spec"]["taints"]:
            assert tolerates(NVIDIA_TOLERATES, taint), pool["metadata"]["name"]


def test_a_spot_node_takes_who_agreed_and_not_whoever_tolerates_the_other_gpu_nodes():
    emission = spot_emission()
    (pool,) = kinds(emission, "NodePool")
    (taint,) = pool["spec"]["template"]["spec"]["taints"]

    moved = patched_pod(emission, "workloads/research/vision-exp/kustomization.yaml")["tolerations"]
    elsewhere = patched_pod(emit_plan(of_action("a8"), example_facts()), "workloads/prod/chat-api/kustomization.yaml")
    assert any(tolerates(one, taint) for one in moved)
    assert not any(tolerates(one, taint) for one in elsewhere["tolerations"])


def spot_patch():
    component = yaml.safe_load(text_of(spot_emission(), "workloads/research/vision-exp/kustomization.yaml"))
    return yaml.safe_load(component["patches"][0]["patch"])


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


# --- Nodes, as Karpenter makes and takes them -------------------------------------------------------------------------------


def may_disrupt(pool, reason, nodes):
    """karpenter v1 pkg/apis/v1/nodepool.go, GetAllowedDisruptionsByReason: the least of the budgets that name it, or none."""
    allowed = nodes
    for budget in pool["spec"]["disruption"]["budgets"]:
        if not budget.get("reasons") or reason in budget["reasons"]:
            share = budget["nodes"]
            allowed = min(allowed, math.ceil(nodes * int(share[:-1]) / 100) if share.endswith("%") else int(share))
    return allowed


def test_a_new_image_drains_no_node_with_a_run_on_it():
    pools = {one["metadata"]["name"]: one for one in kinds(emit_plan(PLAN, example_facts()), "NodePool")}

    runs = [one for name, one in pools.items() if name.endswith("-runs")]
    services = [one for name, one in pools.items() if name.endswith("-services")]
    assert runs
    assert services
    for pool in runs:
        assert [may_disrupt(pool, reason, 20) for reason in ("Empty", "Drifted", "Underutilized")] == [20, 0, 0]
    for pool in services:
        assert may_disrupt(pool, "Drifted", 20) == 2
    assert {one["spec"]["template"]["spec"]["expireAfter"] for one in pools.values()} == {"Never"}, (
        "expiry knows no budget"
    )


def test_runs_say_that_nothing_may_disrupt_them():
    patch = yaml.safe_load(
        yaml.safe_load(text_of(spot_emission(), "workloads/research/vision-exp/kustomization.yaml"))["patches"][0][
            "patch"
        ]
    )

    assert patch["spec"]["template"]["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}


def one_replica(quota=None):
    """A service of one replica that fills a node, whose number of replicas is set."""
    change = Change(subject=CHAT, effect=SetReplicas(replicas=1, before=2))
    facts = knowing(CHAT, gpus_per_pod=8.0, replicas=1)
    pools = tuple(replace(one, quota_nodes=quota) if one.pool == P4D else one for one in facts.pools)
    return emit_plan(of_action("a8", change), replace(facts, pools=pools))


def surge_fits(emission):
    """Whether the pod that a rolling update adds has a node: karpenter refuses one over `limits` (scheduler.go).

    Kubernetes rounds the default maxSurge of 25 % up and maxUnavailable down: one more pod at one replica, none fewer.
    """
    (pool,) = kinds(emission, "NodePool")
    return int(pool["spec"]["limits"]["nvidia.com/gpu"]) >= (1 + math.ceil(0.25)) * 8


def test_a_rollout_of_one_replica_that_fills_a_node_can_end():
    assert surge_fits(one_replica())


def test_where_the_quota_has_no_node_for_a_surge_a_rollout_takes_before_it_gives():
    emission = one_replica(quota=1)
    patch = yaml.safe_load(
        yaml.safe_load(text_of(emission, "workloads/prod/chat-api/kustomization.yaml"))["patches"][0]["patch"]
    )

    assert not surge_fits(emission)
    assert patch["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_every_pool_has_a_limit():
    assert all(one["spec"]["limits"] for one in kinds(emit_plan(PLAN, example_facts()), "NodePool"))


# --- Nodes that workloads leave ---------------------------------------------------------------------------------------------


def node(name, *holders, group=("eks.amazonaws.com/nodegroup", "gpu p4d")):
    return NodeFacts(name=name, pool=P4D, group=group, held_by=holders)


def orders(*nodes, plan=None):
    emission = emit_plan(plan or of_action("a8"), replace(example_facts(), nodes=nodes))
    return {file.path: file.text for file in emission.files if file.path.startswith("orders/give-back")}


def test_every_node_that_its_holders_leave_is_given_back_by_name():
    (text,) = orders(
        node("n1", CHAT), node("n2", CHAT, "prod/search-rank"), node("n3", CHAT, "ml/ranker-train")
    ).values()

    drained = [line.split()[2] for line in text.splitlines() if line.startswith("kubectl drain")]
    assert drained == ["n1", "n2"], "n3 is held by one that stays"
    assert "minSize=1" in text
    assert text.count("terminate-instance-in-auto-scaling-group") == 2, "a drained node is billed on"
    assert "--nodegroup-name 'gpu p4d'" in text


def test_a_node_that_nobody_holds_any_more_goes_with_those_who_held_it_before():
    idle, others = (
        replace(node(name), held_before=holders) for name, holders in (("n1", (CHAT,)), ("n2", ("lab/nb",)))
    )
    (text,) = orders(idle, others, node("n3", CHAT)).values()

    assert [line.split()[2] for line in text.splitlines() if line.startswith("kubectl drain")] == ["n1", "n3"]
    assert f"| `n1` | none; before by `{CHAT}` |" in text
    assert "| `n2` | none; before by `lab/nb` |" in text.partition("## What stays")[2]


def test_an_old_karpenter_pool_makes_no_node_for_what_has_left_it():
    (text,) = orders(node("n1", CHAT, group=("karpenter.sh/nodepool", "gpu"))).values()

    assert """kubectl patch nodepool gpu --type merge -p '{"spec":{"limits":{"nodes":"0"}}}'""" in text
    assert "kubectl delete node n1" in text


def test_a_node_that_is_in_the_new_pool_already_stays():
    (pool,) = [one["metadata"]["name"] for one in kinds(emit_plan(of_action("a8"), example_facts()), "NodePool")]

    assert orders(node("n1", CHAT, group=("karpenter.sh/nodepool", pool))) == {}


def test_names_of_nodes_are_quoted_for_the_shell():
    (text,) = orders(node("n1; reboot", CHAT)).values()

    assert "kubectl drain 'n1; reboot' " in text


def test_a_workload_whose_nodes_nobody_knows_is_left_to_a_person():
    emission = emit_plan(of_action("a8"), replace(example_facts(), nodes=()))

    left = {one.subject for one in emission.withheld if "not known by name" in one.reason}
    assert left == {"prod/chat-api", "prod/search-rank", "prod/embed-api"}


# --- Patches, as kustomize applies them -------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("kind", "workload", "pods", "others"),
    [
        (
            "InferenceService", "chat-predictor",
            ["chat-predictor-7c9f8d6b5-x2k9p", "chat-predictor-00003-deployment-7c9f8d6b5-x2k9p"],
            ["chat-predictor-small-7c9f8d6b5-x2k9p", "chat-transformer-7c9f8d6b5-x2k9p"],
        ),
        (
            "LLMInferenceService", "llm-kserve",
            ["llm-kserve-7c9f8d6b5-x2k9p"],
            ["llm-kserve-prefill-7c9f8d6b5-x2k9p", "llm-kserve-router-scheduler-7c9f8d6b5-x2k9p"],
        ),
    ],
)  # fmt: skip
def test_pods_of_kserve_are_told_from_those_of_siblings(kind, workload, pods, others):
    pattern = pods_of(WorkloadFacts(name=f"prod/{workload}", owner_kind=kind))

    assert all(re.fullmatch(pattern, pod) for pod in pods)
    assert not any(re.fullmatch(pattern, pod) for pod in others)


def test_what_has_a_scale_subresource_is_scaled_whatever_its_kind():
    emission = emit_plan(of_action("a8"), knowing(CHAT, owner_kind="Rollout"))

    targets = [scaled["spec"]["scaleTargetRef"] for scaled in kinds(emission, "ScaledObject")]
    assert {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "chat-api"} in targets


def test_a_service_that_scales_may_lose_one_replica_at_a_time_if_the_labels_of_its_pods_are_known():
    budgets = kinds(emit_plan(of_action("a8"), knowing(CHAT, pod_labels={"app": "chat"})), "PodDisruptionBudget")

    (budget,) = [budget["spec"] for budget in budgets if budget["metadata"]["name"] == "trimtab-chat-api"]
    assert (budget["maxUnavailable"], budget["selector"]) == (1, {"matchLabels": {"app": "chat"}})


@pytest.mark.parametrize(
    ("declared", "reference"),
    [
        ("amp", {"name": "amp"}),
        ("cluster/amp", {"name": "amp", "kind": "ClusterTriggerAuthentication"}),
        ("", None),
    ],
)
def test_triggers_sign_in_to_prometheus_as_the_cluster_declares(declared, reference):
    """KEDA, Prometheus scaler: `authenticationRef` of a trigger, `kind` where it is one of the whole cluster."""
    emission = emit_plan(of_action("a8"), replace(example_facts(), prometheus_auth=declared))

    triggers = [trigger for scaled in kinds(emission, "ScaledObject") for trigger in scaled["spec"]["triggers"]]
    assert triggers
    assert all(trigger.get("authenticationRef") == reference for trigger in triggers)


def test_the_dashboard_counts_no_node_twice():
    (board,) = (file for file in emit_plan(PLAN, example_facts()).files if file.path.endswith("dashboard.json"))
    (panel,) = (panel for panel in json.loads(board.text)["panels"] if panel["title"].startswith("Spend per hour"))

    selected = [re.findall(r'label_(\w+?)(!?=)"([^"]*)"', target["expr"]) for target in panel["targets"]]
    nodes = [
        (*(value for key, _, value in matchers if "capacity_type" not in key), spot)
        for matchers in selected
        for key, sign, _ in matchers
        if "capacity_type" in key
        for spot in [sign == "="]
    ]
    assert len(nodes) == len(selected) == len(set(nodes))
    assert all("us-east-1" in node for node in nodes)


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


@pytest.mark.parametrize("letters", [40, 47, 58, 63])
def test_the_autoscaler_that_keda_makes_has_a_name_that_a_cluster_takes(letters):
    """KEDA puts `keda-hpa-` before the ScaledObject's name unless the HPA's is stated, and refuses more than 63 characters."""
    known = WorkloadFacts(name=f"prod/{'a' * letters}", owner_kind="Deployment")
    scaled = scheduled_object(PLAN.actions[0], known, cron_spans(((9 * 3600, 17 * 3600),)), replicas=2)

    name = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["name"]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
    assert len(name) <= 63


@pytest.mark.parametrize(
    ("hours", "reason"), [((), "no hour in which it is up"), (tuple(range(168)), "the whole week")]
)
def test_a_timetable_of_all_hours_or_of_none_makes_no_trigger(hours, reason):
    """KEDA's cron scaler refuses a start that equals its end."""
    emission = emit_plan(
        of_action("a7", Change(subject=CHAT, effect=SetSchedule(hours_of_week=hours))), example_facts()
    )

    assert kinds(emission, "ScaledObject") == []
    assert any(reason in withheld.reason for withheld in emission.withheld)


def test_fewer_replicas_wait_until_the_server_is_seen_to_batch():
    effect = SetBatchPolicy(
        form=BatchForm.GREEDY, max_batch=8, window_s=0.01, replicas=6, before=24, sizes=(1, 8), seconds=(0.1, 0.3),
        basis=Basis.MEASURED,
    )  # fmt: skip
    emission = emit_plan(of_action("a8", Change(subject=CHAT, effect=effect)), example_facts())

    steps = [
        (component["metadata"]["annotations"].get("trimtab.dev/applies-once"), step)
        for component in kinds(emission, "Component")
        for patch in component["patches"]
        for step in yaml.safe_load(patch["patch"])
        if isinstance(step, dict) and step.get("path") == "/spec/replicas"
    ]
    assert [step["value"] for _, step in steps] == [6]
    assert all("its server batches up to 8 requests at once" in once for once, _ in steps)


@pytest.mark.parametrize(
    ("deployment", "kind", "said"),
    [
        ("chat-predictor", "InferenceService", "minReplicas: "),
        ("chat-kserve", "LLMInferenceService", "in LLMInferenceService chat set spec.scaling with minReplicas: "),
        (
            "chat-kserve-prefill",
            "LLMInferenceService",
            "in LLMInferenceService chat set spec.prefill.scaling with minReplicas: ",
        ),
    ],
)
def test_the_bounds_of_a_workload_of_kserve_are_for_its_own_part(deployment, kind, said):
    emission = renamed(f"prod/{deployment}", owner_kind=kind)

    assert any(said in item.reason for item in emission.withheld)
    assert not any(deployment in file.path for file in emission.files if file.kind == "ScaledObject")


@pytest.mark.parametrize(
    ("kind", "said"), [("InferenceService", True), ("KnativeService", True), ("Deployment", False)]
)
def test_what_knative_refuses_by_default_is_told_where_knative_may_run_the_pods(kind, said):
    emission = renamed("prod/chat-predictor", owner_kind=kind)

    assert any("kubernetes.podspec-nodeselector" in item.reason for item in emission.withheld) is said


@pytest.mark.parametrize("kind", ["KServeComponent", "KnativeService"])
def test_deployments_whose_place_in_their_object_is_not_known_are_left_to_a_person(kind):
    emission = renamed("prod/chat-transformer", owner_kind=kind)

    assert not any(file.path.startswith("workloads/prod/chat-transformer/") for file in emission.files)
    assert any("overwrites its Deployment" in item.reason for item in emission.withheld)


def renamed(workload, **known):
    """What is emitted for the chat service under another name."""
    plan = of_action("a8")
    action = next(action for action in plan.actions if action.id == "a8")
    changes = tuple(
        replace(change, subject=workload) if change.subject == CHAT else change for change in action.changes
    )
    facts = knowing(CHAT, **known)
    ours = tuple(replace(one, name=workload) if one.name == CHAT else one for one in facts.workloads)
    return emit_plan(replace(plan, actions=(replace(action, changes=changes),)), replace(facts, workloads=ours))


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


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("RayService", "autoscaling_config"),
        ("InferenceService", "minReplicas"),
        ("LLMInferenceService", "spec.scaling"),
    ],
)
def test_what_scales_itself_is_told_its_bounds_and_gets_no_second_autoscaler(kind, said):
    emission = emit_plan(of_action("a8"), knowing(CHAT, owner_kind=kind))

    scaled = [file.path for file in emission.files if file.kind in ("ScaledObject", "HorizontalPodAutoscaler")]
    assert not any("chat-api" in path for path in scaled)
    assert any(said in one.reason and "30" in one.reason for one in emission.withheld)


@pytest.mark.parametrize("kind", ["RayService", "InferenceService", "LLMInferenceService"])
def test_services_of_ray_and_kserve_go_to_nodes_of_services(kind):
    same = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.CALIBRATED)
    there = UseOffering(pool=P3_SMALL, gpu="V100", gpus_per_node=1, speed=same)
    emission = emit_plan(of_action("a8", Change(subject=CHAT, effect=there)), knowing(CHAT, owner_kind=kind))

    (pool,) = [yaml.safe_load(file.text) for file in emission.files if file.kind == "NodePool"]
    assert pool["spec"]["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"


def fewer_gpus(**more):
    """Runs that are to ask for 1 GPU and not 4."""
    effect = SetGpuCount(gpus=1, before=4, pool=P3_SMALL, gpus_per_node=1)
    return emit_plan(of_action("a3", Change(subject=RUNS, effect=effect)), knowing(RUNS, **more))


def test_a_placeholder_asks_for_the_gpus_that_its_run_will_ask_for():
    """One that asks for the four of before has room on no node with one GPU, and no node is ready when the run begins."""
    changes = (SetGpuCount(gpus=1, before=4, pool=P3_SMALL, gpus_per_node=1), StartBeforeRuns(lead_s=600.0))
    plan = of_action("a3", *(Change(subject=RUNS, effect=effect) for effect in changes))

    (cron,) = kinds(emit_plan(plan, knowing(RUNS, gpus_per_pod=4.0, run_starts=(9,))), "CronJob")

    (container,) = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "1"


def test_a_run_wider_than_a_node_has_a_placeholder_on_each_of_its_nodes():
    """No pod spans nodes: one that asks for 16 GPUs is never scheduled on nodes of 8."""
    facts = knowing(
        RUNS, gpus_per_pod=16.0, run_starts=(9,), replicas=1, pool=P4D, gpus_per_node=8, owner_kind="JobSet"
    )
    same = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.CALIBRATED)
    there = UseOffering(pool=P4D, gpu="A100 40GB", gpus_per_node=8, speed=same)
    plan = of_action("a3", *(Change(subject=RUNS, effect=effect) for effect in (there, StartBeforeRuns(lead_s=600.0))))

    (cron,) = kinds(emit_plan(plan, facts), "CronJob")

    job = cron["spec"]["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert (job["completions"], job["parallelism"]) == (2, 2)
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "8"


def test_pools_of_two_providers_with_one_type_have_names_of_their_own():
    same = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.CALIBRATED)
    pools = {name: replace(P4D, provider=provider) for name, provider in ((CHAT, "aws"), (RUNS, "lambda"))}
    changes = [
        Change(subject=name, effect=UseOffering(pool=pool, gpu="A100 40GB", gpus_per_node=8, speed=same))
        for name, pool in pools.items()
    ]

    placed = placed_workloads(of_action("a3", *changes).actions, knowing(RUNS, owner_kind="Deployment").workloads)
    names = [spec.name for spec in pool_specs(placed.values())]

    assert names == [f"trimtab-p4d-24xlarge-us-east-1-on-demand-services-{provider}" for provider in ("aws", "lambda")]


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


def test_nobody_gets_nodes_for_a_workload_that_is_not_known():
    """A pool made for it would be billed and never asked for."""
    effect = SetCapacityType(pool=P3_SMALL.held_as(CapacityType.SPOT), loss_per_hr=0.05)
    emission = emit_plan(of_action("a6", Change(subject="nobody/knows", effect=effect)), example_facts())

    assert kinds(emission, "NodePool") == []
    assert [one.subject for one in emission.withheld] == ["nobody/knows"]


def test_affinity_that_no_new_node_meets_is_said():
    facts = knowing(CHAT, pods_were_read=True, affinity_keys=("our.org/rack", "kubernetes.io/arch"))

    reasons = [one.reason for one in emit_plan(of_action("a8"), facts).withheld if one.subject == CHAT]

    assert any("affinity on our.org/rack:" in reason for reason in reasons)


def test_replicas_that_come_and_go_on_nodes_of_several_prefer_the_nodes_of_their_own():
    """By default kube-scheduler takes the emptiest node, and hardly any becomes empty again."""
    for path in ("workloads/prod/chat-api/kustomization.yaml", "workloads/prod/embed-api/kustomization.yaml"):
        pod = patched_pod(emit_plan(of_action("a8"), example_facts()), path)
        (preferred,) = pod["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        (spread,) = pod["topologySpreadConstraints"]
        assert preferred["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
        assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("topology.kubernetes.io/zone", "ScheduleAnyway")
        selects = ("labelSelector", "matchLabelKeys")
        assert [preferred["podAffinityTerm"].get(key) for key in selects] == [spread.get(key) for key in selects]

    runs = patched_pod(emit_plan(example_audit().plan, example_facts()), f"workloads/{RUNS}/kustomization.yaml")
    assert "affinity" not in runs


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


def test_pods_that_keep_apart_from_each_other_are_named_where_a_node_is_to_hold_several():
    facts = knowing(CHAT, pods_were_read=True, keeps_apart=("kubernetes.io/hostname",))

    reasons = [one.reason for one in emit_plan(of_action("a8"), facts).withheld if one.subject == CHAT]

    assert any("keep apart from each other by kubernetes.io/hostname" in reason for reason in reasons)


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


def test_an_autoscaler_says_what_its_target_counts_on_that_no_object_does():
    fewer_bits = SetPrecision(
        before=WeightFormat.BF16, after=WeightFormat.FP8, speed=SAME, speed_there=SAME, saved_gib=7.0,
        model="mistralai/Mistral-7B-Instruct-v0.3",
    )  # fmt: skip
    scaling = next(change for action in PLAN.actions for change in action.changes if change.subject == CHAT)
    emission = emit_plan(of_action("a8", scaling, Change(subject=CHAT, effect=fewer_bits)), example_facts())
    alone = emit_plan(of_action("a8", scaling), example_facts())

    for kind in ("ScaledObject", "PrometheusRule"):
        (body,), (usual,) = kinds(emission, kind), kinds(alone, kind)
        assert body["metadata"]["annotations"]["trimtab.dev/assumes"] == "its model in fp8, not bf16"
        assert "trimtab.dev/assumes" not in usual["metadata"]["annotations"]
    assert any("counts on its model in fp8" in left.reason for left in emission.withheld)


# --- Rules, as Prometheus evaluates them ------------------------------------------------------------------------------------

POD = 'namespace="prod",pod="chat-api-7d4b9c6f5-x2x9k"'


def demand_of(server, scrape_s):
    """The emitted rules of a service on some server, scraped so often; a replica serves 10 requests a second."""
    known = WorkloadFacts(
        name=CHAT, pool=P4D, gpus_per_node=8, replicas=1,
        service=ServiceFacts(capacity_req_s=10.0, signals=SERVERS[server], server_is_known=True),
    )  # fmt: skip
    facts = replace(example_facts(), workloads=(known,), scrape_interval_s=scrape_s, scrape_is_known=True)
    scaling = next(change for action in PLAN.actions for change in action.changes if change.subject == CHAT)
    return kinds(emit_plan(of_action("a8", scaling), facts), "PrometheusRule")[0]["spec"]


def scraped(server, scrape_s, missed=(), back=0):
    """From scrape `back` on, 7 requests a second and an empty queue, as promtool spells samples; a failed scrape is stale."""
    signals = SERVERS[server]
    counter = signals.arrived or signals.completed
    scrapes = 40

    def said(values):
        return " ".join("stale" if number in missed else str(value) for number, value in enumerate(values))

    pod = ",".join((POD, *(matcher for matcher in signals.only if "!~" not in matcher)))
    counts = [7 * scrape_s * (number - back + 1 if number >= back else number) for number in range(scrapes)]
    series = [{"series": f"{counter}{{{pod}}}", "values": said(counts)}]
    if signals.waiting is not None:
        series.append({"series": f"{signals.waiting}{{{pod}}}", "values": said(0 for _ in range(scrapes))})
    return series


def read(server, scrape_s, at_scrape, promtool, folder, missed=(), demand=(0.7,), beside=(), back=0):
    """Hold the demand that Prometheus records at a scrape against that; returns what promtool says if it differs."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(demand_of(server, scrape_s)), encoding="utf-8")
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": f"{scrape_s}s",
                "input_series": [*scraped(server, scrape_s, missed, back), *beside],
                "promql_expr_test": [
                    {
                        "expr": f"round({DEMAND}, 0.001)",
                        "eval_time": f"{at_scrape * scrape_s}s",
                        "exp_samples": [
                            {"labels": '{namespace="prod",workload="chat-api"}', "value": value} for value in demand
                        ],
                    }
                ],
            }
        ],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(test), encoding="utf-8")
    run = subprocess.run([promtool, "test", "rules", str(folder / "test.yaml")], capture_output=True, text=True)
    return "" if run.returncode == 0 else run.stdout + run.stderr


@pytest.mark.parametrize("scrape_s", [10, 15, 30, 60])
@pytest.mark.parametrize("server", sorted(SERVERS))
def test_demand_is_read_at_every_usual_scrape_interval(server, scrape_s, promtool_bin, tmp_path):
    assert read(server, scrape_s, 20, promtool_bin, tmp_path) == ""


@pytest.mark.parametrize("away", [2, 10])
@pytest.mark.parametrize("scrape_s", [15, 60])
@pytest.mark.parametrize("server", sorted(SERVERS))
def test_what_comes_after_a_restart_is_not_spread_over_the_time_away(server, scrape_s, away, promtool_bin, tmp_path):
    missed = range(20 - away, 20)
    ready = " ".join(str(int(number not in missed)) for number in range(40))
    beside = [{"series": f'kube_pod_status_ready{{{POD},condition="true"}}', "values": ready}]

    for at_scrape in (20, 21):
        assert read(server, scrape_s, at_scrape, promtool_bin, tmp_path, missed=missed, beside=beside, back=20) == ""


@pytest.mark.parametrize("scrape_s", [15, 30, 60])
@pytest.mark.parametrize("server", sorted(SERVERS))
def test_a_scrape_that_failed_makes_no_demand_of_nothing(server, scrape_s, promtool_bin, tmp_path):
    """The scrape after the failed one: two samples of the window are a failed one apart."""
    assert read(server, scrape_s, 20, promtool_bin, tmp_path, missed=(19,)) == ""
    assert read(server, scrape_s, 19, promtool_bin, tmp_path, missed=(19,), demand=()) == "", "not known, and not 0"


@pytest.mark.parametrize("scrape_s", [15, 60])
@pytest.mark.parametrize("server", sorted(SERVERS))
def test_a_replica_that_is_ready_counts_on_while_its_scrape_fails(server, scrape_s, promtool_bin, tmp_path):
    ready = {"series": f'kube_pod_status_ready{{{POD},condition="true"}}', "values": "1x40"}

    told = read(server, scrape_s, 19, promtool_bin, tmp_path, missed=(19,), beside=(ready,))

    assert told == "", "the demand of before, since it is there"


def test_rules_carry_the_label_that_kube_prometheus_stack_selects():
    """kube-prometheus-stack values.yaml: with `ruleSelectorNilUsesHelmValues` it selects `release: <name of the release>`."""
    rules = kinds(emit_plan(PLAN, example_facts()), "PrometheusRule")
    other = kinds(emit_plan(PLAN, replace(example_facts(), rule_labels={"role": "rules"})), "PrometheusRule")

    assert {one["metadata"]["labels"]["release"] for one in rules} == {"kube-prometheus-stack"}
    assert {one["metadata"]["labels"]["role"] for one in other} == {"rules"}
