"""What KEDA, KServe, Knative and Ray make of the emitted scaling, by their own rules."""

import re
from dataclasses import replace

import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.emitted import CHAT, PLAN, SAME, kinds, knowing, of_action

from trimtab.deployment.effects import (
    BatchForm,
    SetBatchPolicy,
    SetPrecision,
    SetSchedule,
)
from trimtab.emit.manifests.cron_files import cron_spans
from trimtab.emit.manifests.demand_rules import pods_of
from trimtab.emit.manifests.facts import WorkloadFacts
from trimtab.emit.manifests.keda import scheduled_object
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.physics.formats import WeightFormat
from trimtab.plan.model import Change
from trimtab.provenance import Basis


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
    assert any("relies on its model in fp8" in left.reason for left in emission.withheld)
