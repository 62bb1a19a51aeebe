"""What the audit is told that an autoscaler guards is what its triggers say."""

import re
from dataclasses import replace

import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.facts import Autoscaler
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.emit.manifests.scaling_files import guarded_by
from trimtab.policies.metrics import GUARD_WINDOW_S

PLAN = example_audit().plan
SCALED = {
    change.subject: change.effect
    for action in PLAN.actions
    for change in action.changes
    if isinstance(change.effect, SetReplicaPolicy)
}


def emitted(facts):
    """Each trigger on latency of each ScaledObject that is emitted, as (workload, quantile, window in seconds, limit)."""
    for file in emit_plan(PLAN, facts).files:
        for written in yaml.safe_load_all(file.text) if file.kind == "ScaledObject" else ():
            subject = f"{written['metadata']['namespace']}/{written['spec']['scaleTargetRef']['name']}"
            for trigger in written["spec"]["triggers"]:
                said = " ".join(str(trigger["metadata"].get("query", "")).split())
                found = re.search(r"histogram_quantile\(([\d.]+), .*\[(\d+)m\]\).*\) / ([\d.]+)\) > 1", said)
                if found:
                    yield subject, float(found[1]), int(found[2]) * 60, float(found[3])


def test_the_targets_that_are_guarded_are_those_of_the_triggers():
    facts = example_facts(Autoscaler.KEDA)

    told = {
        (name, target.required_frac, GUARD_WINDOW_S, target.limit_s)
        for name, effect in SCALED.items()
        for target in guarded_by(effect, facts.workload(name), facts)
        if not isinstance(target, str)
    }

    assert told
    assert told == set(emitted(facts))


@pytest.mark.parametrize("name", sorted(SCALED))
def test_an_autoscaler_that_takes_no_further_triggers_guards_nothing(name):
    facts = example_facts(Autoscaler.HPA)

    assert guarded_by(SCALED[name], facts.workload(name), facts) == "a HorizontalPodAutoscaler gets its demand alone"


@pytest.mark.parametrize("name", sorted(SCALED))
def test_why_nothing_is_guarded_is_said(name):
    facts, effect = example_facts(Autoscaler.KEDA), SCALED[name]
    known = facts.workload(name)

    assert guarded_by(effect, None, facts) == "nothing is known of its manifest"
    assert "no autoscaler is emitted" in guarded_by(effect, replace(known, owner_kind="Job"), facts)
    assert "GPU activity" in guarded_by(effect, replace(known, service=None), facts)
    without = replace(known, service=replace(known.service, targets=())) if known.service else known
    assert isinstance(guarded_by(effect, without, facts), str)
