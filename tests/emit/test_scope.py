"""Plans over several clusters: a root of each for each stage, in the names that the cluster itself knows."""

import re
from dataclasses import replace

import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit

from trimtab.deployment.effects import BuyCommitment, BuySpendPlan, FleetEffect, ReleaseNodes
from trimtab.emit.manifests.emission import ApplyStage
from trimtab.emit.manifests.plan_files import action_names, emit_plan
from trimtab.plan.model import Change

PLAN = example_audit().plan
CLUSTERS = ("east", "west")


def at(name, cluster):
    return f"{name}@{cluster}"


def facts_of_both():
    facts = example_facts()
    return replace(
        facts,
        workloads=tuple(replace(one, name=at(one.name, cluster)) for cluster in CLUSTERS for one in facts.workloads),
        nodes=tuple(
            replace(one, name=at(one.name, cluster), held_by=tuple(at(name, cluster) for name in one.held_by))
            for cluster in CLUSTERS
            for one in facts.nodes
        ),
    )


def in_both(change):
    match change.effect:
        case ReleaseNodes(nodes=nodes):
            named = tuple(at(node, cluster) for cluster in CLUSTERS for node in nodes)
            return (Change(subject=", ".join(named), effect=ReleaseNodes(nodes=named)),)
        case BuyCommitment() | BuySpendPlan():
            return (change,)
        case _:
            return tuple(replace(change, subject=at(change.subject, cluster)) for cluster in CLUSTERS)


def plan_of_both():
    return replace(
        PLAN,
        actions=tuple(
            replace(action, changes=tuple(one for change in action.changes for one in in_both(change)))
            for action in PLAN.actions
        ),
    )


BOTH = emit_plan(plan_of_both(), facts_of_both())
ALONE = {file.path: file for file in emit_plan(PLAN, example_facts()).files}


def test_each_cluster_gets_what_it_would_get_alone():
    """Two clusters of one make: the folder of each is that of the plan for it alone, but for the actions' names."""
    for cluster in CLUSTERS:
        folder = f"clusters/{cluster}/"
        mine = {file.path.removeprefix(folder): file for file in BOTH.files if file.path.startswith(folder)}
        objects = {path for path, file in ALONE.items() if path.endswith((".yaml", ".json"))}

        assert objects == {path for path in mine if path.endswith((".yaml", ".json"))}
        for path in objects:
            if path.endswith(".yaml") and not path.endswith("kustomization.yaml"):
                assert specs(mine[path].text) == specs(ALONE[path].text), path


def specs(text):
    return [
        {key: value for key, value in one.items() if key not in {"metadata"}}
        for one in yaml.safe_load_all(re.sub(r"trimtab_action: \S+", "", text))
    ]


def test_nothing_that_a_cluster_reads_names_a_cluster():
    for file in BOTH.files:
        if file.path.startswith("clusters/") and file.stage is not ApplyStage.DECIDE:
            assert not re.search(r"[a-z0-9]@(east|west)", file.text), file.path


def test_a_node_is_drained_by_the_name_that_its_cluster_knows():
    pages = [file.text for file in BOTH.files if file.path.startswith("clusters/west/orders/give-back-gpu-p4d")]

    loops = [
        found for page in pages for found in re.findall(r"^for node in (.*); do\n  kubectl drain", page, re.MULTILINE)
    ]
    assert loops == ["ip-10-0-1-1 ip-10-0-1-2"]


def test_what_is_bought_is_ordered_once():
    orders = [file.path for file in BOTH.files if "/buy-" in f"/{file.path}"]

    assert [path for path in orders if path.startswith("clusters/")] == []
    assert len(orders) == sum(
        isinstance(one.effect, BuyCommitment) for action in PLAN.actions for one in action.changes
    )


def test_every_stage_of_every_cluster_is_one_root_and_all_are_in_the_order():
    page = next(file.text for file in BOTH.files if file.path == "APPLY.md")
    roots = [file.path.removesuffix("/kustomization.yaml") for file in BOTH.files if file.kind == "Kustomization"]

    assert {root.split("/")[1] for root in roots} == set(CLUSTERS)
    assert all(page.count(f"apply -k {root}\n") == 1 for root in roots)
    assert "kubectl --context east apply -k clusters/east/nodes" in page


def test_no_root_holds_what_is_not_to_be_applied():
    for root in [file for file in BOTH.files if file.kind == "Kustomization"]:
        folder, body = root.path.removesuffix("kustomization.yaml"), yaml.safe_load(root.text)
        listed = {*body["resources"], *(name for one in body.get("configMapGenerator", ()) for name in one["files"])}

        assert {f"{folder}{name}" for name in listed} | {root.path} == {
            file.path for file in BOTH.files if file.path.startswith(folder)
        }


def test_what_is_left_to_a_person_says_in_which_cluster():
    assert {one.subject.rpartition("@")[2] for one in BOTH.withheld} == set(CLUSTERS)


def test_names_of_files_and_actions_stay_from_audit_to_audit():
    """Whatever order and number the next audit gives the same actions."""
    turned = PLAN.actions[3:] + PLAN.actions[:3]
    renumbered = tuple(replace(action, id=f"a{number}") for number, action in enumerate(reversed(turned), 1))

    again = emit_plan(replace(PLAN, actions=renumbered), example_facts())

    assert {file.path for file in again.files} == set(ALONE)
    for file in again.files:
        if file.path.endswith((".yaml", ".json")):
            assert file.text == ALONE[file.path].text, file.path


def test_no_two_actions_of_a_plan_have_one_name():
    twice = (PLAN.actions[0], replace(PLAN.actions[0], id="a99"))

    assert len(set(action_names(twice).values())) == 2


def test_an_effect_on_the_fleet_is_lost_in_no_cluster():
    fleet = {
        action.id for action in PLAN.actions if any(isinstance(change.effect, FleetEffect) for change in action.changes)
    }

    assert fleet
    assert all(any(file.stage is not ApplyStage.DECIDE for file in BOTH.of_action(name)) for name in fleet)
