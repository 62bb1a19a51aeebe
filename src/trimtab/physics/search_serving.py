"""Every way of serving a model: GPU x count x format, the largest concurrency that keeps the targets, its rate and cost.

The user's own measured point, where given, fixes the constant: all predictions for the engine are scaled by measured over
predicted, so that only ratios between GPUs remain modelled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trimtab.catalog import BuyingOption
from trimtab.physics.footprint import Footprint, Parallel, Serving, inference_footprint
from trimtab.physics.formats import is_four_bit
from trimtab.physics.found_ways import Rejected, ServingOption, Unmet
from trimtab.physics.offers import (
    USUAL,
    Caveat,
    Interruptions,
    NodeOffer,
    caveats_of,
    nodes_for,
    plain_and_cheapest,
    replicas_for,
)
from trimtab.physics.predict import Quantity, calibrated, coefficients_of, with_interval
from trimtab.physics.serving import ServingTimes, serving_times
from trimtab.physics.serving_demand import Demand, ServingWay
from trimtab.physics.serving_query import ServingQuery, adapters_bytes, serving_columns
from trimtab.physics.transfer import Binding
from trimtab.provenance import Estimate
from trimtab.units import S_PER_HR, TOKENS_PER_MTOK

CONCURRENCIES = tuple(sorted({round(2 ** (k / 8)) for k in range(81)}))
"""1 to 1,024 in steps of about 9 %."""
TAIL_FACTOR = 1.6
"""p95 over the mean of TTFT in closed-loop runs where prompts share steps (an M/G/1 queue at 60 % load gives 1.5 to 1.8)."""


def sweep(queries: Sequence[ServingQuery], concurrencies: Sequence[int] = CONCURRENCIES) -> ServingTimes:
    """Return all times of all queries at all concurrencies, `(queries, concurrencies)` each; one pass of array arithmetic."""
    given = serving_columns(queries)
    # one row per query, one column a concurrency: the shapes broadcast against each other
    columns = {name: column[:, None] for name, column in given.items()}
    columns["requests"] = np.array(concurrencies, dtype=np.float64)[None, :]
    # from `given`: coefficients are those of a query, whatever its concurrency
    coefficients = coefficients_of(queries, given)
    return serving_times(columns, {name: column[:, None] for name, column in coefficients.items()})


def search_serving(
    ways: Sequence[ServingWay],
    demand: Demand,
    *,
    option: BuyingOption = BuyingOption.ON_DEMAND,
    scale: float = 1.0,
    losses: Interruptions = USUAL,
    accepted: frozenset[Caveat] = frozenset(),
) -> tuple[list[ServingOption], list[Rejected]]:
    """Return the ways that keep the targets, and the others with their nearest miss.

    Ways without a caveat come first, each part sorted by the cost of a million tokens. `scale` is measured over predicted
    time of the user's own point; 1 without one.
    """
    if not ways:
        return [], []
    times = sweep([way.query for way in ways])
    good: list[ServingOption] = []
    bad: list[Rejected] = []
    for at, way in enumerate(ways):
        chosen = _largest_in_targets(times, at, way, demand, scale)
        if isinstance(chosen, Rejected):
            bad.append(chosen)
            continue
        priced = [
            found
            for offer in way.offers
            if (found := _priced(way, times, at, chosen, demand, offer, option, scale, losses, accepted))
        ]
        # the place breaks ties, so that the same prices always give the same answer
        good += plain_and_cheapest(sorted(priced, key=lambda sold: (sold.usd_hr, sold.offer.where)))
        if not priced:
            bad.append(_unsold(way, option))
    return sorted(good, key=serving_rank), bad


def serving_rank(way: ServingOption) -> tuple[bool, float, float, int, str]:
    """Return the sort key of an answer: options with a caveat last, then by cost."""
    return (bool(way.caveats), way.usd_per_mtok.value, way.usd_hr, way.gpus, way.gpu.name)


def _unsold(way: ServingWay, option: BuyingOption) -> Rejected:
    where = f"{way.query.gpus} x {way.query.stored.value}"
    because = f"no provider sells {way.query.gpus} or more {way.query.gpu.name} in one node {option.value} there"
    return Rejected(gpu=way.query.gpu.name, what=where, reason=Unmet.PRICE, because=because)


def _largest_in_targets(times: ServingTimes, at: int, way: ServingWay, demand: Demand, scale: float) -> int | Rejected:
    """Return the index of the largest concurrency that keeps the targets with all requests resident."""
    limits, output = demand.targets, demand.output_tokens
    ttft = times.ttft_s[at] * scale
    tpot = times.tpot_s[at] * scale
    # TTFT is promised at p95 and predicted as a mean; the others are promised as means
    pairs = ((ttft * TAIL_FACTOR, limits.ttft_s, "TTFT p95"), (tpot, limits.tpot_s, "TPOT"))
    checks = [*pairs, (ttft + (output - 1) * tpot, limits.latency_s, "latency")]
    # `resident` is a quotient: half a request absorbs its rounding
    allowed = np.array(CONCURRENCIES) <= times.resident[at] + 0.5
    for found, limit, _ in checks:
        allowed &= found <= limit if limit is not None else True
    if demand.concurrency is not None:
        allowed &= np.array(CONCURRENCIES) <= demand.concurrency
    if allowed.any():
        # the largest that keeps the limits, because more requests at once make each token cheaper
        return int(np.flatnonzero(allowed)[-1])
    # not even one request at a time keeps them: report the limit that is missed by the largest share
    misses = [
        (float(found[0]) / limit - 1, name, float(found[0]), limit)
        for found, limit, name in checks
        if limit is not None
    ]
    miss, name, value, limit = max(misses, default=(math.inf, "memory", 0.0, 0.0))
    return Rejected(
        gpu=way.query.gpu.name,
        what=f"{way.query.gpus} x {way.query.stored.value}",
        reason=Unmet.TARGET,
        because=f"{name} {value:.3g} s even for one request, the limit is {limit:.3g} s",
        miss_frac=miss,
    )


def _binding(times: ServingTimes, at: int, index: int, demand: Demand) -> Binding:
    # each resident request brings one prefill in as many steps as it has output tokens
    prefill = float(times.prefill_one_s[at, 0]) * float(times.resident[at, index]) / demand.output_tokens
    parts = {
        Binding.MEMORY: float(times.weights_s[at, index] + times.kv_s[at, index]),
        Binding.COMPUTE: float(times.compute_s[at, index]) + prefill,
        Binding.NETWORK: float(times.network_s[at, index]),
        Binding.HOST: float(times.overhead_s[at, index]),
    }
    return max(parts, key=lambda part: parts[part])


def _priced(
    way: ServingWay,
    times: ServingTimes,
    at: int,
    index: int,
    demand: Demand,
    offer: NodeOffer,
    option: BuyingOption,
    scale: float,
    losses: Interruptions,
    accepted: frozenset[Caveat],
) -> ServingOption | None:
    """Return the way at an offer, None where the offer lacks the option or cannot hold a replica."""
    query = way.query
    # one's own card is not bought, whatever way of buying is asked for
    bought = BuyingOption.OWNED if BuyingOption.OWNED in offer.usd_hr else option
    # a replica over several nodes takes them whole; any other lies within one
    if bought not in offer.usd_hr or (offer.gpus < query.gpus and not query.network_gb_s):
        return None
    concurrency = CONCURRENCIES[index]
    ttft, tpot = float(times.ttft_s[at, index]) * scale, float(times.tpot_s[at, index]) * scale
    # TTFT holds the first token, so one step fewer than tokens
    latency = ttft + (demand.output_tokens - 1) * tpot
    # Little's law: requests in work over the time that each takes
    replica = concurrency / latency
    replicas = _replicas(demand, concurrency, replica)
    nodes = nodes_for(replicas, query.gpus, offer.gpus)
    # nodes are sized for the peak, but a token's price spreads over what is served on average
    served = demand.mean_req_s or demand.rate_req_s or replica * replicas
    here = replace(query, requests=concurrency)
    tokens = demand.input_tokens + demand.output_tokens
    # beside a measured point only the ratio between GPUs is uncertain
    step = with_interval(here, Quantity.TPOT, tpot) if scale == 1 else calibrated(tpot)
    speed = _rate(replica * tokens, tpot, step)
    by_option = {
        # on spot, nodes that replace lost ones are paid as well
        way_bought: rate
        * nodes.nodes
        * (losses.serving_factor(offer.interruption) if way_bought is BuyingOption.SPOT else 1)
        for way_bought, rate in offer.usd_hr.items()
    }
    hourly = by_option[bought]
    # dollars an hour over millions of tokens an hour
    cost = hourly / (served * tokens * S_PER_HR / TOKENS_PER_MTOK)
    return ServingOption(
        model=query.model,
        gpu=query.gpu,
        tensor=query.tensor,
        pipeline=query.pipeline,
        expert=query.expert,
        network_gb_s=query.network_gb_s,
        stored=query.stored,
        concurrency=concurrency,
        replicas=replicas,
        replica_req_s=replica,
        tok_s=speed,
        ttft_s=with_interval(here, Quantity.TTFT, ttft),
        tpot_s=step,
        latency_s=latency,
        binding=_binding(times, at, index, demand),
        footprint=_footprint(query, concurrency),
        offer=offer,
        option=bought,
        nodes=nodes.nodes,
        stranded_gpus=nodes.stranded_gpus,
        usd_hr=hourly,
        usd_per_mtok=_inverse(speed, cost),
        usd_hr_by_option=by_option,
        served_req_s=served,
        caveats=caveats_of(query.gpu, offer, accepted, is_four_bit=is_four_bit(query.stored)),
    )


def _rate(value: float, step_s: float, step: Estimate) -> Estimate:
    """Return a rate whose interval is that of the time per token, turned over."""
    low, high = value * step_s / step.high, value * step_s / step.low
    return Estimate(value=value, low=min(low, value), high=max(high, value), basis=step.basis, because=step.because)


def _inverse(speed: Estimate, cost: float) -> Estimate:
    """Return a cost whose interval is that of the speed, turned over."""
    return Estimate(
        value=cost,
        low=cost * speed.value / speed.high,
        high=cost * speed.value / speed.low,
        basis=speed.basis,
        because=speed.because,
    )


def _replicas(demand: Demand, concurrency: int, replica_req_s: float) -> int:
    if demand.rate_req_s is not None:
        return replicas_for(demand.rate_req_s, replica_req_s, headroom_frac=demand.headroom_frac)
    # a fixed concurrency has no peaks above it: no headroom
    return replicas_for(float(demand.concurrency or 1), float(concurrency), headroom_frac=0.0)


def _footprint(query: ServingQuery, concurrency: int) -> Footprint:
    serving = Serving(
        model=query.model,
        stored=query.stored,
        kv_value_bytes=query.kv_value_bytes,
        parallel=Parallel(tensor=query.tensor, pipeline=query.pipeline, expert=query.expert, data=query.ranks),
        requests=concurrency,
        context=math.ceil(query.input_tokens + query.output_tokens),
        adapters_bytes=adapters_bytes(query.model, query.adapters),
    )
    return inference_footprint(serving)
