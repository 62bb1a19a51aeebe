"""Clusters without Karpenter: node groups of the provider, and what Cluster Autoscaler must know of them."""

import re
import subprocess
from dataclasses import replace
from itertools import pairwise

import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit

from trimtab.catalog.kinds import CapacityType, Isolation
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.effects import (
    BookBlocks,
    HedgeOnSpot,
    OverflowTo,
    SetCapacityType,
    UseOffering,
    UseSlots,
)
from trimtab.emit.manifests.cluster_facts import with_cluster
from trimtab.emit.manifests.emission import ApplyStage
from trimtab.emit.manifests.facts import EmitFacts, NodeMaker
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.plan.model import Change
from trimtab.policies.blocks import BlockCalendar
from trimtab.provenance import Basis, Estimate
from trimtab.review import read_objects
from trimtab.review.karpenter import by_weight
from trimtab.sources.kubernetes.manifests import node_groups_of

PLAN = example_audit().plan
RUNS, CHAT = "research/vision-exp", "prod/chat-api"
POOLS = {
    "aws": Pool("aws", "p3.2xlarge", "us-east-1"),
    "gcp": Pool("gcp", "a2-highgpu-1g", "us-central1"),
    "azure": Pool("azure", "Standard_NC24ads_A100_v4", "eastus"),
}
STRATEGY = "gpu-sharing-strategy"
MPS_OF_4 = {STRATEGY: "mps", "max-shared-clients-per-gpu": "4"}
SAME = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.CALIBRATED)


def without_karpenter(facts):
    return replace(facts, node_maker=NodeMaker.NODE_GROUPS)


def on_spot(provider):
    """Runs that go to spot nodes of a provider."""
    pool = POOLS[provider]
    facts = without_karpenter(example_facts())
    home = replace(facts.workload(RUNS), pool=pool, gpus_per_node=1, gpus_per_pod=1.0)
    action = next(action for action in PLAN.actions if action.id == "a6")
    effect = SetCapacityType(pool=pool.held_as(CapacityType.SPOT), loss_per_hr=0.05)
    plan = replace(PLAN, actions=(replace(action, changes=(Change(subject=RUNS, effect=effect),)),))
    return emit_plan(plan, replace(facts, workloads=(home,)))


def of_kind(emission, kind):
    return [file for file in emission.files if file.kind == kind]


def patched(emission):
    (file,) = [file for file in emission.files if file.path.startswith("workloads/")]
    return yaml.safe_load(yaml.safe_load(file.text)["patches"][0]["patch"])["spec"]["template"]


@pytest.mark.parametrize("provider", POOLS)
def test_groups_of_each_provider_are_as_their_golden_files(provider, golden, tmp_path):
    emission = on_spot(provider)
    mine = [file for file in emission.files if file.path.startswith(("node-groups/", "nodes/", "helm/"))]

    for file in mine:
        golden(f"node-groups/{provider}/{file.path}", file.text)
    assert of_kind(emission, "NodePool") == []
    (script,) = of_kind(emission, "script of a node group")
    (tmp_path / "group.sh").write_text(script.text, encoding="utf-8")
    subprocess.run(["bash", "-n", str(tmp_path / "group.sh")], check=True)


@pytest.mark.parametrize("provider", POOLS)
def test_pods_ask_for_the_label_that_the_groups_have(provider):
    emission = on_spot(provider)
    (script,) = of_kind(emission, "script of a node group")
    selector = {key: value for key, value in patched(emission)["spec"]["nodeSelector"].items() if value}

    for key, value in selector.items():
        assert script.text.count(f"{key}={value}") >= 2, "the spot group and the one on demand behind it"


def test_a_run_is_not_moved_by_cluster_autoscaler():
    """Cluster Autoscaler FAQ: a pod with this annotation keeps its node."""
    notes = patched(on_spot("aws"))["metadata"]["annotations"]

    assert notes == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def test_pods_tolerate_the_taint_that_aks_gives_spot_nodes():
    tolerated = {(one["key"], one["value"]) for one in patched(on_spot("azure"))["spec"]["tolerations"]}

    assert tolerated == {("nvidia.com/gpu", "spot"), ("kubernetes.azure.com/scalesetpriority", "spot")}


@pytest.mark.parametrize(("provider", "most"), [("aws", 63), ("gcp", 40), ("azure", 12)])
def test_names_of_groups_are_as_long_as_the_provider_allows(provider, most):
    (script,) = of_kind(on_spot(provider), "script of a node group")
    words = script.text.replace("\\\n", " ").split()
    before = {"aws": "--nodegroup-name", "gcp": "create", "azure": "--name"}[provider]

    names = {after for word, after in pairwise(words) if word == before and after.islower()}
    assert len(names) == 2
    assert all(len(name) <= most for name in names), names


def test_the_spot_group_is_grown_before_the_one_behind_it():
    (file,) = [file for file in on_spot("aws").files if "priority-expander" in file.path]
    levels = yaml.safe_load(yaml.safe_load(file.text)["data"]["priorities"])

    assert list(levels) == [20, 10, 1]
    assert "spot" in levels[20][0]
    assert "fallback" in levels[10][0]
    assert levels[1] == [".*"], "groups of others stay where they were"


def test_blocks_have_a_group_each_that_is_grown_before_the_one_on_demand(golden, tmp_path):
    pool = Pool("aws", "p5.48xlarge", "us-west-2")
    effect = BookBlocks(
        pool=pool, calendar=BlockCalendar((2, 2, 2, 2, 2, 0, 0)), rate_micro_usd_hr=31_464_000,
        on_demand_micro_usd_hr=55_040_000,
    )  # fmt: skip
    facts = without_karpenter(example_facts())
    home = replace(facts.workload(RUNS), pool=pool, gpus_per_node=8, gpus_per_pod=8.0)
    plan = replace(PLAN, actions=(replace(PLAN.actions[0], changes=(Change(subject=RUNS, effect=effect),)),))

    emission = emit_plan(plan, replace(facts, workloads=(home,)))

    (script,) = of_kind(emission, "script of a node group")
    golden(f"node-groups/blocks/{script.path}", script.text)
    (tmp_path / "group.sh").write_text(script.text, encoding="utf-8")
    subprocess.run(["bash", "-n", str(tmp_path / "group.sh")], check=True)
    (order,) = [file for file in emission.files if file.path.startswith("orders/book-")]
    assert f"bash {script.path}" in order.text
    assert "ec2nodeclass" not in order.text
    (expander,) = of_kind(emission, "ConfigMap")
    levels = yaml.safe_load(yaml.safe_load(expander.text)["data"]["priorities"])
    (blocks,), (behind,) = levels[20], levels[10]
    made = re.search(r"^NAME=(\S+)-\"", script.text, re.MULTILINE)[1] + "-0123456789abcdef0"
    assert len(made) <= 63
    assert re.match(blocks, f"eks-{made}-a1b2c3d4-0000")
    assert not re.match(blocks, re.sub(r"\[0-9a-f\].*", "a1b2c3d4-0000", behind.removeprefix("^")))
    assert patched(emission)["spec"]["nodeSelector"]["trimtab.dev/node-pool"] in script.text


def test_what_no_group_carries_is_left_to_a_person_and_no_pod_is_sent_there():
    cut = SharedPool(POOLS["gcp"], 7, "1g.5gb")
    slots = UseSlots(shared=cut, gpus_per_node=7, gpu="A100", slots=2, memory_gib=9.5, speed=SAME, work_speed=SAME)
    facts = without_karpenter(example_facts())
    action = replace(PLAN.actions[0], changes=(Change(subject=CHAT, effect=slots),))
    known = replace(facts.workload(CHAT), pool=POOLS["gcp"])

    emission = emit_plan(replace(PLAN, actions=(action,)), replace(facts, workloads=(known,)))

    assert [file.path for file in emission.files if file.stage is ApplyStage.WORKLOADS] == []
    assert any("by hand" in one.reason for one in emission.withheld)


def hedged(provider, one_in=4):
    """A service on spot nodes of a provider, one replica in so many on demand."""
    pool = POOLS[provider]
    effect = HedgeOnSpot(pool=pool.held_as(CapacityType.SPOT), one_in=one_in, zones=3, loss_per_hr=0.05, outage_s=600.0)
    facts = without_karpenter(example_facts())
    action = replace(PLAN.actions[0], changes=(Change(subject=CHAT, effect=effect),))
    known = replace(facts.workload(CHAT), pool=pool, gpus_per_node=1, gpus_per_pod=1.0, replicas=8)
    return emit_plan(replace(PLAN, actions=(action,)), replace(facts, workloads=(known,)))


@pytest.mark.parametrize("provider", POOLS)
def test_a_hedged_service_has_a_group_for_each_share_and_one_share_without_spot(provider, golden, tmp_path):
    emission = hedged(provider)

    (script,) = of_kind(emission, "script of a node group")
    golden(f"node-groups/hedge-{provider}/{script.path}", script.text)
    (tmp_path / "group.sh").write_text(script.text, encoding="utf-8")
    subprocess.run(["bash", "-n", str(tmp_path / "group.sh")], check=True)
    held = {share: script.text.count(f"trimtab.dev/spread={share}") for share in "1234"}
    assert held == {"1": 1, "2": 2, "3": 2, "4": 2}
    (over,) = [one for one in patched(emission)["spec"]["topologySpreadConstraints"] if "spread" in one["topologyKey"]]
    assert (over["maxSkew"], over["minDomains"], over["whenUnsatisfiable"]) == (1, 4, "DoNotSchedule")


SHARES = {
    "slices": (SharedPool(POOLS["gcp"], 7, "1g.5gb"), {"gpu-partition-size": "1g.5gb"}),
    "mps": (SharedPool(POOLS["gcp"], 4, isolation=Isolation.MPS.value), MPS_OF_4),
    "turns": (
        SharedPool(POOLS["gcp"], 4, isolation=Isolation.TIME_SLICING.value),
        {**MPS_OF_4, STRATEGY: "time-sharing"},
    ),
}


def in_shares(shared):
    """A service in parts of the GPUs of a GKE node pool."""
    slots = UseSlots(shared=shared, gpus_per_node=1, gpu="A100", slots=1, memory_gib=4.75, speed=SAME, work_speed=SAME)
    facts = without_karpenter(example_facts())
    action = replace(PLAN.actions[0], changes=(Change(subject=CHAT, effect=slots),))
    known = replace(facts.workload(CHAT), pool=POOLS["gcp"], gpus_per_node=1, gpus_per_pod=1.0, replicas=2)
    return emit_plan(replace(PLAN, actions=(action,)), replace(facts, workloads=(known,)))


@pytest.mark.parametrize("how", SHARES)
def test_gke_cuts_the_gpus_of_a_node_pool_itself(how):
    shared, said = SHARES[how]

    emission = in_shares(shared)

    (script,) = of_kind(emission, "script of a node group")
    assert "".join(f",{option}={value}" for option, value in said.items()) in script.text
    assert of_kind(emission, "ConfigMap") == [], "no layouts for NVIDIA's own plugin"
    pod = patched(emission)["spec"]
    assert {f"cloud.google.com/gke-{option}": value for option, value in said.items()}.items() <= pod[
        "nodeSelector"
    ].items()
    assert pod.get("hostIPC") is (True if how == "mps" else None)
    (file,) = [file for file in emission.files if file.path.startswith("workloads/")]
    steps = yaml.safe_load(yaml.safe_load(file.text)["patches"][1]["patch"])
    assert {step["path"].rpartition("/")[2]: step["value"] for step in steps} == {"nvidia.com~1gpu": "1"}


@pytest.mark.parametrize(
    ("labels", "maker"),
    [
        ([{"eks.amazonaws.com/nodegroup": "gpu"}], NodeMaker.NODE_GROUPS),
        ([{"cloud.google.com/gke-nodepool": "gpu"}], NodeMaker.NODE_GROUPS),
        ([{"kubernetes.azure.com/agentpool": "gpu"}], NodeMaker.NODE_GROUPS),
        ([{"eks.amazonaws.com/nodegroup": "system"}, {"karpenter.sh/nodepool": "gpu"}], NodeMaker.KARPENTER),
        ([{}], None),
    ],
)
def test_who_makes_nodes_is_read_from_their_labels(labels, maker):
    nodes = [{"node": f"n{at}", "gpu_count": 0, "labels": one} for at, one in enumerate(labels)]

    told = with_cluster(EmitFacts(), None, nodes=nodes, held=(), pods=(), scalers=())

    assert told.node_maker is maker


def test_a_pool_of_karpenters_without_a_node_today_is_karpenter_all_the_same():
    nodes = [{"node": "n", "gpu_count": 0, "labels": {"eks.amazonaws.com/nodegroup": "system"}}]
    pools = [{"kind": "NodePool", "name": "gpu", "target": None}]

    told = with_cluster(EmitFacts(), None, nodes=nodes, held=(), pods=(), scalers=pools)

    assert told.node_maker is NodeMaker.KARPENTER


def test_a_commitment_is_shown_to_karpenter_alone():
    karpenter, groups = (
        {file.path for file in emit_plan(PLAN, facts).files if file.stage is ApplyStage.COMMIT}
        for facts in (replace(example_facts(), node_maker=NodeMaker.KARPENTER), without_karpenter(example_facts()))
    )

    assert any(path.endswith(".nodeoverlay.yaml") for path in karpenter)
    assert groups
    assert all(path.startswith("orders/") for path in groups)


RANKS = ("ConfigMap", "ComputeClass")
"""Kinds that say which groups are grown first."""
BEHIND = {"aws": "g5.2xlarge", "gcp": "g2-standard-8", "azure": "Standard_NC8as_T4_v3"}


@pytest.mark.parametrize("provider", POOLS)
def test_nodes_behind_others_are_a_group_of_their_own_that_is_grown_after_them(provider, tmp_path):
    pool = POOLS[provider]
    further = replace(pool, instance_type=BEHIND[provider])
    effect = OverflowTo(
        pool=pool, first_nodes=3, further=UseOffering(pool=further, gpu="T4", gpus_per_node=2, speed=SAME)
    )
    facts = without_karpenter(example_facts())
    home = replace(facts.workload(CHAT), pool=pool, gpus_per_node=1, gpus_per_pod=1.0)
    plan = replace(PLAN, actions=(replace(PLAN.actions[0], changes=(Change(subject=CHAT, effect=effect),)),))

    emission = emit_plan(plan, replace(facts, workloads=(home,)))

    (script,) = of_kind(emission, "script of a node group")
    (tmp_path / "group.sh").write_text(script.text, encoding="utf-8")
    subprocess.run(["bash", "-n", str(tmp_path / "group.sh")], check=True)
    manifests = read_objects(
        [
            *(("group.sh", group) for group in node_groups_of(script.text)),
            *((file.path, yaml.safe_load(file.text)) for kind in RANKS for file in of_kind(emission, kind)),
        ]
    )
    first, behind = by_weight([*manifests.pools.values()])
    assert (first.instance_types, first.node_limit) == ((pool.instance_type,), 3)
    assert behind.instance_types == (BEHIND[provider],)
    assert behind.node_limit >= 1
    assert first.weight > behind.weight
    selector = {key: value for key, value in patched(emission)["spec"]["nodeSelector"].items() if value}
    assert all(group.labels.items() >= selector.items() for group in (first, behind))
