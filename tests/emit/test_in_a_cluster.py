"""What a cluster does with the nodes that are emitted, by the rules of the scheduler and Karpenter, written down from them."""

import json
import math
import os
import re
import shlex
import subprocess
from dataclasses import replace

import jmespath
import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.emitted import CHAT, PLAN, RUNS, kinds, knowing, of_action, patch_of, patched_pod, spot_emission
from tests.emit.example import P3_SMALL, P4D, example_audit

from trimtab.catalog.kinds import CapacityType
from trimtab.deployment.effects import (
    SetCapacityType,
    SetGpuCount,
    SetReplicas,
    StartBeforeRuns,
    UseOffering,
)
from trimtab.emit.manifests.facts import NodeFacts
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.emit.manifests.pool_specs import placed_workloads, pool_specs
from trimtab.plan.model import Change
from trimtab.provenance import Basis, Estimate

NVIDIA_TOLERATES = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
"""GPU operator v25 deployments/gpu-operator/values.yaml `daemonsets.tolerations`; k8s-device-plugin v0.17 values.yaml."""


def tolerates(toleration, taint):
    """k8s.io/api/core/v1/toleration.go, ToleratesTaint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")


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
    patch = patch_of(spot_emission(), "workloads/research/vision-exp/kustomization.yaml")

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
    patch = patch_of(emission, "workloads/prod/chat-api/kustomization.yaml")

    assert not surge_fits(emission)
    assert patch["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_every_pool_has_a_limit():
    assert all(one["spec"]["limits"] for one in kinds(emit_plan(PLAN, example_facts()), "NodePool"))


def node(name, *holders, group=("eks.amazonaws.com/nodegroup", "gpu p4d")):
    return NodeFacts(name=name, pool=P4D, group=group, held_by=holders)


def orders(*nodes, plan=None):
    emission = emit_plan(plan or of_action("a8"), replace(example_facts(), nodes=nodes))
    return {file.path: file.text for file in emission.files if file.path.startswith("orders/give-back")}


def ended(page):
    """Return the nodes that a page's last shell block drains and ends, as the shell reads them."""
    block = re.findall(r"```sh\n(.*?)```", page.partition("## 3.")[2], flags=re.DOTALL)[-1]
    (names,) = re.findall(r"^for node in (.*); do$", block, flags=re.MULTILINE)
    return shlex.split(names)


GROUPS = {
    "aws": [("eks.amazonaws.com/nodegroup", "gpu"), ("node.kubernetes.io/instancegroup", "gpu"), None],
    "gcp": [("cloud.google.com/gke-nodepool", "gpu"), None],
    "azure": [("kubernetes.azure.com/agentpool", "gpu")],
}


@pytest.mark.parametrize(("provider", "group"), [(name, one) for name, all_of in GROUPS.items() for one in all_of])
def test_a_node_that_goes_is_ended_by_name_because_a_group_that_is_resized_may_end_another(provider, group, tmp_path):
    """gcloud's reference of `container clusters resize`: "Resize will pick instances to remove at random"."""
    pool = replace(P4D, provider=provider)
    leaving, staying = (
        replace(node(name, holder, group=group), pool=pool)
        for name, holder in (("n1", CHAT), ("n2", "ml/ranker-train"))
    )
    (text,) = orders(leaving, staying).values()
    (block,) = re.findall(r"```sh\n(.*?)```", text.partition("## 3.")[2], flags=re.DOTALL)

    said = run_with_stand_ins(block, tmp_path)
    assert [line for line in said if "n1" in line or "i-of-n1" in line], said
    assert any(what in said[-1] for what in ("terminate-instance", "delete-instances", "delete-machines"))
    assert not any("n2" in line or "resize" in line for line in said)


@pytest.mark.parametrize("provider", GROUPS)
def test_a_node_that_cannot_be_drained_is_not_ended_nor_the_next(provider, tmp_path):
    pool = replace(P4D, provider=provider)
    nodes = [replace(node(name, CHAT, group=GROUPS[provider][0]), pool=pool) for name in ("n1", "n2")]
    (block,) = re.findall(
        r"```sh\n(.*?)```", next(iter(orders(*nodes).values())).partition("## 3.")[2], flags=re.DOTALL
    )

    said = run_with_stand_ins(block, tmp_path, drains=False)
    assert [line for line in said if "drain" in line] == ["kubectl drain n1 --ignore-daemonsets --delete-emptydir-data"]
    assert not any(
        what in line for line in said for what in ("terminate-instance", "delete-instances", "delete-machines")
    )


@pytest.mark.parametrize("most", ["7", ""])
def test_a_pool_of_aks_that_scales_by_itself_keeps_fewer_nodes_before_any_of_them_ends(most, tmp_path):
    """`az aks nodepool update --update-cluster-autoscaler` wants both counts; without an autoscaler a pool has neither."""
    pool = replace(P4D, provider="azure")
    nodes = [
        replace(node(name, holder, group=GROUPS["azure"][0]), pool=pool)
        for name, holder in (("n1", CHAT), ("n2", "ml/ranker-train"))
    ]
    (block,) = re.findall(
        r"```sh\n(.*?)```", next(iter(orders(*nodes).values())).partition("## 3.")[2], flags=re.DOTALL
    )

    asked, *said = run_with_stand_ins(block, tmp_path, most=most)
    pool_of = "--resource-group GROUP --cluster-name CLUSTER --name gpu"
    lowered = f"az aks nodepool update {pool_of} --update-cluster-autoscaler --min-count 1 --max-count 7"
    assert said[: len(said) - 2] == ([lowered] if most else [])
    assert said[-1] == f"az aks nodepool delete-machines {pool_of} --machine-names n1"

    query = asked.partition("--query ")[2].removesuffix(" --output tsv")
    pools = {"minCount": 3, "maxCount": 7}, {"minCount": 1, "maxCount": 7}, {"minCount": None, "maxCount": None}
    assert [jmespath.search(query, one) for one in pools] == [7, None, None], "nothing to lower in the others"


@pytest.mark.parametrize("least", ["2", "1", ""])
@pytest.mark.parametrize(
    ("provider", "lowered"),
    [
        (
            "aws",
            "aws eks update-nodegroup-config --region us-east-1 --cluster-name CLUSTER --nodegroup-name gpu "
            "--scaling-config minSize=1",
        ),
        (
            "gcp",
            "gcloud container node-pools update gpu --cluster CLUSTER --location us-east-1 --enable-autoscaling "
            "--total-min-nodes 1 --total-max-nodes 7",
        ),
    ],
)
def test_a_minimum_is_lowered_where_it_is_above_what_stays_and_never_raised(provider, lowered, least, tmp_path):
    """The API of GKE leaves a minimum of 0 out of its answer."""
    pool = replace(P4D, provider=provider)
    nodes = [
        replace(node(name, holder, group=GROUPS[provider][0]), pool=pool)
        for name, holder in (("n1", CHAT), ("n2", "ml/ranker-train"))
    ]
    (block,) = re.findall(
        r"```sh\n(.*?)```", next(iter(orders(*nodes).values())).partition("## 3.")[2], flags=re.DOTALL
    )

    said = run_with_stand_ins(block, tmp_path, least=least, most="7")

    assert [line for line in said if "update" in line] == ([lowered] if least == "2" else [])


def run_with_stand_ins(block, folder, *, drains=True, least="", most=""):
    """Run a shell block with programs that only say how they were called, and answer what a node is; return what they said."""
    said = folder / "said"
    for program in ("kubectl", "aws", "gcloud", "az"):
        stand_in = folder / program
        stand_in.write_text(
            f"""#!/bin/sh
echo "{program} $*" >> {said}
case "$*" in
  drain*) exit {0 if drains else 1} ;;
  *providerID*) echo "aws:///us-east-1a/i-of-$3" ;;
  *zone}}*) echo us-central1-a ;;
  *created-by*) echo projects/1/zones/us-central1-a/instanceGroupManagers/mig-of-gpu ;;
  *minSize\\ * | *totalMinNodeCount*) echo "{least}" ;;
  *maxCount* | *totalMaxNodeCount*) echo "{most}" ;;
esac
""",
            encoding="utf-8",
        )
        stand_in.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", block], env=environment, check=False, capture_output=True)
    return said.read_text(encoding="utf-8").splitlines()


def test_every_node_that_its_holders_leave_is_given_back_by_name():
    (text,) = orders(
        node("n1", CHAT), node("n2", CHAT, "prod/search-rank"), node("n3", CHAT, "ml/ranker-train")
    ).values()

    assert ended(text) == ["n1", "n2"], "n3 is held by one that stays"
    assert "minSize=1" in text
    assert "terminate-instance-in-auto-scaling-group" in text, "a drained node is billed on"
    assert "--nodegroup-name 'gpu p4d'" in text


def test_a_node_that_nobody_holds_any_more_goes_with_those_who_held_it_before():
    idle, others = (
        replace(node(name), held_before=holders) for name, holders in (("n1", (CHAT,)), ("n2", ("lab/nb",)))
    )
    (text,) = orders(idle, others, node("n3", CHAT)).values()

    assert ended(text) == ["n1", "n3"]
    assert f"| `n1` | none; before by `{CHAT}` |" in text
    assert "| `n2` | none; before by `lab/nb` |" in text.partition("## What stays")[2]


def test_an_old_karpenter_pool_makes_no_node_for_what_has_left_it():
    (text,) = orders(node("n1", CHAT, group=("karpenter.sh/nodepool", "gpu"))).values()

    assert """kubectl patch nodepool gpu --type merge -p '{"spec":{"limits":{"nodes":"0"}}}'""" in text
    assert 'kubectl delete node "$node"' in text


def test_a_node_that_is_in_the_new_pool_already_stays():
    (pool,) = [one["metadata"]["name"] for one in kinds(emit_plan(of_action("a8"), example_facts()), "NodePool")]

    assert orders(node("n1", CHAT, group=("karpenter.sh/nodepool", pool))) == {}


def test_names_of_nodes_are_quoted_for_the_shell():
    (text,) = orders(node("n1; reboot", CHAT)).values()

    assert ended(text) == ["n1; reboot"]


def test_a_workload_whose_nodes_nobody_knows_is_left_to_a_person():
    emission = emit_plan(of_action("a8"), replace(example_facts(), nodes=()))

    left = {one.subject for one in emission.withheld if "not known by name" in one.reason}
    assert left == {"prod/chat-api", "prod/search-rank", "prod/embed-api"}


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


@pytest.mark.parametrize("kind", ["RayService", "InferenceService", "LLMInferenceService"])
def test_services_of_ray_and_kserve_go_to_nodes_of_services(kind):
    same = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.CALIBRATED)
    there = UseOffering(pool=P3_SMALL, gpu="V100", gpus_per_node=1, speed=same)
    emission = emit_plan(of_action("a8", Change(subject=CHAT, effect=there)), knowing(CHAT, owner_kind=kind))

    (pool,) = [yaml.safe_load(file.text) for file in emission.files if file.kind == "NodePool"]
    assert pool["spec"]["disruption"]["consolidationPolicy"] == "WhenEmptyOrUnderutilized"


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


def test_pods_that_keep_apart_from_each_other_are_named_where_a_node_is_to_hold_several():
    facts = knowing(CHAT, pods_were_read=True, keeps_apart=("kubernetes.io/hostname",))

    reasons = [one.reason for one in emit_plan(of_action("a8"), facts).withheld if one.subject == CHAT]

    assert any("keep apart from each other by kubernetes.io/hostname" in reason for reason in reasons)
