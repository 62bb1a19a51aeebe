"""When a batch leaves: greedy for independent arrivals, waiting where arrivals come in clumps."""

from math import inf

import pytest
from hypothesis import given, strategies as st

from trimtab_runtime.policies.batching import (
    GO,
    OUTLIER,
    PROBE_IDLE,
    BatchRule,
    Cap,
    Cycle,
    Echo,
    Learned,
    Moment,
    Returns,
    Round,
    RunTime,
    base_s,
    decide,
    excess_frac,
    observe_cycle,
    observe_fit,
    observe_oom,
    observe_returns,
    observe_run,
    refusal_s,
    returning_frac,
    round_of,
    run_time_s,
    saving_s,
)

BASE_S, PER_ITEM_S = 0.005, 0.0001


def learned_time(*sizes: int) -> RunTime:
    time = RunTime()
    for _ in range(20):
        for size in sizes:
            time = observe_run(time, size, BASE_S + PER_ITEM_S * size)
    return time


def echo_of(cycle: Cycle, times: int = 50) -> Echo:
    echo = Echo()
    for _ in range(times):
        echo = observe_cycle(echo, cycle)
    return echo


def moment(**seen: float) -> Moment:
    usual = {"waiting": 1, "oldest_age_s": 0.0, "answered": 0, "since_answer_s": 1.0, "returned": 0}
    usual |= {"first_age_s": inf, "followed": 0}
    return Moment(**(usual | seen))


def returns_of(*rounds: Round, times: int = 50) -> Returns:
    returns = Returns()
    for _ in range(times):
        for seen in rounds:
            returns = observe_returns(returns, seen)
    return returns


def all_return(answered: int, return_s: float, length_s: float = 0.0066) -> Round:
    """What is seen where `answered` clients return one after another within `return_s`."""
    arrivals = [return_s * (number + 1) / answered for number in range(answered)]
    return round_of(arrivals, answered, 0.0, BASE_S, length_s)


CLOSED_LOOP = returns_of(all_return(16, 0.001))


def test_fixed_and_marginal_time_are_read_off_runs_of_different_sizes():
    time = learned_time(1, 16, 64)

    assert base_s(time) == pytest.approx(BASE_S, rel=1e-6)
    assert run_time_s(time, 32) == pytest.approx(BASE_S + PER_ITEM_S * 32, rel=1e-6)


def test_the_fixed_time_is_unknown_while_all_batches_had_one_size():
    assert base_s(learned_time(32)) == 0.0


def test_the_slope_is_remembered_when_batches_settle_on_one_size():
    time = learned_time(1, 32)
    for _ in range(500):
        time = observe_run(time, 32, BASE_S + PER_ITEM_S * 32)

    assert base_s(time) == pytest.approx(BASE_S, rel=0.01)


def test_one_paused_run_does_not_overturn_the_prediction():
    time = observe_run(learned_time(1, 32), 32, 2.0)

    assert run_time_s(time, 32) < 0.015


def test_a_full_batch_leaves_at_once():
    rule = BatchRule(max_batch=8, window_s=1.0, min_batch=8)

    assert decide(rule, RunTime(), Learned(), moment(waiting=8)) == GO


def test_a_batch_leaves_at_once_before_anything_is_learned():
    assert decide(BatchRule(), RunTime(), Learned(), moment()) == GO


def test_independent_arrivals_are_never_waited_for():
    burst = Cycle(early=9, later=11, span_s=0.0029, length_s=0.0066, horizon_s=0.003)
    rounds = [
        round_of([0.0066 * (at + 0.5) / arrived for at in range(arrived)], 20, 0.0, BASE_S, 0.0066)
        for arrived in (14, 26)  # 20 give or take about the square root of 2 x 20, as two independent numbers differ
    ]
    learned = Learned(returns_of(*rounds), echo_of(burst))
    now = moment(waiting=4, answered=20, since_answer_s=0.0, first_age_s=0.0)

    assert decide(BatchRule(), learned_time(1, 32), learned, now) == GO


def test_returning_clients_are_waited_for_until_all_are_back():
    learned = Learned(returns=CLOSED_LOOP)
    now = moment(waiting=16, answered=16, since_answer_s=0.0)

    decision = decide(BatchRule(), learned_time(1, 32), learned, now)

    assert decision.wake_at == 32
    assert 0 < decision.wait_s < BASE_S


def test_nobody_is_waited_for_once_all_clients_are_back():
    learned = Learned(returns=CLOSED_LOOP)
    now = moment(waiting=16, answered=16, since_answer_s=0.0005, returned=16)

    assert decide(BatchRule(), learned_time(1, 32), learned, now) == GO


def test_the_wait_ends_when_returns_are_overdue():
    learned = Learned(returns=CLOSED_LOOP)
    now = moment(waiting=16, answered=16, since_answer_s=0.004)

    assert decide(BatchRule(), learned_time(1, 32), learned, now) == GO


def test_a_return_that_takes_as_long_as_a_batch_saves_is_not_waited_for():
    slow = Learned(returns=returns_of(all_return(16, 0.96 * BASE_S)))
    now = moment(waiting=16, answered=16, since_answer_s=0.0)

    assert decide(BatchRule(), learned_time(1, 32), slow, now) == GO


def test_cohorts_that_would_return_too_slowly_together_are_not_joined():
    # 24 return within 3.6 ms, 6 within 0.9 ms: 30 would take 4.5 ms of the 5 ms that one batch less saves
    learned = Learned(returns=returns_of(all_return(24, 0.0036), all_return(6, 0.0009)))
    time = learned_time(6, 24)

    few = decide(BatchRule(), time, learned, moment(waiting=2, answered=24, since_answer_s=0.0))
    many = decide(BatchRule(), time, learned, moment(waiting=8, answered=24, since_answer_s=0.0))

    assert few.wake_at == 26
    assert many == GO


def test_the_time_of_a_return_goes_by_the_number_answered():
    learned = Learned(returns=returns_of(all_return(2, 0.0002), all_return(30, 0.0030)))
    time = learned_time(2, 30)

    short = decide(BatchRule(), time, learned, moment(waiting=30, answered=2, since_answer_s=0.0))
    long = decide(BatchRule(), time, learned, moment(waiting=2, answered=30, since_answer_s=0.0))

    assert short.wait_s < 0.0005
    assert 0.0030 < long.wait_s < 0.0040


def test_a_batch_that_room_leaves_half_filled_is_worth_half_a_wait():
    # of 32 answered 16 have room: half of the 5 ms that a batch less saves
    quick, slow = (Learned(returns=returns_of(all_return(32, span_s))) for span_s in (0.0020, 0.0026))
    rule, time = BatchRule(max_batch=32), learned_time(1, 32)
    now = moment(waiting=16, answered=32, since_answer_s=0.0)

    assert decide(rule, time, quick, now).wake_at == 32
    assert decide(rule, time, slow, now) == GO


def test_single_items_that_return_at_once_are_joined_before_the_fixed_time_is_known():
    learned = Learned(returns=returns_of(all_return(1, 0.0002, 0.0051)))
    time = learned_time(1)

    decision = decide(BatchRule(), time, learned, moment(waiting=1, answered=1, since_answer_s=0.0))

    assert base_s(time) == 0 < saving_s(time)
    assert decision.wake_at == 2


@given(st.lists(st.tuples(st.integers(0, 64), st.integers(1, 64)), min_size=1, max_size=60))
def test_the_share_that_returns_is_a_share(counts):
    rounds = [
        round_of([0.001 * at for at in range(arrived)], answered, 0.0, BASE_S, 0.1) for arrived, answered in counts
    ]

    assert 0 <= returning_frac(returns_of(*rounds, times=1)) <= 1


def test_the_rest_of_a_burst_is_waited_for():
    burst = Cycle(early=7, later=0, span_s=0.0005, length_s=0.006, horizon_s=0.003)
    learned = Learned(bursts=echo_of(burst))

    decision = decide(BatchRule(), learned_time(1, 32), learned, moment(first_age_s=0.0))

    assert decision.wake_at == 8


def test_no_wait_breaks_the_latency_target():
    learned = Learned(returns=CLOSED_LOOP)
    now = moment(waiting=16, answered=16, since_answer_s=0.0, oldest_age_s=0.006)

    late = decide(BatchRule(target_s=0.010), learned_time(1, 32), learned, now)
    tight = decide(BatchRule(target_s=0.0147), learned_time(1, 32), learned, now)

    assert late == GO
    assert tight.wait_s == pytest.approx(0.0147 - 0.006 - 0.0082, rel=0.01)


def test_a_window_holds_a_small_batch_back_for_what_is_left_of_it():
    rule = BatchRule(max_batch=64, min_batch=8, window_s=0.010)

    held = decide(rule, RunTime(), Learned(), moment(waiting=3, oldest_age_s=0.004))
    over = decide(rule, RunTime(), Learned(), moment(waiting=3, oldest_age_s=0.010))

    assert held.wait_s == pytest.approx(0.006)
    assert held.wake_at == 8
    assert over == GO


@given(
    st.floats(0, 1), st.floats(1e-4, 1e-2), st.integers(0, 64), st.integers(0, 64), st.floats(1e-4, 0.1),
    st.floats(0, 1e-2),
)  # fmt: skip
def test_the_share_explained_by_an_event_is_a_share(inside, horizon, early, later, length, span):
    cycle = Cycle(early=early, later=later, span_s=span, length_s=length, horizon_s=horizon)

    assert 0 <= excess_frac(echo_of(cycle, 10)) <= 1


@given(
    waiting=st.integers(1, 63), answered=st.integers(0, 64), since=st.floats(0, 0.01), returned=st.integers(0, 64),
    age=st.floats(0, 0.05), target=st.floats(0.006, 0.1),
)  # fmt: skip
def test_a_learned_wait_is_shorter_than_the_fixed_time_and_within_the_target(
    waiting, answered, since, returned, age, target
):
    time = learned_time(1, 32)
    now = moment(waiting=waiting, answered=answered, since_answer_s=since, returned=returned, oldest_age_s=age)

    decision = decide(BatchRule(target_s=target), time, Learned(returns=CLOSED_LOOP), now)

    assert decision.wait_s < base_s(time)
    assert decision.wait_s == 0 or age + decision.wait_s + run_time_s(time, decision.wake_at) <= target + 1e-9
    assert decision.wait_s == 0 or waiting < decision.wake_at <= 64


def test_out_of_memory_halves_the_cap_and_success_restores_it_in_the_end():
    cap = observe_oom(Cap(64), 64)
    assert cap.limit == 32

    for _ in range(cap.patience):
        cap = observe_fit(cap, 32, 64)

    assert cap.limit == 64


def test_a_cap_that_keeps_failing_is_tried_ever_more_rarely():
    cap = observe_oom(Cap(64), 64)
    first = cap.patience
    for _ in range(first):
        cap = observe_fit(cap, 32, 64)

    cap = observe_oom(cap, 64)

    assert cap == Cap(32, 2 * first, 0, True)


def test_small_batches_do_not_count_towards_a_larger_cap():
    cap = observe_oom(Cap(64), 64)

    assert observe_fit(cap, 5, 64) == cap


def test_a_cap_never_falls_below_one():
    assert observe_oom(Cap(1), 1).limit == 1


def learned(runs_s, size=8):
    time = RunTime()
    for run_s in runs_s:
        time = observe_run(time, size, run_s)
    return time


SECONDS = st.floats(1e-4, 10.0)


@given(st.lists(SECONDS, max_size=40), st.floats(1, 64), st.floats(0, 1e4))
def test_refusing_never_assumes_a_longer_run_than_planning(runs_s, size, idle_s):
    time = learned(runs_s)

    assert 0 <= refusal_s(time, size, idle_s) <= run_time_s(time, size)


@given(st.lists(SECONDS, min_size=1, max_size=40), st.floats(1, 64))
def test_after_a_rest_a_probe_goes_whatever_was_learned(runs_s, size):
    time = learned(runs_s)

    assert refusal_s(time, size, PROBE_IDLE * run_time_s(time, size) + 1e-3) == 0


@given(SECONDS, SECONDS, st.integers(8, 40))
def test_what_warming_up_took_is_forgotten(first_s, run_s, runs):
    time = learned([first_s] + [run_s] * runs)

    assert run_time_s(time, 8) <= max(run_s, min(first_s, OUTLIER * run_s)) * (1 + 1e-9)


def test_one_run_at_the_old_speed_ends_a_slow_phase():
    slow = learned([0.1] * 20)

    assert refusal_s(slow, 8, 0.0) == pytest.approx(0.1)
    assert refusal_s(observe_run(slow, 8, 0.01), 8, 0.0) < 0.011
