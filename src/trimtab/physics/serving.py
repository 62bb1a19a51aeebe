"""Time of serving a transformer: prefill, decode steps, waves, one step of an engine, and the first token.

All formulas work on columns, one entry a query. The shape is that of the roofline with the fixed costs that a roofline lacks
(a layer's launches, a step, a request: inference-sim `docs/guide/latency-models.md` names the same seven); its constants are
fitted (`data/serving.json`). With F FLOP/s and B bytes/s of one GPU, n GPUs, b requests resident, i input and o output tokens:

    prefill(b)  = soft_max(flops(b i) / (n F) * pre * (1 + tok0 n / (b i)), read / (n B) * w) + play L + all_reduce + pstep
    decode(b)   = soft_max(read(b) / (n B) * w, 2 A b / (n F) * dco) + b kv / (n B) * kv
                  + (lay + moel) L + all_reduce(b) + req b + step
    flops(b i)  = 2 A b i + 2 b L h i^2 att
    read(b)     = weights; of E experts with k a token, a share 1 - (1 - k/E)^b is read
    static batch: waves * (prefill(b) + o decode(b))
    closed loop at b: a request waits phi of the others' prefills before its first token, shares 1 - phi of them after it:
        TTFT = tt0 + twarm / b + tp1 prefill(1) + phi (b - 1) mix prefill(1) + td decode(b) + tslot o TPOT / b
        TPOT = decode(b) + (1 - phi) (b - 1) mix prefill(1) / o
    (tslot: the share of time in which an engine keeps one slot fewer than the concurrency, so that one request waits;
    twarm: a slow first round, of which a short run at a low concurrency sees more)
    full load: b = what memory or the engine's limit lets in; cycle = o decode(b) + b mixm prefill(n) / n,
        with the n = 2048 / i prompts that share a step

A step has the same formulas, with the tokens in it in place of whole prompts and answers:

    decodes only:  soft_max(read(b) / (n B) * w, 2 A b / (n F) * dco) + (lay + moel) L + all_reduce(b) + req b + step
    with prompts:  soft_max(2 A t / (n F) * pre * (1 + tok0 n / t), read(t) / (n B) * w) + play L + all_reduce(t) + pstep
    both:          + the caches read / (n B) * kv

for b requests that decode and t tokens in all. So a step that only decodes is affine in the tokens of the caches, which is what
lets a replay add up a stretch of them in closed form.

What a first token takes besides is in `data/first_token.json`, by engine and kind of model, with the held-out errors that make
the interval: fitted by `benchmarks.ttft` on public closed-loop runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.catalog import Gpu
from trimtab.physics.fitted import Floats, Keys, read_fit
from trimtab.physics.serving_query import chip_of
from trimtab.provenance import Basis, Estimate

USABLE_FRAC = 0.90
"""Share of memory an engine plans with (vLLM's default)."""
LEAST_CACHE_FRAC = 0.02
"""Share of memory that an engine which runs at all has for its cache."""
SHARPNESS = 3.0
"""Exponent of the soft maximum: two equal costs give 1.26 of one (kernels overlap compute and memory in part)."""
MICRO_BATCH_TOKENS = 512
"""Prompt tokens that llama.cpp hands from stage to stage at once (its default ubatch-size)."""
CHUNK_TOKENS = 2048
"""Prompt tokens of a step that mixes prefill and decode: short prompts share it and its read of the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingTimes:
    """What serving takes, column by column."""

    prefill_one_s: Floats
    prefill_batch_s: Floats
    decode_s: Floats
    static_s: Floats
    ttft_s: Floats
    tpot_s: Floats
    saturated_tok_s: Floats
    resident: Floats
    weights_s: Floats
    kv_s: Floats
    compute_s: Floats
    network_s: Floats
    overhead_s: Floats


def soft_max(one: Floats, other: Floats) -> Floats:
    """Return a smooth maximum of two costs that overlap in part."""
    return np.asarray((one**SHARPNESS + other**SHARPNESS) ** (1 / SHARPNESS))


def cache_bytes(v: Mapping[str, Floats], context: Floats) -> Floats:
    """Return the key-value cache of one request at a context, over all GPUs of a deployment."""
    windowed = np.minimum(context, v["window"])
    return np.asarray(
        v["kv_values_bytes"] * (v["full_layers"] * context + v["window_layers"] * windowed) * v["kv_copies"]
    )


def capacity(v: Mapping[str, Floats]) -> Floats:
    """Return how many requests fit at once; at least 1 (an engine that runs at all runs one).

    A static batch grows to its full length together; in continuous batching requests are at all stages: the mean context.
    """
    context = v["input"] + v["output"] * np.where(v["static"] > 0, 1.0, 0.5)
    return np.maximum(np.floor(cache_budget_bytes(v) / cache_bytes(v, context)), 1)


def cache_budget_bytes(v: Mapping[str, Floats]) -> Floats:
    """Return the memory that an engine has for the caches of all requests, over all GPUs of a deployment."""
    per_deployment = v["group"] * v["stages"]
    held = v["weights"] + v["adapters"] * v["adapter_bytes"] + v["runtime"] * per_deployment
    budget = USABLE_FRAC * v["memory"] * per_deployment - held
    # what was measured did run: a budget below this is the estimate's error, not the engine's
    least = LEAST_CACHE_FRAC * v["memory"] * per_deployment
    return np.maximum(budget, least)


def _all_reduce(v: Mapping[str, Floats], c: Mapping[str, Floats], tokens: Floats) -> Floats:
    """Two exchanges a layer over the group: all-reduces under tensor parallelism, else tokens to their experts and back."""
    group = v["group"]
    # 2 bytes a value; a ring passes 2 (g - 1) / g of them over each link
    reduced = tokens * 2 * 2
    # each rank sends its own tokens to their experts in FP8 and gets them back in 16 bits (DeepEP, deepseek-ai/DeepEP)
    routed = tokens / v["ranks"] * v["per_token"] * (1 + 2)
    volume = np.where(v["ranks"] > 1, routed, reduced) * v["hidden"] * (group - 1) / group / v["link"]
    # one exchange after attention and one after the feed-forward, or before the experts and after them
    return np.asarray(np.where(group > 1, 2 * v["layers"] * (c["arl"] + volume * c["arb"]), 0.0))


def _hops(v: Mapping[str, Floats], c: Mapping[str, Floats], tokens: Floats) -> Floats:
    """Hand tokens from a pipeline stage to the next node: 2 bytes a value and the latency of an exchange."""
    one = tokens * v["hidden"] * 2 / v["hop"] + c["arl"]
    return np.asarray(np.where(np.isfinite(v["hop"]), (v["stages"] - 1) * one, 0.0))


def _read(v: Mapping[str, Floats], tokens: Floats) -> Floats:
    """Weights that a step over `tokens` reads: of the experts, those that some token chose."""
    chosen = 1 - (1 - v["per_token"] / v["experts"]) ** np.minimum(tokens, 1e6)
    return np.asarray(v["read"] - v["expert_weights"] * np.where(v["moe"] > 0, 1 - chosen, 0.0))


def prefill_s(v: Mapping[str, Floats], c: Mapping[str, Floats], requests: Floats) -> Floats:
    """Return the time to read the prompts of `requests` requests; under full load all pipeline stages are busy."""
    # tokens found in the prefix cache are not computed, but attention reads them
    new = v["input"] - v["cached"]
    tokens = requests * new
    shards = v["group"] * _busy_stages(v, c, tokens)
    split = v["group"] * np.where(v["pipes_prompts"] > 0, 1, v["stages"])
    # two products of 2 FLOPs over half of the pairs among new tokens, since the mask is causal, and all with cached ones
    attention = 2 * v["layers"] * v["query_width"] * new * (new + 2 * v["cached"]) * c["att"]
    # of a prompt only the last position goes through the output head
    one = 2 * v["active"] * new + attention + 2 * v["head"]
    compute = one * requests / (shards * v["flop_s"]) * c["pre"] * (1 + c["tok0"] / tokens * split)
    memory = (_read(v, tokens) + _adapters_read(v, requests)) / (_weight_shards(v) * v["byte_s"]) * c["w"]
    # launches and all-reduces are taken not to overlap with the work, so they add
    fixed = c["play"] * v["layers"] + _all_reduce(v, c, tokens) + _hops(v, c, tokens) + c["pstep"]
    return np.asarray((soft_max(compute, memory) + fixed) * (1 + v["slowdown"]))


def _adapters_read(v: Mapping[str, Floats], requests: Floats) -> Floats:
    """Adapters that a step over `requests` reads: each request uses one, and requests of one adapter share it."""
    return np.asarray(v["adapter_bytes"] * np.minimum(v["adapters"], requests))


def _busy_stages(v: Mapping[str, Floats], c: Mapping[str, Floats], tokens: Floats) -> Floats:
    """Return how many pipeline stages work at once while a prompt is read.

    llama.cpp sends it through in micro-batches of 512 tokens: of G stages G m / (m + G - 1) are busy with m of them. Under full
    load all are; else the geometric mean of one and all.
    """
    stages = v["stages"]
    micro = np.maximum(tokens / MICRO_BATCH_TOKENS, 1)
    piped = (stages * micro / (micro + stages - 1)) ** np.minimum(c["pipe"], 1)
    waiting = np.where(v["pipes_prompts"] > 0, piped, np.sqrt(stages))
    return np.asarray(np.where(v["saturates"] > 0, stages, waiting))


def _weight_shards(v: Mapping[str, Floats]) -> Floats:
    """Pipeline stages read their weights once per micro-batch, so only the tensor-parallel degree divides that time."""
    return v["group"]


def _is_alone(v: Mapping[str, Floats]) -> npt.NDArray[np.bool_]:
    """Say where one request crosses pipeline stages one after another."""
    return np.asarray((v["stages"] > 1) & (v["requests"] < 2) & (v["saturates"] == 0))


def _parts(v: Mapping[str, Floats], c: Mapping[str, Floats], requests: Floats) -> tuple[Floats, Floats, Floats]:
    alone = _is_alone(v)
    # a request alone passes one stage after another: no two stages work for it at once
    shards = np.where(alone, v["group"], v["group"] * v["stages"])
    # a step checks all drafted positions of a request at once
    tokens = requests * v["positions"]
    read = _read(v, tokens) * np.where(v["moe"] > 0, c["moew"], 1.0) + _adapters_read(v, requests)
    weights = read / (_weight_shards(v) * v["byte_s"]) * c["w"]
    # half of the answer is the mean length of a cache while it grows
    cache = requests * cache_bytes(v, v["input"] + v["output"] / 2) / (shards * v["byte_s"]) * c["kv"]
    compute = 2 * (v["active"] + v["head"]) * tokens / (shards * v["flop_s"]) * c["dco"]
    return np.asarray(weights), np.asarray(cache), np.asarray(compute)


def _overhead(v: Mapping[str, Floats], c: Mapping[str, Floats], requests: Floats) -> Floats:
    # under data parallel attention each rank schedules its own requests, all at the same time
    own = requests / v["ranks"]
    return np.asarray((c["lay"] + v["moe"] * c["moel"]) * v["layers"] + c["req"] * own + c["step"])


def decode_s(v: Mapping[str, Floats], c: Mapping[str, Floats], requests: Floats) -> Floats:
    """Return the time that a token takes where `requests` requests decode, at mean context: of one step without a draft."""
    weights, cache, compute = _parts(v, c, requests)
    work = soft_max(weights, compute) + cache
    # short of full load a batch is handed from stage to stage, and part of the pipeline waits
    shared = (v["stages"] > 1) & (v["saturates"] == 0) & ~_is_alone(v)
    hand_over = np.where(shared, work * (v["stages"] - 1) * c["ppx"], 0.0)
    tokens = requests * v["positions"]
    step = work + hand_over + _overhead(v, c, requests) + _all_reduce(v, c, tokens) + _hops(v, c, tokens)
    return np.asarray(step * (1 + v["slowdown"]) * (1 + v["drafted"]) / v["yielded"])


def serving_times(v: Mapping[str, Floats], c: Mapping[str, Floats]) -> ServingTimes:
    """Return all times of the queries in `serving_columns` under the coefficients of `serving_coefficients`."""
    deployment = v["group"] * v["stages"]
    replicas = np.maximum(v["gpus"] / deployment, 1)
    fit = capacity(v)
    # under full load the engine takes in what memory, or its own limit, lets in
    wanted = np.where(v["saturates"] > 0, np.minimum(fit, c["limit"] * deployment ** c["bexp"]), v["requests"])
    # a static batch waits for whole waves; continuous batching fills a place as soon as it is free
    waves = np.where(v["static"] > 0, np.ceil(wanted / fit), np.maximum(wanted / fit, 1))
    # from here on never more than fit at once
    resident = wanted / waves
    one, batch, step = prefill_s(v, c, np.ones_like(fit)), prefill_s(v, c, resident), decode_s(v, c, resident)
    output, scale = v["output"], c["glob"]
    mixed = one * c["mix"]
    # prompts that share a step: what the chunk holds, but no more than are there
    chunk = np.clip(CHUNK_TOKENS / (v["input"] - v["cached"]), 1, np.maximum(resident, 1))
    shared = prefill_s(v, c, chunk) / chunk
    # kept below 1, so that some prefill always falls between the tokens
    phi = np.minimum(c["tq"], 0.95)
    # the others' prefills are spread over all tokens of an answer
    tpot = (step + (1 - phi) * (resident - 1) * mixed / output) * scale
    first = c["tt0"] + c["twarm"] / resident + one * c["tp1"] + phi * (resident - 1) * mixed + step * c["td"]
    # beyond memory a request waits for half of the other waves on average
    queued = np.where(waves > 1, (waves - 1) * output * tpot * 0.5, 0.0) + c["tslot"] * output * tpot / resident
    weights, cache, compute = _parts(v, c, resident)
    return ServingTimes(
        prefill_one_s=one * scale,
        prefill_batch_s=batch * scale,
        decode_s=step * scale,
        static_s=waves * (batch + output * step) * scale / replicas,
        ttft_s=first * scale * c["tglob"] + queued + v["load_s"],
        tpot_s=tpot,
        # in one cycle every resident request is answered once
        saturated_tok_s=resident * output / ((output * step + resident * shared * c["mixm"]) * scale) * replicas,
        resident=resident,
        weights_s=weights * scale,
        kv_s=cache * scale,
        compute_s=compute * scale,
        network_s=_all_reduce(v, c, resident) * scale,
        overhead_s=_overhead(v, c, resident) * scale,
    )


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
    mixed = np.maximum.accumulate(prefill_s({**bare, "input": tokens, "cached": np.zeros(1)}, c, np.ones(1)))
    context = v["input"] + v["output"] / 2
    shards, scale = v["group"] * v["stages"], c["glob"]
    # windows make a cache less than proportional to its context: the mean context stands for all
    # with a draft a step reads it once for all the tokens that it yields
    per_token = (1 + v["slowdown"]) * (1 + v["drafted"]) / v["yielded"]
    context_s = cache_bytes(v, context) / context / (shards * v["byte_s"]) * c["kv"] * scale * per_token
    # two products of 2 FLOPs for each pair of tokens
    pair_s = 4 * v["layers"] * v["query_width"] * c["att"] / (shards * v["flop_s"]) * c["pre"] * scale
    pair_s = pair_s * (1 + v["slowdown"])
    return StepTimes(
        decode_s=np.concatenate(([0.0], decode * scale)),
        mixed_s=np.concatenate(([0.0], mixed * scale)),
        sequence_s=float((c["req"] / v["ranks"] * scale * per_token)[0]),
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


STEP_TOKENS, SMALL_STEP_TOKENS = 8192, 2048
"""Tokens of a step on large and on smaller boards: vLLM's defaults for a server (`max_num_batched_tokens`)."""
LARGE_BOARD_GIB = 70
"""From here on vLLM takes the larger default, but for the A100 (`vllm/engine/arg_utils.py`, `get_batch_defaults`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokenCosts:
    """A first token takes `wait_scale` of what the replay says, and `fixed_s` and `delay_steps` steps of decoding more."""

    wait_scale: float
    fixed_s: float
    delay_steps: float

    def first_s(self, replayed_s: Floats, step_s: Floats) -> Floats:
        """Return times to first token of requests whose replayed time and decoding step are known, `(n,)` each.

        An answer of one token has no second (`step_s` NaN), and so no delay by steps.
        """
        return np.asarray(self.wait_scale * replayed_s + self.fixed_s + self.delay_steps * np.nan_to_num(step_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokenFit:
    """The constants by engine and kind of model (`vllm|moe`), and the quantiles of ln(predicted / measured) when held out."""

    costs: Mapping[str, FirstTokenCosts]
    low: float
    high: float
    source: str

    def of(self, keys: Keys) -> FirstTokenCosts:
        """Return the constants of a query's `serving_keys`: of the engine with this kind of model, else of the nearest."""
        engine = keys["engine"]
        for name in (level_of(keys), f"{engine}|", "vllm|"):
            if name in self.costs:
                return self.costs[name]
        raise KeyError(f"first_token.json holds no constants of {engine} or vllm")

    def estimate(self, first_s: float) -> Estimate:
        """Return a replayed time to first token with its 80 % interval."""
        low, high = first_s * math.exp(-max(self.high, 0.0)), first_s * math.exp(-min(self.low, 0.0))
        return Estimate(value=first_s, low=low, high=high, basis=Basis.MODELLED, because=self.source)


def default_step_tokens(gpu: Gpu) -> int:
    """Return the tokens of a step that an engine takes by itself on a board."""
    is_large = gpu.memory_gib >= LARGE_BOARD_GIB and chip_of(gpu) != "A100"
    return STEP_TOKENS if is_large else SMALL_STEP_TOKENS


def level_of(keys: Keys) -> str:
    """Return the level by which constants differ: engine and kind of model."""
    return f"{keys['engine']}|{keys['kind']}"


@lru_cache(maxsize=1)
def first_token_fit() -> FirstTokenFit:
    """Return the packaged constants."""
    content = read_fit("first_token.json")
    costs, low, high = content["costs"], content["low"], content["high"]
    if not isinstance(costs, dict) or not isinstance(low, float) or not isinstance(high, float):
        raise TypeError("first_token.json must hold costs, low and high")
    return FirstTokenFit(
        costs={str(name): FirstTokenCosts(**values) for name, values in costs.items()},
        low=low,
        high=high,
        source=str(content["source"]),
    )
