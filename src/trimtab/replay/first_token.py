"""Time to first token of a deployment under a load: the engine's scheduler replayed with the serving model's step times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.physics.fitted import Floats
from trimtab.physics.serving import STEP_TOKENS, FirstTokenCosts, kv_blocks, scaled, step_times
from trimtab.replay.engine import BLOCK_TOKENS, EngineLimits, EngineReplay, Requests, replay_engine

REQUESTS = 4000
"""Requests of a drawn load; its first tenth warms up. The 95th percentile is then known to about 5 %."""
WARM_UP_FRAC = 0.1
SPREAD_FRAC = 0.2
"""How far the lengths of drawn requests spread, evenly around their mean: of one length all, they would end in step."""
MOST_PREEMPTED_FRAC = 0.01
"""Preemptions a request from which on the cache is taken not to hold the load."""
_SEED = 20261123


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReplay:
    """What requests of one load would have seen; times in seconds."""

    ttft_p50_s: float
    ttft_p95_s: float
    tpot_p95_s: float
    """NaN where answers have one token."""
    ttft_tail_s: float
    """At the quantile asked for, as the next two."""
    tpot_tail_s: float
    latency_tail_s: float
    """Of whole requests."""
    preempted_frac: float
    """Preemptions a request."""
    is_beyond_saturation: bool
    """More comes than is served: waits are those of a backlog, whose length no figure of an engine says."""


def drawn_requests(
    input_tokens: float,
    output_tokens: float,
    *,
    rate_req_s: float | None,
    clients: int = 0,
    number: int = REQUESTS,
    cached_frac: float = 0.0,
) -> Requests:
    """Return a Poisson stream of requests at a rate, or those that so many clients send.

    Of each prompt the same share is found in the prefix cache.

    The same random numbers for every load. Clients all start at once: each sends ten requests, of which the first warms up.
    """
    number = max(number, round(clients / WARM_UP_FRAC))
    rng = np.random.default_rng(_SEED)
    arrival_s = np.cumsum(rng.standard_exponential(number)) / rate_req_s if rate_req_s else np.zeros(number)
    prompts = spread_lengths(input_tokens, SPREAD_FRAC, rng.random(number))
    answers = spread_lengths(output_tokens, SPREAD_FRAC, rng.random(number))
    return Requests(arrival_s, prompts, answers, np.floor(prompts * cached_frac).astype(np.int64))


def replay_deployment(
    v: Mapping[str, Floats],
    c: Mapping[str, Floats],
    requests: Requests,
    *,
    max_num_seqs: int,
    clients: int = 0,
    step_tokens: int = STEP_TOKENS,
    scale: float = 1.0,
) -> EngineReplay:
    """Replay requests through one deployment: a query's `serving_columns` and the coefficients of them, `(1,)` each.

    `scale` is measured over predicted time of the user's own point; 1 without one.
    """
    limits = EngineLimits(max_num_seqs, max(step_tokens, max_num_seqs), kv_blocks(v, BLOCK_TOKENS))
    times = step_times(v, c, max_num_seqs=max_num_seqs, step_tokens=limits.step_tokens)
    return replay_engine(requests, limits, scaled(times, scale), clients=clients)


def beyond_saturation(replayed: EngineReplay) -> bool:
    """Return whether more comes than an engine serves: caches are given up, or a place is waited for longer than it is held.

    On measured runs such times are off by factors of up to a hundred to either side, for a little more or less of memory
    decides between a place at once and a turn in a long line (`benchmarks.ttft`).
    """
    served, kept = replayed.served, ~replayed.refused
    if not kept.any():
        return True
    waited_s = float((served.admitted_s - replayed.requests.arrival_s)[kept].mean())
    held_s = float((served.end_s - served.admitted_s)[kept].mean())
    return waited_s > held_s or replayed.preemptions >= MOST_PREEMPTED_FRAC * int(kept.sum())


def seen_by_requests(
    replayed: EngineReplay, costs: FirstTokenCosts, *, load_s: float = 0.0, tail_frac: float = 0.95
) -> LoadReplay | None:
    """Return the quantiles after the warm-up, with what a first token takes besides the engine's steps; None of none served.

    The steps of the delay are as long as those that the request's own answer takes. `load_s` is the time to load a prompt's
    cache from host memory, which delays that request alone. `tail_frac` is a further quantile, of first tokens, tokens and
    whole requests.
    """
    kept = np.arange(len(replayed.refused)) >= WARM_UP_FRAC * len(replayed.refused)
    kept &= ~replayed.refused
    if not kept.any():
        return None
    step_s = replayed.tpot_s[kept]
    ttft_s = costs.first_s(replayed.ttft_s[kept], step_s) + load_s
    later_tokens = replayed.requests.output_tokens[kept] - 1
    latency_s = ttft_s + later_tokens * np.nan_to_num(step_s)
    return LoadReplay(
        ttft_tail_s=float(np.quantile(ttft_s, tail_frac)),
        tpot_tail_s=float(np.nanquantile(step_s, tail_frac)) if np.isfinite(step_s).any() else np.nan,
        latency_tail_s=float(np.quantile(latency_s, tail_frac)),
        ttft_p50_s=float(np.quantile(ttft_s, 0.5)),
        ttft_p95_s=float(np.quantile(ttft_s, 0.95)),
        tpot_p95_s=float(np.nanquantile(step_s, 0.95)) if np.isfinite(step_s).any() else np.nan,
        preempted_frac=replayed.preemptions / len(kept),
        is_beyond_saturation=beyond_saturation(replayed),
    )


def spread_lengths(middle: float, spread_frac: float, uniform: FloatArray) -> IntArray:
    """Return token counts spread evenly around a mean, `spread_frac` of it wide in all; `uniform` is drawn from 0 to 1."""
    return np.maximum(np.rint(middle * (1 + spread_frac * (uniform - 0.5))), 1).astype(np.int64)
