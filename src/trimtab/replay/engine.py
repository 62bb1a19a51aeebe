"""Requests through the scheduler of an LLM engine, step by step: continuous batching with chunked prefill and preemption.

The scheduler is that of vLLM V1 (`vllm/v1/core/sched/scheduler.py`, first come first served). Each step has one budget of
tokens. Running requests take theirs first, in order of admission: one token each where they decode, as much of the rest as is
left where a prompt is unfinished. Waiting requests are admitted after that, in order of arrival, while budget, sequences and
blocks of the key-value cache last. A running request that finds no free block preempts the one admitted last, which gives up
its cache, waits in front of all others and computes prompt and answer again; a step that preempts admits no request.

The cost of a step that only decodes is affine in the context, and all that decode advance by one token a step. So a stretch of
such steps, up to the next arrival, the next finish or the end of free blocks, is added up in closed form: the replay costs a
few operations a request and not one a token. The loop is compiled; through `serve_requests.py_func` it gives the same bytes.

What it leaves out: a cached prefix occupies blocks of its own in every request (the engine shares them), and what a preempted
request had computed is never found again in the prefix cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.errors import InputError
from trimtab.ledger.arrays import Flags, FloatArray, IntArray
from trimtab.physics.serving import StepTimes
from trimtab.replay.compiled import compiled, inlined

BLOCK_TOKENS = 16
"""Tokens of a block of the key-value cache (vLLM's default)."""


class EngineLimits(NamedTuple):
    """What bounds a step and the cache: vLLM's `max_num_seqs`, `max_num_batched_tokens`, `num_gpu_blocks`, `block_size`."""

    max_num_seqs: int
    step_tokens: int
    kv_blocks: int
    block_tokens: int = BLOCK_TOKENS


class Requests(NamedTuple):
    """Requests in order of arrival; `cached_tokens` are those of the prompt that the prefix cache holds. All `(n,)`."""

    arrival_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray
    cached_tokens: IntArray


class Served(NamedTuple):
    """When each request was first admitted, had its first token and its last, and how often it was preempted. All `(n,)`."""

    admitted_s: FloatArray
    first_s: FloatArray
    end_s: FloatArray
    preempted: IntArray


class _State(NamedTuple):
    """What the loop carries; every member is an array that it writes.

    `who`, `offset` and `due` `(max_num_seqs,)` hold the running requests in order of admission, those that decode before those
    whose prompt is unfinished. All that decode advance together: a request has `offset + counters[STEPS]` tokens in the cache
    and ends at step `due`. `phase[r]` counts the decoding requests whose offset is `r` modulo the tokens of a block.
    `back` is a stack of the preempted, the first to return on top; `made` is what each request had answered before that.
    """

    who: IntArray
    offset: IntArray
    due: IntArray
    phase: IntArray
    back: IntArray
    made: IntArray
    counters: IntArray


STEPS, RUNNING, DECODING, FREE, CONTEXT, SOONEST, COMING, BACK, ISSUED = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""Steps so far; requests running and decoding; free blocks; tokens in the caches of those that decode; the next step at which
one of them ends; the next request to come for the first time; how many were preempted and wait; how many clients have sent."""
COMPUTED, LEAST_FREE = 9, 10
"""Prompt tokens computed (again, after a preemption); the fewest free blocks seen."""
_COUNTERS = 11
_NEVER = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReplay:
    """What became of the requests; times are NaN where a request was refused."""

    requests: Requests
    served: Served
    refused: Flags
    """Requests whose cache never fits, `(n,)`."""
    steps: int
    computed_tokens: int
    """Prompt tokens that were computed, those computed again after a preemption included."""
    most_blocks: int
    """Blocks of the cache held at most."""

    @property
    def ttft_s(self) -> FloatArray:
        """Return each request's time to first token, `(n,)`."""
        return np.asarray(self.served.first_s - self.requests.arrival_s)

    @property
    def tpot_s(self) -> FloatArray:
        """Return each request's mean time per token after the first, `(n,)`; NaN where there is no second."""
        rest = self.requests.output_tokens - 1
        spent_s = self.served.end_s - self.served.first_s
        return np.asarray(np.divide(spent_s, rest, out=np.full(len(rest), np.nan), where=rest > 0))

    @property
    def preemptions(self) -> int:
        """Return how many times a request was preempted."""
        return int(self.served.preempted.sum())

    @property
    def output_tokens(self) -> int:
        """Return the tokens of all answers."""
        return int(self.requests.output_tokens[~self.refused].sum())


def replay_engine(requests: Requests, limits: EngineLimits, times: StepTimes, *, clients: int = 0) -> EngineReplay:
    """Replay requests through one engine; deterministic.

    With `clients` the loop is closed: each of so many sends its next request when one is answered, and `arrival_s` of the
    result says when that was. Raises InputError for requests or limits that no engine takes.
    """
    _check(requests, limits, times)
    longest = requests.input_tokens + requests.output_tokens - 1
    refused = longest > limits.kv_blocks * limits.block_tokens
    at = np.flatnonzero(~refused)
    asked = chosen(requests, at)
    if clients:
        asked.arrival_s[:] = np.where(np.arange(len(at)) < clients, 0.0, math.inf)
    served = unserved(len(at))
    counters = serve_requests(asked, limits, times, clients, served)
    arrival_s = requests.arrival_s.copy() if not clients else np.full(len(refused), math.nan)
    arrival_s[at] = asked.arrival_s
    return EngineReplay(
        requests=requests._replace(arrival_s=arrival_s),
        served=_spread(served, at, len(refused)),
        refused=refused,
        steps=int(counters[STEPS]),
        computed_tokens=int(counters[COMPUTED]),
        most_blocks=limits.kv_blocks - int(counters[LEAST_FREE]),
    )


def chosen(requests: Requests, at: IntArray | slice) -> Requests:
    """Return some of the requests."""
    return Requests(
        requests.arrival_s[at].copy(),
        requests.input_tokens[at].copy(),
        requests.output_tokens[at].copy(),
        requests.cached_tokens[at].copy(),
    )


def unserved(number: int) -> Served:
    """Return what is known of so many requests before they are served: no times, no preemptions."""
    return Served(
        np.full(number, math.nan),
        np.full(number, math.nan),
        np.full(number, math.nan),
        np.zeros(number, dtype=np.int64),
    )


def _spread(found: Served, at: IntArray, number: int) -> Served:
    """Return the times of all requests; those refused have none."""
    whole = unserved(number)
    for part, column in zip(found, whole, strict=True):
        column[at] = part
    return whole


def _check(requests: Requests, limits: EngineLimits, times: StepTimes) -> None:
    if min(limits) < 1 or limits.step_tokens < limits.max_num_seqs:
        raise InputError(f"an engine needs limits from 1, and a budget of tokens from max_num_seqs on (saw {limits})")
    if len(times.decode_s) <= limits.max_num_seqs or len(times.mixed_s) <= limits.step_tokens:
        raise InputError("step times must be given for every number of sequences and tokens that the limits allow")
    if len(requests.arrival_s) and (requests.input_tokens.min() < 1 or requests.output_tokens.min() < 1):
        raise InputError("requests need at least one input and one output token")
    if (np.diff(requests.arrival_s) < 0).any():
        raise InputError("requests must be in order of arrival")


@inlined
def blocks_of(tokens: int, block_tokens: int) -> int:
    """Return the blocks that so many tokens of a cache take."""
    return (tokens + block_tokens - 1) // block_tokens


@compiled
def serve_requests(
    requests: Requests, limits: EngineLimits, times: StepTimes, clients: int, served: Served
) -> IntArray:
    """Serve requests that all fit, write when each had its first and last token, and return the counters."""
    number = len(requests.arrival_s)
    state = _empty_state(number, limits)
    counters = state.counters
    counters[ISSUED] = min(clients, number) if clients > 0 else number
    now_s = 0.0
    while True:
        if counters[RUNNING] == 0 and counters[BACK] == 0:
            if counters[COMING] == number:
                return counters
            now_s = max(now_s, requests.arrival_s[counters[COMING]])
        head = _head(requests, state, now_s)
        admits = head >= 0 and _chunk(requests, limits, state, head, limits.step_tokens - counters[DECODING]) > 0
        steps = 0
        if counters[RUNNING] == counters[DECODING] and not admits:
            steps = _steps_alike(requests, limits, times, state, head, now_s)
        if steps > 0:
            now_s = _decode(limits, times, state, steps, now_s)
        else:
            now_s = _step(requests, limits, times, state, served, now_s)
        if counters[STEPS] >= counters[SOONEST]:
            _finish(requests, limits, state, clients, served, now_s)


@inlined
def _empty_state(number: int, limits: EngineLimits) -> _State:
    counters = np.zeros(_COUNTERS, dtype=np.int64)
    counters[FREE] = limits.kv_blocks
    counters[LEAST_FREE] = limits.kv_blocks
    counters[SOONEST] = _NEVER
    most = limits.max_num_seqs
    return _State(
        np.zeros(most, dtype=np.int64),
        np.zeros(most, dtype=np.int64),
        np.zeros(most, dtype=np.int64),
        np.zeros(limits.block_tokens, dtype=np.int64),
        np.zeros(most, dtype=np.int64),
        np.zeros(number, dtype=np.int64),
        counters,
    )


@inlined
def _head(requests: Requests, state: _State, now_s: float) -> int:
    """Return the request that waits first, -1 where none waits; preempted requests come before all others."""
    counters = state.counters
    if counters[BACK] > 0:
        return int(state.back[counters[BACK] - 1])
    coming = counters[COMING]
    if coming < len(requests.arrival_s) and requests.arrival_s[coming] <= now_s:
        return int(coming)
    return -1


@inlined
def _chunk(requests: Requests, limits: EngineLimits, state: _State, request: int, budget: int) -> int:
    """Return how many tokens of a waiting request a step takes in; 0 where sequences, budget or blocks do not let it."""
    counters = state.counters
    if counters[RUNNING] == limits.max_num_seqs:
        return 0
    cached = _cached(requests, limits, state, request)
    tokens = min(requests.input_tokens[request] + state.made[request] - cached, budget)
    if blocks_of(cached + tokens, limits.block_tokens) > counters[FREE]:
        return 0
    return int(max(tokens, 0))


@inlined
def _cached(requests: Requests, limits: EngineLimits, state: _State, request: int) -> int:
    """Return the tokens found in the prefix cache: whole blocks, and never all, since one token must be computed."""
    most = min(requests.cached_tokens[request], requests.input_tokens[request] + state.made[request] - 1)
    return int(most // limits.block_tokens * limits.block_tokens)


@inlined
def _steps_alike(
    requests: Requests, limits: EngineLimits, times: StepTimes, state: _State, head: int, now_s: float
) -> int:
    """Return how many steps decode the same requests: until one ends, blocks run out, or a new one may be admitted.

    A request that waits and cannot be admitted cannot be before one ends either, since blocks only get fewer.
    """
    counters = state.counters
    most = _steps_in_blocks(limits, state, counters[SOONEST] - counters[STEPS])
    coming = counters[COMING]
    waits = head >= 0 or counters[RUNNING] == limits.max_num_seqs or coming == len(requests.arrival_s)
    if most == 0 or waits:
        return most
    return _steps_until(times, state, most, requests.arrival_s[coming] - now_s)


@inlined
def _steps_in_blocks(limits: EngineLimits, state: _State, most: int) -> int:
    """Return how many of `most` steps find their blocks: each request takes one in every `block_tokens` steps."""
    counters = state.counters
    whole = counters[FREE] // counters[DECODING]
    if most <= whole * limits.block_tokens:
        return most
    left = counters[FREE] - whole * counters[DECODING]
    steps = whole * limits.block_tokens
    while steps < most:
        left -= _block_takers(limits, state, counters[STEPS] + steps)
        if left < 0:
            break
        steps += 1
    return int(steps)


@inlined
def _block_takers(limits: EngineLimits, state: _State, step: int) -> int:
    """Return how many decoding requests take a new block in a step: those whose cache fills its last one."""
    return int(state.phase[-step % limits.block_tokens])


@inlined
def _stretch_s(times: StepTimes, decoding: int, context: int, steps: int) -> float:
    """Return the time of steps that decode the same requests; step k reads `context + k * decoding` tokens."""
    tokens = steps * context + decoding * (steps * (steps + 1) // 2)
    return float(steps * times.decode_s[decoding] + tokens * times.context_s)


@inlined
def _steps_until(times: StepTimes, state: _State, most: int, wait_s: float) -> int:
    """Return the fewest steps that last until a request arrives, at most `most`: the root of a quadratic, made exact."""
    decoding, context = state.counters[DECODING], state.counters[CONTEXT]
    if _stretch_s(times, decoding, context, most) <= wait_s:
        return most
    square = 0.5 * decoding * times.context_s
    linear = times.decode_s[decoding] + context * times.context_s + square
    guess = 2 * wait_s / (linear + math.sqrt(linear * linear + 4 * square * wait_s))
    steps = min(max(int(guess), 1), most)
    # the root may be off by rounding: step to the first that is late enough
    while steps > 1 and _stretch_s(times, decoding, context, steps - 1) >= wait_s:
        steps -= 1
    while steps < most and _stretch_s(times, decoding, context, steps) < wait_s:
        steps += 1
    return steps


@inlined
def _decode(limits: EngineLimits, times: StepTimes, state: _State, steps: int, now_s: float) -> float:
    """Let the decoding requests advance by so many steps, and return when the last of them ends."""
    counters = state.counters
    decoding = counters[DECODING]
    spent_s = _stretch_s(times, decoding, counters[CONTEXT], steps)
    whole = steps // limits.block_tokens
    counters[FREE] -= whole * decoding
    for step in range(whole * limits.block_tokens, steps):
        counters[FREE] -= _block_takers(limits, state, counters[STEPS] + step)
    counters[LEAST_FREE] = min(counters[LEAST_FREE], counters[FREE])
    counters[CONTEXT] += steps * decoding
    counters[STEPS] += steps
    return now_s + spent_s


@inlined
def _step(
    requests: Requests, limits: EngineLimits, times: StepTimes, state: _State, served: Served, now_s: float
) -> float:
    """Schedule and run one step as the engine does, and return when it ends."""
    counters = state.counters
    running = counters[RUNNING]
    _take_blocks(requests, limits, state, served)
    decoding = counters[DECODING]
    prompt_tokens, pairs = 0, 0.0
    if counters[RUNNING] > decoding:
        prompt_tokens, pairs = _continue_prompt(requests, limits, state, served)
    if counters[RUNNING] == running:
        prompt_tokens, pairs = _admit(requests, limits, state, served, now_s, prompt_tokens, pairs)
    counters[LEAST_FREE] = min(counters[LEAST_FREE], counters[FREE])
    counters[COMPUTED] += prompt_tokens
    counters[CONTEXT] += decoding
    counters[STEPS] += 1
    spent_s = counters[CONTEXT] * times.context_s + pairs * times.pair_s
    if prompt_tokens > 0 and prompt_tokens == counters[RUNNING] - decoding:
        # every prompt adds one token, so the batch has the shape of one that only decodes: caches handed over by another engine
        spent_s = (counters[CONTEXT] + pairs) * times.context_s + times.decode_s[decoding + prompt_tokens]
    elif prompt_tokens > 0:
        spent_s += times.mixed_s[decoding + prompt_tokens] + decoding * times.sequence_s
    else:
        spent_s += times.decode_s[decoding]
    _join(requests, limits, state, served, now_s + spent_s)
    return float(now_s + spent_s)


@inlined
def _take_blocks(requests: Requests, limits: EngineLimits, state: _State, served: Served) -> None:
    """Give each decoding request the block that its next token needs; where none is free the last admitted is preempted."""
    counters = state.counters
    needed = _block_takers(limits, state, counters[STEPS])
    if needed <= counters[FREE]:
        counters[FREE] -= needed
        return
    place = 0
    while place < counters[DECODING]:
        if (state.offset[place] + counters[STEPS]) % limits.block_tokens == 0:
            while counters[FREE] == 0 and counters[RUNNING] > place:
                # the last may be the one that asks: then it waits itself
                _preempt(requests, limits, state, served)
            if counters[RUNNING] <= place:
                return
            counters[FREE] -= 1
        place += 1


@inlined
def _preempt(requests: Requests, limits: EngineLimits, state: _State, served: Served) -> None:
    """Take its cache from the request admitted last and let it wait in front of all others."""
    counters = state.counters
    counters[RUNNING] -= 1
    last = counters[RUNNING]
    request = state.who[last]
    if last < counters[DECODING]:
        counters[DECODING] -= 1
        tokens = state.offset[last] + counters[STEPS]
        counters[CONTEXT] -= tokens
        state.phase[state.offset[last] % limits.block_tokens] -= 1
        state.made[request] = requests.output_tokens[request] - (state.due[last] - counters[STEPS])
        counters[SOONEST] = _soonest(state)
    else:
        # of an unfinished prompt the offset counts the tokens computed
        tokens = state.offset[last]
    counters[FREE] += blocks_of(tokens, limits.block_tokens)
    served.preempted[request] += 1
    state.back[counters[BACK]] = request
    counters[BACK] += 1


@inlined
def _soonest(state: _State) -> int:
    soonest = _NEVER
    for place in range(state.counters[DECODING]):
        soonest = min(soonest, int(state.due[place]))
    return soonest


@inlined
def _continue_prompt(requests: Requests, limits: EngineLimits, state: _State, served: Served) -> tuple[int, float]:
    """Compute more of the one unfinished prompt; return its tokens and their pairs with what they attend to."""
    counters = state.counters
    last = counters[RUNNING] - 1
    request = state.who[last]
    before = state.offset[last]
    whole = requests.input_tokens[request] + state.made[request]
    tokens = min(whole - before, limits.step_tokens - counters[DECODING])
    needed = blocks_of(before + tokens, limits.block_tokens) - blocks_of(before, limits.block_tokens)
    if needed > counters[FREE]:
        # it was admitted last, so it is itself the one to be preempted
        _preempt(requests, limits, state, served)
        return 0, 0.0
    counters[FREE] -= needed
    state.offset[last] = before + tokens
    return tokens, tokens * (before + 0.5 * tokens)


@inlined
def _admit(
    requests: Requests,
    limits: EngineLimits,
    state: _State,
    served: Served,
    now_s: float,
    prompt_tokens: int,
    pairs: float,
) -> tuple[int, float]:
    """Admit waiting requests in order while they fit; return the step's prompt tokens and pairs with theirs added."""
    counters = state.counters
    while True:
        request = _head(requests, state, now_s)
        if request < 0:
            return prompt_tokens, pairs
        tokens = _chunk(requests, limits, state, request, limits.step_tokens - counters[DECODING] - prompt_tokens)
        if tokens == 0:
            return prompt_tokens, pairs
        cached = _cached(requests, limits, state, request)
        if counters[BACK] > 0:
            counters[BACK] -= 1
        else:
            counters[COMING] += 1
            served.admitted_s[request] = now_s
        counters[FREE] -= blocks_of(cached + tokens, limits.block_tokens)
        state.who[counters[RUNNING]] = request
        state.offset[counters[RUNNING]] = cached + tokens
        counters[RUNNING] += 1
        prompt_tokens += tokens
        pairs += tokens * (cached + 0.5 * tokens)


@inlined
def _join(requests: Requests, limits: EngineLimits, state: _State, served: Served, now_s: float) -> None:
    """Let requests whose prompt this step has finished decode from now on: the step gave them a token."""
    counters = state.counters
    for place in range(counters[DECODING], counters[RUNNING]):
        request = state.who[place]
        tokens = state.offset[place]
        if tokens < requests.input_tokens[request] + state.made[request]:
            return
        if state.made[request] == 0:
            served.first_s[request] = now_s
        left = requests.output_tokens[request] - state.made[request] - 1
        state.offset[place] = tokens - counters[STEPS]
        state.due[place] = counters[STEPS] + left
        state.phase[state.offset[place] % limits.block_tokens] += 1
        counters[SOONEST] = min(counters[SOONEST], state.due[place])
        counters[CONTEXT] += tokens
        counters[DECODING] += 1


@inlined
def _finish(
    requests: Requests, limits: EngineLimits, state: _State, clients: int, served: Served, now_s: float
) -> None:
    """Let the requests end that have their last token, close the gaps, and let their clients send the next."""
    counters = state.counters
    step = counters[STEPS]
    kept = 0
    soonest = _NEVER
    for place in range(counters[RUNNING]):
        request, offset, due = state.who[place], state.offset[place], state.due[place]
        decodes = place < counters[DECODING]
        if decodes and due == step:
            served.end_s[request] = now_s
            counters[FREE] += blocks_of(offset + step, limits.block_tokens)
            counters[CONTEXT] -= offset + step
            state.phase[offset % limits.block_tokens] -= 1
            if clients > 0 and counters[ISSUED] < len(requests.arrival_s):
                requests.arrival_s[counters[ISSUED]] = now_s
                counters[ISSUED] += 1
            continue
        if decodes:
            soonest = min(soonest, due)
        state.who[kept], state.offset[kept], state.due[kept] = request, offset, due
        kept += 1
    counters[DECODING] -= counters[RUNNING] - kept
    counters[RUNNING] = kept
    counters[SOONEST] = soonest
