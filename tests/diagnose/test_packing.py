"""Nodes that would be empty if pods stood closer together are named with what they cost, and only where that is safe to say."""

from tests.diagnose.untidy_fleet import found_in, offence_usd, pod
from tests.fleets import FleetRows

from trimtab.diagnose.findings import OffenceKind, WasteKind

DAYS = 3


def fleet(owner_kind="Deployment", since=0, **more):
    """Return nodes of four GPUs, three GPUs of `full` held, one of `empty`, each by a workload of its own."""
    rows = FleetRows(DAYS).node("full", "p3.8xlarge").node("empty", "p3.8xlarge")
    for workload, node, gpus, start in (("a/big", "full", 3, 0), ("b/small", "empty", 1, since)):
        rows.hold(workload, node, range(gpus), start, pod=f"{workload}-0", owner_kind=owner_kind)
        for gpu in range(gpus):
            rows.use(workload, node, gpu, range(start, DAYS * 24), sm=0.9)
        told = {"owner_kind": owner_kind, "cpu_request": 4.0, "memory_request_gib": 16.0}
        pod(rows, workload, f"{workload}-0", node, float(gpus), start, **(told | (more if node == "empty" else {})))
    return rows


def scattered(rows):
    found, _ = found_in(rows)
    return [row for row in found.offences if row.offence.kind is OffenceKind.SCATTERED]


def test_a_node_whose_pods_fit_on_another_costs_the_gpus_that_are_free():
    found, waste = found_in(fleet())

    (row,) = [row for row in found.offences if row.offence.kind is OffenceKind.SCATTERED]
    assert (row.offence.nodes, row.offence.items) == (("empty",), ("b/small-0",))
    # three GPUs of the node that goes and the one on the other that its pod takes: a node at a dollar an hour
    assert row.cost.micro_usd == DAYS * 24 * 1_000_000
    assert row.cost.gpu_hours == DAYS * 24 * 4
    assert row.cost.usd_hr == 1
    assert row.offence.counted_in is WasteKind.HOURS_NOT_USED
    assert waste[WasteKind.HOURS_NOT_USED] == DAYS * 24
    assert "4 GPUs free in parts of its 2 nodes: empty would be empty after 1 move (1 GPU)" in row.offence.evidence


def test_runs_notebooks_and_pods_that_nobody_makes_anew_keep_their_nodes():
    assert [scattered(fleet(owner_kind=kind)) for kind in ("Job", "Notebook", "Pod", None)] == [[], [], [], []]


def test_a_node_that_changed_today_is_left_alone():
    assert scattered(fleet(since=DAYS * 24 - 12)) == []
    assert len(scattered(fleet(since=DAYS * 24 - 30))) == 1


def test_only_what_followed_the_last_change_is_counted():
    (row,) = scattered(fleet(since=DAYS * 24 - 30))

    assert row.cost.gpu_hours == 30 * 4


def test_a_pod_tied_to_its_node_stays():
    rows = fleet()
    for node, tied in zip(rows.rows["nodes"], rows.rows["pods"], strict=True):
        node["labels"] = {"kubernetes.io/hostname": node["node"]}
        tied["node_selector"] = {"kubernetes.io/hostname": tied["node"]}

    assert scattered(rows) == []


def test_a_node_with_other_taints_takes_nothing():
    rows = fleet()
    rows.rows["nodes"][0]["taints"] = {"dedicated": "team-a:NoSchedule"}

    assert scattered(rows) == []


def test_two_replicas_come_together_only_where_some_do():
    rows = fleet()
    for row in (*rows.rows["allocations"], *rows.rows["pods"], *rows.rows["gpu_usage"]):
        row["workload"] = "a/big"

    assert scattered(rows) == []


def test_a_full_cluster_has_nothing_to_move():
    rows = FleetRows(DAYS).node("x", "p3.8xlarge").node("y", "p3.8xlarge")
    for node, gpus in (("x", 4), ("y", 1)):
        rows.hold(f"a/{node}", node, range(gpus), pod=f"{node}-0", owner_kind="Deployment")
        pod(rows, f"a/{node}", f"{node}-0", node, float(gpus))

    assert (OffenceKind.SCATTERED, "p3.8xlarge") not in offence_usd(found_in(rows)[0])


def test_parts_of_gpus_go_where_a_part_is_free():
    rows = FleetRows(DAYS).node("x", "p3.8xlarge").node("y", "p3.8xlarge")
    for workload, node, devices, gpus in (("a/x", "x", range(4), 0.5), ("b/y", "y", range(1), 0.5)):
        rows.hold(workload, node, devices, pod=f"{workload}-0", owner_kind="Deployment")
        pod(rows, workload, f"{workload}-0", node, gpus)
    for row in rows.rows["allocations"]:
        row["gpus"] = 0.5

    (row,) = scattered(rows)

    assert row.offence.nodes == ("y",)
    assert row.cost.gpu_hours == DAYS * 24 * 4
