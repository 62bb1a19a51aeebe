"""KEDA, Knative, saturation and timetables: the moments at which they differ from the HPA."""

import pytest

from trimtab.policies.keda import KedaPolicy, cron_step, keda_memory, keda_step
from trimtab.policies.scaling import HpaPolicy, Observation
from trimtab.policies.serving_stacks import (
    PLANNER_MEMORY,
    KnativePolicy,
    OutstandingPolicy,
    PlannerPolicy,
    ReplicaTokens,
    SaturationPolicy,
    TokenAwarePolicy,
    TokenVelocityPolicy,
    knative_memory,
    knative_step,
    outstanding,
    outstanding_memory,
    outstanding_step,
    planner_step,
    saturation_step,
    token_aware_memory,
    token_aware_step,
    token_saturation,
    token_saturation_memory,
    token_saturation_step,
    token_velocity_step,
)

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


def test_tokens_in_work_follow_the_load_by_littles_law_and_waiting_work_adds_its_prompts():
    tokens = ReplicaTokens(fixed_frac=0.5, queue_s=10.0)

    # n = r f / (1 - r (1 - f)): at a load of 0.8, 0.4 / 0.6 of a full batch on each of three replicas
    assert outstanding(tokens, seen(0, ready=3, duty=0.8)) == pytest.approx(2.0)
    assert outstanding(tokens, seen(0, ready=1, duty=1.0, backlog=20.0)) == pytest.approx(3.0)


def test_saturation_by_tokens_asks_for_all_that_it_takes_once_it_has_stood_for_four_minutes():
    policy = token_saturation(1, 100)
    memory = token_saturation_memory(policy)
    quiet = [seen(step, ready=4, duty=0.75) for step in range(16)]
    busy = [seen(16 + step, ready=4, duty=1.0, backlog=30.0) for step in range(17)]

    wanted = [token_saturation_step(policy, memory, each) for each in quiet + busy]

    # six replicas of tokens over 0.85 are 7.06; windows of 16 decisions
    assert wanted[:31] == [4] * 31
    assert wanted[31] == 8


def test_saturation_by_tokens_counts_those_that_start_and_gives_back_whole_replicas():
    policy = token_saturation(1, 100)

    def first(**how):
        return token_saturation_step(policy, token_saturation_memory(policy), seen(0, **how))

    assert first(ready=4, starting=4, duty=1.0, backlog=30.0) == 8
    # 3 of 10 over 0.70 leave 5.7
    assert first(ready=10, duty=0.3) == 5
    assert first(ready=10, duty=0.75) == 10


def test_the_planner_plans_for_the_mean_of_its_interval():
    policy, memory = PlannerPolicy(1, 100, engine_load=0.8), [0.0] * PLANNER_MEMORY

    wanted = [planner_step(policy, memory, seen(step, ready=2, load=4.0 + step % 2)) for step in range(14)]

    # 4.5 over 0.8 is 5.6; a plan is made with the twelfth decision
    assert wanted == [2] * 11 + [6] * 3


def test_the_planner_with_load_scaling_moves_by_one_above_its_floor_and_not_while_one_starts():
    policy, memory = PlannerPolicy(1, 100, scales_by_load=True), [0.0, 0.0, 3.0]

    assert planner_step(policy, memory, seen(0, ready=4, duty=1.0, backlog=30.0)) == 5
    assert planner_step(policy, memory, seen(1, ready=4, starting=1, duty=1.0, backlog=30.0)) == 5
    assert planner_step(policy, memory, seen(2, ready=4, duty=0.5)) == 3
    assert planner_step(policy, memory, seen(3, ready=3, duty=0.1)) == 3


def test_an_autoscaler_on_outstanding_tokens_aims_at_a_share_of_a_full_replica():
    policy = OutstandingPolicy(HpaPolicy(0.5, 1, 100), ReplicaTokens(fixed_frac=1.0, queue_s=10.0))

    # two replicas of tokens in work and one waiting, at half of a replica each
    assert outstanding_step(policy, outstanding_memory(policy), seen(0, ready=2, duty=1.0, backlog=10.0)) == 6


def test_a_timetable_rises_early_and_falls_on_time():
    by_hour = [1] * 8 + [5] * 10 + [1] * 6

    assert cron_step(by_hour, 300, 8 * 3600 - 301) == 1
    assert cron_step(by_hour, 300, 8 * 3600 - 300) == 5
    assert cron_step(by_hour, 300, 18 * 3600 - 1) == 5
    assert cron_step(by_hour, 300, 18 * 3600) == 1


def test_token_aware_follows_the_trigger_that_asks_for_more():
    policy = TokenAwarePolicy(HpaPolicy(1.0, 1, 20), prompt_frac=0.5)

    waiting = token_aware_step(policy, token_aware_memory(policy), seen(ready=2, load=1.0, duty=0.4, backlog=9.0))
    full = token_aware_step(policy, token_aware_memory(policy), seen(ready=4, load=4.0, duty=1.0))
    calm = token_aware_step(policy, token_aware_memory(policy), seen(ready=2, load=1.6, duty=0.8))

    # 9 s of waiting work, half of it prompts, at 1.5 s a replica; 4 full caches at 0.8 each; 1.6 caches at 0.8 each
    assert waiting == 3
    assert full == 5
    assert calm == 2


def test_token_aware_changes_nothing_while_its_metrics_are_absent():
    policy = TokenAwarePolicy(HpaPolicy(1.0, 1, 20))
    assert token_aware_step(policy, token_aware_memory(policy), seen(ready=3, load=NAN)) == 3


def test_token_velocity_has_replicas_for_the_tokens_that_arrive_and_none_for_those_that_wait():
    policy = TokenVelocityPolicy(1, 20, engine_load=0.8)

    assert token_velocity_step(policy, seen(ready=2, load=4.0)) == 5
    assert token_velocity_step(policy, seen(ready=8, load=0.0, backlog=60.0)) == 1
    assert token_velocity_step(policy, seen(ready=3, starting=1, load=NAN)) == 4
