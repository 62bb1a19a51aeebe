"""Start-up times read off a fleet's own pods."""

from datetime import UTC, datetime, timedelta

import pytest

from trimtab.fleet.starts import NODE_COLUMNS, POD_COLUMNS, MeasuredStarts, measured_starts
from trimtab.tables.arrow import table_from_rows

NOON = datetime(2026, 9, 7, 12, tzinfo=UTC)


def at(seconds):
    return None if seconds is None else NOON + timedelta(seconds=seconds)


def pod(number=0, node="n", *, created=0, scheduled=240, ready=300, workload="prod/chat", **changes):
    row = {
        "pod": f"p{number}", "namespace": "prod", "workload": workload, "node": node, "phase": "Running", "gpus": 1.0,
        "created": at(created), "scheduled": at(scheduled), "ready": at(ready),
    }  # fmt: skip
    return row | changes


def node(name="n", start=60):
    return {
        "node": name, "provider": "aws", "instance_type": "g5.xlarge", "region": "us-east-1", "capacity_type": "on-demand",
        "start": at(start), "gpu_count": 1,
    }  # fmt: skip


def measured(pods, nodes):
    return measured_starts(
        table_from_rows("pods", pods).select(POD_COLUMNS), table_from_rows("nodes", nodes).select(NODE_COLUMNS)
    )


def test_a_pod_waited_for_a_node_that_began_after_it():
    found = measured([pod()], [node()])

    assert found.node_s == (240.0,)
    assert found.own_s == {"prod/chat": (60.0,)}


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({}, -3600),  # its node was up before
        ({"queue": "team-a"}, 60),
        ({"gpus": 0.0}, 60),
        ({"scheduled": None, "node": None, "ready": None}, 60),
    ],
)
def test_other_waits_are_no_starts_of_nodes(changes, start):
    assert measured([pod(**changes)], [node(start=start)]).node_s == ()


def test_pods_that_are_not_ready_tell_no_start_of_their_own():
    assert measured([pod(ready=None), pod(1, ready=100)], [node()]).own_s == {}


def test_the_slowest_tenth_begins_at_a_start_that_was_measured():
    slow = MeasuredStarts(node_s=tuple(range(100, 120)), own_s={"a": (5.0, 40.0)}).slow

    assert slow.node_s == 118
    assert slow.own_s == {"a": 40.0}
    assert MeasuredStarts().slow.node_s is None


def test_nothing_starts_sooner_than_planned():
    slow = MeasuredStarts(node_s=(200.0,), own_s={"a": (50.0,), "b": (500.0,)}).slow

    assert [slow.run_start_s(name, 300.0) for name in ("a", "b", "c")] == [300.0, 700.0, 300.0]
