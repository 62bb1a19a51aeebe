"""What the audit is told that an autoscaler guards is what its triggers say, with the limits of the replay."""

import re
from dataclasses import replace

import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.facts import Autoscaler
from trimtab.emit.manifests.latency_guards import GUARD_ASKS, GUARD_TIMES
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.emit.manifests.scaling_files import guarded_by
from trimtab.policies.scaling import GUARD_WINDOW_S

PLAN = example_audit().plan
SCALED = {
    change.subject: change.effect
    for action in PLAN.actions
    for change in action.changes
    if isinstance(change.effect, SetReplicaPolicy)
}


READS = re.compile(rf'{GUARD_TIMES}\{{namespace="(.*)",workload="(.*)",guard="(.*)"\}} > ')


def emitted(facts):
    """Each trigger on what a guard recorded, of each ScaledObject, as (workload, quantile, window in seconds, limit)."""
    written = [found for file in emit_plan(PLAN, facts).files for found in objects_of(file)]
    asks = {
        (rule["labels"]["namespace"], rule["labels"]["workload"], rule["labels"]["guard"]): rule["expr"]
        for rules in written
        if rules["kind"] == "PrometheusRule"
        for group in rules["spec"]["groups"]
        for rule in group["rules"]
        if rule.get("record") == GUARD_ASKS
    }
    for scaled in written:
        for query in asked_of(scaled, written):
            read = READS.search(query)
            if read:
                said = " ".join(asks[read.groups()].split())
                found = re.search(
                    r"histogram_quantile\(scalar\(clamp_min\(([\d.]+) - .*\[(\d+)m\]\).*\) / ([\d.]+)\) > 1", said
                )
                yield f"{read[1]}/{read[2]}", float(found[1]), int(found[2]) * 60, float(found[3])


def asked_of(scaled, written):
    """The PromQL that an autoscaler follows: of triggers, or of what external metrics are recorded from."""
    if scaled["kind"] == "ScaledObject":
        return [trigger["metadata"].get("query", "") for trigger in scaled["spec"]["triggers"]]
    if scaled["kind"] != "HorizontalPodAutoscaler":
        return []
    recorded = {
        (rule["record"].replace(":", "_"), rule["labels"].get("workload"), rule["labels"].get("guard")): rule["expr"]
        for rules in written
        if rules["kind"] == "PrometheusRule"
        for rule in rules["spec"]["groups"][0]["rules"]
    }
    metrics = [metric["external"]["metric"] for metric in scaled["spec"]["metrics"] if metric["type"] == "External"]
    labels = [metric["selector"]["matchLabels"] for metric in metrics]
    return [
        recorded[metric["name"], of["workload"], of.get("guard")] for metric, of in zip(metrics, labels, strict=True)
    ]


def objects_of(file):
    bodies = yaml.safe_load_all(file.text) if file.path.endswith(".yaml") else ()
    return [found for found in bodies if found and "kind" in found]


@pytest.mark.parametrize("autoscaler", Autoscaler)
def test_the_targets_that_are_guarded_are_those_of_the_triggers(autoscaler):
    facts = example_facts(autoscaler)

    told = {
        (name, target.required_frac, GUARD_WINDOW_S, target.limit_s)
        for name, effect in SCALED.items()
        for target in guarded_by(effect, facts.workload(name), facts)
        if not isinstance(target, str)
    }

    assert told
    assert told == set(emitted(facts))


def test_a_cache_that_fills_asks_for_replicas_whichever_autoscaler_there_is():
    for autoscaler in Autoscaler:
        written = [found for file in emit_plan(PLAN, example_facts(autoscaler)).files for found in objects_of(file)]
        queries = [query for scaled in written for query in asked_of(scaled, written)]

        assert any("vllm:kv_cache_usage_perc" in query and "/ 0.95) > 1" in query for query in queries), autoscaler


@pytest.mark.parametrize("name", sorted(SCALED))
def test_why_nothing_is_guarded_is_said(name):
    facts, effect = example_facts(Autoscaler.KEDA), SCALED[name]
    known = facts.workload(name)

    assert guarded_by(effect, None, facts) == "nothing is known of its manifest"
    assert "no autoscaler is emitted" in guarded_by(effect, replace(known, owner_kind="Job"), facts)
    assert "GPU activity" in guarded_by(effect, replace(known, service=None), facts)
    without = replace(known, service=replace(known.service, targets=())) if known.service else known
    assert isinstance(guarded_by(effect, without, facts), str)
