"""How pods and nodes fare is read off a dump: restarts, reasons, and nodes out of service."""

from datetime import UTC, datetime

import pytest
from tests.kube_cluster import NOW, OLD, node, pod

from trimtab.sources.kubernetes.health import fault_rows, pod_health
from trimtab.sources.kubernetes.objects import Objects
from trimtab.sources.kubernetes.snapshot import collect_snapshot

START = datetime(2026, 9, 1, tzinfo=UTC)
END = datetime(2026, 9, 15, tzinfo=UTC)


def objects(*items):
    found = Objects()
    for item in items:
        found.take(item)
    return found


def crashing():
    told = pod("llm-0", "prod")
    ended = {
        "reason": "OOMKilled", "exitCode": 137, "startedAt": "2026-09-14T23:50:00Z", "finishedAt": "2026-09-14T23:50:40Z",
    }  # fmt: skip
    told["status"]["containerStatuses"] = [
        {"restartCount": 2, "state": {"running": {}}},
        {
            "restartCount": 400,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": ended},
        },
    ]
    return told


def test_of_several_containers_the_one_started_again_most_often_is_told():
    assert pod_health(crashing()) == {
        "restarts": 400,
        "waiting": "CrashLoopBackOff",
        "last_exit": "OOMKilled",
        "last_ended": datetime(2026, 9, 14, 23, 50, 40, tzinfo=UTC),
        "last_life_s": 40.0,
        "unschedulable": None,
    }


def test_a_pod_of_which_nothing_is_told_has_no_health():
    assert set(pod_health(pod("a", "prod")).values()) == {None}


def test_a_plain_error_is_told_with_its_exit_code():
    told = pod("a", "prod")
    ended = {"reason": "Error", "exitCode": 1}
    told["status"]["containerStatuses"] = [{"restartCount": 1, "lastState": {"terminated": ended}, "state": {}}]

    assert pod_health(told)["last_exit"] == "Error (exit 1)"


def test_a_pod_that_finds_no_node_says_what_the_scheduler_says():
    told = pod("a", "prod", node=None, phase="Pending")
    told["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": "0/9 nodes: insufficient nvidia.com/gpu"}
    ]

    assert pod_health(told)["unschedulable"] == "0/9 nodes: insufficient nvidia.com/gpu"


def test_a_cordoned_node_is_a_fault_since_its_taint():
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "2026-09-10T08:00:00Z"}
    cordoned = node(unschedulable=True, taints=[taint])

    assert fault_rows(objects(cordoned), {"gpu-a"}, START) == [
        {"node": "gpu-a", "fault": "cordoned", "start": datetime(2026, 9, 10, 8, tzinfo=UTC)}
    ]
    assert fault_rows(objects(cordoned), {"gpu-b"}, START) == []


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_is_not_ready_is_a_fault_since_it_is_not(status):
    told = node()
    told["status"]["conditions"] = [{"type": "Ready", "status": status, "lastTransitionTime": NOW}]

    assert [(row["fault"], row["start"]) for row in fault_rows(objects(told), {"gpu-a"}, START)] == [
        ("not-ready", datetime(2026, 9, 15, tzinfo=UTC))
    ]


def test_a_snapshot_keeps_both_in_its_tables():
    collected = collect_snapshot(
        objects(node(unschedulable=True, created=OLD), crashing()), START, END, source="a dump"
    )

    (row,) = collected.tables["pods"].to_pylist()
    assert (row["restarts"], row["waiting"]) == (400, "CrashLoopBackOff")
    assert collected.tables["faults"]["fault"].to_pylist() == ["cordoned"]
