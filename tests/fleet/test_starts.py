"""Start-up times read off a fleet's own pods."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st
from tests.fleets import FleetRows

from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Assumptions, Settings
from trimtab.fleet.starts import (
    IMAGE_COLUMNS,
    NODE_COLUMNS,
    POD_COLUMNS,
    MeasuredStarts,
    OwnStart,
    measured_starts,
    planned,
    said_of_starts,
    with_measured,
    with_starts,
)
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


def measured(pods, nodes, images=()):
    return measured_starts(
        table_from_rows("pods", pods).select(POD_COLUMNS),
        table_from_rows("nodes", nodes).select(NODE_COLUMNS),
        table_from_rows("images", list(images)).select(IMAGE_COLUMNS),
    )


def pulling(number, pull_s, pulled_gib, load_s=30):
    """A pod that started in time and pulled for so long."""
    told = {"pull_s": float(pull_s), "pulled_gib": pulled_gib, "started": at(pull_s + 5)}
    return pod(number, scheduled=0, ready=pull_s + 5 + load_s, **told)


def holding(image, gib, node="n"):
    return {"node": node, "image": image, "size_gib": gib}


def own(*seconds):
    return tuple(OwnStart(all_s=took_s) for took_s in seconds)


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
    slow = MeasuredStarts(node_s=tuple(range(100, 120)), own={"a": own(5.0, 40.0)}).slow

    assert slow.node_s == 118
    assert slow.own_s == {"a": 40.0}
    assert MeasuredStarts().slow.node_s is None


def test_nothing_starts_sooner_than_planned():
    slow = MeasuredStarts(node_s=(200.0,), own={"a": own(50.0), "b": own(500.0)}).slow

    assert [slow.run_start_s(name, 300.0) for name in ("a", "b", "c")] == [300.0, 700.0, 300.0]


def test_parts_of_a_start_are_told_by_moments_and_events():
    (start,) = measured([pod(started=at(270), pull_s=25.0, pulled_gib=8.0)], [node()]).own["prod/chat"]

    assert (start.all_s, start.setup_s, start.pull_s, start.load_s) == (60.0, 30.0, 25.0, 30.0)


@pytest.mark.parametrize(
    ("changes", "odd"),
    [
        ({"ready": 240 + 3601}, 1),  # ready long before, and then not
        ({"ready": 200}, 1),  # a kubelet whose clock is behind
        ({"started": at(239)}, 1),
        ({"started": at(301)}, 1),
        ({"started": None}, 0),
        ({"ready": None}, 0),
    ],
)
def test_moments_that_are_no_starts_are_left_out_and_counted(changes, odd):
    found = measured([pod(**changes)], [node()])

    assert found.odd == odd
    assert not (odd and found.own)


def test_plans_take_three_of_four_starts_and_none_of_two():
    assert planned((1.0, 2.0)) is None
    assert planned((1.0, 2.0, 3.0, 4.0)) == 4.0
    assert planned(tuple(float(number) for number in range(1, 10))) == 7.0


@given(st.lists(st.floats(0.0, 4000.0), min_size=3, max_size=40))
def test_a_planned_start_is_one_of_those_measured_and_no_longer_than_the_slowest_tenth(starts):
    ordered = tuple(sorted(starts))

    assert planned(ordered) in ordered
    assert planned(ordered) <= MeasuredStarts(node_s=ordered).slow.node_s


def test_what_somebody_stated_goes_over_what_was_measured():
    starts = MeasuredStarts(node_s=(400.0, 410.0, 420.0))

    assert with_measured(Assumptions(), starts).node_startup_s == 420.0
    assert with_measured(Assumptions(node_startup_s=90.0), starts).node_startup_s == 90.0


def fleet_with(*, start_s):
    """A fleet of one service whose own start was measured."""
    rows = FleetRows(2)
    rows.node("n", "g5.xlarge").hold("prod/chat", "n", [0], owner_kind="Deployment")
    return with_starts(build_fleet(rows.bundle(), Settings()), MeasuredStarts(own={"prod/chat": own(*start_s)}))


def test_what_plans_take_is_said_with_the_starts_that_it_rests_on():
    fleet = fleet_with(start_s=(50.0, 60.0, 70.0))
    starts = MeasuredStarts(node_s=(400.0, 410.0, 420.0), own={"prod/chat": own(50.0, 60.0, 70.0)}, odd=2)

    said = list(said_of_starts(starts, fleet, Assumptions()))

    assert said[0].startswith("cold start measured on 3 starts: a node 420 s")
    assert said[1] == "start of prod/chat on a node measured on 3 starts: 70 s"
    assert said[2].startswith("2 start(s) left out")


@pytest.mark.parametrize(
    ("sizes", "said"), [((None, None, None), "10 s, of 3"), ((None, 8.0, None), "10 s (8 GiB), of 3")]
)
def test_pulls_whose_size_nobody_told_are_said_without_one(sizes, said):
    starts = MeasuredStarts(
        own={"prod/chat": tuple(OwnStart(all_s=60.0, pull_s=10.0, pulled_gib=gib) for gib in sizes)}
    )
    rows = FleetRows(2)
    rows.node("n", "g5.xlarge").hold("prod/chat", "n", [0], owner_kind="Deployment")
    fleet = with_starts(build_fleet(rows.bundle(), Settings()), starts)

    assert f"pulls of images {said}" in " ".join(said_of_starts(starts, fleet, Assumptions()))


def test_too_few_starts_leave_the_assumption_and_say_so():
    fleet = fleet_with(start_s=(50.0, 60.0))

    (said,) = said_of_starts(MeasuredStarts(own={"prod/chat": own(50.0, 60.0)}), fleet, Assumptions())

    assert said.startswith("cold start assumed: a node 300 s")
    assert fleet.workloads[0].start_s is None
    assert list(said_of_starts(MeasuredStarts(), fleet, Assumptions())) == []


OTHERS = [pulling(0, 100, 10.0), pulling(1, 50, 10.0), pulling(2, 25, 10.0), pulling(3, 20, 10.0)]
"""Pulls at 0.1, 0.2, 0.4 and 0.5 GiB/s, and loads of half a minute."""


def unseen(images, workload="prod/new"):
    """A pod that tells no start of its own."""
    return pod(9, workload=workload, ready=None, images=images)


def test_a_service_without_a_measured_start_is_known_by_the_size_of_its_images():
    found = measured([*OTHERS, unseen("vllm/vllm-openai:v1")], [], [holding("docker.io/vllm/vllm-openai:v1", 40.0)])

    assert found.planned_s("prod/new") is None
    assert found.estimated_s("prod/new") == 40.0 / 0.1 + 30.0


@pytest.mark.parametrize(
    ("pods", "images"),
    [
        (OTHERS[:2], [holding("docker.io/a/b:1", 40.0)]),
        (OTHERS, []),
        (OTHERS, [holding("docker.io/a/b:2", 40.0)]),
        (OTHERS, [holding("docker.io/a/b:1", None)]),
    ],
    ids=["two pulls", "no image is told", "another tag", "no size"],
)
def test_a_start_is_not_estimated_from_what_is_not_known(pods, images):
    assert measured([*pods, unseen("a/b:1")], [], images).estimated_s("prod/new") is None


def test_images_of_which_one_is_unknown_are_no_size():
    images = [holding("docker.io/a/b:1", 40.0)]

    assert measured([*OTHERS, unseen("a/b:1,ghcr.io/c/d")], [], images).estimated_s("prod/new") is None


@pytest.mark.parametrize(("gib", "taken_s"), [(40.0, 430.0), (10.0, None)])
def test_an_estimate_only_lengthens_what_is_assumed_of_a_service(gib, taken_s):
    rows = FleetRows(2).node("n", "g5.xlarge").hold("prod/chat", "n", [0], owner_kind="Deployment")
    fleet = build_fleet(rows.bundle(), Settings())
    pods = [{**one, "workload": "prod/other"} for one in OTHERS]
    starts = measured([*pods, unseen("a/b:1", "prod/chat")], [], [holding("docker.io/a/b:1", gib)])

    (workload,) = with_starts(fleet, starts).workloads

    assert workload.start_s == taken_s
    told = "".join(said_of_starts(starts, with_starts(fleet, starts), Assumptions()))
    assert ("estimated, since none was measured: 430 s, for images of 40 GiB" in told) is (taken_s is not None)
