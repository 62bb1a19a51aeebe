"""Queues whose runs wait beside free GPUs are named with what these would have held; those that wait for full nodes are not."""

import pytest
from tests.diagnose.untidy_fleet import fault, found_in, offence_usd, stray
from tests.fleets import FleetRows

from trimtab.diagnose.findings import OffenceKind, WasteKind

NODE, OTHER = "p3.8xlarge", "g5.12xlarge"
LOCAL = {"kind": "LocalQueue", "namespace": "lab", "name": "q", "parent": "gpus"}
CLUSTER = {
    "kind": "ClusterQueue", "namespace": None, "name": "gpus", "parent": None, "flavor": "v100", "quota_gpus": 4.0,
    "used_gpus": 4.0,
}  # fmt: skip


def fleet(nodes=2, days=2, kind=NODE):
    """Return nodes of four GPUs; the first is held all the time by runs of the queue."""
    rows = FleetRows(days)
    for number in range(nodes):
        rows.node(f"n{number}", kind if number else NODE)
    rows.hold("lab/x", "n0", range(4), 0, days * 24)
    for gpu in range(4):
        rows.use("lab/x", "n0", gpu, range(days * 24), sm=0.9)
    queued(rows, 0, 0, 24 * days, node="n0", name="lab/first")
    return rows


def queued(rows, submit, start, end=None, gpus=2, name=None, node=None, queue="q"):
    rows.job("lab/x", submit, start, end, gpus, name=name, state="queued" if start is None else "completed")
    rows.rows["jobs"][-1] |= {"queue": queue, "node": node}
    return rows


def waits(rows, queues=(LOCAL, CLUSTER)):
    rows.rows["queues"] = list(queues)
    found, waste = found_in(rows)
    return [row for row in found.offences if row.offence.kind is OffenceKind.QUEUED], waste


def test_a_run_that_waits_beside_a_free_node_costs_the_gpus_that_it_would_have_held():
    rows = queued(fleet(), 10, 20, 30)

    (row,), waste = waits(rows)

    assert (row.offence.subject, row.offence.nodes) == ("lab/q", ("n1",))
    assert row.cost.micro_usd == 5_000_000  # ten hours of half a node at a dollar an hour
    assert row.cost.gpu_hours == 20
    assert row.offence.counted_in is WasteKind.UNALLOCATED_NODES
    assert waste[WasteKind.UNALLOCATED_NODES] == 48
    assert "1 run waited 10 h in all" in row.offence.evidence
    assert "quota: gpus v100 4 GPUs, 4 in use when it was read" in row.offence.evidence


def test_a_run_that_waits_still_costs_up_to_the_end_and_goes_on():
    (row,), _ = waits(queued(fleet(), 40, None))

    assert row.cost.micro_usd == 4_000_000
    assert row.cost.usd_hr == 0.5


def test_runs_together_cost_no_more_than_is_free():
    rows = fleet()
    for number in range(5):
        queued(rows, 10, 20, 30, name=f"lab/{number}")

    (row,), _ = waits(rows)

    assert row.cost.micro_usd == 10_000_000


def test_a_stray_pod_and_a_queue_share_the_node_that_both_are_named_for():
    rows = stray(queued(fleet(), 10, 20, 30), "web/cache", "n1")

    cost = {kind: usd for (kind, _), usd in offence_usd(found_in(rows)[0]).items() if usd}

    # of ten hours the queue claims half of the node and the pod all of it: a third and two thirds of what they share
    assert cost == pytest.approx({OffenceKind.STRAY: 48 - 10 / 3, OffenceKind.QUEUED: 10 / 3}, abs=1e-5)


@pytest.mark.parametrize(
    "rows",
    [
        queued(fleet(nodes=1), 10, 20, 30),
        queued(fleet(), 10, 10.9, 30),
        queued(fleet(), 10, 20, 30, queue=None),
        queued(fleet(), 10, 20, 30, queue="trimtab-deferrable"),
        queued(fleet(), 10, 20, 30, gpus=8),
        queued(fleet(kind=OTHER), 10, 20, 30),
        fault(queued(fleet(), 10, 20, 30), "n1", "cordoned", 0),
    ],
    ids=[
        "nothing is free", "less than an hour", "no queue", "a plan's own timetable", "more than is free",
        "another type of machine", "cordoned",
    ],
)  # fmt: skip
def test_runs_that_could_not_have_started_are_not_named(rows):
    assert waits(rows)[0] == []


def test_a_partition_of_slurm_has_its_own_nodes_and_not_those_of_their_type():
    rows = queued(fleet(), 10, 20, 30)

    assert waits(rows, [{"kind": "Partition", "name": "q"}])[0] == []


def test_where_no_run_of_a_queue_ever_ran_nothing_is_said():
    rows = queued(fleet(), 10, 20, 30)
    for job in rows.rows["jobs"]:
        job["node"] = None

    assert waits(rows)[0] == []


def test_a_run_larger_than_a_node_needs_whole_nodes():
    rows = queued(fleet(nodes=3), 10, 20, 30, gpus=8)

    (row,), _ = waits(rows)
    assert row.cost.micro_usd == 20_000_000

    rows.hold("lab/y", "n2", [0], 0, 48).use("lab/y", "n2", 0, range(48), sm=0.9)
    assert waits(rows)[0] == []


def volcano(name, **stated):
    return {"kind": "Queue", "namespace": None, "name": name, "resource": "nvidia.com/gpu", "used_gpus": 0.0} | stated


def evidence(*queues):
    (row,), _ = waits(queued(fleet(), 10, 20, 30), queues=queues)
    assert row.offence.subject == "q"
    return row.offence.evidence


def test_a_volcano_queue_that_waits_says_what_it_and_those_above_it_may_use():
    said = evidence(
        volcano("q", parent="team", quota_gpus=2.0, limit_gpus=4.0, used_gpus=4.0), volcano("team", limit_gpus=8.0)
    )

    assert (
        "quota: q 2 GPUs, 4 at most, 4 in use when it was read, team 8 GPUs at most, 0 in use when it was read" in said
    )


def test_a_volcano_queue_waits_beside_gpus_that_others_are_guaranteed_or_do_not_give_back():
    """Five of thirty GPUs are queue1's alone, even if no job runs in it (Volcano's design of guarantees, its first table)."""
    said = evidence(
        volcano("q"),
        volcano("queue1", guaranteed_gpus=5.0, used_gpus=2.0),
        volcano("greedy", quota_gpus=4.0, used_gpus=7.0, reclaimable=False),
        volcano("fair", quota_gpus=4.0, used_gpus=7.0, reclaimable=True, guaranteed_gpus=4.0),
        volcano("unread", guaranteed_gpus=5.0, used_gpus=None),
    )

    assert said.endswith(
        "quota: queue1 keeps 3 GPUs that it does not use (guarantee), "
        "greedy gives none of 3 GPUs beyond its own back (reclaimable: false)"
    )
