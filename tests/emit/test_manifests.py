"""Files that enact a plan: as their golden files, whole, annotated, in a safe order, and valid."""

import copy
import json
import re
import subprocess
from dataclasses import replace

import jsonschema
import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit
from tests.emit.validity import UNSCHEMED, cel_faults, schema_faults, structural_faults

from trimtab.catalog.kinds import CapacityType
from trimtab.deployment.effects import BookBlocks, HedgeOnSpot, SetReplicaPolicy
from trimtab.emit.manifests.emission import ApplyStage, Withheld
from trimtab.emit.manifests.facts import Autoscaler, EmitFacts, NodeClass
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.plan.model import Change
from trimtab.policies.blocks import BlockCalendar
from trimtab.policies.forecast import ForecastPolicy, ForecastRules
from trimtab.policies.scaling import HpaPolicy, Metric

PLAN = example_audit().plan
EMISSIONS = {autoscaler: emit_plan(PLAN, example_facts(autoscaler)) for autoscaler in Autoscaler}


def objects(emission):
    for file in emission.files:
        if file.path.endswith(".yaml"):
            for one in yaml.safe_load_all(file.text):
                if "kind" in one:
                    yield file, one


ALL = [
    pytest.param(one, id=f"{autoscaler.value}:{file.path}:{one['kind']}")
    for autoscaler, emission in EMISSIONS.items()
    for file, one in objects(emission)
]
API_OBJECTS = [case for case in ALL if case.values[0]["kind"] not in UNSCHEMED]


def found(kind, autoscaler=Autoscaler.KEDA, name=""):
    return next(
        copy.deepcopy(one)
        for _, one in objects(EMISSIONS[autoscaler])
        if one["kind"] == kind and name in one["metadata"]["name"]
    )


@pytest.mark.parametrize("autoscaler", list(Autoscaler))
def test_every_file_is_as_its_golden_file(autoscaler, golden):
    emission = EMISSIONS[autoscaler]
    for file in emission.files:
        if autoscaler is Autoscaler.KEDA or file.kind in {"HorizontalPodAutoscaler", "Helm values"}:
            golden(f"manifests/{file.path}", file.text)


@pytest.mark.parametrize("one", API_OBJECTS)
def test_every_object_is_valid_against_the_strict_upstream_schema(one, shared_dir):
    assert schema_faults(one, shared_dir / "data" / "k8s-schemas") == []


@pytest.mark.parametrize("one", ALL)
def test_every_object_is_named_and_annotated(one):
    assert structural_faults(one) == []


def mutants():
    pool, scaled, rule = found("NodePool"), found("ScaledObject"), found("PrometheusRule")
    hpa = found("HorizontalPodAutoscaler", Autoscaler.HPA)
    pool["spec"]["disruption"]["consolidationPolicy"] = "WhenUnderutilised"
    scaled["spec"]["minReplicas"] = 2
    rule["spec"]["groups"][1]["rules"][0]["for"] = "30 minutes"
    hpa["spec"]["maxReplica"] = hpa["spec"].pop("maxReplicas")
    return {"WhenUnderutilised": pool, "minReplicas": scaled, "30 minutes": rule, "maxReplica": hpa}


@pytest.mark.parametrize("slip", ["WhenUnderutilised", "minReplicas", "30 minutes", "maxReplica"])
def test_a_slip_of_the_pen_is_caught_by_schema_and_by_structure(slip, shared_dir):
    mutant = mutants()[slip]

    assert schema_faults(mutant, shared_dir / "data" / "k8s-schemas")
    assert structural_faults(mutant)


def test_a_rule_that_only_cel_knows_is_caught(shared_dir):
    pool = found("NodePool")
    pool["spec"]["template"]["spec"]["requirements"][0]["values"] = []

    assert schema_faults(pool, shared_dir / "data" / "k8s-schemas")


def test_prometheus_accepts_every_rule(promtool_bin, tmp_path):
    for number, (_, one) in enumerate(objects(EMISSIONS[Autoscaler.KEDA])):
        if one["kind"] == "PrometheusRule":
            (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump(one["spec"]), encoding="utf-8")

    checked = subprocess.run(
        [promtool_bin, "check", "rules", *map(str, sorted(tmp_path.iterdir()))], capture_output=True, text=True
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_an_absent_alert_stands_beside_every_scaled_object_that_reads_a_metric():
    rules = {
        one["metadata"]["name"]: one
        for _, one in objects(EMISSIONS[Autoscaler.KEDA])
        if "groups" in one.get("spec", ())
    }
    scaled = [one for _, one in objects(EMISSIONS[Autoscaler.KEDA]) if one["kind"] == "ScaledObject"]

    for one in scaled:
        for trigger in one["spec"]["triggers"]:
            if trigger["type"] == "prometheus" and trigger["name"] == "demand":
                alerts = rules[one["metadata"]["name"]]["spec"]["groups"][1]["rules"]
                assert f"absent({trigger['metadata']['query']})" in {alert["expr"] for alert in alerts}
                assert trigger["metadata"]["ignoreNullValues"] == "false"


def test_the_autoscaler_is_the_replayed_policy():
    spec = found("HorizontalPodAutoscaler", Autoscaler.HPA, "chat-api")["spec"]

    assert (spec["minReplicas"], spec["maxReplicas"]) == (4, 30)
    assert spec["metrics"][0]["pods"]["target"] == {"type": "AverageValue", "averageValue": "0.7"}
    assert spec["behavior"]["scaleUp"] == {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Percent", "value": 100, "periodSeconds": 15},
            {"type": "Pods", "value": 4, "periodSeconds": 15},
        ],
    }
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300


def test_for_the_first_day_an_autoscaler_may_only_add(shared_dir):
    emission = emit_plan(PLAN, replace(example_facts(Autoscaler.HPA), add_only=True))

    hpa = next(one for _, one in objects(emission) if one["kind"] == "HorizontalPodAutoscaler")
    assert schema_faults(hpa, shared_dir / "data" / "k8s-schemas") == []
    assert hpa["spec"]["behavior"]["scaleDown"]["selectPolicy"] == "Disabled"
    assert hpa["spec"]["behavior"]["scaleUp"]["selectPolicy"] == "Max"


def test_a_spot_pool_falls_back_on_demand_and_admits_only_who_agreed():
    spec = found("NodePool", name="spot")["spec"]

    held = {one["key"]: one["values"] for one in spec["template"]["spec"]["requirements"]}
    assert held["karpenter.sh/capacity-type"] == ["spot", "on-demand"]
    assert spec["template"]["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "spot", "effect": "NoSchedule"}]
    assert spec["limits"] == {"nvidia.com/gpu": "3"}, "twice the run of the past and one node, within the quota"


def test_the_order_is_safe_nodes_before_pods_and_commitments_last():
    stages = [file.stage for file in EMISSIONS[Autoscaler.KEDA].files]

    assert stages == sorted(stages)
    assert [stage for stage in stages if stage is not ApplyStage.UNDO][-1] is ApplyStage.COMMIT


def test_every_change_is_in_a_file_or_withheld_with_a_reason():
    emission = EMISSIONS[Autoscaler.KEDA]

    for action in PLAN.actions:
        enacting = [file for file in emission.of_action(action.id) if file.stage is not ApplyStage.DECIDE]
        assert enacting or any(one.action == action.id for one in emission.withheld)


def test_nothing_known_of_the_cluster_leaves_every_workload_to_a_person():
    emission = emit_plan(PLAN, EmitFacts())

    subjects = {change.subject for action in PLAN.actions for change in action.changes}
    assert {one.subject for one in emission.withheld} >= {name for name in subjects if name.startswith("prod/")}
    assert not any(file.stage is ApplyStage.SCALE for file in emission.files)


def test_some_actions_alone_can_be_asked_for():
    emission = emit_plan(PLAN, example_facts(), only=("a8",))

    assert {name for file in emission.files for name in file.actions} == {"a8"}


def test_a_service_that_moves_to_a_faster_gpu_scales_on_what_it_will_serve_there():
    nightly = next(action for action in PLAN.actions if action.id == "a9").changes[0].effect
    scaling = next(action for action in PLAN.actions if action.id == "a8")
    faster = replace(nightly, speed=replace(nightly.speed, value=2.0, high=2.0))
    chat = replace(scaling.changes[0], effect=faster)
    both = replace(PLAN, actions=(scaling, replace(scaling, id="a10", changes=(chat,))))

    emission = emit_plan(both, example_facts())

    rules = next(file for file in emission.files if file.path == "monitoring/prod/chat-api.rules.yaml")
    assert "/ 6.4" in rules.text


def forecasting():
    scaling = next(action for action in PLAN.actions if action.id == "a8")
    hpa = HpaPolicy(
        target_frac=0.8, min_replicas=2, max_replicas=30, metric=Metric.SIGNAL,
        tolerance_up_frac=0.0, tolerance_down_frac=0.05, down_stabilization_s=120,
    )  # fmt: skip
    policy = ForecastPolicy(rules=ForecastRules(lead_s=195), hpa=hpa)
    change = Change(subject="prod/chat-api", effect=SetReplicaPolicy(policy=policy, metric="requests per replica"))
    return replace(PLAN, actions=(replace(scaling, changes=(change,)),))


@pytest.mark.parametrize("autoscaler", list(Autoscaler))
def test_a_forecast_is_recorded_and_followed(autoscaler, golden, shared_dir):
    emission = emit_plan(forecasting(), example_facts(autoscaler))

    for file, one in objects(emission):
        if one["kind"] in {"ScaledObject", "HorizontalPodAutoscaler"}:
            golden(f"forecast/{file.path}", file.text)
        if one["kind"] in {"PrometheusRule", "ScaledObject", "HorizontalPodAutoscaler"}:
            assert schema_faults(one, shared_dir / "data" / "k8s-schemas") == []
            assert "load_wanted" in file.text


@pytest.mark.parametrize("autoscaler", list(Autoscaler))
def test_an_autoscaler_on_the_mean_of_a_window_follows_what_is_recorded_of_it(autoscaler):
    scaling = next(action for action in PLAN.actions if action.id == "a8")
    calm = HpaPolicy(target_frac=0.8, min_replicas=2, max_replicas=30, window_s=300)
    change = Change(subject="prod/chat-api", effect=SetReplicaPolicy(policy=calm, metric="requests per replica"))
    plan = replace(PLAN, actions=(replace(scaling, changes=(change,)),))

    emission = emit_plan(plan, example_facts(autoscaler))

    rules = next(file.text for file in emission.files if file.path.endswith("chat-api.rules.yaml"))
    scaler = next(
        file.text
        for file in emission.files
        if file.path.startswith("scaling/prod/chat-api.") and "pdb" not in file.path
    )
    assert "avg_over_time(trimtab:load_replicas" in rules
    assert "[299s]" in rules
    assert "scaling_demand" in scaler


def test_prometheus_accepts_the_forecast(promtool_bin, tmp_path):
    rules = next(
        one for _, one in objects(emit_plan(forecasting(), example_facts())) if one["kind"] == "PrometheusRule"
    )
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules["spec"]), encoding="utf-8")

    checked = subprocess.run(
        [promtool_bin, "check", "rules", str(tmp_path / "rules.yaml")], capture_output=True, text=True
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_signal_that_nothing_records_is_withheld():
    plan = forecasting()
    effect = plan.actions[0].changes[0].effect
    bare = replace(plan.actions[0].changes[0], effect=replace(effect, policy=effect.hpa))

    emission = emit_plan(replace(plan, actions=(replace(plan.actions[0], changes=(bare,)),)), example_facts())

    assert "nothing here records" in emission.withheld[0].reason


def test_what_several_actions_leave_for_one_reason_is_said_once():
    withheld = [
        Withheld(action=action, subject="prod/chat", reason="its pods were not read") for action in ("a1", "a2")
    ]

    emission = replace(EMISSIONS[Autoscaler.KEDA], withheld=tuple(withheld))

    assert emission.grouped() == (("a1, a2", ("prod/chat",), "its pods were not read"),)


def test_the_same_plan_gives_the_same_bytes():
    assert emit_plan(PLAN, example_facts()) == EMISSIONS[Autoscaler.KEDA]


def asked_for(pod):
    """The labels that a patched pod asks nodes for; those set to null are taken out."""
    return {key: value for key, value in pod["nodeSelector"].items() if value is not None}


def hedged(one_in):
    pool = next(known.pool for known in example_facts().workloads if known.name == "prod/chat-api")
    effect = HedgeOnSpot(
        pool=pool.held_as(CapacityType.SPOT), one_in=one_in, zones=3, loss_per_hr=0.02, outage_s=5400.0
    )
    action = next(action for action in PLAN.actions if action.id == "a8")
    plan = replace(PLAN, actions=(replace(action, changes=(Change(subject="prod/chat-api", effect=effect),)),))
    return {one["metadata"]["name"]: one for _, one in objects(emit_plan(plan, example_facts()))}


def test_a_hedged_service_is_spread_over_a_spot_pool_and_its_floor_on_demand(shared_dir):
    made = hedged(one_in=4)

    pools = {name: one for name, one in made.items() if one["kind"] == "NodePool"}
    held = {
        name: {need["key"]: need["values"] for need in one["spec"]["template"]["spec"]["requirements"]}
        for name, one in pools.items()
    }
    spot = next(name for name in held if not name.endswith("-floor"))
    assert held[spot]["karpenter.sh/capacity-type"] == ["spot", "on-demand"]
    assert held[f"{spot}-floor"]["karpenter.sh/capacity-type"] == ["on-demand"]
    assert (held[f"{spot}-floor"]["trimtab.dev/spread"], held[spot]["trimtab.dev/spread"]) == (["1"], ["2", "3", "4"])
    assert all(schema_faults(one, shared_dir / "data" / "k8s-schemas") == [] for one in pools.values())
    pod = yaml.safe_load(made["trimtab-chat-api"]["patches"][0]["patch"])["spec"]["template"]["spec"]
    assert asked_for(pod) == {"trimtab.dev/hedge": spot}
    assert [one["topologyKey"] for one in pod["topologySpreadConstraints"]] == [
        "topology.kubernetes.io/zone",
        "trimtab.dev/spread",
    ]
    assert {(one["key"], one["value"]) for one in pod["tolerations"]} == {
        ("nvidia.com/gpu", "spot"),
        ("nvidia.com/gpu", "present"),
    }


def test_booked_nodes_come_first_and_karpenter_finds_them_by_their_tag(shared_dir):
    home = next(known for known in example_facts().workloads if known.owner_kind == "Job")
    effect = BookBlocks(
        pool=home.pool.held_as(CapacityType.CAPACITY_BLOCK),
        calendar=BlockCalendar((5, 5, 3, 3, 3, 0, 0)),
        rate_micro_usd_hr=14_750_000,
        on_demand_micro_usd_hr=21_957_640,
    )
    action = replace(PLAN.actions[0], changes=(Change(subject=home.name, effect=effect),))
    emission = emit_plan(replace(PLAN, actions=(action,)), example_facts())

    (pool,) = (one for _, one in objects(emission) if one["kind"] == "NodePool")
    needs = {one["key"]: one["values"] for one in pool["spec"]["template"]["spec"]["requirements"]}
    assert needs["karpenter.sh/capacity-type"] == ["reserved", "on-demand"]
    assert schema_faults(pool, shared_dir / "data" / "k8s-schemas") == []
    (page,) = (file.text for file in emission.files if "book" in file.path)
    assert "| for 5 days from Monday | 3 | 2 + 1 |" in page
    assert "| for 2 days from Monday | 2 | 2 |" in page
    named = replace(
        example_facts(),
        node_classes={"aws": NodeClass(group="karpenter.k8s.aws", kind="EC2NodeClass", name="gpu-nodes")},
    )
    (elsewhere,) = (
        file.text for file in emit_plan(replace(PLAN, actions=(action,)), named).files if "book" in file.path
    )
    assert "kubectl patch ec2nodeclass gpu-nodes " in elsewhere
    patch = json.loads(re.search(r"-p '(\{.*\})'", page).group(1))
    schemas = yaml.safe_load(
        (shared_dir / "data/k8s-schemas/crds/karpenter.k8s.aws_ec2nodeclasses.yaml").read_text(encoding="utf-8")
    )
    spec = schemas["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    (key,) = patch["spec"]
    terms = patch["spec"][key]
    assert list(jsonschema.Draft7Validator(spec[key]).iter_errors(terms)) == list(cel_faults(spec[key], terms)) == []
    (tag,) = terms[0]["tags"].items()
    assert f"Key={tag[0]},Value={tag[1]}" in page


def test_a_hedge_without_a_floor_is_one_pool_spread_over_zones():
    made = hedged(one_in=0)

    (name,) = (name for name, one in made.items() if one["kind"] == "NodePool")
    pod = yaml.safe_load(made["trimtab-chat-api"]["patches"][0]["patch"])["spec"]["template"]["spec"]
    assert asked_for(pod) == {"karpenter.sh/nodepool": name}
    assert [one["topologyKey"] for one in pod["topologySpreadConstraints"]] == ["topology.kubernetes.io/zone"]
