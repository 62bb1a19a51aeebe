"""The replay of an engine's scheduler: against the same scheduler step by step, queueing theory, and what it must keep."""

import numpy as np
import pytest
from benchmarks.reference.engine_steps import serve_step_by_step
from hypothesis import given, settings, strategies as st

from trimtab.errors import InputError
from trimtab.physics.serving import StepTimes
from trimtab.replay.engine import EngineLimits, Requests, Served, chosen, replay_engine, serve_requests, unserved

TICK_S = 1 / 1024
"""Times in these units add up without rounding, so that two ways of adding give the same bytes."""


def requests_of(arrival_s, input_tokens, output_tokens, cached_tokens=None):
    tokens = [np.array(column, dtype=np.int64) for column in (input_tokens, output_tokens)]
    cached = np.zeros(len(tokens[0]), dtype=np.int64) if cached_tokens is None else np.array(cached_tokens)
    return Requests(np.array(arrival_s, dtype=np.float64), *tokens, cached)


def flat_times(limits, *, step_s=1.0, token_s=0.0, context_s=0.0):
    """Steps of a fixed cost, and one for each token and each token of context."""
    return StepTimes(
        decode_s=step_s + token_s * np.arange(limits.max_num_seqs + 1.0),
        mixed_s=step_s + token_s * np.arange(limits.step_tokens + 1.0),
        sequence_s=0.0,
        context_s=context_s,
        pair_s=0.0,
    )


@st.composite
def cases(draw):
    """An engine with little room, requests that press on it, and step times in whole ticks."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    number = draw(st.integers(1, 40))
    block = draw(st.sampled_from([1, 2, 4, 16]))
    sequences = draw(st.integers(1, 8))
    limits = EngineLimits(
        max_num_seqs=sequences,
        step_tokens=sequences + draw(st.integers(0, 40)),
        kv_blocks=draw(st.integers(max(1, 40 // block), 300 // block + 2)),
        block_tokens=block,
    )
    requests = requests_of(
        np.sort(rng.integers(0, draw(st.sampled_from([1, 2_000, 60_000])), number)) * TICK_S,
        rng.integers(1, 60, number),
        rng.integers(1, 60, number),
        rng.integers(0, 60, number) * rng.integers(0, 2, number),
    )
    times = StepTimes(
        decode_s=rng.integers(1, 50, sequences + 1) * TICK_S,
        mixed_s=rng.integers(1, 200, limits.step_tokens + 1) * TICK_S,
        sequence_s=int(rng.integers(0, 4)) * TICK_S,
        context_s=int(rng.integers(0, 3)) * TICK_S,
        pair_s=int(rng.integers(0, 3)) * 2 * TICK_S,
    )
    return requests, limits, times, draw(st.sampled_from([0, 0, 1, 3, 8]))


@settings(deadline=None, max_examples=300)
@given(cases())
def test_it_equals_the_scheduler_run_step_by_step(case):
    requests, limits, times, clients = case

    replayed = replay_engine(requests, limits, times, clients=clients)

    fitting = np.flatnonzero(~replayed.refused)
    jobs, engine = serve_step_by_step(chosen(requests, fitting), limits, times, clients=clients)
    for name in ("admitted_s", "first_s", "end_s", "preempted"):
        np.testing.assert_array_equal(getattr(replayed.served, name)[fitting], [getattr(job, name) for job in jobs])
    assert (replayed.steps, replayed.computed_tokens) == (engine.steps, engine.computed_tokens)
    assert replayed.most_blocks == engine.most_blocks


@settings(deadline=None, max_examples=200)
@given(cases())
def test_everybody_is_answered_in_order_within_memory_and_not_before_it_can_be(case):
    requests, limits, times, clients = case

    replayed = replay_engine(requests, limits, times, clients=clients)

    fits = ~replayed.refused
    served, asked = Served(*(column[fits] for column in replayed.served)), chosen(replayed.requests, fits)
    # refused is exactly what can never fit
    longest = requests.input_tokens + requests.output_tokens - 1
    np.testing.assert_array_equal(replayed.refused, -(-longest // limits.block_tokens) > limits.kv_blocks)
    assert np.isfinite(served.end_s).all()
    assert replayed.most_blocks <= limits.kv_blocks
    # first come, first admitted
    assert (np.diff(served.admitted_s) >= 0).all()
    assert (served.admitted_s >= asked.arrival_s).all()
    # a step for each token, none cheaper than the cheapest
    least_s = min(times.decode_s[1:].min(), times.mixed_s[1:].min())
    assert (served.first_s >= served.admitted_s + least_s).all()
    assert (served.end_s - served.first_s >= (asked.output_tokens - 1) * least_s - 1e-9).all()


@settings(deadline=None, max_examples=200)
@given(cases())
def test_prompt_tokens_are_computed_once_but_for_prefixes_and_preemptions(case):
    requests, limits, times, _ = case

    replayed = replay_engine(requests, limits, times)

    fits = ~replayed.refused
    cached = np.minimum(requests.cached_tokens, requests.input_tokens - 1) // limits.block_tokens * limits.block_tokens
    once = int((requests.input_tokens - cached)[fits].sum())
    assert replayed.computed_tokens >= once
    if replayed.preemptions == 0:
        assert replayed.computed_tokens == once
    assert replayed.output_tokens == requests.output_tokens[fits].sum()


@settings(deadline=None, max_examples=200)
@given(cases(), st.integers(1, 4))
def test_a_backlog_is_answered_sooner_by_a_faster_engine_with_the_same_schedule(case, factor):
    requests, limits, times, _ = case
    backlog = requests._replace(arrival_s=np.zeros(len(requests.arrival_s)))
    slower = StepTimes(*(part * (1 + factor) for part in times))

    fast, slow = replay_engine(backlog, limits, times), replay_engine(backlog, limits, slower)

    fits = ~fast.refused
    assert (fast.served.first_s <= slow.served.first_s)[fits].all()
    assert (fast.served.end_s <= slow.served.end_s)[fits].all()
    assert (fast.steps, fast.preemptions) == (slow.steps, slow.preemptions)


@settings(deadline=None, max_examples=200)
@given(cases())
def test_twice_the_time_between_arrivals_and_of_a_step_is_twice_the_time_to_the_end(case):
    requests, limits, times, _ = case
    later = requests._replace(arrival_s=2 * requests.arrival_s)

    once = replay_engine(requests, limits, times)
    twice = replay_engine(later, limits, StepTimes(*(2 * part for part in times)))

    np.testing.assert_array_equal(2 * once.served.end_s, twice.served.end_s)


def test_a_lone_request_takes_its_chunks_and_then_a_step_a_token():
    limits = EngineLimits(max_num_seqs=4, step_tokens=8, kv_blocks=100)
    times = StepTimes(np.full(5, 1.0), 10.0 + np.arange(9.0), 0.0, 0.5, 0.25)

    replayed = replay_engine(requests_of([3.0], [20], [3]), limits, times)

    # chunks of 8, 8, 4 with 8*4, 8*12, 4*18 pairs; then two steps over caches of 21 and 22 tokens
    assert replayed.ttft_s[0] == (18 + 18 + 14) + 0.25 * (32 + 96 + 72)
    assert replayed.tpot_s[0] == (1 + 0.5 * 21 + 1 + 0.5 * 22) / 2
    assert replayed.steps == 5


def test_a_cached_prefix_saves_whole_blocks_and_never_the_last_token():
    limits = EngineLimits(max_num_seqs=1, step_tokens=64, kv_blocks=100, block_tokens=16)
    times = flat_times(limits, step_s=0.0, token_s=1.0)

    replayed = replay_engine(requests_of([0, 0, 0], [32, 32, 32], [1, 1, 1], [0, 31, 32]), limits, times)

    np.testing.assert_array_equal(np.diff(replayed.served.first_s, prepend=0.0), [32, 16, 16])


def test_at_the_edge_of_memory_the_last_admitted_is_preempted_and_computed_again():
    limits = EngineLimits(max_num_seqs=2, step_tokens=16, kv_blocks=3, block_tokens=4)

    replayed = replay_engine(requests_of([0, 0], [4, 4], [5, 5]), limits, flat_times(limits))

    # both prompts in step 1; in step 2 each needs a second block and one is left: the second goes, and returns when the
    # first has ended (step 5) with its prompt and one token of its answer to compute
    np.testing.assert_array_equal(replayed.served.preempted, [0, 1])
    np.testing.assert_array_equal(replayed.served.end_s, [5.0, 9.0])
    assert replayed.computed_tokens == 4 + 4 + 5


def test_what_never_fits_is_refused_and_counted():
    limits = EngineLimits(max_num_seqs=2, step_tokens=16, kv_blocks=3, block_tokens=4)

    replayed = replay_engine(requests_of([0, 0, 1], [9, 9, 2], [4, 5, 2]), limits, flat_times(limits))

    np.testing.assert_array_equal(replayed.refused, [False, True, False])
    assert np.isnan(replayed.served.end_s[1])
    assert replayed.output_tokens == 6


def test_clients_send_their_next_request_when_one_is_answered():
    limits = EngineLimits(max_num_seqs=8, step_tokens=64, kv_blocks=100)

    replayed = replay_engine(requests_of([0] * 4, [5] * 4, [3] * 4), limits, flat_times(limits), clients=2)

    np.testing.assert_array_equal(replayed.requests.arrival_s, [0, 0, 3, 3])
    np.testing.assert_array_equal(replayed.served.end_s, [3, 3, 6, 6])


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_sequence_at_a_time_waits_as_queueing_theory_says(load):
    # one token out and a prompt within a step: a server of fixed service time, whose mean wait is Pollaczek and Khinchine's
    rng = np.random.default_rng(7)
    number = 400_000
    limits = EngineLimits(max_num_seqs=1, step_tokens=1, kv_blocks=10)
    arrival_s = np.cumsum(rng.exponential(1 / load, number))

    replayed = replay_engine(requests_of(arrival_s, [1] * number, [1] * number), limits, flat_times(limits))

    wait_s = float(np.mean(replayed.ttft_s)) - 1.0
    assert wait_s == pytest.approx(load / (2 * (1 - load)), rel=0.03)


def test_compiled_and_interpreted_loops_give_the_same_bytes():
    rng = np.random.default_rng(3)
    limits = EngineLimits(max_num_seqs=8, step_tokens=64, kv_blocks=30)
    times = StepTimes(rng.random(9) + 0.5, rng.random(65) + 0.5, 0.01, 0.001, 0.002)
    found = []
    for loop in (serve_requests, serve_requests.py_func):
        served = unserved(200)
        requests = requests_of(np.cumsum(rng.exponential(0, 200)), np.arange(200) % 90 + 1, np.arange(200) % 70 + 1)
        loop(requests, limits, times, 0, served)
        found.append(served)
    assert found[0].preempted.sum() > 0
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize(
    ("requests", "limits"),
    [
        (requests_of([0], [0], [1]), EngineLimits(2, 4, 4)),
        (requests_of([1, 0], [1, 1], [1, 1]), EngineLimits(2, 4, 4)),
        (requests_of([0], [1], [1]), EngineLimits(4, 2, 4)),
    ],
    ids=["no prompt", "out of order", "budget below sequences"],
)
def test_what_no_engine_takes_is_an_input_error(requests, limits):
    with pytest.raises(InputError):
        replay_engine(requests, limits, flat_times(limits))


def test_no_requests_take_no_time():
    limits = EngineLimits(2, 4, 4)
    assert replay_engine(requests_of([], [], []), limits, flat_times(limits)).steps == 0
