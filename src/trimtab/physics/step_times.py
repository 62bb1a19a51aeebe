"""What one step of an engine takes, by the tokens and requests in it: the serving model taken apart for a replay of steps.

The formulas are those of `physics.serving`, with tokens in a step in place of whole prompts and answers:

    decodes only:  soft_max(read(b) / (n B) * w, 2 A b / (n F) * dco) + (lay + moel) L + all_reduce(b) + req b + step
    with prompts:  soft_max(2 A t / (n F) * pre * (1 + tok0 n / t), read(t) / (n B) * w) + play L + all_reduce(t) + pstep
    both:          + the caches read / (n B) * kv

for b requests that decode and t tokens in all. So a step that only decodes is affine in the tokens of the caches, which is what
lets a replay add up a stretch of them in closed form.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

import numpy as np

from trimtab.physics.serving import cache_budget_bytes, cache_bytes, decode_s, prefill_s
from trimtab.physics.terms import Floats


class StepTimes(NamedTuple):
    """What a step takes, in seconds.

    A step of `n` requests that all decode takes `decode_s[n]` (`(max_num_seqs + 1,)`). One of `t` tokens of which some are of
    prompts takes `mixed_s[t]` (`(step_tokens + 1,)`) and `sequence_s` for each request that decodes in it. Both take
    `context_s` for each token of a decoding request's cache, and `pair_s` for each pair of a prompt's token and one before it.
    """

    decode_s: Floats
    mixed_s: Floats
    sequence_s: float
    context_s: float
    pair_s: float


def scaled(times: StepTimes, factor: float) -> StepTimes:
    """Return step times that are all so many times as long."""
    return StepTimes(
        decode_s=times.decode_s * factor,
        mixed_s=times.mixed_s * factor,
        sequence_s=times.sequence_s * factor,
        context_s=times.context_s * factor,
        pair_s=times.pair_s * factor,
    )


def step_times(v: Mapping[str, Floats], c: Mapping[str, Floats], *, max_num_seqs: int, step_tokens: int) -> StepTimes:
    """Return the step times of one query: its `serving_columns` and the coefficients of them, `(1,)` each."""
    sequences, tokens = np.arange(1.0, max_num_seqs + 1), np.arange(1.0, step_tokens + 1)
    # without caches, which are read by the token, and without attention, which is counted by pairs
    bare = {**v, "kv_values_bytes": np.zeros(1), "query_width": np.zeros(1)}
    decode = decode_s(bare, c, sequences)
    # what a small prompt wastes (tok0) falls with its length, by a hair more than the prompt grows: more is never faster
    mixed = np.maximum.accumulate(prefill_s({**bare, "input": tokens}, c, np.ones(1)))
    context = v["input"] + v["output"] / 2
    shards, scale = v["group"] * v["stages"], c["glob"]
    # windows make a cache less than proportional to its context: the mean context stands for all
    context_s = cache_bytes(v, context) / context / (shards * v["byte_s"]) * c["kv"] * scale
    # two products of 2 FLOPs for each pair of tokens
    pair_s = 4 * v["layers"] * v["query_width"] * c["att"] / (shards * v["flop_s"]) * c["pre"] * scale
    return StepTimes(
        decode_s=np.concatenate(([0.0], decode * scale)),
        mixed_s=np.concatenate(([0.0], mixed * scale)),
        sequence_s=float((c["req"] * scale)[0]),
        context_s=float(context_s[0]),
        pair_s=float(pair_s[0]),
    )


class TokenSeconds(NamedTuple):
    """Time of an engine's steps that a mean request adds, by what asks for it; in seconds of one replica."""

    input_s: float
    """Of the prompt's tokens that have to be computed, all together."""
    cached_s: float
    """Of its tokens found in the prefix cache: what attention to them adds to the computing of the others."""
    output_s: float
    """Of the answer."""


def token_seconds(
    times: StepTimes, *, input_tokens: float, cached_tokens: float, output_tokens: float, requests: float
) -> TokenSeconds:
    """Return what a mean request adds where so many decode at once, itself included.

    `times` reach to `requests` and to the tokens of a step. An answer takes its share of steps that only decode: one for each
    token but the first, which comes with the prompt. A prompt takes what its steps are longer than those would have been
    without it; it is cut into steps as the engine cuts it.
    """
    batch = min(max(1, round(requests)), len(times.decode_s) - 1)
    context = input_tokens + output_tokens / 2
    answer_s = (output_tokens - 1) * (times.decode_s[batch] / batch + times.context_s * context)
    others = batch - 1
    computed, room = max(input_tokens - cached_tokens, 0.0), len(times.mixed_s) - 1 - others
    whole_chunks, rest = divmod(computed, room)
    chunks = [float(room)] * int(whole_chunks) + ([rest] if rest else [])
    without_s = float(times.decode_s[others]) - others * times.sequence_s
    added_s = [max(0.0, float(times.mixed_s[min(ceil(chunk) + others, room + others)]) - without_s) for chunk in chunks]
    return TokenSeconds(
        input_s=sum(added_s) + times.pair_s * computed * computed / 2,
        cached_s=times.pair_s * computed * cached_tokens,
        output_s=max(0.0, float(answer_s)),
    )


def kv_blocks(v: Mapping[str, Floats], block_tokens: int) -> int:
    """Return the blocks of a deployment's key-value cache; at least one request's worth."""
    context = v["input"] + v["output"]
    tokens = cache_budget_bytes(v) / (cache_bytes(v, context) / context)
    return int(np.ceil(max(float(tokens[0]), float(context[0])) / block_tokens)) + 1
