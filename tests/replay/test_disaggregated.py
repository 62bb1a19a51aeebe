"""Prefill and decode on their own replicas: queues by hand, closed loops, and the limits of one half."""

import numpy as np
import pytest
from benchmarks.reference.engine_steps import serve_step_by_step
from hypothesis import given, settings, strategies as st

from trimtab.errors import InputError
from trimtab.physics.disaggregated import KvTransfer
from trimtab.physics.serving import StepTimes
from trimtab.replay.disaggregated import ServingPool, replay_disaggregated
from trimtab.replay.engine import EngineLimits, Requests, chosen, replay_engine

TICK_S = 1 / 1024
"""Times in these units add up without rounding."""
AT_ONCE = KvTransfer(token_bytes=0.0, byte_s=1.0, fixed_s=0.0)


def pool_of(
    *, replicas=1, sequences=8, step_tokens=64, prompt_s=0.0, token_s=0.01, decode_s=0.1, blocks=10_000, block=1
):
    """A pool whose steps take `prompt_s` and `token_s` a prompt token, `decode_s` where they only decode."""
    limits = EngineLimits(sequences, max(step_tokens, sequences), blocks, block)
    times = StepTimes(
        decode_s=np.full(sequences + 1, decode_s),
        mixed_s=prompt_s + token_s * np.arange(limits.step_tokens + 1.0),
        sequence_s=0.0,
        context_s=0.0,
        pair_s=0.0,
    )
    return ServingPool(replicas=replicas, limits=limits, times=times)


def requests_of(arrival_s, input_tokens=64, output_tokens=5, cached_tokens=0):
    number = len(arrival_s)
    columns = (np.full(number, tokens, dtype=np.int64) for tokens in (input_tokens, output_tokens, cached_tokens))
    return Requests(np.array(arrival_s, dtype=np.float64), *columns)


def test_a_lone_request_takes_prompt_transfer_and_one_step_to_its_first_token():
    transfer = KvTransfer(token_bytes=10.0, byte_s=640.0, fixed_s=0.25)

    replayed = replay_disaggregated(requests_of([0.0]), pool_of(), pool_of(), transfer)

    # 64 tokens of 0.01 s; 640 bytes at 640 bytes/s and 0.25 s; one step that only decodes
    assert replayed.prompt_s[0] == pytest.approx(0.64)
    assert replayed.arrived_s[0] == pytest.approx(0.64 + 1.0 + 0.25)
    assert replayed.ttft_s[0] == pytest.approx(1.89 + 0.1)
    assert replayed.tpot_s[0] == pytest.approx(0.1)


def test_answers_are_not_held_up_by_the_prompts_of_others():
    requests = requests_of([0.0, 0.7, 1.0, 1.3], output_tokens=20)

    apart = replay_disaggregated(requests, pool_of(), pool_of(), AT_ONCE)
    together = pool_of(block=16)
    mixed = replay_engine(requests, together.limits, together.times)

    np.testing.assert_allclose(apart.tpot_s, 0.1)
    assert mixed.tpot_s[0] > 0.15


def test_prompts_wait_for_a_busy_prefill_replica_and_a_second_one_takes_half():
    requests = requests_of([0.0, 0.0, 0.0, 0.0])

    one = replay_disaggregated(requests, pool_of(), pool_of(), AT_ONCE)
    two = replay_disaggregated(requests, pool_of(replicas=2), pool_of(), AT_ONCE)

    np.testing.assert_allclose(one.prompt_s, [0.64, 1.28, 1.92, 2.56])
    np.testing.assert_allclose(two.prompt_s, [0.64, 0.64, 1.28, 1.28])


def test_caches_leave_a_replica_one_after_another():
    transfer = KvTransfer(token_bytes=1.0, byte_s=32.0, fixed_s=0.0)

    replayed = replay_disaggregated(requests_of([0.0, 0.0, 0.0]), pool_of(), pool_of(), transfer)

    # each takes 2 s on the link, longer than its prompt: the later ones queue for it
    np.testing.assert_allclose(replayed.arrived_s, [0.64 + 2, 0.64 + 4, 0.64 + 6])


def test_a_prefix_that_is_cached_shortens_the_prompt_and_not_the_transfer():
    transfer = KvTransfer(token_bytes=1.0, byte_s=64.0, fixed_s=0.0)

    replayed = replay_disaggregated(requests_of([0.0], cached_tokens=32), pool_of(), pool_of(), transfer)

    assert replayed.prompt_s[0] == pytest.approx(0.32)
    assert replayed.arrived_s[0] == pytest.approx(0.32 + 1.0)


@pytest.mark.parametrize("clients", [1, 2, 5])
def test_in_a_closed_loop_a_client_sends_when_it_is_answered(clients):
    number = 20
    requests = requests_of(np.zeros(number))

    replayed = replay_disaggregated(requests, pool_of(), pool_of(replicas=2), AT_ONCE, clients=clients)

    assert (replayed.requests.arrival_s[:clients] == 0).all()
    np.testing.assert_array_equal(replayed.requests.arrival_s[clients:], np.sort(replayed.end_s)[: number - clients])
    if clients == 1:
        # nobody waits for anybody: prompt, first step, four more
        np.testing.assert_allclose(replayed.end_s - replayed.requests.arrival_s, 0.64 + 5 * 0.1)


def test_a_request_whose_cache_never_fits_is_refused_and_the_others_are_served():
    requests = requests_of([0.0, 0.1])
    requests.input_tokens[0] = 500

    replayed = replay_disaggregated(requests, pool_of(), pool_of(blocks=200), AT_ONCE)

    assert replayed.refused.tolist() == [True, False]
    assert np.isfinite(replayed.ttft_s[1])


def test_a_pool_without_replicas_is_refused():
    with pytest.raises(InputError, match="at least one replica"):
        pool_of(replicas=0)


def test_the_rate_is_that_of_the_slower_half():
    requests = requests_of(np.zeros(400), output_tokens=11)
    # one prompt in 0.64 s a replica; eight answers in 1.1 s
    slow_prompts = replay_disaggregated(requests, pool_of(), pool_of(), AT_ONCE)
    slow_answers = replay_disaggregated(requests, pool_of(replicas=20), pool_of(), AT_ONCE)

    assert 400 / slow_prompts.end_s.max() == pytest.approx(1 / 0.64, rel=0.02)
    assert 400 / slow_answers.end_s.max() == pytest.approx(8 / 1.1, rel=0.02)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 3))
def test_it_equals_two_schedulers_run_step_by_step_one_after_the_other(seed, prefills, decodes):
    rng = np.random.default_rng(seed)
    number = 30
    requests = Requests(
        np.sort(rng.integers(0, 4000, number)) * TICK_S,
        rng.integers(1, 60, number),
        rng.integers(1, 40, number),
        np.zeros(number, dtype=np.int64),
    )
    prefill = pool_of(replicas=prefills, token_s=TICK_S, decode_s=4 * TICK_S, block=16)
    decode = pool_of(replicas=decodes, token_s=TICK_S, decode_s=4 * TICK_S)
    transfer = KvTransfer(token_bytes=1.0, byte_s=1 / TICK_S, fixed_s=8 * TICK_S)

    replayed = replay_disaggregated(requests, prefill, decode, transfer)

    arrived = np.full(number, np.nan)
    for first in range(prefills):
        at = np.arange(first, number, prefills)
        prompts = chosen(requests, at)._replace(output_tokens=np.ones(len(at), dtype=np.int64))
        ends = [job.end_s for job in serve_step_by_step(prompts, prefill.limits, prefill.times)[0]]
        free = 0.0
        for place in np.argsort(ends, kind="stable"):
            free = max(free, ends[place]) + requests.input_tokens[at[place]] * TICK_S
            arrived[at[place]] = free + 8 * TICK_S
    order = np.argsort(arrived, kind="stable")
    for first in range(decodes):
        at = order[first::decodes]
        mine = chosen(requests, at)
        held = mine._replace(arrival_s=arrived[at], cached_tokens=mine.input_tokens)
        jobs = serve_step_by_step(held, decode.limits, decode.times)[0]
        np.testing.assert_array_equal(replayed.first_s[at], [job.first_s for job in jobs])
        np.testing.assert_array_equal(replayed.end_s[at], [job.end_s for job in jobs])
