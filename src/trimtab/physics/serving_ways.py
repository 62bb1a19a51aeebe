"""The ways of serving that fit a GPU: its count in a replica and the format of the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trimtab.catalog import Gpu
from trimtab.physics.footprint import Parallel, Serving, inference_footprint, resident_requests
from trimtab.physics.formats import WeightFormat
from trimtab.physics.found_ways import Rejected, ServingOption, Unmet
from trimtab.physics.models import Architecture
from trimtab.physics.offers import NodeOffer
from trimtab.physics.serving_demand import Demand
from trimtab.physics.serving_query import Load, ServingQuery, kv_value_bytes
from trimtab.physics.support import asked_formats, why_not

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
            rejected.append(_too_large(model, gpu, stored, max(most, 1), demand))
        ways += [
            ServingWay(query=_query(model, gpu, stored, degree, demand, engine), offers=offers) for degree in fitting
        ]
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
        # a placeholder: the sweep puts its own concurrencies here
        requests=1,
        input_tokens=demand.input_tokens,
        output_tokens=demand.output_tokens,
        kv_value_bytes=kv_value_bytes(stored, engine, ENGINE_YEAR, gpu),
        gpus=degree,
        tensor=degree,
    )


def query_of(found: ServingOption, demand: Demand, engine: str) -> ServingQuery:
    """Return the question whose answer a found way is, at its own concurrency."""
    query = _query(found.model, found.gpu, found.stored, found.tensor, demand, engine)
    return replace(query, requests=found.concurrency)
