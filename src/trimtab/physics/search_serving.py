"""Every way of serving a model: GPU x count x format, the largest concurrency that keeps the targets, its rate and cost.

The user's own measured point, where given, fixes the constant: all predictions for the engine are scaled by measured over
predicted, so that only ratios between GPUs remain modelled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from trimtab.catalog import BuyingOption, Gpu
from trimtab.errors import InputError
from trimtab.physics.footprint import Footprint, Parallel, Serving, inference_footprint, resident_requests
from trimtab.physics.formats import WeightFormat
from trimtab.physics.interruption import USUAL, Interruptions
from trimtab.physics.models import Architecture
from trimtab.physics.offers import Offer
from trimtab.physics.predict import Asked, calibrated, coefficients_at, packaged, with_interval
from trimtab.physics.serving import (
    Load,
    ServingQuery,
    ServingTimes,
    kv_value_bytes,
    serving_columns,
    serving_keys,
    serving_times,
)
from trimtab.physics.sizing import nodes_for, replicas_for
from trimtab.physics.support import asked_formats, why_not
from trimtab.physics.transfer import Binding
from trimtab.provenance import Estimate
from trimtab.units import S_PER_HR, TOKENS_PER_MTOK

ENGINE_YEAR = 2026
"""The engines' newest year in the measurements: what a new deployment would run."""
CONCURRENCIES = tuple(sorted({round(2 ** (k / 8)) for k in range(81)}))
"""1 to 1,024 in steps of about 9 %."""
TENSOR_DEGREES = (1, 2, 4, 8)
TAIL_FACTOR = 1.6
"""p95 over the mean of TTFT in closed-loop runs where prompts share steps (an M/G/1 queue at 60 % load gives 1.5 to 1.8)."""


class Unmet(Enum):
    """Why a way of serving does not work."""

    MEMORY = "does not fit"
    FORMAT = "not supported"
    DRIVER = "driver too old"
    TARGET = "misses the target"
    PRICE = "no price"


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Limits in seconds; None means that there is none. TTFT is held at p95, TPOT and latency at the mean."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to be served: requests a second (or a fixed concurrency), tokens in and out, limits, headroom."""

    input_tokens: float
    output_tokens: float
    rate_req_s: float | None = None
    concurrency: int | None = None
    targets: Targets = Targets()
    headroom_frac: float = 0.2
    mean_req_s: float | None = None
    """What is served on average where `rate_req_s` is a peak; the cost of a token spreads over these. None: the rate itself."""

    def __post_init__(self) -> None:
        for rate in (self.rate_req_s, self.mean_req_s):
            if rate is not None and not (math.isfinite(rate) and rate > 0):
                raise InputError(f"a rate of {rate} requests a second cannot be served; give one above 0")
        if self.input_tokens < 1 or self.output_tokens < 1:
            raise InputError("requests need at least one input and one output token")
        if (self.rate_req_s is None) == (self.concurrency is None):
            raise InputError("give either a rate of requests or a concurrency")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOption:
    """One way of serving that works: what it takes, what it does, what it costs."""

    model: Architecture
    gpu: Gpu
    tensor: int
    stored: WeightFormat
    concurrency: int
    replicas: int
    replica_req_s: float
    tok_s: Estimate
    ttft_s: Estimate
    tpot_s: Estimate
    latency_s: float
    binding: Binding
    footprint: Footprint
    offer: Offer
    option: BuyingOption
    nodes: int
    stranded_gpus: int
    usd_hr: float
    usd_per_mtok: Estimate
    usd_hr_by_option: Mapping[BuyingOption, float]
    """What an hour of these nodes costs under each way of buying; spot with the nodes that stand in for lost ones."""
    served_req_s: float
    """Requests a second that are answered on average."""

    @property
    def gpus(self) -> int:
        """Return the GPUs that serve."""
        return self.replicas * self.tensor

    @property
    def tok_s_per_usd_hr(self) -> float | None:
        """Return tokens a second of all replicas for a dollar an hour; None on hardware that costs nothing here."""
        return self.tok_s.value * self.replicas / self.usd_hr if self.usd_hr else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """One way of serving or training that does not work, why, and how near it came."""

    gpu: str
    what: str
    reason: Unmet
    because: str
    miss_frac: float = math.inf
    """How far beyond the limit it lies; infinite where there is no nearness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A GPU, its count in a replica, a format: what one sweep over concurrencies answers."""

    query: ServingQuery
    offers: tuple[Offer, ...]


def ways_of(
    model: Architecture,
    gpu: Gpu,
    offers: tuple[Offer, ...],
    demand: Demand,
    engine: str,
    formats: Sequence[WeightFormat] = (),
) -> tuple[list[Way], list[Rejected]]:
    """Return the ways that fit a GPU, and those that do not, each with its reason."""
    ways: list[Way] = []
    rejected: list[Rejected] = []
    most = max((offer.gpus for offer in offers), default=0)
    for stored in formats or asked_formats(gpu):
        if reason := why_not(gpu, stored):
            rejected.append(Rejected(gpu=gpu.name, what=stored.value, reason=Unmet.FORMAT, because=reason))
            continue
        fitting = [
            degree
            for degree in TENSOR_DEGREES
            if degree <= most and _room(model, gpu, stored, degree, demand, engine) >= 1
        ]
        if not fitting:
            rejected.append(_too_large(model, gpu, stored, max(most, 1), demand))
        ways += [Way(query=_query(model, gpu, stored, degree, demand, engine), offers=offers) for degree in fitting]
    return ways, rejected


def _serving(model: Architecture, gpu: Gpu, stored: WeightFormat, degree: int, demand: Demand, engine: str) -> Serving:
    return Serving(
        model=model,
        stored=stored,
        kv_value_bytes=kv_value_bytes(stored, engine, ENGINE_YEAR, gpu),
        parallel=Parallel(tensor=degree),
        context=math.ceil(demand.input_tokens + demand.output_tokens),
    )


def _room(model: Architecture, gpu: Gpu, stored: WeightFormat, degree: int, demand: Demand, engine: str) -> int:
    return resident_requests(_serving(model, gpu, stored, degree, demand, engine), gpu)


def _too_large(model: Architecture, gpu: Gpu, stored: WeightFormat, degree: int, demand: Demand) -> Rejected:
    need = inference_footprint(_serving(model, gpu, stored, degree, demand, "vllm")).total_gib
    return Rejected(
        gpu=gpu.name,
        what=f"{degree} x {stored.value}",
        reason=Unmet.MEMORY,
        because=f"needs {need:.1f} GiB a GPU on {degree}, {gpu.name} shows {gpu.memory_gib:.1f}",
        miss_frac=need / gpu.memory_gib - 1,
    )


def _query(
    model: Architecture, gpu: Gpu, stored: WeightFormat, degree: int, demand: Demand, engine: str
) -> ServingQuery:
    return ServingQuery(
        model=model,
        gpu=gpu,
        stored=stored,
        engine=engine,
        year=ENGINE_YEAR,
        load=Load.ONLINE,
        requests=1,
        input_tokens=demand.input_tokens,
        output_tokens=demand.output_tokens,
        kv_value_bytes=kv_value_bytes(stored, engine, ENGINE_YEAR, gpu),
        gpus=degree,
        tensor=degree,
    )


def sweep(queries: Sequence[ServingQuery], concurrencies: Sequence[int] = CONCURRENCIES) -> ServingTimes:
    """Return all times of all queries at all concurrencies, `(queries, concurrencies)` each; one pass of array arithmetic."""
    given = serving_columns(queries)
    columns = {name: column[:, None] for name, column in given.items()}
    columns["requests"] = np.array(concurrencies, dtype=np.float64)[None, :]
    tables = packaged("serving").tables
    coefficients = coefficients_at(tables, [serving_keys(query) for query in queries], given)
    return serving_times(columns, {name: column[:, None] for name, column in coefficients.items()})


def search_serving(
    ways: Sequence[Way],
    demand: Demand,
    *,
    option: BuyingOption = BuyingOption.ON_DEMAND,
    scale: float = 1.0,
    losses: Interruptions = USUAL,
) -> tuple[list[ServingOption], list[Rejected]]:
    """Return the ways that keep the targets, cheapest per million tokens first, and the others with their nearest miss.

    `scale` is measured over predicted time of the user's own point; 1 without one.
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
            if (found := _priced(way, times, at, chosen, demand, offer, option, scale, losses))
        ]
        if priced:
            good.append(min(priced, key=lambda one: (one.usd_hr, one.offer.where)))
        else:
            bad.append(_unsold(way, option))
    return sorted(good, key=lambda one: (one.usd_per_mtok.value, one.usd_hr, one.gpus, one.gpu.name)), bad


def _unsold(way: Way, option: BuyingOption) -> Rejected:
    where = f"{way.query.tensor} x {way.query.stored.value}"
    because = f"nobody sells {way.query.tensor} or more {way.query.gpu.name} in one node {option.value} there"
    return Rejected(gpu=way.query.gpu.name, what=where, reason=Unmet.PRICE, because=because)


def _largest_in_targets(times: ServingTimes, at: int, way: Way, demand: Demand, scale: float) -> int | Rejected:
    """Return the index of the largest concurrency that keeps the targets with all requests resident."""
    limits, output = demand.targets, demand.output_tokens
    ttft = times.ttft_s[at] * scale
    tpot = times.tpot_s[at] * scale
    pairs = ((ttft * TAIL_FACTOR, limits.ttft_s, "TTFT p95"), (tpot, limits.tpot_s, "TPOT"))
    checks = [*pairs, (ttft + (output - 1) * tpot, limits.latency_s, "latency")]
    allowed = np.array(CONCURRENCIES) <= times.resident[at] + 0.5
    for found, limit, _ in checks:
        allowed &= found <= limit if limit is not None else True
    if demand.concurrency is not None:
        allowed &= np.array(CONCURRENCIES) <= demand.concurrency
    if allowed.any():
        return int(np.flatnonzero(allowed)[-1])
    misses = [
        (float(found[0]) / limit - 1, name, float(found[0]), limit)
        for found, limit, name in checks
        if limit is not None
    ]
    miss, name, value, limit = max(misses, default=(math.inf, "memory", 0.0, 0.0))
    return Rejected(
        gpu=way.query.gpu.name,
        what=f"{way.query.tensor} x {way.query.stored.value}",
        reason=Unmet.TARGET,
        because=f"{name} {value:.3g} s even for one request, the limit is {limit:.3g} s",
        miss_frac=miss,
    )


def _binding(times: ServingTimes, at: int, index: int, demand: Demand) -> Binding:
    prefill = float(times.prefill_one_s[at, 0]) * float(times.resident[at, index]) / demand.output_tokens
    parts = {
        Binding.MEMORY: float(times.weights_s[at, index] + times.kv_s[at, index]),
        Binding.COMPUTE: float(times.compute_s[at, index]) + prefill,
        Binding.NETWORK: float(times.network_s[at, index]),
        Binding.HOST: float(times.overhead_s[at, index]),
    }
    return max(parts, key=lambda part: parts[part])


def _priced(
    way: Way,
    times: ServingTimes,
    at: int,
    index: int,
    demand: Demand,
    offer: Offer,
    option: BuyingOption,
    scale: float,
    losses: Interruptions,
) -> ServingOption | None:
    """Return the way at an offer, None where the offer lacks the option or cannot hold a replica."""
    query = way.query
    bought = BuyingOption.OWNED if BuyingOption.OWNED in offer.usd_hr else option
    if bought not in offer.usd_hr or offer.gpus < query.tensor:
        return None
    concurrency = CONCURRENCIES[index]
    ttft, tpot = float(times.ttft_s[at, index]) * scale, float(times.tpot_s[at, index]) * scale
    latency = ttft + (demand.output_tokens - 1) * tpot
    replica = concurrency / latency
    replicas = _replicas(demand, concurrency, replica)
    nodes = nodes_for(replicas, query.tensor, offer.gpus)
    served = demand.mean_req_s or demand.rate_req_s or replica * replicas
    here = replace(query, requests=concurrency)
    tokens = demand.input_tokens + demand.output_tokens
    step = with_interval(here, Asked.TPOT, tpot) if scale == 1 else calibrated(tpot)
    speed = _rate(replica * tokens, tpot, step)
    by_option = {
        way_bought: rate
        * nodes.nodes
        * (losses.serving_factor(offer.interruption) if way_bought is BuyingOption.SPOT else 1)
        for way_bought, rate in offer.usd_hr.items()
    }
    hourly = by_option[bought]
    cost = hourly / (served * tokens * S_PER_HR / TOKENS_PER_MTOK)
    return ServingOption(
        model=query.model,
        gpu=query.gpu,
        tensor=query.tensor,
        stored=query.stored,
        concurrency=concurrency,
        replicas=replicas,
        replica_req_s=replica,
        tok_s=speed,
        ttft_s=with_interval(here, Asked.TTFT, ttft),
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
    return replicas_for(float(demand.concurrency or 1), float(concurrency), headroom_frac=0.0)


def _footprint(query: ServingQuery, concurrency: int) -> Footprint:
    serving = Serving(
        model=query.model,
        stored=query.stored,
        kv_value_bytes=query.kv_value_bytes,
        parallel=Parallel(tensor=query.tensor),
        requests=concurrency,
        context=math.ceil(query.input_tokens + query.output_tokens),
    )
    return inference_footprint(serving)
