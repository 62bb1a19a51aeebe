"""Which of a fleet's own nodes and events count as evidence of spot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from trimtab.sources.kubernetes.nodes import spot_event_rows
from trimtab.sources.kubernetes.objects import Objects

START = datetime(2026, 9, 1, tzinfo=UTC)


def at(minutes):
    return START + timedelta(minutes=minutes)


def node(name, begins, ends=None, *, held="spot", labels=None, taints=None, gpus=1):
    return {
        "node": name, "provider": "aws", "instance_type": "p3.2xlarge", "region": "us-east-1", "zone": "us-east-1a",
        "capacity_type": held, "start": at(begins), "end": None if ends is None else at(ends), "gpu_count": gpus,
        "labels": labels or {}, "taints": taints or {},
    }  # fmt: skip


def held(node_name, ends):
    return {"node": node_name, "end": None if ends is None else at(ends)}


def told(nodes, allocations=(), objects=None):
    rows = spot_event_rows(nodes, allocations, START, objects)
    return [(row["event"], (row["at"] - START).total_seconds() / 60, row["zone"]) for row in rows]


def test_a_spot_node_that_appears_was_launched_and_one_that_stood_before_was_not_seen_to_be():
    assert told([node("a", -30), node("b", 30)]) == [("launched", 30.0, "us-east-1a")]


def test_a_spot_node_that_goes_under_its_pods_was_interrupted():
    assert told([node("a", -30, 90)], [held("a", 89.5)]) == [("interrupted", 90.0, "us-east-1a")]
    assert told([node("a", -30, 90)], [held("a", None)]) == [("interrupted", 90.0, "us-east-1a")]


def test_a_spot_node_that_was_empty_first_was_given_back():
    assert told([node("a", -30, 90)], [held("a", 88), held("a", 20)]) == []
    assert told([node("a", -30, 90)]) == []


def test_an_on_demand_node_of_a_spot_pool_says_that_spot_was_not_to_be_had():
    tainted = node("b", 10, held="on-demand", taints={"trimtab.dev/spot": "present:NoSchedule"})
    pool = {"karpenter.sh/nodepool": "runs"}
    beside = node("c", 20, held="on-demand", labels=pool)

    assert told([tainted]) == [("unavailable", 10.0, None)]
    assert told([beside]) == []
    assert told([beside, node("a", -30, labels=pool)]) == [("unavailable", 20.0, None)]
    assert told([beside, node("a", -30, labels={"karpenter_sh_nodepool": "runs"})]) == [("unavailable", 20.0, None)]


def test_nodes_without_a_gpu_say_nothing():
    assert told([node("a", 30, 90, gpus=0)], [held("a", 90)]) == []


def test_an_event_of_the_cluster_says_when_a_node_was_interrupted():
    objects = Objects()
    for name, reason, kind in (
        ("a", "SpotInterrupted", "Node"),
        ("b", "Started", "Node"),
        ("c", "SpotInterrupted", "Pod"),
    ):
        objects.take(
            {
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{name}.1", "namespace": "default"},
                "reason": reason, "involvedObject": {"kind": kind, "name": name}, "firstTimestamp": "2026-09-01T00:42:00Z",
            }
        )  # fmt: skip

    found = told([node("a", -30, 44), node("b", -30), node("c", -30)], [held("a", 43.9)], objects)

    assert found == [("interrupted", 42.0, "us-east-1a")]
