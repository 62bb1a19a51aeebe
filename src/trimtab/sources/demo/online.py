"""Places a service on nodes: its pods, their GPUs' readings, its demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from trimtab.sources.demo.draft import FleetDraft
from trimtab.sources.demo.machines import Machine
from trimtab.sources.demo.services import Served, Service, demand_rate, serve
from trimtab.sources.demo.shapes import Floats
from trimtab.sources.demo.usage import UsageBlock, gaps, serving
from trimtab.units import S_PER_MIN

Node = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """A stretch of the proof window in which a service meets a multiple of its usual demand."""

    start: datetime
    minutes: int
    gain: float


def nodes(
    draft: FleetDraft, machine: Machine, pool: str, count: int, taints: dict[str, str] | None = None
) -> list[Node]:
    """Rent some nodes for the whole window."""
    return [draft.node(machine, pool, taints=taints) for _ in range(count)]


def add_service(
    draft: FleetDraft,
    service: Service,
    machine: Machine,
    homes: Sequence[Node],
    expected: Floats,
    *,
    first_minute: int = 0,
    rollouts: Sequence[datetime] = (),
    sensor_gaps: int = 0,
    unprofiled: tuple[int, ...] = (),
) -> Served:
    """Run a service's replicas, one GPU each, on whole nodes from `first_minute` on; each rollout replaces every pod."""
    rng = draft.stream(service.workload)
    served = serve(service, expected[first_minute:], rng)
    placed = [(node, device) for node, devices in homes for device in devices][: service.replicas]
    moments = [draft.span.at(first_minute * S_PER_MIN), *rollouts]
    for start, end in zip(moments, [*rollouts, None], strict=True):
        for node, device in placed:
            draft.pod(service.workload, service.team, "Deployment", node, (device,), start=start, end=end)
    draft.demand(service.workload, served, first_minute=first_minute)
    shape = (len(placed), len(served.rho))
    draft.usage(
        UsageBlock(
            machine=machine,
            devices=tuple(device for _, device in placed),
            start=moments[0],
            workloads=(service.workload,),
            owner=np.zeros(shape, dtype=np.int64),
            activity=serving(
                served.rho,
                len(placed),
                memory_gib=service.memory_gib,
                tensor_of_sm=service.tensor_of_sm,
                dram_of_sm=service.dram_of_sm,
                rng=rng,
            ),
            unseen=gaps(*shape, count=sensor_gaps, hours=(2, 7), rng=rng) if sensor_gaps else None,
            unprofiled=unprofiled,
        )
    )
    return served


def add_static(
    draft: FleetDraft,
    service: Service,
    machine: Machine,
    pool: str,
    *,
    growth_frac: float,
    sensor_gaps: int = 0,
    surge: Surge | None = None,
) -> Served:
    """Rent the nodes that a service's replicas need, draw its demand, and run it throughout the window."""
    expected = demand_rate(service, draft.span, growth_frac, draft.stream(f"demand/{service.workload}"))
    if surge is not None:
        first = draft.span.minute_of(surge.start)
        expected[first : first + surge.minutes] *= surge.gain
    homes = nodes(draft, machine, pool, -(-service.replicas // machine.gpu_count))
    return add_service(draft, service, machine, homes, expected, sensor_gaps=sensor_gaps)
