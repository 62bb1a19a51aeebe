"""KEDA's own cases of scaling to none and back: kedacore/keda, pkg/scaling/executor/scale_scaledobjects_test.go (1add38e0).

`RequestScale` gets whether a trigger is active and whether one failed; what it then sets is the expected result. A ScaledObject
in those tests was never active, so that no cooldown holds it. Also `TestGetHPAReplicas` of
apis/keda/v1alpha1/scaledobject_types_test.go: an HPA made by KEDA keeps one replica at least.
"""

import math

import pytest

from trimtab.policies.keda import KedaPolicy, keda_memory, keda_step
from trimtab.policies.scaling import SYNC_S, HpaPolicy, Observation


def seen(ready, load, step=0, backlog=0.0):
    return Observation(
        step=step, ready=ready, starting=0, load=load, duty_cycle_frac=min(load / max(ready, 1), 1.0),
        backlog_replica_s=backlog, signal=math.nan,
    )  # fmt: skip


def scaled_object(least, idles=False, **said):
    return KedaPolicy(HpaPolicy(0.7, least, 10), idles=idles, **said)


def first_request(policy, current, load):
    """The replicas after one poll, the cooldown being over."""
    memory = keda_memory(policy)
    memory[-1] = policy.cooldown_s
    return keda_step(policy, memory, seen(current, load))


ACTIVE, NOT_ACTIVE, ERROR = 0.1, 0.0, math.nan


@pytest.mark.parametrize(
    ("policy", "current", "load", "expected"),
    [
        # TestScaleToMinReplicasWhenNotActive
        (scaled_object(0), 10, NOT_ACTIVE, 0),
        # TestScaleToMinReplicasFromLowerInitialReplicaCount, and from none: there is no idle mode that would leave it
        (scaled_object(5), 1, NOT_ACTIVE, 5),
        (scaled_object(5), 0, NOT_ACTIVE, 5),
        # TestScaleFromMinReplicasWhenActive
        (scaled_object(0), 0, ACTIVE, 1),
        # TestScaleToIdleReplicasWhenNotActive
        (scaled_object(5, idles=True), 10, NOT_ACTIVE, 0),
        # TestScaleFromIdleToMinReplicasWhenActive
        (scaled_object(5, idles=True), 0, ACTIVE, 5),
        # TestRequestScale_ScalerError...: nothing goes to none, and nothing comes back
        (scaled_object(0), 10, ERROR, 10),
        (scaled_object(5), 0, ERROR, 0),
    ],
)
def test_a_poll_sets_what_keda_sets(policy, current, load, expected):
    assert first_request(policy, current, load) == expected


@pytest.mark.parametrize(("least", "expected"), [(0, 1), (5, 5)])
def test_while_it_is_active_its_autoscaler_keeps_one_replica_or_the_least(least, expected):
    policy = KedaPolicy(HpaPolicy(0.7, least, 100))
    memory = keda_memory(policy)

    held = [keda_step(policy, memory, seen(expected, 1e-6, step)) for step in range(40)]

    assert set(held) == {expected}


def test_activity_is_a_mean_above_the_threshold_and_not_at_it():
    """`val > ActivationThreshold` (pkg/scalers/prometheus_scaler.go), of a query over two minutes."""
    policy = scaled_object(
        0, polling_s=SYNC_S, activation_load=0.5, activation_window_s=120, activation_backlog_replica_s=math.inf
    )
    memory = keda_memory(policy)
    loads = [0.0] * 7 + [4.0, 0.1]

    held = [keda_step(policy, memory, seen(0, load, step, backlog=9.0)) for step, load in enumerate(loads)]

    # 4 in eight decisions are just the threshold; a little more within the same two minutes is above
    assert held == [0] * 8 + [1]


def test_the_cooldown_begins_when_the_window_holds_no_more_requests():
    policy = scaled_object(0, polling_s=SYNC_S, activation_window_s=120)
    memory = keda_memory(policy)
    keda_step(policy, memory, seen(1, 1.0))

    held = [keda_step(policy, memory, seen(1, 0.0, step)) for step in range(1, 40)]

    # seven more decisions see the request, and the twentieth after them is the last of the cooldown
    assert held.index(0) + 1 == 7 + 20
