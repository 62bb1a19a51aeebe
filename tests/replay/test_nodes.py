"""Which nodes are up while replicas come and go."""

import math

import numpy as np
from hypothesis import given, strategies as st

from trimtab.replay.nodes import bill_nodes

RUNS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 300)), min_size=1, max_size=8)
"""Counts, and for how many steps each is held."""
COURSES = st.lists(st.integers(0, 9), min_size=1, max_size=400) | RUNS.map(
    lambda runs: [count for count, steps in runs for _ in range(steps)]
)


def billed(held, replicas_per_node=1.0, kept_steps=0):
    hours = math.ceil(len(held) * 15 / 3600)
    nodes, replicas = np.zeros(hours, dtype=np.int64), np.zeros(hours, dtype=np.int64)
    bill_nodes(np.array(held, dtype=np.int32), replicas_per_node, kept_steps, nodes, replicas)
    return nodes, replicas


def test_an_empty_node_is_billed_until_it_is_given_back():
    nodes, replicas = billed([2, 1, 1, 1, 1, 2, 0, 0, 0], kept_steps=2)

    assert nodes.tolist() == [(2 + 2 + 2 + 1 + 1 + 2 + 2 + 2 + 0) * 15]
    assert replicas.tolist() == [8 * 15]


def test_replicas_that_share_a_node_leave_it_empty_together():
    nodes, _ = billed([3, 2, 1, 0, 0], replicas_per_node=2.0, kept_steps=1)

    assert nodes.tolist() == [(2 + 2 + 1 + 1 + 0) * 15]


@given(held=COURSES, replicas_per_node=st.sampled_from([0.5, 1.0, 2.0, 3.0, 8.0]), kept_steps=st.integers(0, 500))
def test_as_many_nodes_are_up_as_were_needed_at_most_within_the_time_that_an_empty_one_is_kept(
    held, replicas_per_node, kept_steps
):
    needed = [math.ceil(count / replicas_per_node) for count in held]
    up = [max(needed[max(0, step - kept_steps) : step + 1]) for step in range(len(held))]

    nodes, replicas = billed(held, replicas_per_node, kept_steps)

    assert nodes.tolist() == [sum(up[at : at + 240]) * 15 for at in range(0, len(held), 240)]
    assert replicas.tolist() == [sum(held[at : at + 240]) * 15 for at in range(0, len(held), 240)]
