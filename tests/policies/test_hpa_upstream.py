"""The controller's own tables: kubernetes/kubernetes, pkg/controller/podautoscaler.

Of horizontal_test.go (003e8629) the table of `convertDesiredReplicasWithBehaviorRate` (behaviours with earlier events) and
`TestNormalizeDesiredReplicasWithBehavior` (stabilization), as far as both directions have one period; events lie within it. Of
replica_calculator_test.go (00067268) `TestReplicaCalc...` of pods that are ready or not. Not modelled: a pod that is ready and
has no metric.
"""

import math

import pytest

from trimtab.policies.scaling import (
    NO_LIMIT,
    SYNC_S,
    HpaPolicy,
    Observation,
    Tolerance,
    amend,
    average_value,
    hpa_memory,
    hpa_step,
    per_ready_pod,
    push_for_highest,
    push_for_sum,
    rate_limited,
    ring_end,
    stabilized,
)

NEVER = 0.0


def policy(*, low=1, high=1000, up=(4, 100), down=(0, 100), period_s=60, up_stable_s=0, down_stable_s=300):
    """An HPA with (pods, percent) by direction."""
    return HpaPolicy(
        target_frac=0.5,
        min_replicas=low,
        max_replicas=high,
        up_pods=up[0],
        up_frac=up[1] / 100,
        down_pods=down[0],
        down_frac=down[1] / 100,
        period_s=period_s,
        up_stabilization_s=up_stable_s,
        down_stabilization_s=down_stable_s,
    )


def limited(hpa, current, desired, added=(), removed=()):
    """What the behaviours leave of a wish, after earlier events within the period."""
    memory = hpa_memory(hpa)
    added_ring = ring_end(memory, ring_end(memory, 0))
    for ring, events in ((added_ring, added), (ring_end(memory, added_ring), removed)):
        for event in events:
            push_for_sum(memory, ring, 0.0)
            amend(memory, ring, float(event))
    return rate_limited(hpa, memory, min(max(desired, hpa.min_replicas), hpa.max_replicas), current)


UP = [
    (policy(up=(30, 0)), 10, 50, (), (), 40),
    (policy(up=(0, 200)), 10, 50, (), (), 30),
    (policy(high=200, up=(300, 0)), 100, 500, (1, 5, 9), (), 200),
    (policy(high=200, up=(0, 10000)), 100, 500, (1, 5, 9), (), 200),
    (policy(up=(5, 0), period_s=120), 100, 500, (1, 5, 9), (), 100),
    (policy(up=(150, 0), period_s=120), 100, 500, (1, 5, 9), (), 235),
    (policy(up=(0, 200), period_s=120), 100, 500, (1, 5, 9), (), 255),
    (policy(up=(0, 300), period_s=300), 6, 24, (4,), (2,), 16),
]
DOWN = [
    (policy(down=(20, 1)), 100, 2, (), (), 80),
    (policy(down=(2, 1)), 100, 2, (), (), 98),
    (policy(down=(100, 0)), 10, 0, (), (), 1),
    (policy(low=5, down=(0, 100)), 10, 2, (), (), 5),
    (policy(down=(5, 0)), 10, 2, (), (), 5),
    (policy(down=(0, 50)), 10, 5, (), (), 5),
    (policy(), 10, 5, (), (1, 5, 9), 5),
    (policy(down=(115, 0), period_s=120), 100, 0, (), (1, 5, 9), 1),
    (policy(low=5, down=(130, 0), period_s=120), 100, 0, (), (1, 5, 9), 5),
    (policy(low=5, down=(0, 100), period_s=120), 100, 2, (), (1, 5, 9), 5),
    (policy(down=(5, 0), period_s=120), 100, 2, (), (1, 5, 9), 100),
    (policy(down=(0, 50), period_s=120), 100, 0, (), (2, 4, 6), 56),
    (policy(down=(0, 50), period_s=180), 10, 1, (2,), (4,), 6),
    (policy(down=(0, 10), period_s=120), 100, 0, (), (10, 10, 10), 100),
    (policy(down=(0, 1000), period_s=120), 10, 5, (), (10, 10, 10), 5),
]


@pytest.mark.parametrize(("hpa", "current", "desired", "added", "removed", "expected"), [*UP, *DOWN])
def test_behaviours_allow_what_the_controller_allows(hpa, current, desired, added, removed, expected):
    assert limited(hpa, current, desired, added, removed) == expected


# (recommendations as (replicas, seconds ago)), current, desired, up window, down window, expected
STABLE = [
    ([], 100, 5, 0, 0, 5),
    ([(4, 120), (5, 60)], 100, 3, 0, 180, 5),
    ([(4, 120), (5, 60)], 1, 7, 300, 0, 4),
    ([(1, 120), (2, 60)], 100, 3, 300, 0, 3),
    ([(4, 120), (5, 60)], 1, 3, 0, 300, 3),
    ([(10, 600), (9, 540)], 100, 3, 0, 0, 3),
    ([(10, 600), (9, 540)], 1, 100, 0, 0, 100),
    ([(10, 600), (9, 540), (5, 120), (4, 60)], 100, 3, 0, 180, 5),
    ([(10, 6000), (9, 180), (5, 120), (6, 60)], 1, 100, 300, 0, 5),
    ([(2, 6000), (3, 180)], 2, 1, 300, 300, 2),
    ([(2, 6000), (1, 180)], 2, 3, 300, 300, 2),
]


@pytest.mark.parametrize(("before", "current", "desired", "up_s", "down_s", "expected"), STABLE)
def test_stabilization_moves_as_far_as_the_controller_does(before, current, desired, up_s, down_s, expected):
    memory = hpa_memory(policy(up_stable_s=up_s, down_stable_s=down_s))
    told = {ago_s // SYNC_S: replicas for replicas, ago_s in before}
    for step in range(max(told, default=0), 0, -1):
        # between recommendations the controller got no metric
        push_for_highest(memory, 0, float(told.get(step, NEVER)))
        push_for_highest(memory, ring_end(memory, 0), -float(told.get(step, NO_LIMIT)))

    assert stabilized(memory, desired, current) == expected


# usage over its target, ready pods, all pods, expected
READY = [
    (50 / 30, 3, 3, 5),
    (60 / 30, 2, 3, 4),
    (40 / 30, 1, 3, 3),
    (60 / 30, 2, 2, 4),
    (20 / 15, 3, 3, 4),
    (28 / 50, 5, 5, 3),
    (30 / 50, 3, 5, 2),
    (10 / 50, 1, 5, 1),
    (12 / 20, 5, 5, 3),
    (1.02, 3, 3, 3),
    (20666 / 20000, 3, 3, 3),
]
# a sum over its target of each pod, all pods, expected
SUMS = [
    (20000 / 5000, 3, 4),
    (8600 / 2150, 3, 4),
    (6000 / 2000, 5, 3),
    (8600 / 2867, 5, 3),
    (20166 / 5000, 4, 4),
    (8600 / 2900, 3, 3),
]


@pytest.mark.parametrize(("ratio", "ready", "current", "expected"), READY)
def test_a_mean_over_ready_pods_asks_for_what_the_controller_asks(ratio, ready, current, expected):
    assert per_ready_pod(ratio, ready, current, Tolerance(0.1, 0.1)) == expected


@pytest.mark.parametrize(("wanted", "current", "expected"), SUMS)
def test_a_sum_with_an_average_value_asks_for_what_the_controller_asks(wanted, current, expected):
    assert average_value(wanted, current, Tolerance(0.1, 0.1)) == expected


def seen(replicas):
    return Observation(
        step=0, ready=replicas, starting=0, load=1.0, duty_cycle_frac=math.nan, backlog_replica_s=0.0, signal=math.nan,
        guarded_replicas=0.0,
    )  # fmt: skip


def test_replicas_outside_of_their_bounds_come_back_at_once_whatever_the_behaviours_allow():
    """`TestScaleUpRCImmediately` and `TestScaleDownRCImmediately`; the controller asks no metric and no behaviour there."""
    slow = policy(low=6, high=8, up=(1, 0), down=(1, 0))

    assert hpa_step(slow, hpa_memory(slow), seen(1)) == 6
    assert hpa_step(slow, hpa_memory(slow), seen(20)) == 8
