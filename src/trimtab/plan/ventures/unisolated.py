"""Sharing GPUs without isolation (time slicing, MPS) by services whose owners did not admit it: judged, not planned.

Several small services fit one GPU by memory and by time, but nothing keeps them apart: a request waits while another service's
runs, one service's fault or full memory stops all of them, and no request or limit of Kubernetes says how much each may take.
So it is an option where somebody admits it only (`levers.sharing`); for the others this says what it would save.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.kinds import Isolation
from trimtab.catalog.pools import Pool
from trimtab.fleet.limits import asked_isolation
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, FloatArray, Target, Workload
from trimtab.fleet.settings import Settings
from trimtab.fleet.targets import share_within
from trimtab.fleet.working import working_frac
from trimtab.levers import sharing
from trimtab.plan.model import NotWorthDoing
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.outcomes.service_outcome import demand_of, judging_histogram
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import HR_PER_MO, S_PER_HR, usd

_SLOWED = 2.0
"""How much longer a request takes while another service's is in work: two take turns."""
_MEET_BOTH_WAYS = 2.0
"""A request finds another's in work, or is joined by one: each as likely as the other service is at work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tenant:
    workload: Workload
    case: Case
    replicas: int
    need_gib: float
    busy: float


def unisolated(
    fleet: Fleet, cases: Mapping[str, Case], market: Market, settings: Settings
) -> tuple[NotWorthDoing, ...]:
    """Return what packing each pool's small services onto whole GPUs would save, and what it would cost their latency."""
    pools: dict[Pool, list[_Tenant]] = defaultdict(list)
    for workload in fleet.workloads:
        tenant = _tenant(workload, cases, settings)
        if tenant is not None and not workload.pool.capacity_type.paid_anyway:
            pools[workload.pool].append(tenant)
    judged = [_judged(pool, tenants, market, settings) for pool, tenants in sorted(pools.items())]
    return tuple(answer for answer in judged if answer is not None)


def _tenant(workload: Workload, cases: Mapping[str, Case], settings: Settings) -> _Tenant | None:
    peak_gib = workload.spec.need_gib or workload.activity.memory_peak_gib
    small = workload.kind is WorkloadKind.SERVING and workload.gpus_per_pod == 1
    admitted = asked_isolation(workload.spec, settings.limits.isolation) is not Isolation.HARDWARE
    if not small or admitted or peak_gib is None or workload.name not in cases:
        return None
    return _Tenant(
        workload=workload,
        case=cases[workload.name],
        replicas=demand_of(cases[workload.name]).most_replicas,
        need_gib=peak_gib * (1 + settings.assumptions.memory_headroom_frac),
        busy=working_frac(workload),
    )


def _judged(pool: Pool, tenants: Sequence[_Tenant], market: Market, settings: Settings) -> NotWorthDoing | None:
    gpu = market.gpu(tenants[0].workload.gpu)
    if gpu is None or len(tenants) < 2:
        return None
    packed = _packed(tenants, gpu.memory_gib, settings.bands.find_cause_frac)
    per_node = tenants[0].workload.gpus_per_node
    before = sum(math.ceil(tenant.replicas / per_node) for tenant in tenants)
    after = math.ceil(len(packed) / per_node)
    if after >= before:
        return None
    sharers = [tenant for together in packed if len(together) > 1 for tenant in together]
    names = sorted({tenant.workload.name for tenant in sharers})
    felt = _worst(packed)
    return NotWorthDoing(
        lever=sharing.NAME,
        subject=", ".join(names) if len(names) <= 3 else f"{len(names)} services on {pool.instance_type}",
        saving_usd_mo=usd(market.rate(pool)) * HR_PER_MO * (before - after),
        reason=(
            f"alone, without isolation (time slicing or MPS): {after} x {pool.instance_type} in place of {before}, but "
            f"requests wait for other services'{felt}, and a fault of one stops all; admit it with isolation: in "
            "workloads.yaml, and what keeps every target is planned"
        ),
    )


def _packed(tenants: Sequence[_Tenant], memory_gib: float, most_busy: float) -> list[list[_Tenant]]:
    """Put replicas on GPUs, the largest first: memory and time must hold them, and no service stands beside itself."""
    gpus: list[list[_Tenant]] = []
    for tenant in sorted(tenants, key=lambda tenant: (-tenant.need_gib, tenant.workload.name)):
        for _ in range(tenant.replicas):
            fitting = [
                held
                for held in gpus
                if tenant not in held
                and sum(holder.need_gib for holder in held) + tenant.need_gib <= memory_gib
                and sum(holder.busy for holder in held) + tenant.busy <= most_busy
            ]
            if fitting:
                fitting[0].append(tenant)
            else:
                gpus.append([tenant])
    return gpus


def _worst(packed: Sequence[Sequence[_Tenant]]) -> str:
    """Say which latency target suffers most, and how much of it is left; nothing where no latency was measured."""
    left = [
        (kept - target.required_frac, tenant, target, kept)
        for held in packed
        if len(held) > 1
        for tenant in held
        for target in tenant.workload.targets
        if (kept := _kept(tenant, [neighbour for neighbour in held if neighbour is not tenant], target)) is not None
    ]
    if not left:
        return ""
    _, tenant, target, kept = min(left, key=lambda row: row[0])
    limit = f"within {target.limit_s:.3g} s, not {target.required_frac:.0%}"
    return f" (about {kept:.0%} of {tenant.workload.name}'s would be {limit})"


def _kept(tenant: _Tenant, others: Sequence[_Tenant], target: Target) -> float | None:
    """Return the share of requests within a limit if those that meet others' take twice as long."""
    service = tenant.workload.service
    if service is None or target.limit_s is None:
        return None
    le_s, count = judging_histogram(tenant.case, service, target.metric)
    if not count.size:
        return None
    met = min(1.0, _MEET_BOTH_WAYS * sum(_busy_when(tenant.workload, other) for other in others))
    alone, slowed = (float(share_within(le_s, count.sum(axis=0), limit)) for limit in _limits(target.limit_s))
    return (1 - met) * alone + met * slowed


def _limits(limit_s: float) -> tuple[float, float]:
    return limit_s, limit_s / _SLOWED


def _busy_when(workload: Workload, other: _Tenant) -> float:
    """Return the share of time in which a service is at work when another's requests come: both may peak at the same hours."""
    mine, theirs = _hourly(workload), _hourly(other.workload)
    both = ~np.isnan(mine) & ~np.isnan(theirs)
    if not both.any() or mine[both].sum() <= 0 or theirs[both].mean() <= 0:
        return other.busy
    together = float((mine[both] * theirs[both]).mean() / (mine[both].mean() * theirs[both].mean()))
    return min(1.0, other.busy * together)


def _hourly(workload: Workload) -> FloatArray:
    """Return a service's requests by hour, or its activity where they are not counted in whole hours."""
    service = workload.service
    if service is None:
        return workload.activity.busy_gpus
    steps = round(S_PER_HR / service.step_s)
    return np.asarray(service.arrivals[: len(service.arrivals) // steps * steps].reshape(-1, steps).sum(axis=1))
