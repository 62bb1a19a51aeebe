"""Replicas that span several nodes: a pipeline over nodes, or expert parallelism with attention by rank.

Tensor parallelism stays within a node, where NVLink or PCIe carries its exchanges. Over nodes go the stages of a pipeline,
which hand over one hidden vector a token, or the exchanges of tokens with their experts. Both need the network's bandwidth:
a node shape without a published figure (`fabrics`) is rejected, not guessed. No public run over several nodes without NVLink
between them was fitted on, so errors are those of one node at best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from trimtab.catalog import Gpu
from trimtab.physics.fabrics import Fabric, between_nodes
from trimtab.physics.footprint import Parallel, resident_requests
from trimtab.physics.formats import WeightFormat, asked_formats, why_not
from trimtab.physics.found_ways import Rejected, Unmet
from trimtab.physics.models import Architecture
from trimtab.physics.offers import NodeOffer
from trimtab.physics.serving_demand import Demand, ServingWay, serving_memory, serving_question
from trimtab.physics.serving_query import ServingQuery
from trimtab.units import BYTES_PER_GB

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

    `link` is the user's own figure for a node's network.
    """
    most = max((offer.gpus for offer in offers), default=0)
    largest = tuple(offer for offer in offers if offer.gpus == most)
    # ways are priced at any of their offers, so offers of one network each are a group of their own
    by_speed: dict[float, list[NodeOffer]] = {}
    rejected: dict[str, Rejected] = {}
    for offer in largest:
        fabric = link or between_nodes(offer)
        if fabric is None:
            rejected.setdefault(offer.instance_type, _unknown(gpu, offer))
        else:
            by_speed.setdefault(fabric.of_gpus(1, most) / BYTES_PER_GB, []).append(offer)
    ways = [
        ServingWay(query=query, offers=tuple(mine))
        for speed, mine in sorted(by_speed.items())
        for stored in formats or asked_formats(gpu)
        if not why_not(gpu, stored)
        for query in _queries(model, gpu, stored, demand, engine, most, speed)
    ]
    return ways, list(rejected.values())


def _queries(
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


def _unknown(gpu: Gpu, offer: NodeOffer) -> Rejected:
    return Rejected(
        gpu=gpu.name,
        what="over several nodes",
        reason=Unmet.UNKNOWN,
        because=f"no published network bandwidth of {offer.where}; state it with --kv-gb-s",
        miss_frac=math.inf,
    )
