"""Prefill and decode apart, beside serving in one place: the cheapest pair of pools that keeps the targets in its replay."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.physics.ask import DEFAULT_ENGINE, FitMarket, accepted_caveats, runnable
from trimtab.physics.disaggregated import DisaggregatedOption, Half, joined, search_disaggregated
from trimtab.physics.formats import WeightFormat
from trimtab.physics.found_ways import Rejected, ServingOption, Unmet
from trimtab.physics.models import Architecture
from trimtab.physics.predict import coefficients_of
from trimtab.physics.serving import FirstTokenCosts, default_step_tokens, first_token_fit
from trimtab.physics.serving_demand import Demand, ServingWay, ways_of
from trimtab.physics.serving_query import ServingQuery, serving_columns, serving_keys
from trimtab.pipeline.fitting import DEFAULT_TAIL_FRAC, ReplayedLoad, TailTimes
from trimtab.replay.disaggregated import DisaggregatedReplay, decode_pool, prefill_pool, replay_disaggregated
from trimtab.replay.first_token import MOST_PREEMPTED_FRAC, REQUESTS, WARM_UP_FRAC, drawn_requests

MOST_REPLAYS = 30
"""Pairs replayed, cheapest first, before the search gives up."""
REQUESTS_PER_REPLICA, MOST_REQUESTS = 100, 40_000
"""Requests of a replay where pools are large, so that each replica sees some."""
WIDER = 1.25
"""By how much the half that misses its limit grows before the pair is tried again."""
EQUAL_FRAC = 0.005
"""Costs that differ by less are said to be the same."""
IDLE_FRAC = 0.6
"""A half that is busy for less than this is the reason that a pair costs more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsAnswer:
    """The pair that keeps the targets with its replay, None where none does; and what was rejected with its reason."""

    pair: DisaggregatedOption | None
    load: ReplayedLoad | None
    tpot_s: float
    """Mean time per token in the replay; NaN without a pair."""
    rejected: tuple[Rejected, ...]


def serve_disaggregated(
    model: Architecture,
    demand: Demand,
    market: FitMarket,
    *,
    engine: str = DEFAULT_ENGINE,
    formats: Sequence[WeightFormat] = (),
    scale: float = 1.0,
) -> PoolsAnswer:
    """Return the cheapest pair of pools that keeps the targets in its replay.

    Pairs without a caveat are replayed first, each part from the cheapest on. One that misses a limit is tried again with more
    replicas of the half that missed it: of prefill for the first token, of decode for the time per token. A demand without a
    rate has no pools to size.
    """
    if market.own is not None or demand.rate_req_s is None:
        return PoolsAnswer(pair=None, load=None, tpot_s=math.nan, rejected=())
    ways: list[ServingWay] = []
    for gpu, offers in runnable(market)[0]:
        ways += ways_of(model, gpu, offers, demand, engine, formats)[0]
    found, rejected = search_disaggregated(
        ways,
        demand,
        option=market.option,
        scale=scale,
        losses=market.losses,
        link=market.link,
        accepted=accepted_caveats(market, formats),
    )
    # the order of the search breaks ties, so that heap entries never compare pairs
    heap = [(bool(pair.caveats), pair.usd_hr, number, pair) for number, pair in enumerate(found)]
    heapq.heapify(heap)
    number, misses = len(found), list(rejected)
    tried: set[tuple[object, ...]] = set()
    while heap and len(tried) < MOST_REPLAYS:
        *_, pair = heapq.heappop(heap)
        # the same pools in another region answer alike
        if _pools_key(pair) in tried:
            continue
        tried.add(_pools_key(pair))
        load, tpot_s = replayed_pair(pair, demand, scale=scale)
        missed = _missed(pair, load, tpot_s, demand)
        if missed is None:
            return PoolsAnswer(pair=pair, load=load, tpot_s=tpot_s, rejected=tuple(misses))
        misses.append(missed)
        wider = _widened(pair, missed, demand, market)
        if wider is not None:
            heapq.heappush(heap, (bool(wider.caveats), wider.usd_hr, number, wider))
            number += 1
    return PoolsAnswer(pair=None, load=None, tpot_s=math.nan, rejected=tuple(misses))


def _pools_key(pair: DisaggregatedOption) -> tuple[object, ...]:
    """Return all that the replay of a pair depends on."""
    halves = (
        (half.gpu.name, half.query.tensor, half.query.stored, half.replicas, half.concurrency)
        for half in (pair.prefill, pair.decode)
    )
    return (*halves, pair.transfer.byte_s)


def replayed_pair(
    pair: DisaggregatedOption, demand: Demand, *, scale: float = 1.0
) -> tuple[ReplayedLoad | None, float]:
    """Replay the asked rate through both pools; return first tokens with intervals, and the mean time per token."""
    number = max(REQUESTS, REQUESTS_PER_REPLICA * max(pair.prefill.replicas, pair.decode.replicas))
    requests = drawn_requests(
        demand.input_tokens,
        demand.output_tokens,
        rate_req_s=demand.rate_req_s,
        number=min(number, MOST_REQUESTS),
        cached_frac=demand.cached_frac + demand.loaded_frac,
    )
    replayed = replay_disaggregated(
        requests,
        prefill_pool(
            *_columns(pair.prefill.query),
            replicas=pair.prefill.replicas,
            step_tokens=default_step_tokens(pair.prefill.gpu),
            scale=scale,
        ),
        decode_pool(
            *_columns(pair.decode.query),
            replicas=pair.decode.replicas,
            max_num_seqs=pair.decode.concurrency,
            scale=scale,
        ),
        pair.transfer,
    )
    load_s = float(serving_columns([pair.prefill.query])["load_s"][0])
    tail_frac = demand.targets.tail_frac or DEFAULT_TAIL_FRAC
    return _seen(replayed, first_token_fit().of(serving_keys(pair.decode.query)), load_s, tail_frac)


def _columns(query: ServingQuery) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    columns = serving_columns([query])
    return columns, coefficients_of([query], columns)


def first_token_s(replayed: DisaggregatedReplay, costs: FirstTokenCosts) -> np.ndarray:
    """Return times to first token with what a first token takes besides the engine's steps, `(n,)`."""
    carried_s = replayed.arrived_s - replayed.prompt_s
    return costs.first_s(replayed.ttft_s - carried_s, replayed.tpot_s) + carried_s


def _seen(
    replayed: DisaggregatedReplay, costs: FirstTokenCosts, load_s: float, tail_frac: float
) -> tuple[ReplayedLoad | None, float]:
    """Return the quantiles after the warm-up; no first tokens where more comes than is served."""
    kept = (np.arange(len(replayed.refused)) >= WARM_UP_FRAC * len(replayed.refused)) & ~replayed.refused
    if not kept.any():
        return None, math.nan
    step_s, first_s = replayed.tpot_s[kept], first_token_s(replayed, costs)[kept] + load_s
    mean_s = float(np.nanmean(step_s)) if np.isfinite(step_s).any() else math.nan
    waited_s = float((replayed.admitted_s - replayed.arrived_s)[kept].mean())
    held_s = float((replayed.end_s - replayed.admitted_s)[kept].mean())
    preempted_frac = float(replayed.preempted.sum() / len(kept))
    saturated = waited_s > held_s or preempted_frac >= MOST_PREEMPTED_FRAC
    fitted = first_token_fit()
    p50_s, p95_s, tail_s = (float(np.quantile(first_s, share)) for share in (0.5, 0.95, tail_frac))
    latency_s = first_s + (replayed.requests.output_tokens[kept] - 1) * np.nan_to_num(step_s)
    tail = TailTimes(
        frac=tail_frac,
        ttft_s=fitted.estimate(tail_s),
        tpot_s=float(np.nanquantile(step_s, tail_frac)) if math.isfinite(mean_s) else math.nan,
        latency_s=float(np.quantile(latency_s, tail_frac)),
    )
    load = ReplayedLoad(
        ttft_p50_s=None if saturated else fitted.estimate(p50_s),
        ttft_p95_s=None if saturated else fitted.estimate(p95_s),
        tpot_p95_s=float(np.nanquantile(step_s, 0.95)) if math.isfinite(mean_s) else math.nan,
        preempted_frac=preempted_frac,
        tail=None if saturated else tail,
    )
    return load, mean_s


def _missed(pair: DisaggregatedOption, load: ReplayedLoad | None, tpot_s: float, demand: Demand) -> Rejected | None:
    """Return which limit a pair misses in its replay, None where it keeps all."""
    limits = demand.targets
    if load is None or load.tail is None or load.ttft_p50_s is None:
        return _rejected(pair, "more comes than is served at once", math.inf)
    tail, step_s = load.tail, 0.0 if math.isnan(tpot_s) else tpot_s
    latency_s = load.ttft_p50_s.value + (demand.output_tokens - 1) * step_s
    if limits.tail_frac is not None:
        step_s, latency_s = 0.0 if math.isnan(tail.tpot_s) else tail.tpot_s, tail.latency_s
    checks = (
        (f"TTFT p{100 * tail.frac:g}", tail.ttft_s.value, limits.ttft_s),
        ("TPOT", step_s, limits.tpot_s),
        ("latency", latency_s, limits.latency_s),
    )
    beyond = [(value / limit - 1, name, value, limit) for name, value, limit in checks if limit and value > limit]
    if not beyond:
        return None
    miss, name, value, limit = max(beyond)
    return _rejected(pair, f"{name} {value:.3g} s in the replay, the limit is {limit:.3g} s", miss)


def _rejected(pair: DisaggregatedOption, because: str, miss_frac: float) -> Rejected:
    return Rejected(
        gpu=f"{pair.prefill.gpu.name} + {pair.decode.gpu.name}",
        what=f"{pools_words(pair)}, apart",
        reason=Unmet.TARGET,
        because=because,
        miss_frac=miss_frac,
    )


def _widened(
    pair: DisaggregatedOption, missed: Rejected, demand: Demand, market: FitMarket
) -> DisaggregatedOption | None:
    """Return the pair with more replicas of the half that misses its limit."""
    prefill, decode = pair.prefill, pair.decode
    if missed.because.startswith("TTFT"):
        prefill = _more(prefill)
    else:
        decode = _more(decode)
    wider = joined(prefill, decode, demand, market.losses, market.link)
    return None if isinstance(wider, Rejected) else wider


def _more(half: Half) -> Half:
    return replace(half, replicas=math.ceil(half.replicas * WIDER))


def pools_words(pair: DisaggregatedOption) -> str:
    """Name both pools: replicas, GPUs of one, board."""
    halves = (("prefill", pair.prefill), ("decode", pair.decode))
    named = (f"{name} {half.replicas} x {half.query.tensor} {half.gpu.name}" for name, half in halves)
    return f"{', '.join(named)}, {pair.decode.query.stored.value}"


def why_words(pair: DisaggregatedOption, together: ServingOption | None, demand: Demand, tpot_s: float) -> str:
    """Say what serving apart costs beside the best option in one place, and why."""
    if together is None:
        return "no option in one place keeps the targets"
    ratio = pair.usd_per_mtok.value / together.usd_per_mtok.value if together.usd_per_mtok.value else 1.0
    rate = demand.rate_req_s or 0.0
    busy = {"prefill": pair.prefill.busy_frac(rate), "decode": pair.decode.busy_frac(rate)}
    # GPU time of a prompt over that of a whole request; of the same board, since another's time is worth something else
    prompt_gpu_s = pair.prefill.query.tensor / pair.prefill.replica_req_s
    prompt_frac = min(1.0, prompt_gpu_s * together.replica_req_s / together.replica_gpus)
    share = f"about {prompt_frac:.0%}" if pair.prefill.gpu == together.gpu else "part"
    steps = f"steps take {tpot_s * 1e3:,.3g} ms where they only decode, {together.tpot_s.value * 1e3:,.3g} ms together"
    if ratio < 1 - EQUAL_FRAC:
        because = f"prompts would take {share} of the GPU time there and hold up answers"
        return f"{1 - ratio:.0%} cheaper than together: {because}; {steps}"
    idle = [f"{name} is busy {frac:.0%} of the time" for name, frac in busy.items() if frac < IDLE_FRAC]
    because = (
        f"{' and '.join(idle)}, since each half needs whole replicas and nodes"
        if idle
        else f"prompts take {share} of the GPU time there, and what decode gains does not pay for a second pool"
    )
    cost = "costs as much as together" if ratio < 1 + EQUAL_FRAC else f"{ratio - 1:.0%} more expensive than together"
    return f"{cost}: {because}; {steps}"
