"""Small fleets that benchmarks draw: the same from one seed, and every workload on nodes of its own."""

import pytest
from benchmarks.drawn_fleets import DRAWN, SEVERAL, drawn


@pytest.mark.parametrize("kind", DRAWN)
def test_a_seed_draws_the_same_fleet_again(kind):
    first, again = drawn(kind, 3), drawn(kind, 3)

    assert (first.rows, first.workloads) == (again.rows, again.workloads)


def test_workloads_of_one_cluster_keep_their_names_and_nodes_apart():
    rows = drawn(SEVERAL, 1)

    nodes = [row["node"] for row in rows.rows["nodes"]]
    held = {(row["workload"], row["node"]) for row in rows.rows["allocations"]}
    assert len(rows.workloads) >= 2
    assert len(nodes) == len(set(nodes)) == len({node for _, node in held})
    assert {workload for workload, _ in held} == rows.workloads.keys()
