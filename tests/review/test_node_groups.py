"""Node groups of EKS, GKE and AKS: read from objects and from the commands that make them, and reviewed as pools of nodes."""

from dataclasses import replace

import pytest
import yaml
from tests.emit.test_node_groups import CHAT, POOLS, RUNS, SHARES, hedged, in_shares, on_spot
from tests.plan.test_block_options import RUNS as TRAINING, rows as training
from tests.review.test_review import DEPLOYMENT, REPLICAS, bundle, stops

from trimtab.errors import InputError
from trimtab.pipeline import review
from trimtab.review import read_objects
from trimtab.review.node_groups import together
from trimtab.review.placing import Weight
from trimtab.sources.kubernetes.manifests import node_groups_of, read_manifests

__all__ = ["bundle"]

ON_GROUP = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: prod}
spec:
  replicas: 8
  template:
    spec:
      nodeSelector: {pool: gpus}
      tolerations: [{key: nvidia.com/gpu, operator: Exists}]
      containers: [{name: server, resources: {limits: {nvidia.com/gpu: 1}}}]
---
"""
EKSCTL = """
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: main, region: us-east-1}
managedNodeGroups:
- name: gpus
  instanceTypes: [g6.xlarge]
  minSize: %(least)d
  maxSize: %(most)d
  labels: {pool: gpus}
  taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
"""
ACK = """
apiVersion: eks.services.k8s.aws/v1alpha1
kind: Nodegroup
metadata: {name: gpus}
spec:
  instanceTypes: [g6.xlarge]
  capacityType: %(capacity)s
  scalingConfig: {minSize: 0, maxSize: 12}
  labels: {pool: gpus}
  taints: [{key: nvidia.com/gpu, value: present, effect: NO_SCHEDULE}]
"""
GKE = """
apiVersion: container.cnrm.cloud.google.com/v1beta1
kind: ContainerNodePool
metadata: {name: gpus}
spec:
  autoscaling: {minNodeCount: 0, maxNodeCount: 12}
  nodeConfig:
    machineType: g2-standard-4
    spot: true
    labels: {pool: gpus}
    taint: [{key: nvidia.com/gpu, value: present, effect: NO_SCHEDULE}]
"""
AKS = """
apiVersion: containerservice.azure.com/v1api20240901
kind: ManagedClustersAgentPool
metadata: {name: gpus}
spec:
  vmSize: Standard_NC4as_T4_v3
  enableAutoScaling: true
  minCount: 1
  maxCount: 12
  scaleSetPriority: Spot
  nodeLabels: {pool: gpus}
  nodeTaints: ["nvidia.com/gpu=present:NoSchedule"]
"""


def objects(text):
    return read_objects(("change.yaml", one) for one in yaml.safe_load_all(text))


def reviewed(bundle, text):
    return review(bundle, objects(text))


def group(text):
    (one,) = objects(text).pools.values()
    return one


def test_pods_run_on_the_node_group_whose_labels_they_select(bundle):
    found = reviewed(bundle, ON_GROUP + EKSCTL % {"least": 0, "most": 12})

    (api,) = found.workloads
    assert any("g6.xlarge" in change for change in api.changes)
    assert found.findings == ()
    assert found.unread == ()
    assert any("Cluster Autoscaler" in note for note in api.notes)


def test_a_taint_of_a_node_group_keeps_off_who_does_not_tolerate_it(bundle):
    text = ON_GROUP.replace("tolerations: [{key: nvidia.com/gpu, operator: Exists}]", "")

    (stop,) = stops(reviewed(bundle, text + ACK % {"capacity": "ON_DEMAND"}))

    assert "does not tolerate nvidia.com/gpu=present:NoSchedule of node group gpus" in stop


def test_a_group_too_small_for_the_replicas_is_told_by_its_nodes(bundle):
    found = reviewed(bundle, ON_GROUP.replace("replicas: 8", "replicas: 9") + EKSCTL % {"least": 0, "most": 4})

    (warning,) = [one.what for one in found.findings if one.weight is Weight.WARNS]
    assert "may have 9 replicas, and node group gpus has room for 4 (limit 4 nodes)" in warning


def test_nodes_of_a_group_that_cannot_shrink_are_not_given_back():
    assert not group(EKSCTL % {"least": 4, "most": 4}).elastic
    assert group(EKSCTL % {"least": 0, "most": 4}).elastic


@pytest.mark.parametrize(
    ("text", "types", "held_as", "least", "most"),
    [
        (ACK % {"capacity": "SPOT"}, ("g6.xlarge",), ("spot",), 0, 12),
        (GKE, ("g2-standard-4",), ("spot",), 0, 12),
        (AKS, ("Standard_NC4as_T4_v3",), ("spot",), 1, 12),
    ],
)
def test_objects_of_each_provider_say_what_nodes_a_group_has(text, types, held_as, least, most):
    found = group(text)

    assert (found.instance_types, found.capacity_types) == (types, held_as)
    assert (found.least_nodes, found.node_limit) == (least, most)
    assert found.labels["pool"] == "gpus"
    assert ("nvidia.com/gpu", "NoSchedule") in {(one.key, one.effect) for one in found.taints}


def test_spot_pools_of_aks_have_a_taint_of_their_own():
    assert "kubernetes.azure.com/scalesetpriority" in {one.key for one in group(AKS).taints}


def test_groups_of_one_type_on_spot_and_on_demand_are_one_need(bundle):
    demand = ACK % {"capacity": "ON_DEMAND"}
    two = f"{demand}---{demand.replace('name: gpus', 'name: gpus-spot').replace('ON_DEMAND', 'SPOT')}"

    (api,) = reviewed(bundle, ON_GROUP + two).workloads

    assert not api.unjudged
    assert any("spot" in text for text in (*api.changes, *api.notes))


def test_groups_of_several_types_are_not_judged_where_nothing_ranks_them(bundle):
    two = f"{ACK % {'capacity': 'ON_DEMAND'}}---{(ACK % {'capacity': 'ON_DEMAND'}).replace('name: gpus', 'name: big')}"

    (api,) = reviewed(bundle, ON_GROUP + two.replace("g6.xlarge", "g6.2xlarge", 1)).workloads

    assert "nothing says which node group is grown first" in api.unjudged


def test_a_group_that_is_not_among_the_objects_is_said(bundle):
    text = DEPLOYMENT.format(replicas=REPLICAS, gpus=1).replace(
        "    spec:\n", "    spec:\n      nodeSelector: {eks.amazonaws.com/nodegroup: elsewhere}\n"
    )

    (api,) = reviewed(bundle, text).workloads

    assert any("selects the node group elsewhere, which is not among these objects" in note for note in api.notes)


@pytest.mark.parametrize("provider", POOLS)
def test_the_scripts_that_emit_writes_are_read_as_the_groups_that_they_make(provider, tmp_path):
    for file in on_spot(provider).files:
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")

    manifests = read_objects(read_manifests(tmp_path)).laid_on([RUNS])

    groups = manifests.pools.values()
    assert {one.instance_types for one in groups} == {(POOLS[provider].instance_type,)}
    assert sorted(one.capacity_types for one in groups) == [("on-demand",), ("spot",)]
    assert all(one.elastic and one.node_limit == 3 for one in groups)
    selected = dict(manifests.pods[RUNS].node_selector)
    label = next(key for key in selected if key in ("trimtab.dev/node-pool", "cloud.google.com/compute-class"))
    assert all(one.labels[label] == selected[label] for one in groups)
    kept_off = [
        (one.name, taint)
        for one in groups
        for taint in one.taints
        if not any(toleration.tolerates(taint) for toleration in manifests.pods[RUNS].tolerations)
    ]
    assert kept_off == []


@pytest.mark.parametrize("how", SHARES)
def test_gpus_that_gke_cuts_are_read_as_they_were_cut(how, tmp_path):
    shared, _ = SHARES[how]
    for file in in_shares(shared).files:
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")

    manifests = read_objects(read_manifests(tmp_path)).laid_on([CHAT])

    (pool,) = manifests.pools.values()
    assert pool.profile == shared.profile
    told = None if pool.sharing is None else (pool.sharing.isolation, pool.sharing.per_gpu)
    assert told == (None if shared.profile else (shared.kept_apart_by, 4))
    selected = dict(manifests.pods[CHAT].node_selector)
    assert manifests.pods[CHAT].gpus == 1
    assert all(pool.labels[key] == value for key, value in selected.items() if value != "None")


@pytest.mark.parametrize("provider", POOLS)
@pytest.mark.parametrize("one_in", [2, 4])
def test_the_groups_of_a_hedged_service_are_read_as_its_share_on_demand(provider, one_in, tmp_path):
    for file in hedged(provider, one_in).files:
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
    manifests = read_objects(read_manifests(tmp_path)).laid_on([CHAT])

    pool = together(list(manifests.pools.values()), manifests.pods[CHAT].spread)

    assert (pool.one_in, pool.capacity_types) == (one_in, ("spot", "on-demand"))


def test_a_share_on_demand_costs_more_than_spot_alone(bundle):
    spread = "      topologySpreadConstraints: [{topologyKey: share, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]\n"
    pods = ON_GROUP.replace("      containers", spread + "      containers")
    groups = "---".join(
        (ACK % {"capacity": capacity})
        .replace("name: gpus}", f"name: gpus-{share}}}")
        .replace("{pool: gpus}", f"{{pool: gpus, share: '{share}'}}")
        for share, capacity in ((1, "ON_DEMAND"), (2, "SPOT"))
    )

    half, all_spot = (reviewed(bundle, text + groups) for text in (pods, ON_GROUP))

    assert any("one replica in 2 on demand" in change for change in half.workloads[0].changes)
    assert half.after_micro_usd > all_spot.after_micro_usd


def test_shares_that_a_provider_makes_itself_are_billed_as_shares(bundle):
    halves = (
        objects(
            (GKE % ()).replace(
                "    labels:",
                "    guestAccelerator:\n"
                "    - {type: l4, count: 1, gpuSharingConfig: {gpuSharingStrategy: MPS, maxSharedClientsPerGpu: 2}}\n"
                "    labels:",
            )
        )
        .pools["node group gpus"]
        .sharing
    )
    manifests = objects(ON_GROUP + EKSCTL.replace("g6.xlarge", "g5.xlarge") % {"least": 0, "most": 12})
    manifests.pools = {name: replace(pool, sharing=halves) for name, pool in manifests.pools.items()}

    found = review(bundle, manifests)

    assert found.unjudged == ()
    assert found.after_micro_usd == found.before_micro_usd / 2


def test_a_script_is_read_for_nothing_but_groups():
    script = """
aws ec2 describe-instances --filters 'Name=x,Values=it
goes on'
# aws eks create-nodegroup --nodegroup-name no
echo aws eks create-nodegroup --nodegroup-name no
aws eks create-nodegroup --nodegroup-name=gpus --instance-types g6.xlarge g6.2xlarge \\
  --scaling-config minSize=$LEAST,maxSize=4
"""

    (one,) = node_groups_of(script)

    assert one["spec"]["instanceTypes"] == ["g6.xlarge", "g6.2xlarge"]
    assert one["spec"]["scalingConfig"] == {"minSize": None, "maxSize": 4}
    assert one["spec"]["capacityType"] == "ON_DEMAND"


def test_a_class_that_ranks_node_pools_is_read_and_one_that_makes_them_is_listed():
    ranks = "apiVersion: cloud.google.com/v1\nkind: ComputeClass\nmetadata: {name: gpus}\nspec: {priorities: [%s]}\n"

    assert objects(ranks % "{nodepools: [spot]}, {nodepools: [fallback]}").unread == []
    (unread,) = objects(ranks % "{machineType: g2-standard-4, spot: true}").unread
    assert "ComputeClass" in unread.what


ON_BLOCKS = """
apiVersion: batch/v1
kind: Job
metadata: {name: base, namespace: train}
spec:
  template:
    spec:
      nodeSelector: {pool: gpus}
      tolerations: [{key: nvidia.com/gpu, operator: Exists}]
      containers: [{name: train}]
---
"""
BEHIND = (ACK % {"capacity": "ON_DEMAND"}).replace("g6.xlarge", "p5.48xlarge")


def block(nodes):
    group = (ACK % {"capacity": "CAPACITY_BLOCK"}).replace("name: gpus}\nspec:", "name: block}\nspec:", 1)
    return "---" + group.replace("  instanceTypes: [g6.xlarge]\n", "").replace("maxSize: 12", f"maxSize: {nodes}")


def test_nodes_in_capacity_blocks_are_billed_whether_runs_need_them_or_not():
    two, three = (reviewed(training().bundle(), ON_BLOCKS + BEHIND + block(nodes)) for nodes in (2, 3))

    (found,) = two.workloads
    assert found.workload == TRAINING
    assert (found.unjudged, two.unread) == ("", ())
    assert any("capacity blocks" in change for change in found.changes)
    assert any("billed on every day" in note for note in found.notes)
    # a third node stands empty for four weeks
    assert three.after_usd_mo - two.after_usd_mo == pytest.approx((two.after_usd_mo - 0) / 2, rel=0.05)


def test_blocks_alone_and_blocks_of_services_are_not_judged(bundle):
    (alone,) = reviewed(
        training().bundle(), ON_BLOCKS + block(2).replace("spec:\n", "spec:\n  instanceTypes: [p5.48xlarge]\n", 1)
    ).workloads
    (served,) = reviewed(bundle, ON_GROUP + ACK % {"capacity": "ON_DEMAND"} + block(2)).workloads

    assert "how it waits for the next one" in alone.unjudged
    assert "for runs only" in served.unjudged


def test_a_group_of_blocks_that_does_not_say_how_many_nodes_is_listed():
    (unread,) = objects(block(2).replace("maxSize: 2", "x: 2")).unread

    assert "how many nodes" in unread.why


RANKED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-autoscaler-priority-expander, namespace: kube-system}
data:
  priorities: |
    20: ["^eks-gpus-[0-9a-f]{8}-.*"]
    10: ["^eks-big-.*"]
    1: [".*"]
---
"""


def two_types(most):
    group = ACK % {"capacity": "ON_DEMAND"}
    big = group.replace("name: gpus", "name: big").replace("g6.xlarge", "g6.2xlarge")
    return f"{group.replace('maxSize: 12', f'maxSize: {most}')}---{big}"


def test_groups_of_several_types_are_filled_in_the_order_of_their_priorities(bundle):
    found = reviewed(bundle, ON_GROUP + RANKED + two_types(3))
    one, other = (
        reviewed(bundle, ON_GROUP + (ACK % {"capacity": "ON_DEMAND"}).replace("g6.xlarge", size)).after_micro_usd
        for size in ("g6.xlarge", "g6.2xlarge")
    )

    (api,) = found.workloads
    assert not api.unjudged
    assert any("3 nodes of g6.xlarge at most, and beyond them on g6.2xlarge" in change for change in api.changes)
    assert found.after_micro_usd == pytest.approx(one * 3 / 8 + other * 5 / 8, rel=0.01)


def test_priorities_that_cluster_autoscaler_cannot_read_are_refused(bundle):
    with pytest.raises(InputError, match="priorities cannot be read"):
        objects(RANKED.replace("^eks-big-.*", "(eks-big"))
