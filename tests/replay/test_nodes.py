"""Which nodes are up while replicas come and go."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, strategies as st

from trimtab.policies.scaling import NO_LIMIT
from trimtab.replay.nodes import CountRuns, bill_each_node
from trimtab.replay.services import ServiceModel, least_seconds_held, seconds_held

RUNS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 300)), min_size=1, max_size=8)
"""Counts, and for how many steps each is held."""
COURSES = st.lists(st.integers(0, 9), min_size=1, max_size=400) | RUNS.map(
    lambda runs: [count for count, steps in runs for _ in range(steps)]
)


def billed(held, replicas_per_node=1.0, kept_steps=0):
    return CountRuns.of(np.array(held, dtype=np.int32)).node_seconds(replicas_per_node, kept_steps)


def test_an_empty_node_is_billed_until_it_is_given_back():
    nodes = billed([2, 1, 1, 1, 1, 2, 0, 0, 0], kept_steps=2)

    assert nodes.tolist() == [(2 + 2 + 2 + 1 + 1 + 2 + 2 + 2 + 0) * 15]


def test_replicas_that_share_a_node_leave_it_empty_together():
    nodes = billed([3, 2, 1, 0, 0], replicas_per_node=2.0, kept_steps=1)

    assert nodes.tolist() == [(2 + 2 + 1 + 1 + 0) * 15]


@given(held=COURSES, replicas_per_node=st.sampled_from([0.5, 1.0, 2.0, 3.0, 8.0]), kept_steps=st.integers(0, 500))
def test_as_many_nodes_are_up_as_were_needed_at_most_within_the_time_that_an_empty_one_is_kept(
    held, replicas_per_node, kept_steps
):
    needed = [math.ceil(count / replicas_per_node) for count in held]
    up = [max(needed[max(0, step - kept_steps) : step + 1]) for step in range(len(held))]

    nodes = billed(held, replicas_per_node, kept_steps)

    assert nodes.tolist() == [sum(up[at : at + 240]) * 15 for at in range(0, len(held), 240)]


def stood(held, per_node, kept_steps=0, *, start_steps=(0, 0), spreads=True, moves=False):
    seconds = np.zeros(math.ceil(len(held) * 15 / 3600), dtype=np.int64)
    bill_each_node(np.array(held, dtype=np.int32), per_node, kept_steps, start_steps, spreads, moves, seconds)
    return seconds


def by_hour(counts):
    return np.repeat(counts, 240)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=60),
    st.integers(1, 8),
    st.integers(0, 40),
    st.booleans(),
    st.booleans(),
)
def test_nodes_are_those_needed_at_least_and_never_more_than_were_needed_at_once(held, per_node, kept, spreads, moves):
    nodes = stood(by_hour(held), per_node, kept, spreads=spreads, moves=moves) / 3600

    needed = -(-np.array(held) // per_node)
    assert (nodes >= needed).all()
    assert (nodes <= np.maximum.accumulate(needed)).all()


def test_replicas_that_go_leave_nodes_half_full_where_nothing_moves_them():
    # eight on two nodes, then four: two on each, for the fullest node loses one each time
    assert (stood(by_hour([8, 4, 2, 1]), 4) / 3600).tolist() == [2, 2, 2, 1]
    # with an autoscaler that moves them, the second node is drained ten minutes after the last change, and goes at once
    assert stood(by_hour([8, 4]), 4, 40, moves=True).tolist() == [7200, 3600 + 600]


def test_a_node_that_was_long_left_alone_is_drained_as_soon_as_others_have_room():
    # 4 and 1: the fullest loses one, and the other, on which nothing changed for an hour, fits beside what is left
    assert stood(by_hour([5, 4]), 4, 40, moves=True).tolist() == [7200, 3600]


def test_a_drained_node_takes_no_new_replica():
    # one more comes right after the drain: it needs a node that boots, and not the one that was just left
    held = [*by_hour([5]), *[4] * 2, *[5] * 238]

    assert stood(held, 4, 40, moves=True).tolist() == [7200, 7200 - 2 * 15]


def test_replicas_that_are_not_ready_go_first():
    # a fifth needs a node of its own, which becomes empty if it goes before it is ready, and keeps a replica if after
    held = [*[4] * 120, *[5] * 20, *[4] * 100]

    young, ready = stood(held, 4, start_steps=(30, 10)), stood(held, 4, start_steps=(15, 5))

    assert (young.tolist(), ready.tolist()) == ([3600 + 20 * 15], [3600 + 120 * 15])


MODEL = ServiceModel(
    capacity_req_s=1.0,
    gpus_per_replica=1.0,
    gpus_per_node=1,
    cold_start_s=300.0,
    load_grid=np.array([0.0, 1.0]),
    ok_frac=np.ones((0, 2)),
    wait_limit_s=np.zeros(0),
    empty_node_kept_s=600.0,
)


@given(
    held=COURSES,
    fewer=st.lists(st.integers(0, 9), min_size=1, max_size=20),
    per_node=st.sampled_from([1, 2, 3, 8]),
    gpus=st.sampled_from([1.0, 0.5, 2.0]),
    spreads=st.booleans(),
    moves=st.booleans(),
)
def test_the_least_is_never_more_than_any_way_to_place_as_many_replicas_or_more(
    held, fewer, per_node, gpus, spreads, moves
):
    model = replace(MODEL, gpus_per_replica=gpus, gpus_per_node=per_node)
    more = np.array(held, dtype=np.int32)
    less = np.minimum(more, np.resize(np.array(fewer, dtype=np.int32), len(more)))

    least, _ = least_seconds_held(model, CountRuns.of(less))
    nodes, gpu_seconds = seconds_held(model, CountRuns.of(more), spreads=spreads, moves=moves)

    assert (least <= nodes).all()
    assert gpu_seconds.tolist() == [round(sum(held[at : at + 240]) * 15 * gpus) for at in range(0, len(held), 240)]


def test_the_most_replicas_that_a_rule_may_ask_for_are_added_up_exactly():
    _, gpu_seconds = seconds_held(MODEL, CountRuns.constant(NO_LIMIT, 300))

    assert gpu_seconds.tolist() == [240 * 15 * NO_LIMIT, 60 * 15 * NO_LIMIT]
