"""What is to be served, the ways of serving it that fit a GPU, and the single change that makes a model fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trimtab.catalog import Gpu
from trimtab.errors import InputError
from trimtab.physics.fabrics import Fabric, between_nodes
from trimtab.physics.footprint import (
    MEMORY_UTILIZATION_FRAC,
    Parallel,
    Serving,
    inference_footprint,
    resident_requests,
)
from trimtab.physics.formats import WeightFormat, asked_formats, why_not
from trimtab.physics.found_ways import Rejected, ServingOption, Unmet
from trimtab.physics.models import Architecture
from trimtab.physics.offers import NodeOffer
from trimtab.physics.search_training import TrainingDemand, plans_of
from trimtab.physics.serving_query import (
    Adapters,
    Load,
    ServingQuery,
    Speculation,
    adapter_params,
    adapters_bytes,
    kv_value_bytes,
)
from trimtab.physics.training import Method, Optimizer, Recompute, largest_micro_batch
from trimtab.units import BYTES_PER_GB


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Limits in seconds; None means that there is none.

    Without `tail_frac`, TTFT is kept at p95, TPOT and latency at the mean. With it, all three are kept at that quantile, in the
    replay of the engine's scheduler.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    latency_s: float | None = None
    tail_frac: float | None = None

    @property
    def needs_replay(self) -> bool:
        """Return whether a limit is on a quantile, which only a replay of random arrivals knows."""
        limits = (self.ttft_s, self.tpot_s, self.latency_s)
        return self.ttft_s is not None or (self.tail_frac is not None and any(limit is not None for limit in limits))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to be served: requests a second (or a fixed concurrency), tokens in and out, limits, headroom."""

    input_tokens: float
    output_tokens: float
    rate_req_s: float | None = None
    concurrency: int | None = None
    targets: Targets = Targets()
    headroom_frac: float = 0.2
    longest_tokens: int | None = None
    """Input and output of the longest request, which the cache must hold; None where it is not known."""
    mean_req_s: float | None = None
    """What is served on average where `rate_req_s` is a peak; the cost of a token spreads over these. None: the rate itself."""
    cached_frac: float = 0.0
    """Share of a prompt's tokens that the prefix cache of a GPU holds."""
    loaded_frac: float = 0.0
    """Share of them that host memory holds in addition, from where they are loaded."""
    speculation: Speculation | None = None
    adapters: Adapters | None = None

    def __post_init__(self) -> None:
        for rate in (self.rate_req_s, self.mean_req_s):
            if rate is not None and not (math.isfinite(rate) and rate > 0):
                raise InputError(f"a rate of {rate} requests a second cannot be served; give one above 0")
        if self.input_tokens < 1 or self.output_tokens < 1:
            raise InputError("requests need at least one input and one output token")
        if min(self.cached_frac, self.loaded_frac) < 0 or self.cached_frac + self.loaded_frac > 1:
            raise InputError(
                f"shares of cached tokens lie from 0 to 1 together, got {self.cached_frac:g} and {self.loaded_frac:g}"
            )
        if (self.rate_req_s is None) == (self.concurrency is None):
            raise InputError("give either a rate of requests or a concurrency")

    @property
    def found_tokens(self) -> float:
        """Return the tokens of a prompt that need no computing: never all, since one must be computed."""
        return min(self.input_tokens * (self.cached_frac + self.loaded_frac), self.input_tokens - 1)


ENGINE_YEAR = 2026
"""The engines' newest year in the measurements: what a new deployment would run."""
TENSOR_DEGREES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingWay:
    """A GPU, its count in a replica, a format: what one sweep over concurrencies answers."""

    query: ServingQuery
    offers: tuple[NodeOffer, ...]


def ways_of(
    model: Architecture,
    gpu: Gpu,
    offers: tuple[NodeOffer, ...],
    demand: Demand,
    engine: str,
    formats: Sequence[WeightFormat] = (),
) -> tuple[list[ServingWay], list[Rejected]]:
    """Return the ways that fit a GPU, and those that do not, each with its reason."""
    ways: list[ServingWay] = []
    rejected: list[Rejected] = []
    # a replica stays within one node, so the largest on offer bounds its GPUs
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
            tried = max((degree for degree in TENSOR_DEGREES if degree <= most), default=1)
            rejected.append(_too_large(model, gpu, stored, tried, demand))
        ways += [
            ServingWay(query=serving_question(model, gpu, stored, degree, demand, engine), offers=offers)
            for degree in fitting
        ]
    return ways, rejected


def serving_memory(
    model: Architecture, gpu: Gpu, stored: WeightFormat, degree: int, demand: Demand, engine: str
) -> Serving:
    """Return what one request of the demand needs of memory on so many GPUs."""
    mean = math.ceil(demand.input_tokens + demand.output_tokens)
    return Serving(
        model=model,
        stored=stored,
        kv_value_bytes=kv_value_bytes(stored, engine, ENGINE_YEAR, gpu),
        parallel=Parallel(tensor=degree),
        # at least one request of the longest kind must fit; how many fit at once is counted with mean requests elsewhere
        context=max(mean, demand.longest_tokens or 0),
        adapters_bytes=adapters_bytes(model, demand.adapters),
    )


def _room(model: Architecture, gpu: Gpu, stored: WeightFormat, degree: int, demand: Demand, engine: str) -> int:
    return resident_requests(serving_memory(model, gpu, stored, degree, demand, engine), gpu)


ASSUMED_LONGEST = 4
"""The longest request over the mean, where only the mean is known: an assumption, and printed as one."""


def context_of(found: ServingOption, demand: Demand, engine: str) -> int:
    """Return the context to serve with: the longest request, or 4 times the mean as a power of two, as far as it fits."""
    mean = math.ceil(demand.input_tokens + demand.output_tokens)
    if demand.longest_tokens is not None:
        return max(mean, demand.longest_tokens)
    context: int = 2 ** math.ceil(math.log2(ASSUMED_LONGEST * mean))
    if found.replica_gpus > found.tensor:
        # spread over nodes, where far more memory than one request needs is left
        return context
    while context > mean:
        wide = replace(demand, longest_tokens=context)
        if _room(found.model, found.gpu, found.stored, found.tensor, wide, engine) >= 1:
            return context
        context //= 2
    return mean


def _too_large(model: Architecture, gpu: Gpu, stored: WeightFormat, degree: int, demand: Demand) -> Rejected:
    need = inference_footprint(serving_memory(model, gpu, stored, degree, demand, "vllm")).total_gib
    usable = gpu.memory_gib * MEMORY_UTILIZATION_FRAC
    return Rejected(
        gpu=gpu.name,
        what=f"{degree} x {stored.value}",
        reason=Unmet.MEMORY,
        because=f"needs {need:.1f} GiB a GPU on {degree}; engines use {usable:.1f} of {gpu.name}'s {gpu.memory_gib:.1f}",
        miss_frac=need / usable - 1,
    )


def serving_question(
    model: Architecture, gpu: Gpu, stored: WeightFormat, degree: int, demand: Demand, engine: str
) -> ServingQuery:
    """Return the question of a replica of so many GPUs, at a concurrency of one."""
    return ServingQuery(
        model=model,
        gpu=gpu,
        stored=stored,
        engine=engine,
        year=ENGINE_YEAR,
        load=Load.ONLINE,
        # a placeholder: the sweep puts its own concurrencies here
        requests=1,
        input_tokens=demand.input_tokens,
        output_tokens=demand.output_tokens,
        kv_value_bytes=kv_value_bytes(stored, engine, ENGINE_YEAR, gpu),
        gpus=degree,
        tensor=degree,
        cached_tokens=demand.found_tokens,
        loaded_tokens=demand.found_tokens * demand.loaded_frac / max(demand.cached_frac + demand.loaded_frac, 1e-9),
        speculation=demand.speculation,
        adapters=demand.adapters,
    )


def query_of(found: ServingOption, demand: Demand, engine: str) -> ServingQuery:
    """Return the question whose answer a found way is, at its own concurrency."""
    query = serving_question(found.model, found.gpu, found.stored, found.tensor, demand, engine)
    return replace(
        query,
        requests=found.concurrency,
        gpus=found.replica_gpus,
        pipeline=found.pipeline,
        expert=found.expert,
        network_gb_s=found.network_gb_s,
    )


LEAST_CONTEXT = 256
NARROWER = {
    WeightFormat.FP8: "half the memory; answers change a little, test quality first",
    WeightFormat.INT4: "a quarter of the memory; answers change, test quality first",
    WeightFormat.FP4: "a quarter of the memory; answers change, test quality first",
}


def cheapest_change(model: Architecture, gpu: Gpu, demand: TrainingDemand) -> str:
    """Return which single change makes a run fit one GPU, cheapest first, with what it costs; empty when none does.

    Full recomputation repeats the forward pass: 8 instead of 6 FLOPs a parameter and token. 8-bit states cost next to nothing
    in speed. Adapters train a small share of the weights, which bounds what they can learn; QLoRA dequantizes in addition.
    """
    # no recomputation and plain AdamW: each change is made to this plan alone
    base = plans_of(model, gpu, 1, demand)[0]
    share = adapter_params(model, base.lora_rank, all_layers=base.adapts_all) / model.params
    few = f"trains {share:.2%} of the weights, so it can learn less"
    quantized = replace(base, method=Method.QLORA, stored=WeightFormat.NF4)
    half = replace(base, sequence=max(1, base.sequence // 2))
    changes = (
        ("an 8-bit optimizer (next to no loss of speed)", replace(base, optimizer=Optimizer.ADAMW_8BIT)),
        ("recomputing activations (a third more compute)", replace(base, recompute=Recompute.FULL)),
        (f"sequences of {half.sequence} (longer examples are cut)", half),
        (
            "recomputing activations and an 8-bit optimizer (a third more compute)",
            replace(base, recompute=Recompute.FULL, optimizer=Optimizer.ADAMW_8BIT),
        ),
        (f"LoRA ({few})", replace(base, method=Method.LORA)),
        (f"LoRA with recomputation ({few}; a third more compute)", replace(base, method=Method.LORA, recompute=Recompute.FULL)),
        (f"QLoRA ({few}; 10-30 % slower than LoRA)", quantized),
        (
            f"QLoRA with recomputation ({few}; 10-30 % slower than LoRA, and a third more compute)",
            replace(quantized, recompute=Recompute.FULL),
        ),
    )  # fmt: skip
    # a run needs room for at least one sequence at a time
    return next((name for name, plan in changes if largest_micro_batch(plan, gpu, most=1) >= 1), "")


def serving_change(model: Architecture, gpu: Gpu, demand: Demand, engine: str) -> str:
    """Return which single change lets one GPU serve a model: narrower weights, else a shorter context; empty when none does."""
    context = math.ceil(demand.input_tokens + demand.output_tokens)
    # narrower weights first, because a shorter context refuses requests
    for stored in asked_formats(gpu):
        if not why_not(gpu, stored) and stored in NARROWER and _holds_request(model, gpu, stored, context, engine):
            return f"{stored.value} weights ({NARROWER[stored]})"
    while context > LEAST_CONTEXT:
        context //= 2
        for stored in asked_formats(gpu):
            if not why_not(gpu, stored) and _holds_request(model, gpu, stored, context, engine):
                return f"{stored.value} weights and requests of at most {context} tokens (longer ones are refused)"
    return ""


def _holds_request(model: Architecture, gpu: Gpu, stored: WeightFormat, context: int, engine: str) -> bool:
    values = kv_value_bytes(stored, engine, ENGINE_YEAR, gpu)
    return resident_requests(Serving(model=model, stored=stored, kv_value_bytes=values, context=context), gpu) >= 1


NODES = (2, 4)
"""Nodes of a replica that are tried."""


def spread_ways(
    model: Architecture,
    gpu: Gpu,
    offers: tuple[NodeOffer, ...],
    demand: Demand,
    engine: str,
    formats: Sequence[WeightFormat] = (),
    link: Fabric | None = None,
) -> tuple[list[ServingWay], list[Rejected]]:
    """Return replicas over several of the largest nodes on offer, and the shapes whose network is not published.

    Tensor parallelism stays within a node, where NVLink or PCIe carries its exchanges. Between nodes there are the stages of
    a pipeline, which hand over one hidden vector per token, or the exchanges of tokens with their experts. Both need the
    network's bandwidth: a node shape without a published figure (`fabrics`) is rejected, not guessed. No public run over
    several nodes without NVLink between them was fitted on, so errors are those of one node at best. `link` is the user's own
    figure for a node's network.
    """
    most = max((offer.gpus for offer in offers), default=0)
    largest = tuple(offer for offer in offers if offer.gpus == most)
    # ways are priced at any of their offers, so offers of one network each are a group of their own
    by_speed: dict[float, list[NodeOffer]] = {}
    rejected: dict[str, Rejected] = {}
    for offer in largest:
        fabric = link or between_nodes(offer)
        if fabric is None:
            rejected.setdefault(offer.instance_type, _unknown_network(gpu, offer))
        else:
            by_speed.setdefault(fabric.of_gpus(1, most) / BYTES_PER_GB, []).append(offer)
    ways = [
        ServingWay(query=query, offers=tuple(alike))
        for speed, alike in sorted(by_speed.items())
        for stored in formats or asked_formats(gpu)
        if not why_not(gpu, stored)
        for query in _questions_over_nodes(model, gpu, stored, demand, engine, most, speed)
    ]
    return ways, list(rejected.values())


def _questions_over_nodes(
    model: Architecture, gpu: Gpu, stored: WeightFormat, demand: Demand, engine: str, node_gpus: int, gb_s: float
) -> list[ServingQuery]:
    """Return the questions whose replica fits: a pipeline of nodes, and for mixtures of experts one rank a GPU."""
    memory = serving_memory(model, gpu, stored, 1, demand, engine)
    base = replace(serving_question(model, gpu, stored, 1, demand, engine), network_gb_s=gb_s)
    found = []
    for nodes in NODES:
        gpus = nodes * node_gpus
        layouts = [Parallel(tensor=node_gpus, pipeline=nodes)]
        if model.is_moe and gpus <= model.experts:
            layouts.append(Parallel(expert=gpus, data=gpus))
        found += [
            replace(base, gpus=gpus, tensor=layout.tensor, pipeline=layout.pipeline, expert=layout.expert)
            for layout in layouts
            if resident_requests(replace(memory, parallel=layout), gpu) >= 1
        ]
    return found


def _unknown_network(gpu: Gpu, offer: NodeOffer) -> Rejected:
    return Rejected(
        gpu=gpu.name,
        what="over several nodes",
        reason=Unmet.UNKNOWN,
        because=f"no published network bandwidth of {offer.where}; state it with --kv-gb-s",
        miss_frac=math.inf,
    )
