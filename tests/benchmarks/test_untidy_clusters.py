"""Generated clusters with planted offenders: their truth adds up, and every one of a few is named and nobody else."""

import numpy as np
import pytest
from benchmarks.hygiene import Score, judge
from benchmarks.untidy_clusters import DAY, LOOKALIKES, OFFENDERS, TYPES, Cluster, drawn_cluster, stretches


def cluster(days=6):
    return Cluster(days=days, rng=np.random.default_rng(1))


def test_stretches_are_told_with_their_lengths():
    assert stretches(np.array([True, True, False, True])) == [2, 1]


@pytest.mark.parametrize("plant", OFFENDERS, ids=lambda plant: plant.__name__)
def test_an_offender_costs_no_more_than_its_cluster(plant):
    drawn = cluster()

    plant(drawn, "x")

    price = sum(TYPES[node.instance_type][3] for node in drawn.nodes) * drawn.minutes / 60
    assert drawn.truth
    assert all(0 <= usd <= price for usd in drawn.truth.values())


@pytest.mark.parametrize("plant", LOOKALIKES, ids=lambda plant: plant.__name__)
def test_a_lookalike_owes_nothing(plant):
    drawn = cluster()

    plant(drawn, "x")

    assert not drawn.truth


def test_a_seed_draws_one_cluster():
    assert drawn_cluster(3).truth == drawn_cluster(3).truth
    assert drawn_cluster(3).minutes % DAY == 0


def test_everyone_planted_is_named_within_five_percent_and_nobody_else():
    score = Score()
    for seed in (0, 1):
        judge(score, seed)

    assert (score.missed, score.off, score.accused) == ([], [], [])
    assert score.planted > 5
