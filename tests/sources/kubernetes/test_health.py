"""How pods and nodes fare is read off a dump: restarts, reasons, and nodes out of service."""

from datetime import UTC, datetime

import pytest
from tests.kube_cluster import NOW, OLD, node, pod

from trimtab.sources.kubernetes.health import fault_rows, image_pulls, pod_health, started_at
from trimtab.sources.kubernetes.objects import Objects
from trimtab.sources.kubernetes.snapshot import collect_snapshot
from trimtab.sources.prometheus.gpu_series import Tally

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


def pulled(message, name="a", uid="u", number=0):
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": f"e{number}", "namespace": "prod"}, "reason": "Pulled",
        "message": message, "involvedObject": {"kind": "Pod", "namespace": "prod", "name": name, "uid": uid},
    }  # fmt: skip


def with_uid(uid="u", **more):
    told = pod("a", "prod", **more)
    told["metadata"]["uid"] = uid
    return told


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            'Successfully pulled image "m:1" in 1m2.5s (1m3.5s including waiting). Image size: 2147483648 bytes.',
            (63.5, 2.0),
        ),
        ('Successfully pulled image "m:1" in 312ms (312ms including waiting)', (0.312, None)),
        ('Successfully pulled image "m:1" in 1h0m2s', (3602.0, None)),
        ('Container image "m:1" already present on machine', (0.0, 0.0)),
        ('Container image "m:1" already present on machine and can be accessed by the pod', (0.0, 0.0)),
    ],
)
def test_a_kubelets_event_tells_how_long_a_pull_took(message, expected):
    tally = Tally()

    assert image_pulls(objects(with_uid(), pulled(message)), tally) == {("prod", "a"): expected}
    assert tally.counts == {}


def test_a_pod_of_which_one_pull_tells_no_size_has_no_size():
    told = with_uid()
    told["spec"]["initContainers"] = [{"name": "fetch"}]
    events = [
        pulled('Successfully pulled image "m:1" in 2s (2s including waiting). Image size: 1073741824 bytes.', number=0),
        pulled('Successfully pulled image "m:2" in 3s', number=1),
    ]

    assert image_pulls(objects(told, *events), Tally()) == {("prod", "a"): (5.0, None)}


@pytest.mark.parametrize(
    "events",
    [
        [pulled('Container image "m:1" already present on machine', uid="of its predecessor")],
        [pulled("Erfolgreich geladen")],
        [pulled('Successfully pulled image "m:1" in 1..2s')],
        [pulled('Successfully pulled image "m:1" in soon')],
        [pulled('Successfully pulled image "m:1" in 2s', number=number) for number in range(2)],
        [pulled('Successfully pulled image "m:1" in 2s', name="gone")],
        [],
    ],
)
def test_events_that_do_not_tell_all_of_a_pods_pulls_tell_none(events):
    assert image_pulls(objects(with_uid(), *events), Tally()) == {}


def test_half_of_a_pods_events_are_counted():
    told, tally = with_uid(), Tally()
    told["spec"]["initContainers"] = [{"name": "fetch"}]

    assert image_pulls(objects(told, pulled('Successfully pulled image "m:1" in 2s')), tally) == {}
    assert list(tally.counts.values()) == [1]


def test_a_pod_started_when_its_last_container_did():
    told = pod("a", "prod")
    told["status"]["containerStatuses"] = [
        {"restartCount": 0, "state": {"running": {"startedAt": f"2026-09-14T23:5{minute}:00Z"}}} for minute in (1, 3)
    ]

    assert started_at(told) == datetime(2026, 9, 14, 23, 53, tzinfo=UTC)
    told["status"]["containerStatuses"][0]["restartCount"] = 1
    assert started_at(told) is None
    assert started_at(pod("b", "prod")) is None
