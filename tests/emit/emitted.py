"""What is emitted for the example plan, one action at a time, and how to look into it."""

from dataclasses import replace

import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import P3_SMALL, example_audit

from trimtab.catalog.kinds import CapacityType
from trimtab.deployment.effects import (
    SetCapacityType,
)
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.plan.model import Change
from trimtab.provenance import Basis, Estimate

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
    workloads = tuple(replace(known, **more) if known.name == name else known for known in facts.workloads)
    return replace(facts, workloads=workloads)


def kinds(emission, kind):
    """All emitted objects of a kind; a file that does not name it is not parsed."""
    return [
        body
        for file in emission.files
        if file.path.endswith(".yaml") and file.kind != "Helm values" and f"kind: {kind}\n" in file.text
        for body in yaml.safe_load_all(file.text)
        if body["kind"] == kind
    ]


def text_of(emission, path):
    return next(file.text for file in emission.files if file.path == path)


def spot_emission():
    """The example's runs, moved to spot."""
    effect = SetCapacityType(pool=P3_SMALL.held_as(CapacityType.SPOT), loss_per_hr=0.05)
    return emit_plan(of_action("a6", Change(subject=RUNS, effect=effect)), example_facts())


def patch_of(emission, path):
    """The first patch of a Component."""
    return yaml.safe_load(yaml.safe_load(text_of(emission, path))["patches"][0]["patch"])


def patched_pod(emission, path):
    return patch_of(emission, path)["spec"]["template"]["spec"]
