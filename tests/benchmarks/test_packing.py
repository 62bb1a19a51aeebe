"""The packing loop does the same compiled and plain, no rule gives out what is not there, and none exceeds its bound."""

import numpy as np
import pytest
from benchmarks.reference.packing import BEST_FIT, EXPECTED_FILL, FGD, Cluster, place_all
from benchmarks.reference.packing_bound import most_allocated_milli

from trimtab.replay.job_nodes import ANY_MODEL, PodAsk, pod_mix

NODES = 6


def drawn(seed):
    random = np.random.default_rng(seed)
    gpus = random.choice([2, 4, 8], size=NODES)
    cluster = Cluster(
        cpu_milli=gpus * random.choice([8_000.0, 12_000.0], size=NODES),
        memory_mib=gpus * 65_536.0,
        gpu_milli=np.where(np.arange(8) < gpus[:, None], 1000, 0),
        model=random.integers(0, 2, size=NODES),
    )
    pods = [
        PodAsk(12_000.0, 49_152.0, 1, 1000, ANY_MODEL),
        PodAsk(3_000.0, 5_600.0, 1, 810, ANY_MODEL),
        PodAsk(8_000.0, 30_517.0, 1, 470, 1),
        PodAsk(4_000.0, 15_258.0, 1, 160, ANY_MODEL),
        PodAsk(20_000.0, 65_536.0, 2, 1000, ANY_MODEL),
        PodAsk(12_500.0, 57_344.0, 0, 0, ANY_MODEL),
    ]
    kinds = pod_mix(pods)
    return cluster, kinds, random.integers(0, len(pods), size=150)


@pytest.mark.parametrize("rule", [BEST_FIT, FGD, EXPECTED_FILL])
@pytest.mark.parametrize("seed", range(3))
def test_compiled_and_plain_place_alike_and_account_for_every_pod(rule, seed):
    cluster, kinds, order = drawn(seed)

    fast, plain = place_all(rule, cluster, kinds, order, kinds), place_all.py_func(rule, cluster, kinds, order, kinds)

    assert fast.turned_away.tolist() == plain.turned_away.tolist()
    for one, other in zip(fast.cluster, plain.cluster, strict=True):
        assert one.tolist() == other.tolist()
        assert (one >= 0).all()
    placed = np.bincount(order, minlength=len(kinds.gpus)) - fast.turned_away
    taken = (cluster.gpu_milli - fast.cluster.gpu_milli).sum()
    assert taken == (placed * kinds.gpus * kinds.gpu_milli).sum()
    assert (cluster.cpu_milli - fast.cluster.cpu_milli).sum() == pytest.approx((placed * kinds.cpu_milli).sum())


@pytest.mark.parametrize("rule", [BEST_FIT, FGD, EXPECTED_FILL])
@pytest.mark.parametrize("seed", range(6))
def test_no_rule_exceeds_the_bound_of_those_that_turn_away_as_late(rule, seed):
    cluster, kinds, order = drawn(seed)
    gpus = int(cluster.gpu_milli.sum()) // 1000

    packed = place_all(rule, cluster, kinds, order, kinds)

    allocated = int(cluster.gpu_milli.sum() - packed.cluster.gpu_milli.sum())
    most = most_allocated_milli(gpus, kinds, order, packed.first_turned_away)
    assert most is not None
    assert allocated <= most + 1e-6


def test_a_gap_that_no_pod_fits_is_lost_once_the_pod_beside_it_was_placed():
    kinds = pod_mix([PodAsk(1.0, 1.0, 1, 810, ANY_MODEL), PodAsk(1.0, 1.0, 1, 500, ANY_MODEL)])
    # two of 810 and four of 500 for two GPUs: all of 500 if none of 810 has come before
    order = np.array([0, 0, 1, 1, 1, 1])

    assert most_allocated_milli(2, kinds, order, 0) == pytest.approx(4 * 500)
    assert most_allocated_milli(2, kinds, order, 1) == pytest.approx(810 + 500 + 500)
    assert most_allocated_milli(2, kinds, order, 2) == pytest.approx(810 + 810)
    assert most_allocated_milli(2, kinds, order, 3) is None
