"""Shares that were drawn before a cluster was written down come back from it."""

import pytest
from benchmarks.holders import judged
from benchmarks.holders_specs import example_worlds
from benchmarks.holders_world import KINDS, World, drawn


@pytest.mark.parametrize("seed", range(6))
def test_every_pods_part_of_every_board_of_a_drawn_cluster_is_read(seed):
    found = judged(drawn(1000 + seed))

    assert found["right in a dump"] == found["right beside telemetry"] == found["pods"] > 0
    assert found["boards wrong"] == 0


def test_every_documented_example_is_read():
    for world in example_worlds():
        found = judged(world)
        assert found["right in a dump"] == found["right beside telemetry"] == found["pods"]


def test_a_share_that_is_read_wrong_is_seen():
    world = drawn(1)
    pod = next(name for name, shares in world.truth.items() if shares)
    world.truth[pod] = {board: share / 2 for board, share in world.truth[pod].items()}

    assert judged(world)["right in a dump"] == judged(world)["pods"] - 1


def test_every_way_of_sharing_is_drawn():
    drawn_kinds = {name for seed in range(30) for name in _kinds(drawn(seed))}

    assert len(KINDS) == 8
    assert len(drawn_kinds) >= 7


def _kinds(world: World):
    return {item["metadata"]["name"].rsplit("-", 2)[-2] for item in world.objects if item["kind"] == "Pod"}
