"""A pod goes where it fits and where least use is lost to pods still to come."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.replay.job_nodes import (
    ANY_MODEL,
    GPU_MILLI,
    NodeRoom,
    PodAsk,
    expected_fill,
    fits,
    least_lost,
    left_after,
    pod_mix,
    usable_milli,
)

PLENTY = 1e9
WHOLE = PodAsk(0.0, 0.0, 1, 1000, ANY_MODEL)
HALF = PodAsk(0.0, 0.0, 1, 500, ANY_MODEL)
LARGE_PART = PodAsk(0.0, 0.0, 1, 810, ANY_MODEL)

pods = st.builds(
    lambda cpu, memory, gpus, milli: PodAsk(
        cpu, memory, gpus, milli if gpus == 1 else GPU_MILLI * (gpus > 0), ANY_MODEL
    ),
    st.sampled_from([0.0, 4000.0, 12000.0]),
    st.sampled_from([0.0, 8192.0]),
    st.sampled_from([0, 1, 1, 1, 2, 4]),
    st.integers(1, 1000),
)
rooms = st.builds(
    lambda cpu, memory, free: NodeRoom(cpu, memory, np.array(free, dtype=np.int64), 0),
    st.floats(0, 64_000),
    st.floats(0, 262_144),
    st.lists(st.sampled_from([0, 5, 190, 500, 1000]), min_size=1, max_size=8),
)


def room(*free, cpu_milli=PLENTY):
    return NodeRoom(cpu_milli, PLENTY, np.array(free, dtype=np.int64), 0)


def scored(place, pod, mix, offers=20):
    fill = expected_fill(mix, 0, offers)
    return least_lost(place, pod, mix, fill, usable_milli(place, mix, fill))


def test_one_offer_fills_what_one_pod_asks_for():
    fill = expected_fill(pod_mix([WHOLE, HALF]), 0, 1)

    # half of the pods take all of an empty GPU, the others half of it; only these fit into half a GPU
    assert fill.gpu_milli[[100, 50, 49]].tolist() == [750, 250, 0]


def test_a_second_offer_fills_what_the_first_left():
    fill = expected_fill(pod_mix([WHOLE, HALF]), 0, 2)

    # a whole one, else a half one and then again a half one in half of the cases
    assert fill.gpu_milli[100] == pytest.approx(0.5 * 1000 + 0.5 * (500 + 250))


def test_a_part_goes_beside_the_part_that_it_completes():
    mix = pod_mix([WHOLE, HALF, HALF])

    assert scored(room(500, 1000), HALF, mix, offers=2).gpu == 0
    assert scored(room(500), HALF, mix, 2).value > scored(room(1000), HALF, mix, 2).value


def test_a_gap_that_nobody_fits_into_loses_nothing_more():
    mix = pod_mix([WHOLE, LARGE_PART, PodAsk(0.0, 0.0, 1, 160, ANY_MODEL)])
    small = PodAsk(0.0, 0.0, 1, 100, ANY_MODEL)

    # 150 free is too little for anybody; 190 free is what the rare small ones need
    assert scored(room(190, 150), small, mix).gpu == 1


def test_gpus_of_a_node_short_of_cpu_count_less():
    mix = pod_mix([PodAsk(12_000.0, 0.0, 1, 1000, ANY_MODEL)])
    fill = expected_fill(mix, 0, 20)

    enough, short = (usable_milli(room(1000, 1000, cpu_milli=cpu), mix, fill) for cpu in (24_000.0, 6_000.0))
    assert enough == pytest.approx(2000)
    assert short < 0.4 * enough


def test_a_node_stays_whole_for_pods_of_several_gpus():
    mix = pod_mix([HALF, HALF, PodAsk(0.0, 0.0, 4, 1000, ANY_MODEL)])

    assert scored(room(500, 1000, 1000, 1000), HALF, mix).value > scored(room(1000, 1000, 1000, 1000), HALF, mix).value


@given(place=rooms, others=st.lists(pods, min_size=1, max_size=6), pod=pods, offers=st.integers(0, 8))
def test_nothing_is_promised_that_is_not_there(place, others, pod, offers):
    mix = pod_mix(others)
    fill = expected_fill(mix, 0, offers)

    assert all(0 <= used <= 10 * step + 1e-6 for step, used in enumerate(fill.gpu_milli))
    assert usable_milli(place, mix, fill) >= 0
    if fits(place, pod):
        score = least_lost(place, pod, mix, fill, usable_milli(place, mix, fill))
        left = left_after(place, pod, score.gpu)
        assert (left.gpu_milli >= 0).all()
        assert left.cpu_milli >= 0
        assert left.memory_mib >= 0
        # no GPU is cut but the one that a part was asked of, and nothing but what was asked for is gone
        assert place.gpu_milli.sum() - left.gpu_milli.sum() == pod.gpus * pod.gpu_milli


@given(place=rooms, pod=pods)
def test_more_room_never_takes_a_pod_away(place, pod):
    more = NodeRoom(place.cpu_milli + 1000, place.memory_mib + 1000, np.append(place.gpu_milli, 1000), 0)

    assert fits(more, pod) or not fits(place, pod)
