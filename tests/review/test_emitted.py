"""What `trimtab emit` writes, read without the plan: the policies, timetables and bill that it was made of."""

from dataclasses import replace

import pytest
import yaml
from benchmarks.enact import proved_fleet, row_of
from hypothesis import given, settings
from tests.emit.cluster_example import example_facts
from tests.emit.example import action, hpa
from tests.emit.test_any_plan import FACTS, plans

from trimtab.deployment.effects import DECODE, PREFILL, SetReplicaPolicy, SetSchedule, Wake
from trimtab.emit.manifests.cron_files import cron_spans, held_stretches, notebook_hours
from trimtab.emit.manifests.emission import ApplyStage
from trimtab.emit.manifests.facts import SERVERS, Autoscaler, NodeMaker
from trimtab.emit.manifests.keda import scaled_object, scheduled_object
from trimtab.emit.manifests.kubernetes import horizontal_pod_autoscaler
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.emit.manifests.prometheus import prometheus_rule
from trimtab.fleet.token_work import TokenWork
from trimtab.pipeline import open_demo
from trimtab.plan.model import Risk
from trimtab.policies.forecast import forecast_policy
from trimtab.policies.keda import KedaPolicy
from trimtab.policies.scaling import HpaPolicy, Metric
from trimtab.review import read_objects
from trimtab.review.deployments import held_hours, is_timetable
from trimtab.review.scaling import Replica, scaling_of
from trimtab.units import S_PER_HR

CAPACITY_REQ_S = 3.2
REPLICA = Replica(capacity_req_s=CAPACITY_REQ_S, full_frac=1.0, signal="sm_active")
AHEAD = forecast_policy(
    cold_start_s=187.0, mean_req_s=0.4, min_replicas=3, max_replicas=40, target_frac=0.7, down_stabilization_s=600
)
POLICIES = {
    "demand": HpaPolicy(target_frac=0.75, min_replicas=2, max_replicas=40),
    "behaviours": HpaPolicy(
        target_frac=0.6, min_replicas=2, max_replicas=40, tolerance_up_frac=0.02, down_stabilization_s=900, period_s=60
    ),
    "mean of five minutes": HpaPolicy(target_frac=0.8, min_replicas=2, max_replicas=96, window_s=300),
    "duty cycle": HpaPolicy(target_frac=0.5, min_replicas=1, max_replicas=9, metric=Metric.DUTY_CYCLE),
    # rules are written with ten digits
    "forecast": AHEAD._replace(rules=AHEAD.rules._replace(late_frac=0.0005)),
}  # fmt: skip


def of_effect(effect):
    return action(
        "a1", "autoscaling", "prod/chat-api", 1.0, {"prod/chat-api": effect},
        weeks=1.0, risk=Risk.LOW, quarter=1, seen=(), rollback="delete it",
    )  # fmt: skip


def read(*objects):
    return read_objects(("emitted.yaml", one) for one in yaml.safe_load_all(yaml.safe_dump_all(objects)))


@pytest.mark.parametrize(
    ("autoscaler", "make"), [(Autoscaler.KEDA, scaled_object), (Autoscaler.HPA, horizontal_pod_autoscaler)]
)
@pytest.mark.parametrize("name", POLICIES)
def test_an_emitted_autoscaler_is_read_as_the_policy_that_was_replayed(name, autoscaler, make):
    facts, effect = example_facts(autoscaler), SetReplicaPolicy(policy=POLICIES[name], metric="requests")
    chat, rank = facts.workload("prod/chat-api"), facts.workload("prod/search-rank")
    other = SetReplicaPolicy(policy=hpa(1, 5).policy, metric="requests")
    manifests = read(
        prometheus_rule(of_effect(effect), effect, chat, facts),
        prometheus_rule(of_effect(other), other, rank, facts),
        make(of_effect(effect), effect, chat, facts),
    )
    (scaler,) = manifests.scalers["prod/chat-api"]

    assert scaling_of(scaler, REPLICA, manifests.records).policy == POLICIES[name]


@pytest.mark.parametrize("server", ["vllm", "sglang", "tgi"])
@pytest.mark.parametrize("name", ["demand", "mean of five minutes", "forecast"])
def test_a_rule_on_tokens_is_read_with_what_each_token_takes(name, server):
    work = TokenWork(input_req=0.00012345678, output_req=0.0031, cached_req=0.0000123)
    facts, effect = example_facts(), SetReplicaPolicy(policy=POLICIES[name], metric="tokens", tokens=work)
    chat = facts.workload("prod/chat-api")
    chat = replace(chat, service=replace(chat.service, signals=SERVERS[server]))
    manifests = read(
        prometheus_rule(of_effect(effect), effect, chat, facts), scaled_object(of_effect(effect), effect, chat, facts)
    )
    (scaler,) = manifests.scalers["prod/chat-api"]

    seen = scaling_of(scaler, replace(REPLICA, tokens_counted=True), manifests.records)

    assert seen.policy == POLICIES[name]
    assert seen.tokens.input_req == pytest.approx(work.input_req, rel=1e-6)
    assert seen.tokens.output_req == pytest.approx(work.output_req, rel=1e-6)
    # TGI does not say what of a prompt it had in its cache
    assert seen.tokens.cached_req == pytest.approx(work.input_req if server == "tgi" else work.cached_req, rel=1e-6)


def test_a_rule_on_tokens_is_refused_where_history_holds_none():
    work = TokenWork(input_req=0.0001, output_req=0.003, cached_req=0.0)
    facts, effect = example_facts(), SetReplicaPolicy(policy=POLICIES["demand"], metric="tokens", tokens=work)
    chat = facts.workload("prod/chat-api")
    manifests = read(
        prometheus_rule(of_effect(effect), effect, chat, facts), scaled_object(of_effect(effect), effect, chat, facts)
    )
    (scaler,) = manifests.scalers["prod/chat-api"]

    seen = scaling_of(scaler, REPLICA, manifests.records)

    assert seen.policy is None
    assert "holds no counters of them" in seen.refused


def test_the_guards_of_an_hpa_are_read_as_limits_and_named():
    facts, effect = example_facts(Autoscaler.HPA), SetReplicaPolicy(policy=POLICIES["demand"], metric="requests")
    chat = facts.workload("prod/chat-api")
    manifests = read(
        prometheus_rule(of_effect(effect), effect, chat, facts),
        horizontal_pod_autoscaler(of_effect(effect), effect, chat, facts),
    )
    (scaler,) = manifests.scalers["prod/chat-api"]

    found = scaling_of(scaler, REPLICA, manifests.records)

    assert found.policy == POLICIES["demand"]
    assert len([note for note in found.notes if "beyond its limit" in note]) == 2, "the cache and the latency target"


def test_a_forecast_that_counts_on_another_autoscaler_is_refused():
    facts, effect = example_facts(), SetReplicaPolicy(policy=POLICIES["forecast"], metric="requests")
    known = facts.workload("prod/chat-api")
    one = scaled_object(of_effect(effect), effect, known, facts)
    one["spec"]["maxReplicaCount"] = 10
    manifests = read(prometheus_rule(of_effect(effect), effect, known, facts), one)
    (scaler,) = manifests.scalers["prod/chat-api"]

    assert "rely on another" in scaling_of(scaler, REPLICA, manifests.records).refused


@pytest.mark.parametrize(
    "hours", [range(8, 20), [*range(20, 24), *range(144, 168), 0, 1], [h for h in range(168) if h % 24 in (3, 4, 9)]]
)
def test_an_emitted_timetable_holds_the_hours_of_the_plan(hours):
    effect, facts = SetSchedule(hours_of_week=tuple(sorted(hours))), example_facts()
    spans = cron_spans(tuple((start * S_PER_HR, end * S_PER_HR) for start, end in held_stretches(effect.hours_of_week)))
    ana = facts.workload("notebooks/ana")
    (scaler,) = read(scheduled_object(of_effect(effect), ana, spans, replicas=1)).scalers["notebooks/ana"]

    assert is_timetable(scaler)
    assert held_hours(scaler) == effect.hours_of_week


@pytest.mark.parametrize(
    "hours", [range(8, 20), [*range(20, 24), *range(144, 168), 0, 1], [h for h in range(168) if h % 24 in (3, 4, 9)]]
)
def test_the_timetables_of_a_notebook_hold_the_hours_of_the_plan(hours):
    effect, facts = SetSchedule(hours_of_week=tuple(sorted(hours))), example_facts()
    spans = cron_spans(tuple((start * S_PER_HR, end * S_PER_HR) for start, end in held_stretches(effect.hours_of_week)))

    manifests = read(*notebook_hours(of_effect(effect), facts.workload("notebooks/bo"), spans))

    (scaler,) = manifests.scalers["notebooks/bo"]
    assert is_timetable(scaler)
    assert held_hours(scaler) == effect.hours_of_week
    assert not manifests.pods, "a timetable's own pods hold no GPU and are no workload of the fleet"


def test_a_notebook_that_is_only_stopped_is_not_guessed():
    facts = example_facts()
    objects = notebook_hours(
        of_effect(SetSchedule(hours_of_week=(8,))),
        facts.workload("notebooks/bo"),
        cron_spans(((8 * S_PER_HR, 9 * S_PER_HR),)),
    )
    (scaler,) = read(*(one for one in objects if "start" not in one["metadata"]["name"])).scalers["notebooks/bo"]

    assert "only stopped" in held_hours(scaler)


def test_a_timetable_in_another_time_zone_is_not_guessed():
    facts = example_facts()
    one = scheduled_object(
        of_effect(SetSchedule(hours_of_week=(8,))),
        facts.workload("notebooks/ana"),
        cron_spans(((8 * S_PER_HR, 9 * S_PER_HR),)),
        replicas=1,
    )
    one["spec"]["triggers"][0]["metadata"]["timezone"] = "Europe/Berlin"
    (scaler,) = read(one).scalers["notebooks/ana"]

    assert "only UTC" in held_hours(scaler)


@pytest.fixture(scope="module")
def tuned():
    """A demonstration, planned and proved once."""
    return proved_fleet("finetune-7b", open_demo("finetune-7b"), None)


@pytest.mark.parametrize("maker", NodeMaker)
def test_the_files_of_a_plan_cost_what_its_proof_says(tuned, maker, tmp_path):
    found = row_of(tuned, maker, tmp_path)

    assert found.files_usd == pytest.approx(found.proof_usd, rel=0.02)
    assert found.objects_usd == found.files_usd
    assert found.targets_equal == found.targets > 0
    assert not found.not_judged
    assert not found.left_behind


@pytest.mark.parametrize("maker", NodeMaker)
def test_a_review_of_what_was_emitted_passes_and_costs_what_its_objects_do(tuned, maker, tmp_path):
    found = row_of(tuned, maker, tmp_path)

    assert found.review_passes
    assert found.review_usd == pytest.approx(found.unordered_usd, rel=0.02)


@settings(max_examples=40, deadline=None)
@given(plan=plans(), facts=FACTS)
def test_every_patch_of_any_plan_finds_its_workload(plan, facts):
    emission = emit_plan(plan, facts)
    documents = [
        (file.path, one)
        for file in emission.files
        if file.path.endswith(".yaml") and file.kind != "Helm values" and file.stage is not ApplyStage.UNDO
        for one in yaml.safe_load_all(file.text)
    ]

    manifests = read_objects(documents).laid_on(one.name for one in facts.workloads)

    assert [one for one in manifests.unread if one.what.startswith("a patch")] == []
    halves = {name for name in manifests.pods if name.endswith((f"-{PREFILL}", f"-{DECODE}"))}
    assert set(manifests.scalers) <= {one.name for one in facts.workloads} | halves


ASLEEP = SetReplicaPolicy(
    policy=KedaPolicy(
        HpaPolicy(target_frac=0.6, min_replicas=0, max_replicas=9, window_s=300), polling_s=15, cooldown_s=540
    ),
    metric="requests",
    wake=Wake(query='sum(rate(gateway_requests_total{route="chat"}[2m]))', hold_s=900.0),
)


def scaler_of(effect):
    facts = example_facts(Autoscaler.KEDA)
    chat = facts.workload("prod/chat-api")
    objects = (
        prometheus_rule(of_effect(effect), effect, chat, facts),
        scaled_object(of_effect(effect), effect, chat, facts),
    )
    return (*objects, read(*objects))


@pytest.mark.parametrize("window_s", [60, 300, 900])
def test_a_window_of_scaling_down_is_emitted_and_read_as_replayed(window_s):
    hpa = HpaPolicy(target_frac=0.6, min_replicas=2, max_replicas=9, down_stabilization_s=window_s)

    _, scaled, manifests = scaler_of(SetReplicaPolicy(policy=hpa, metric="requests"))

    said = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert said["stabilizationWindowSeconds"] == window_s
    (scaler,) = manifests.scalers["prod/chat-api"]
    assert scaling_of(scaler, REPLICA, manifests.records).policy == hpa


def test_an_autoscaler_to_zero_is_emitted_with_what_wakes_it_and_read_as_replayed():
    rules, scaled, manifests = scaler_of(ASLEEP)
    spec = scaled["spec"]
    triggers = {one["name"]: one["metadata"] for one in spec["triggers"]}

    assert (spec["minReplicaCount"], spec["cooldownPeriod"], spec["pollingInterval"]) == (0, 540, 15)
    assert triggers["wake"]["query"] == 'clamp_max(ceil(sum(sum(rate(gateway_requests_total{route="chat"}[2m])))), 1)'
    assert (triggers["wake"]["threshold"], triggers["wake"]["activationThreshold"]) == ("1", "0")
    assert triggers["demand"]["query"].endswith(
        " > 0))"
    )  # 0 without pods, and a fault where a ready one exports nothing
    alerts = {one["alert"] for group in rules["spec"]["groups"] for one in group["rules"] if "alert" in one}
    assert {"TrimtabWakeAbsent", "TrimtabNotWoken"} <= alerts

    (scaler,) = manifests.scalers["prod/chat-api"]
    scaling = scaling_of(scaler, REPLICA, manifests.records)
    assert scaling.policy == ASLEEP.hpa
    assert scaling.outlives


def test_an_autoscaler_that_reads_only_what_its_pods_export_never_wakes():
    _, _, manifests = scaler_of(replace(ASLEEP, wake=None))
    (scaler,) = manifests.scalers["prod/chat-api"]

    assert not scaling_of(scaler, REPLICA, manifests.records).outlives
