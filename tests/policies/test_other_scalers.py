"""KEDA, Knative, saturation and timetables: the moments at which they differ from the HPA."""

from trimtab.policies.cron import cron_step
from trimtab.policies.keda import KedaPolicy, keda_memory, keda_step
from trimtab.policies.knative import KnativePolicy, knative_memory, knative_step
from trimtab.policies.saturation import SaturationPolicy, saturation_step
from trimtab.policies.scaling import HpaPolicy, Observation

NAN = float("nan")


def seen(step=0, ready=1, starting=0, load=0.0, duty=0.0, backlog=0.0):
    return Observation(step, ready, starting, load, duty, backlog, NAN)


def test_keda_goes_to_none_after_a_whole_cooldown_without_activity():
    policy = KedaPolicy(HpaPolicy(0.7, 0, 10))
    memory = keda_memory(policy)

    decisions = [keda_step(policy, memory, seen(step)) for step in range(20)]

    assert decisions == [1] * 19 + [0]


def test_keda_wakes_at_a_poll_that_sees_a_queue():
    policy = KedaPolicy(HpaPolicy(0.7, 0, 10))
    memory = keda_memory(policy)

    assert keda_step(policy, memory, seen(step=1, ready=0, backlog=2.0)) == 0
    assert keda_step(policy, memory, seen(step=2, ready=0, backlog=2.0)) == 1


def test_keda_keeps_one_where_none_is_not_allowed():
    policy = KedaPolicy(HpaPolicy(0.7, 1, 10))
    memory = keda_memory(policy)
    assert {keda_step(policy, memory, seen(step)) for step in range(100)} == {1}


def test_keda_gives_up_no_replica_while_nobody_knows_whether_anybody_asks():
    policy = KedaPolicy(HpaPolicy(0.7, 0, 10))
    memory = keda_memory(policy)

    blind = {keda_step(policy, memory, seen(step, load=NAN)) for step in range(60)}

    assert blind == {1}
    assert keda_step(policy, memory, seen(60)) == 0  # the cooldown ran on


def test_keda_wakes_above_its_activation_value_only():
    policy = KedaPolicy(HpaPolicy(0.7, 0, 10), polling_s=15, activation_load=0.1)
    memory = keda_memory(policy)

    assert keda_step(policy, memory, seen(ready=0, load=0.1)) == 0
    assert keda_step(policy, memory, seen(ready=0, load=0.11)) == 1


def test_knative_averages_over_a_minute():
    policy = KnativePolicy(0.5, 1, 100)
    memory = knative_memory(policy)

    decisions = [knative_step(policy, memory, seen(step, ready=4, load=2.0)) for step in range(4)]
    quieter = knative_step(policy, memory, seen(4, ready=4, load=1.6))

    assert decisions == [4, 4, 4, 4]
    assert quieter == 4  # (2 + 2 + 2 + 1.6) / 4 / 0.5 = 3.8


def test_knative_panics_at_twice_the_ready_pods_and_does_not_shrink_in_panic():
    policy = KnativePolicy(0.5, 1, 100)
    memory = knative_memory(policy)

    surge = knative_step(policy, memory, seen(0, ready=2, load=4.0))
    after = [knative_step(policy, memory, seen(step, ready=8, load=0.5)) for step in range(1, 8)]

    assert surge == 8
    assert after[:3] == [8, 8, 8]
    assert after[-1] < 8


def test_knative_at_most_halves():
    policy = KnativePolicy(0.5, 1, 100)
    memory = knative_memory(policy)
    assert knative_step(policy, memory, seen(0, ready=9, load=0.1)) == 4


def test_saturation_moves_one_replica_at_a_time_and_waits_for_a_starting_one():
    policy = SaturationPolicy(1, 10)

    assert saturation_step(policy, seen(0, ready=4, duty=0.75)) == 5
    assert saturation_step(policy, seen(0, ready=4, starting=1, duty=0.95)) == 5
    assert saturation_step(policy, seen(0, ready=4, duty=0.5)) == 3
    assert saturation_step(policy, seen(0, ready=4, duty=0.6)) == 4
    assert saturation_step(policy, seen(1, ready=4, duty=0.95)) == 4


def test_a_timetable_rises_early_and_falls_on_time():
    by_hour = [1] * 8 + [5] * 10 + [1] * 6

    assert cron_step(by_hour, 300, 8 * 3600 - 301) == 1
    assert cron_step(by_hour, 300, 8 * 3600 - 300) == 5
    assert cron_step(by_hour, 300, 18 * 3600 - 1) == 5
    assert cron_step(by_hour, 300, 18 * 3600) == 1
