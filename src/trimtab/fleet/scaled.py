"""A fleet with its demand scaled up or down, run the same way as in history.

Nodes stay whole: of the nodes that the same workloads held, the least whole number that is not below the factor's share is
kept or copied, spread evenly over them; unheld nodes stay as they are.
Requests, runs, replicas and activity scale alike; targets stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.fleet.model import Fleet, JobsObservation, ServiceObservation, TokenReadings, Workload
from trimtab.fleet.occupancy import held_nodes
from trimtab.ledger import IDLE, Holdings, Usage
from trimtab.ledger.arrays import FloatArray, IntArray

_ROUNDING = 1e-9


def scaled_fleet(fleet: Fleet, factor: float) -> Fleet:
    """Return the fleet with `factor` times the demand, on as many times the nodes. Raises ValueError for no demand at all."""
    if factor <= 0:
        raise ValueError(f"demand must be scaled by more than 0, got {factor}")
    if factor == 1:
        return fleet
    copied = np.array([node for nodes in _alike(fleet, factor) for node in nodes], dtype=np.int64)
    copied.sort(kind="stable")
    nodes = tuple(
        replace(fleet.nodes[node], name=_name(fleet, copied, at)) if _copy(copied, at) else fleet.nodes[node]
        for at, node in enumerate(copied.tolist())
    )
    node_seconds = fleet.node_seconds[copied]
    holdings = _copied_cells(fleet.holdings, copied)
    unknown = frozenset(
        node.name
        for node, origin in zip(nodes, copied, strict=True)
        if fleet.nodes[origin].name in fleet.unknown_holders
    )
    return replace(
        fleet,
        nodes=nodes,
        node_seconds=node_seconds,
        usage=_usage(fleet, copied, node_seconds),
        holdings=holdings,
        workloads=tuple(
            _workload(workload, factor, held.by_hour(node_seconds))
            for workload, held in zip(
                fleet.workloads, held_nodes(holdings, len(nodes), len(fleet.workloads)), strict=True
            )
        ),
        unknown_holders=unknown,
    )


def spread(items: Sequence[int], factor: float) -> list[int]:
    """Return about `factor` times as many items, at least that many, each kept or repeated as evenly as can be."""
    wanted = math.ceil(len(items) * factor - _ROUNDING)
    return [items[at * len(items) // wanted] for at in range(wanted)]


def _alike(fleet: Fleet, factor: float) -> list[list[int]]:
    """Return the nodes of one pool that the same workloads held, together, as many as are needed; unheld ones as they are."""
    cells = fleet.holdings
    mine = cells.owner != IDLE
    holders: list[set[int]] = [set() for _ in fleet.nodes]
    # each pair of a node and an owner once: a number names both
    count = len(fleet.workloads)
    for pair in np.unique(cells.node[mine].astype(np.int64) * count + cells.owner[mine]).tolist():
        holders[pair // count].add(pair % count)
    alike: dict[tuple[Pool, frozenset[int]], list[int]] = {}
    for index, node in enumerate(fleet.nodes):
        alike.setdefault((node.pool, frozenset(holders[index])), []).append(index)
    return [spread(nodes, factor) if owners else nodes for (_, owners), nodes in alike.items()]


def _copy(copied: IntArray, at: int) -> int:
    """Return how many rows before this one are of the same node."""
    return at - int(np.searchsorted(copied, copied[at]))


def _name(fleet: Fleet, copied: IntArray, at: int) -> str:
    return f"{fleet.nodes[copied[at]].name}+{_copy(copied, at)}"


def _copied_cells(cells: Holdings, copied: IntArray) -> Holdings:
    """Return the cells of each copied node, under its new number."""
    order = np.argsort(cells.node, kind="stable")
    first, end = (np.searchsorted(cells.node[order], copied, side=side) for side in ("left", "right"))
    picked = np.concatenate([order[a:b] for a, b in zip(first, end, strict=True)] or [order[:0]])
    return Holdings(
        pool=cells.pool[picked],
        hour=cells.hour[picked],
        node=np.repeat(np.arange(len(copied)), end - first),
        owner=cells.owner[picked],
        node_seconds=cells.node_seconds[picked],
    )


def _usage(fleet: Fleet, copied: IntArray, node_seconds: IntArray) -> Usage:
    row_of = {pool: row for row, pool in enumerate(fleet.usage.pools)}
    total = np.zeros_like(fleet.usage.node_seconds)
    np.add.at(total, [row_of[fleet.nodes[node].pool] for node in copied.tolist()], node_seconds)
    return Usage(pools=fleet.usage.pools, node_seconds=total)


def _workload(workload: Workload, factor: float, held_node_seconds: FloatArray) -> Workload:
    return replace(
        workload,
        gpu_seconds=workload.gpu_seconds * factor,
        held_node_seconds=held_node_seconds,
        activity=replace(workload.activity, busy_gpus=workload.activity.busy_gpus * factor),
        service=None if workload.service is None else _service(workload.service, factor),
        jobs=None if workload.jobs is None else _jobs(workload.jobs, factor),
    )


def _service(service: ServiceObservation, factor: float) -> ServiceObservation:
    return replace(
        service,
        arrivals=service.arrivals * factor,
        replicas=np.ceil(service.replicas * factor - _ROUNDING),
        running=service.running * factor,
        latency_count=service.latency_count * factor,
        ttft_count=service.ttft_count * factor,
        tpot_count=service.tpot_count * factor,
        tokens=None if service.tokens is None else _tokens(service.tokens, factor),
    )


def _tokens(tokens: TokenReadings, factor: float) -> TokenReadings:
    return replace(
        tokens,
        input=tokens.input * factor,
        output=tokens.output * factor,
        cached=tokens.cached * factor,
        prefill_s=tokens.prefill_s * factor,
        decode_s=tokens.decode_s * factor,
    )


def _jobs(jobs: JobsObservation, factor: float) -> JobsObservation:
    unqueued = None if jobs.unqueued is None else _jobs(jobs.unqueued, factor)
    return replace(jobs.part(np.array(spread(range(jobs.count), factor), dtype=np.int64)), unqueued=unqueued)
