"""Several metrics of one autoscaler, worked by hand after Kubernetes' computeReplicasForMetrics."""

import pytest

from trimtab.policies.keda import KedaPolicy, keda_memory, keda_step
from trimtab.policies.scaling import (
    GUARD_HALF_LIFE_S,
    GUARD_MOST,
    MISSING,
    HpaPolicy,
    Metric,
    Observation,
    Others,
    Tolerance,
    average_value,
    guard,
    guard_times,
    guarded_replicas,
    hpa_memory,
    hpa_recommendation,
    hpa_step,
    per_ready_pod,
)

NAN = float("nan")
TENTH = Tolerance(0.1, 0.1)


def seen(step=0, ready=4, starting=0, load=2.0, duty=0.5, backlog=0.0, signal=NAN):
    return Observation(step, ready, starting, load, duty, backlog, signal)


def policy(metric=Metric.DEMAND, target=0.5, **others):
    return HpaPolicy(target, 1, 100, metric, others=Others(**others))


@pytest.mark.parametrize(
    ("load", "duty", "wanted"),
    [
        (2.0, 0.5, 4),  # both at their targets: 4
        (4.0, 0.5, 8),  # demand asks for 4 / 0.5 = 8, the busy share for 4
        (2.0, 0.9, 8),  # the busy share asks for ceil(0.9 / 0.5 x 4) = 8, demand for 4
        (1.0, 0.4, 4),  # demand asks for 2, the busy share for ceil(3.2) = 4
        (1.0, 0.2, 2),  # both ask for 2
    ],
)
def test_the_highest_recommendation_counts(load, duty, wanted):
    assert hpa_recommendation(policy(duty_cycle_frac=0.5), seen(load=load, duty=duty)) == wanted


def test_a_missing_metric_does_not_stop_a_rise():
    assert hpa_recommendation(policy(duty_cycle_frac=0.5), seen(load=4.0, duty=NAN)) == 8
    assert hpa_recommendation(policy(duty_cycle_frac=0.5), seen(load=NAN, duty=0.9)) == 8


def test_a_missing_metric_stops_a_fall():
    assert hpa_recommendation(policy(duty_cycle_frac=0.5), seen(load=0.5, duty=NAN)) == MISSING
    assert hpa_recommendation(policy(duty_cycle_frac=0.5), seen(load=NAN, duty=0.1)) == MISSING


def test_a_missing_metric_leaves_what_asks_for_no_change():
    assert hpa_recommendation(policy(duty_cycle_frac=0.5), seen(load=2.0, duty=NAN)) == 4


def test_with_every_metric_missing_nothing_may_be_done():
    assert (
        hpa_recommendation(policy(duty_cycle_frac=0.5, queue_replica_s=5.0), seen(load=NAN, duty=NAN, backlog=NAN))
        == MISSING
    )


def test_a_decision_without_metrics_changes_nothing_and_is_not_remembered():
    """The controller returns before it records a recommendation: 300 s later the fall is free at once."""
    one = HpaPolicy(0.5, 1, 100)
    memory = hpa_memory(one)
    assert hpa_step(one, memory, seen(load=2.0)) == 4

    assert {hpa_step(one, memory, seen(step, load=NAN)) for step in range(1, 21)} == {4}
    assert hpa_step(one, memory, seen(21, load=0.5)) == 1


def test_bounds_hold_without_any_metric_and_none_stays_none():
    one = HpaPolicy(0.5, 2, 5)
    assert hpa_step(one, hpa_memory(one), seen(ready=1, load=NAN)) == 2
    assert hpa_step(one, hpa_memory(one), seen(ready=9, load=NAN)) == 5
    assert hpa_step(one, hpa_memory(one), seen(ready=0, load=NAN)) == 0


def test_a_queue_is_divided_by_its_average_value_whatever_is_ready():
    one = policy(metric=Metric.SIGNAL, target=1.0, queue_replica_s=10.0)
    assert hpa_recommendation(one, seen(signal=2.0, backlog=55.0)) == 6
    assert hpa_recommendation(one, seen(ready=0, load=0.0, signal=0.0, backlog=5.0)) == 1


def test_a_guard_asks_for_nothing_within_its_limit_and_in_proportion_beyond():
    assert guard(0.99, 8) == 0
    assert guard(1.5, 8) == 12
    assert guard(7.0, 8) == 16


def test_a_guard_on_latency_remembers_and_lets_go_by_halves():
    # 6 replicas for a load of 3 at a target of 75 %, which asks for 4
    times = guard_times(1.0, 6.0, 3.0, 0.75, 15)
    assert times == 1.5
    assert guarded_replicas(times, 3.0, 0.75) == 6
    # the load has doubled, and with it what is asked for
    assert guarded_replicas(times, 6.0, 0.75) == 12
    for _ in range(GUARD_HALF_LIFE_S // 15):
        times = guard_times(times, 0.0, 3.0, 0.75, 15)
    assert times == pytest.approx(1.25)
    assert guarded_replicas(1.1, 3.0, 0.75) == 0


def test_a_guard_on_latency_asks_for_no_more_than_twice_what_the_load_asks_for():
    assert guard_times(1.0, 40.0, 3.0, 0.75, 15) == GUARD_MOST
    # fewer replicas than the load asks for were late: nothing is learned
    assert guard_times(1.0, 3.0, 3.0, 0.75, 15) == 1.0
    # without load there is nothing to be in proportion to
    assert guarded_replicas(guard_times(1.0, 6.0, 0.0, 0.75, 15), 0.0, 0.75) == 0


def test_waiting_beyond_its_limit_adds_replicas_where_demand_asks_for_none():
    calm = policy(target=0.8, wait_s=1.0)
    # 6 replica-seconds before 4 replicas: 1.5 s of waiting, so 6 replicas; demand asks for (1 + 6 / 15) / 0.8 = 2
    assert hpa_recommendation(calm, seen(load=1.0, backlog=6.0)) == 6
    assert hpa_recommendation(calm, seen(load=1.0, backlog=3.9)) == 2


@pytest.mark.parametrize(
    ("wanted", "current", "given"), [(4.4, 4, 4), (4.5, 4, 5), (3.6, 4, 4), (3.5, 4, 4), (3.0, 4, 3), (0.2, 0, 1)]
)
def test_an_average_value_keeps_still_within_the_tolerance(wanted, current, given):
    assert average_value(wanted, current, TENTH) == given


def test_pods_that_start_count_as_idle():
    assert per_ready_pod(2.0, 4, 6, TENTH) == 8
    assert per_ready_pod(2.0, 4, 8, TENTH) == 8


def test_any_keda_trigger_wakes_and_the_highest_scales():
    composite = KedaPolicy(HpaPolicy(0.9, 0, 10, others=Others(queue_replica_s=5.0, kv_cache_frac=0.9, wait_s=2.0)))
    memory = keda_memory(composite)

    assert keda_step(composite, memory, seen(0, ready=0, load=0.0, backlog=1.0)) == 1
    assert keda_step(composite, memory, seen(1, ready=1, load=0.2, duty=0.2, backlog=15.0)) == 3  # the queue
    assert (
        keda_step(composite, memory, seen(2, ready=3, load=1.0, duty=1.0, backlog=0.0)) == 4
    )  # the cache: 3 x 1 / 0.9
