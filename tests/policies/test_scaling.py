"""The HPA rule, number by number as Kubernetes documents it."""

import pytest

from trimtab.policies.scaling import HpaPolicy, Metric, Observation, hpa_memory, hpa_step, window_steps

DUTY = HpaPolicy(target_frac=0.5, min_replicas=1, max_replicas=100, metric=Metric.DUTY_CYCLE)


def seen(step=0, ready=4, starting=0, duty=0.5, load=2.0, backlog=0.0, signal=float("nan")):
    return Observation(step, ready, starting, load, duty, backlog, signal)


def decide_all(policy, observations):
    memory = hpa_memory(policy)
    return [hpa_step(policy, memory, observation) for observation in observations]


@pytest.mark.parametrize(
    ("duty", "wanted"),
    [(0.5, 4), (0.55, 4), (0.56, 5), (1.0, 8), (0.46, 4)],
)
def test_replicas_follow_the_ratio_outside_the_tolerance(duty, wanted):
    assert decide_all(DUTY, [seen(duty=duty)]) == [wanted]


def test_scale_down_waits_for_the_highest_recommendation_of_five_minutes():
    busy = seen(duty=0.5)
    idle = [seen(duty=0.125) for _ in range(21)]

    decisions = decide_all(DUTY, [busy, *idle])

    assert decisions[:20] == [4] * 20
    assert decisions[20] == 1


def test_a_higher_recommendation_restarts_the_wait():
    observations = [seen(duty=0.5)] + [seen(duty=0.25)] * 15 + [seen(duty=0.375)] + [seen(duty=0.25)] * 20

    decisions = decide_all(DUTY, observations)

    assert decisions[20:36] == [3] * 16
    assert decisions[36] == 2


def test_pods_that_are_not_ready_count_as_idle_on_the_way_up():
    # 2.0 x the target over 4 ready pods is 8 pods' work; spread over 4 + 2 it is 1.33 x, so 8 again, not 12
    assert decide_all(DUTY, [seen(ready=4, starting=2, duty=1.0)]) == [8]


def test_pods_that_are_not_ready_cancel_a_rise_that_they_will_cover():
    assert decide_all(DUTY, [seen(ready=4, starting=4, duty=1.0)]) == [8]


def test_a_rise_is_at_most_double_or_four_pods():
    policy = DUTY._replace(target_frac=0.01)
    assert decide_all(policy, [seen(ready=2, duty=1.0)]) == [6]
    assert decide_all(policy, [seen(ready=10, duty=1.0)]) == [20]


def test_a_longer_period_counts_what_was_added_within_it():
    policy = DUTY._replace(target_frac=0.01, up_frac=0.0, up_pods=3, period_s=60)

    assert decide_all(policy, [seen(ready=4, duty=1.0), seen(ready=7, duty=1.0)]) == [7, 7]


def test_an_up_window_waits_for_the_lowest_recommendation():
    policy = DUTY._replace(up_stabilization_s=45)

    decisions = decide_all(policy, [seen(duty=0.5)] + [seen(duty=1.0)] * 3)

    assert decisions == [4, 4, 4, 8]


def test_replicas_stay_within_their_limits():
    policy = DUTY._replace(min_replicas=3, max_replicas=5)
    assert decide_all(policy, [seen(duty=1.0)]) == [5]
    assert decide_all(policy._replace(down_stabilization_s=0), [seen(duty=0.01)]) == [3]


def test_a_signal_is_rounded_up_whatever_is_ready():
    policy = HpaPolicy(1.0, 1, 100, metric=Metric.SIGNAL, tolerance_up_frac=0.0, tolerance_down_frac=0.0)
    assert decide_all(policy, [seen(ready=4, starting=1, signal=5.2)]) == [6]


def test_a_missing_metric_moves_nothing():
    nan = float("nan")
    assert decide_all(DUTY, [seen(load=nan)]) == [4]
    assert decide_all(DUTY._replace(metric=Metric.SIGNAL), [seen(signal=nan)]) == [4]


def test_a_window_counts_the_present_decision():
    assert [window_steps(s) for s in (0, 15, 16, 300)] == [1, 1, 2, 20]


def test_a_duty_cycle_with_a_window_counts_as_its_mean():
    policy = DUTY._replace(window_s=60)

    assert decide_all(policy, [seen(duty=0.5)] * 3 + [seen(duty=0.9)])[-1] == 5
    assert decide_all(DUTY, [seen(duty=0.5)] * 3 + [seen(duty=0.9)])[-1] == 8


def test_a_duty_cycle_that_is_missing_now_holds_whatever_was_seen_before():
    assert (
        decide_all(DUTY._replace(window_s=60), [seen(duty=1.0, ready=4), seen(duty=float("nan"), load=float("nan"))])[
            -1
        ]
        == 4
    )
