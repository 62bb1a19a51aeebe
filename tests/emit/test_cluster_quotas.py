"""Quotas that would refuse a plan's pods, by the semantics of Kubernetes and Kueue; numbers worked by hand."""

import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings, strategies as st
from tests.emit.cluster_example import example_facts
from tests.emit.example import P3_SMALL, action, evidence, example_audit, hpa
from tests.emit.test_scope import at
from tests.emit.test_sharing_manifests import SAME, SLICE, shared_by

from trimtab.deployment.effects import UseOffering
from trimtab.emit.manifests.asked_resources import StandingQuotas
from trimtab.emit.manifests.cluster_quotas import counts, with_preconditions
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.levers import autoscaling, right_size
from trimtab.plan.model import Change, Risk

GPU, SLICES = "nvidia.com/gpu", "nvidia.com/mig-1g.20gb"
POD = {
    "phase": "Running", "gpu_resource": GPU, "gpu_pieces": 1.0, "gpus": 1.0, "gpu_claims": None, "cpu_request": 4.0,
    "cpu_limit": None, "memory_request_gib": 16.0, "memory_limit_gib": None, "queue": None, "priority_class": None,
    "created": datetime(2026, 9, 1, tzinfo=UTC),
}  # fmt: skip


def pods(workload, count, **more):
    namespace = workload.partition("/")[0]
    return [
        POD | {"workload": workload, "namespace": namespace, "pod": f"{workload}-{number}"} | more
        for number in range(count)
    ]


def quota(resource, hard, used=0.0, *, namespace="prod", scopes=None, name="team"):
    return {
        "namespace": namespace, "name": name, "resource": resource, "hard": hard, "used": used, "scopes": scopes,
    }  # fmt: skip


def cluster_queue(
    name, resource, nominal, used=0.0, *, flavor="a100", cohort=None, borrows=None, labels=None, classes=None
):
    return {
        "kind": "ClusterQueue", "namespace": None, "name": name, "parent": cohort, "resource": resource, "flavor": flavor,
        "quota_gpus": nominal, "borrowing_gpus": borrows, "used_gpus": used, "flavor_labels": labels,
        "device_classes": classes,
    }  # fmt: skip


LOCAL_QUEUE = {"kind": "LocalQueue", "namespace": "prod", "name": "team", "parent": "gpus", "resource": None}


def standing(quotas=(), queues=(), read=(), queue_of=None, ranges=(), boards=None):
    return StandingQuotas(
        quotas=list(quotas), limit_ranges=list(ranges), queues=list(queues), pods=list(read), queue_of=queue_of or {},
        whole_boards=boards or {},
    )  # fmt: skip


def plan_of(*actions):
    return replace(example_audit().plan, actions=actions)


SLICED = plan_of(shared_by("a1", "embed-api", {"prod/embed-api": SLICE}))
"""Eight replicas, each of which gives up a GPU for a slice of one."""


def scaled(most):
    return plan_of(
        action(
            "a1", autoscaling.NAME, "search-rank", 1_000.0, {"prod/search-rank": hpa(2, most)}, weeks=1.0, risk=Risk.LOW,
            quarter=1, seen=(evidence("activity", "20 %"),), rollback="replicas: 8",
        )
    )  # fmt: skip


def said(plan, *args, facts=None, **more):
    found = with_preconditions(plan, facts or example_facts(), standing(*args, **more))
    return [condition.what for action in found.actions for condition in action.preconditions]


def test_slices_are_counted_by_their_own_quota_and_not_by_that_of_gpus():
    read = pods("prod/embed-api", 8)

    (only,) = said(SLICED, [quota(f"requests.{GPU}", 8, 8), quota(f"requests.{SLICES}", 4, 1)], read=read)

    assert only == (
        f"raise requests.{SLICES} of ResourceQuota team in namespace prod from 4 to 9: prod/embed-api may ask for 8 at once, "
        "beside 1 of other pods, and pods above the quota are refused"
    )


def test_a_resource_that_no_quota_names_is_not_limited():
    assert said(SLICED, [quota(f"requests.{GPU}", 8, 8)], read=pods("prod/embed-api", 8)) == []


def test_the_quota_of_another_namespace_says_nothing():
    assert said(SLICED, [quota(f"requests.{SLICES}", 1, namespace="research")]) == []


def test_what_asks_for_no_more_than_it_ever_did_raises_nothing_though_its_quota_is_full():
    assert said(scaled(8), [quota(f"requests.{GPU}", 8, 8)], read=pods("prod/search-rank", 8)) == []


@pytest.mark.parametrize(
    ("resource", "hard", "used", "to"),
    [
        (f"requests.{GPU}", 8, 5, "from 8 to 12"),  # three of its own, two of others, twelve less two: 2 + 10
        ("pods", 11, 5, "from 11 to 12"),
        ("count/pods", 11, 5, "from 11 to 12"),
        ("requests.cpu", 40, 12, "from 40 to 40"),
        ("cpu", 39, 12, "from 39 to 40"),
        ("requests.memory", 100, 48, "from 100 GiB to 160 GiB"),
    ],
)
def test_an_autoscaler_that_may_make_more_replicas_needs_room_for_each(resource, hard, used, to):
    found = said(scaled(10), [quota(resource, hard, used)], read=pods("prod/search-rank", 3))

    assert [words for words in found if to in words] == found
    assert bool(found) == (to != "from 40 to 40")


MOVED = UseOffering(pool=P3_SMALL, gpu="V100-SXM2-16GB", gpus_per_node=1, speed=SAME)


def moved(replicas):
    """A Deployment of so many replicas that goes to nodes of another type, and asks for as many GPUs there."""
    facts = example_facts()
    few = tuple(replace(one, replicas=replicas) if one.name == "prod/search-rank" else one for one in facts.workloads)
    rest = {"weeks": 1.0, "risk": Risk.LOW, "quarter": 1, "seen": (evidence("activity", "20 %"),), "rollback": "back"}
    plan = plan_of(action("a1", right_size.NAME, "search-rank", 1_000.0, {"prod/search-rank": MOVED}, **rest))
    return plan, replace(facts, workloads=few)


@pytest.mark.parametrize(
    ("replicas", "hard", "refused"), [(2, 2, True), (2, 3, False), (3, 3, True), (4, 4, False), (8, 8, False)]
)
def test_a_full_quota_stops_a_rollout_that_takes_no_old_pod_away_first(replicas, hard, refused):
    """A quarter of fewer than four replicas is none that may be unavailable, and one that comes in addition."""
    plan, facts = moved(replicas)

    found = said(plan, [quota(f"requests.{GPU}", hard, replicas)], read=pods("prod/search-rank", replicas), facts=facts)

    assert bool(found) is refused
    if found:
        assert f"from {hard} to {hard + 1} while prod/search-rank is rolled out" in found[0]


def test_finished_pods_hold_no_quota():
    """Kubernetes counts pods in a non-terminal state."""
    read = [*pods("prod/search-rank", 3), *pods("prod/search-rank", 9, phase="Succeeded")]

    assert said(scaled(10), [quota(f"requests.{GPU}", 10, 3)], read=read) == []
    assert "from 9 to 10" in said(scaled(10), [quota(f"requests.{GPU}", 9, 3)], read=read)[0]


def test_where_its_use_is_not_told_a_quota_is_used_by_the_pods_that_it_counts():
    read = [*pods("prod/search-rank", 3), *pods("prod/other", 4), *pods("research/other", 50)]

    (only,) = said(scaled(10), [quota(f"requests.{GPU}", 8, None)], read=read)

    assert "from 8 to 14" in only
    assert "beside 4 of other pods" in only


@pytest.mark.parametrize(
    ("scopes", "priority", "counted"),
    [
        ("", None, True),
        ("PriorityClass In low,high", "high", True),
        ("PriorityClass In low,high", "mid", False),
        ("PriorityClass In low,high", None, False),
        ("PriorityClass NotIn low", "high", True),
        ("PriorityClass NotIn low", "low", False),
        ("PriorityClass NotIn low", None, True),
        ("PriorityClass Exists", "any", True),
        ("PriorityClass Exists", None, False),
        ("PriorityClass DoesNotExist", None, True),
        ("PriorityClass DoesNotExist", "any", False),
        ("PriorityClass", "any", True),
        ("NotTerminating; PriorityClass In high", "high", True),
        ("Terminating; PriorityClass In high", "high", False),
        ("NotBestEffort", None, True),
        ("BestEffort", None, False),
        ("CrossNamespacePodAffinity Exists", None, False),
        ("unknown", None, True),
    ],
)
def test_a_quota_counts_the_pods_of_all_of_its_scopes(scopes, priority, counted):
    assert counts(scopes, POD | {"priority_class": priority}) is counted


def test_a_pod_that_asks_for_gpus_alone_is_of_best_effort():
    """QoS looks at CPU and memory (kubernetes.io, "Pod Quality of Service Classes")."""
    bare = POD | {"cpu_request": None, "memory_request_gib": None}

    assert counts("BestEffort", bare)
    assert not counts("NotBestEffort", bare)


def test_a_quota_of_another_priority_class_is_not_raised():
    quotas = [quota(f"requests.{GPU}", 8, 3, scopes="PriorityClass In low")]

    assert said(scaled(10), quotas, read=pods("prod/search-rank", 3, priority_class="high")) == []
    assert said(scaled(10), quotas, read=pods("prod/search-rank", 3, priority_class="low")) != []


def test_where_no_pod_was_read_the_use_of_a_quota_may_be_its_own():
    (only,) = said(scaled(10), [quota(f"requests.{GPU}", 8, 7, scopes="unknown")])

    assert "from 8 to 10" in only
    assert "beside" not in only


def test_where_scopes_are_unknown_the_doubt_is_told():
    (only,) = said(scaled(10), [quota(f"requests.{GPU}", 8, 3, scopes="unknown")], read=pods("prod/search-rank", 3))

    assert "if it counts these pods (kube-state-metrics does not say which)" in only


def test_a_queue_that_does_not_cover_the_slices_would_never_let_them_in():
    read = pods("prod/embed-api", 8, queue="team")

    (only,) = said(SLICED, [], [LOCAL_QUEUE, cluster_queue("gpus", GPU, 8, 8)], read=read)

    assert only.startswith(f"let ClusterQueue gpus cover {SLICES} with a quota of 8: prod/embed-api may ask for 8")


def test_a_queue_borrows_what_its_cohort_leaves_before_its_quota_must_be_raised():
    read = pods("prod/embed-api", 8, queue="team")

    def raised(*others, **mine):
        return said(SLICED, [], [LOCAL_QUEUE, cluster_queue("gpus", SLICES, 2, **mine), *others], read=read)

    assert "from 2 to 8" in raised()[0]
    assert "from 2 to 5" in raised(cluster_queue("more", SLICES, 4, 1, cohort="all"), cohort="all")[0]
    assert "from 2 to 7" in raised(cluster_queue("more", SLICES, 4, 1, cohort="all"), cohort="all", borrows=1.0)[0]
    assert "from 2 to 8" in raised(cluster_queue("more", SLICES, 9, flavor="h100", cohort="all"), cohort="all")[0]
    assert raised(cluster_queue("more", SLICES, 9, cohort="all"), cohort="all") == []


def test_a_queue_whose_use_is_unknown_lends_nothing_and_one_whose_quota_is_unknown_is_not_judged():
    read = pods("prod/embed-api", 8, queue="team")

    def raised(*queues):
        return said(SLICED, [], [LOCAL_QUEUE, *queues], read=read)

    mine = cluster_queue("gpus", SLICES, 2, cohort="all")
    assert "from 2 to 8" in raised(mine, cluster_queue("more", SLICES, 9, None, cohort="all"))[0]
    assert raised(cluster_queue("gpus", SLICES, None)) == []


def test_what_asks_for_more_of_a_queue_uses_at_least_what_it_holds():
    """It holds six and may have ten; of what others hold nothing is known."""
    read = pods("prod/search-rank", 6, queue="team")
    queues = [LOCAL_QUEUE, cluster_queue("gpus", GPU, 7, None)]

    (only,) = said(scaled(10), [], queues, read=read)

    assert only.startswith(f"raise {GPU} of ClusterQueue gpus from 7 to 10")


@pytest.mark.parametrize(
    ("labels", "fits"),
    [
        (None, True),
        ({"node.kubernetes.io/instance-type": "p3.2xlarge"}, True),
        ({"topology.kubernetes.io/region": "us-east-1", "karpenter.sh/capacity-type": "on-demand"}, True),
        ({"node.kubernetes.io/instance-type": "p4d.24xlarge"}, False),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}, False),
        ({"team": "search"}, False),
    ],
)
def test_kueue_sends_pods_to_nodes_with_the_labels_of_their_flavor(labels, fits):
    """Kueue adds the flavor's nodeLabels to the pods' nodeSelector (kueue.sigs.k8s.io, "Resource Flavor")."""
    plan, facts = moved(8)
    queues = [LOCAL_QUEUE, cluster_queue("gpus", GPU, 8, 8, labels=labels)]

    found = said(plan, [], queues, read=pods("prod/search-rank", 8, queue="team"), facts=facts)

    assert bool(found) is not fits
    if found:
        assert found[0].startswith("give ClusterQueue gpus a ResourceFlavor for the nodes with karpenter.sh/nodepool:")


def test_a_second_flavor_that_fits_is_enough():
    plan, facts = moved(8)
    queues = [
        LOCAL_QUEUE,
        cluster_queue("gpus", GPU, 8, 8, labels={"team": "search"}),
        cluster_queue("gpus", GPU, 8, 0, flavor="v100", labels={"node.kubernetes.io/instance-type": "p3.2xlarge"}),
    ]

    assert said(plan, [], queues, read=pods("prod/search-rank", 8, queue="team"), facts=facts) == []


def test_runs_whose_pods_are_gone_are_known_by_the_queue_of_their_jobs():
    queues = [LOCAL_QUEUE, cluster_queue("gpus", SLICES, 2)]

    assert said(SLICED, [], queues) == []
    assert said(SLICED, [], queues, queue_of={"prod/embed-api": "team"}) != []


@given(
    hard=st.integers(0, 20), others=st.integers(0, 20), now=st.integers(0, 8), most=st.integers(1, 30),
    resource=st.sampled_from([f"requests.{GPU}", "pods"]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_quota_that_is_raised_as_told_is_high_enough_and_no_higher(hard, others, now, most, resource):
    plan, read = scaled(most), [*pods("prod/search-rank", now), *pods("research/other", 1)]

    found = said(plan, [quota(resource, hard, others + now)], read=read)

    needs = others + max(most, now)
    assert bool(found) == (most > 8 and needs > hard)
    if found:
        assert f"from {hard} to {needs}:" in found[0]
        assert said(plan, [quota(resource, needs, others + now)], read=read) == []


def test_what_must_be_raised_stands_in_the_order_to_apply_and_in_the_record_of_its_action():
    quotas = standing([quota(f"requests.{SLICES}", 4)], read=pods("prod/embed-api", 8))
    plan = with_preconditions(SLICED, example_facts(), quotas)

    files = {file.path: file.text for file in emit_plan(plan, example_facts()).files}

    (condition,) = plan.actions[0].preconditions
    assert f"- [ ] {condition.what}" in files["APPLY.md"]
    (record,) = [text for path, text in files.items() if path.startswith("decisions/sharing")]
    assert f"## Before it\n\n- {condition.what}" in record


def test_of_two_clusters_each_has_its_own_quotas():
    facts = example_facts()
    both = replace(
        facts,
        workloads=tuple(replace(one, name=at(one.name, name)) for name in ("east", "west") for one in facts.workloads),
        nodes=(),
    )
    (sliced,) = SLICED.actions
    changes = tuple(Change(subject=at("prod/embed-api", name), effect=SLICE) for name in ("east", "west"))
    plan = plan_of(replace(sliced, changes=changes))
    quotas = [
        quota(f"requests.{SLICES}", 4, namespace="prod@east"),
        quota(f"requests.{SLICES}", 8, namespace="prod@west"),
    ]

    found = with_preconditions(plan, both, standing(quotas))

    ((condition,),) = [one.preconditions for one in found.actions]
    assert condition.words.startswith(
        f"in cluster east, raise requests.{SLICES} of ResourceQuota team in namespace prod"
    )
    order = next(file.text for file in emit_plan(found, both).files if file.path == "APPLY.md")
    assert order.count("raise requests.") == 1


@pytest.mark.parametrize(
    ("scopes", "deadline_s", "counted"),
    [("Terminating", 3600.0, True), ("Terminating", None, False), ("NotTerminating", 3600.0, False),
     ("NotTerminating", None, True), ("Terminating", 0.0, True)],
)  # fmt: skip
def test_a_pod_with_a_deadline_is_terminating(scopes, deadline_s, counted):
    """kubernetes pkg/quota/v1/evaluator/core/pods.go, isTerminating: activeDeadlineSeconds of 0 or more."""
    assert counts(scopes, POD | {"deadline_s": deadline_s}) is counted


def test_a_quota_with_scopes_may_count_pods_none_of_which_was_read_and_says_so():
    quotas = [quota(f"requests.{GPU}", 8, 7, scopes="PriorityClass In high")]

    (only,) = said(scaled(10), quotas, read=pods("research/other", 1))

    assert "if it counts these pods (its scopes: PriorityClass In high; none of them was read): " in only


@pytest.mark.parametrize(
    ("resource", "hard", "used", "value"),
    [(f"requests.{GPU}", 8, 5, "12"), ("requests.memory", 100, 48, "160Gi"), ("requests.cpu", 39.5, 12, "40")],
)
def test_the_command_raises_a_quota_to_what_the_words_say(resource, hard, used, value):
    plan = with_preconditions(
        scaled(10), example_facts(), standing([quota(resource, hard, used)], read=pods("prod/search-rank", 3))
    )

    (condition,) = plan.actions[0].preconditions

    assert shlex.split(condition.command)[:-1] == [
        *("kubectl", "patch", "resourcequota", "team", "-n", "prod", "--type=merge", "-p")
    ]
    assert json.loads(shlex.split(condition.command)[-1]) == {"spec": {"hard": {resource: value}}}


CLAIMED = {"gpu_resource": "gpu.nvidia.com", "gpu_claims": "one"}


@pytest.mark.parametrize(
    ("classes", "nominal", "to"),
    [
        ("gpu.nvidia.com", 8.0, "raise whole-gpus of ClusterQueue gpus from 8 to 10"),
        ("mig.nvidia.com, gpu.nvidia.com", 8.0, "raise whole-gpus of ClusterQueue gpus from 8 to 10"),
        ("gpu.nvidia.com", 10.0, None),
        ("foo.example.com", 8.0, None),
        (None, 8.0, None),
    ],
)
def test_kueue_counts_claimed_devices_of_the_classes_that_its_configuration_maps_to_a_resource(classes, nominal, to):
    """TestDRAResourceMapper_Lookup: several classes may be one resource, and a class that is not named is none."""
    queues = [LOCAL_QUEUE, cluster_queue("gpus", "whole-gpus", nominal, 3.0, classes=classes)]

    found = said(scaled(10), [], queues, read=pods("prod/search-rank", 3, queue="team", **CLAIMED))

    assert [words.partition(":")[0] for words in found] == ([] if to is None else [to])
