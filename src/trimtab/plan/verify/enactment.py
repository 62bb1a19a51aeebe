"""What a later window shows of a plan: whether each change was made, and which assumptions no longer hold.

Workloads that were moved may have outgrown their GPUs by activity or memory, and commitments may be used less than pays them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import assert_never

import numpy as np

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import (
    DECODE,
    PREFILL,
    BookBlocks,
    BuyCommitment,
    BuySpendPlan,
    DeferRuns,
    Effect,
    FleetEffect,
    HedgeOnSpot,
    OverflowTo,
    ReleaseIdle,
    ReleaseNodes,
    Relocate,
    SetBatchPolicy,
    SetCapacityType,
    SetGpuCount,
    SetPrecision,
    SetReplicaGpus,
    SetReplicaPolicy,
    SetReplicas,
    SetSchedule,
    SetTrainingMemory,
    ShortenStart,
    SplitServing,
    StartBeforeRuns,
    UseOffering,
    UseSlots,
    WorkloadEffect,
    part_of,
)
from trimtab.fleet.declared_models import declared_format
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, Window, Workload
from trimtab.fleet.service_law import seconds_one_by_one
from trimtab.fleet.settings import Settings
from trimtab.ledger import IDLE
from trimtab.ledger.arrays import FloatArray
from trimtab.plan.model import Action, Plan
from trimtab.plan.verify.baseline import PoolUse, WorkloadUse, capacity_of, is_still, nodes_of
from trimtab.replay.job_nodes import Blocks, booked_node_seconds
from trimtab.units import HR_PER_DAY, HR_PER_MO, HR_PER_WEEK, S_PER_HR, usd

FEWER_FRAC = 0.95
"""Capacity below this share of the former was given back, even where it stands still."""


def enacted_frac(
    effect: Effect,
    then: WorkloadUse | None,
    index: int | None,
    held: PoolUses,
    fleet: Fleet,
    spend_usd_hr: Mapping[str, float],
    bought_before: Mapping[str, int] = MappingProxyType({}),
) -> float:
    """Return how much of a change a later fleet shows of a workload (its index there; None: gone) on pools `held`.

    `spend_usd_hr` is what its bills say commitments to spend cost an hour, by provider: no node shows them. `bought_before` are
    the nodes that earlier actions commit to, by instance type: what is held fills theirs first.
    """
    if isinstance(effect, FleetEffect):
        return _of_fleet(effect, fleet, spend_usd_hr, bought_before)
    return _of_workload(effect, then, index, held, fleet)


def _of_fleet(
    effect: FleetEffect, fleet: Fleet, spend_usd_hr: Mapping[str, float], bought_before: Mapping[str, int]
) -> float:
    match effect:
        case ReleaseNodes(nodes=names):
            return 1 - len({node.name for node in fleet.nodes} & set(names)) / max(len(names), 1)
        case BuyCommitment():
            return _committed(effect, fleet, bought_before.get(effect.pool.instance_type, 0))
        case BuySpendPlan(provider=provider, spend_micro_usd_hr=spend):
            return min(1.0, spend_usd_hr.get(provider, 0.0) / usd(spend)) if spend else 1.0
        case _:
            assert_never(effect)


def _of_workload(
    effect: WorkloadEffect, then: WorkloadUse | None, index: int | None, held: PoolUses, fleet: Fleet
) -> float:
    now = None if index is None else fleet.workloads[index]
    match effect:
        case UseOffering(pool=pool):
            return _share(held, {use.pool for use in held if use.pool.instance_type == pool.instance_type})
        case Relocate(pool=pool):
            return _share(held, {use.pool for use in held if use.pool.nodes == pool.nodes})
        case OverflowTo(pool=pool, further=further):
            return _both_types(held, pool.instance_type, further.pool.instance_type)
        case SplitServing():
            return _apart(then, fleet)
        case UseSlots():
            return _sharing(effect, then, held)
        case SetCapacityType() | HedgeOnSpot():
            return _share(held, {use.pool for use in held if use.pool.capacity_type is CapacityType.SPOT})
        case BookBlocks():
            return _booked(effect, fleet)
        case SetReplicaGpus(pool=pool, gpus=gpus):
            if now is None or round(now.gpus_per_pod) != gpus:
                return 0.0
            return _share(held, {use.pool for use in held if use.pool.instance_type == pool.instance_type})
        case SetGpuCount(before=before):
            return float(now is not None and all(round(size.gpus) != before for size in now.pod_sizes))
        case SetReplicaPolicy():
            return _scaled(then, index, fleet)
        case SetReplicas(replicas=wanted, before=before):
            return _at_count(now, wanted, before)
        case SetBatchPolicy():
            return _batched(then, index, fleet)
        case ShortenStart():
            return _starts_sooner(effect, now)
        case SetTrainingMemory():
            declared = None if now is None else now.spec.training
            said = declared is not None and declared.optimizer == effect.optimizer.value
            return float(said and declared is not None and declared.recompute == effect.recompute.value)
        case SetPrecision(after=after):
            return float(now is not None and declared_format(now) is after)
        case ReleaseIdle() | StartBeforeRuns() | DeferRuns():
            return _released(then, index, held, fleet)
        case SetSchedule(hours_of_week=hours):
            return _on_time(now, hours, fleet.window)
        case _:
            assert_never(effect)


PoolUses = tuple[PoolUse, ...]


def _share(held: PoolUses, wanted: set[object]) -> float:
    total = sum(use.nodes for use in held)
    return sum(use.nodes for use in held if use.pool in wanted) / total if total else 0.0


def _both_types(held: PoolUses, first: str, behind: str) -> float:
    """Return the share of nodes of two types; 0 where none is of the one that comes behind."""
    if all(use.pool.instance_type != behind for use in held):
        return 0.0
    return _share(held, {use.pool for use in held if use.pool.instance_type in (first, behind)})


def _apart(then: WorkloadUse | None, fleet: Fleet) -> float:
    """Return the share of GPU time that prefill and decode hold beside the former replicas; 0 where either is not there."""
    if then is None:
        return 0.0
    seconds = {workload.name: float(workload.gpu_seconds.sum()) for workload in fleet.workloads}
    parts = [seconds.get(part_of(then.workload, role), 0.0) for role in (PREFILL, DECODE)]
    return sum(parts) / (sum(parts) + seconds.get(then.workload, 0.0)) if all(parts) else 0.0


def _sharing(effect: UseSlots, then: WorkloadUse | None, held: PoolUses) -> float:
    """Return the share of nodes of the shared type; where it held that type before, whether it holds fewer now."""
    there = _share(held, {use.pool for use in held if use.pool.instance_type == effect.pool.instance_type})
    if then is None or all(use.pool.instance_type != effect.pool.instance_type for use in then.uses):
        return there
    return there * float(sum(use.nodes for use in held) < FEWER_FRAC * sum(use.nodes for use in then.uses))


def _booked(effect: BookBlocks, fleet: Fleet) -> float:
    """Return the share of the calendar's node-hours that are in blocks of that type."""
    calendar = Blocks(calendar=effect.calendar, first_week_hour=fleet.window.first_week_hour)
    wanted = float(booked_node_seconds(calendar, fleet.window.hours).sum())
    return min(1.0, _seconds_held(effect.pool, CapacityType.CAPACITY_BLOCK, fleet) / wanted) if wanted else 1.0


def _seconds_held(pool: Pool, capacity: CapacityType, fleet: Fleet) -> float:
    return sum(
        float(seconds.sum())
        for node, seconds in zip(fleet.nodes, fleet.node_seconds, strict=True)
        if node.pool.instance_type == pool.instance_type and node.pool.capacity_type is capacity
    )


def _committed(effect: BuyCommitment, fleet: Fleet, before: int) -> float:
    """Return the share that is held reserved, above what earlier actions commit to."""
    reserved = _seconds_held(effect.pool, CapacityType.RESERVED, fleet) / fleet.window.seconds - before
    return float(np.clip(reserved / effect.count, 0.0, 1.0))


def _scaled(then: WorkloadUse | None, index: int | None, fleet: Fleet) -> float:
    """Return the share of days on which replicas moved, or stood still at fewer than before."""
    if then is None or index is None:
        return 0.0
    days = _blocks(capacity_of(fleet, index), HR_PER_DAY)
    made = [not is_still(day) or float(np.nanmean(day)) < FEWER_FRAC * then.mean_capacity for day in days]
    return float(np.mean(made)) if made else 0.0


def _at_count(now: Workload | None, wanted: int, before: int) -> float:
    """Return how far its replicas, in the mean of the time measured, are on the way from one number to the other."""
    service = None if now is None else now.service
    seen = None if service is None else service.replicas[np.isfinite(service.replicas)]
    if seen is None or not len(seen) or wanted == before:
        return 0.0
    return float(np.clip((before - float(seen.mean())) / (before - wanted), 0.0, 1.0))


def _batched(then: WorkloadUse | None, index: int | None, fleet: Fleet) -> float:
    """Return 1 where replicas are observed to serve several requests at once, or fewer of them do the work."""
    if then is None or index is None:
        return 0.0
    service = fleet.workloads[index].service
    several = service is not None and seconds_one_by_one(service) is None
    return float(several or float(np.nanmean(capacity_of(fleet, index))) < FEWER_FRAC * then.mean_capacity)


def _starts_sooner(effect: ShortenStart, now: Workload | None) -> float:
    """Return how far its measured starts are on the way from what they took to what was planned; 0 where none was measured."""
    if now is None or now.start_s is None:
        return 0.0
    return float(np.clip((effect.before_s - now.start_s) / effect.saved_s, 0.0, 1.0))


def _released(then: WorkloadUse | None, index: int | None, held: PoolUses, fleet: Fleet) -> float:
    """Return the share of weeks in which nodes came and went; where they did so before, whether fewer are held now."""
    if then is None or index is None:
        return 0.0
    if then.held_still:
        return _moving(nodes_of(fleet, index), HR_PER_WEEK)
    return float(sum(use.nodes for use in held) < FEWER_FRAC * sum(use.nodes for use in then.uses))


def _moving(capacity: FloatArray, block_hr: int) -> float:
    """Return the share of blocks of hours within which capacity did not stand still."""
    moved = [not is_still(block) for block in _blocks(capacity, block_hr)]
    return float(np.mean(moved)) if moved else 0.0


def _blocks(capacity: FloatArray, block_hr: int) -> list[FloatArray]:
    """Return capacity in blocks of hours, those in which none is known left out; one block where history is shorter."""
    block = min(block_hr, len(capacity))
    count = len(capacity) // block
    return [hours for hours in capacity[: count * block].reshape(count, block) if np.isfinite(hours).any()]


def _on_time(now: Workload | None, hours_of_week: tuple[int, ...], window: Window) -> float:
    """Return how much of the time outside a timetable is free of nodes."""
    if now is None:
        return 0.0
    inside = np.isin(np.arange(HR_PER_WEEK), hours_of_week)[window.week_hours()]
    nodes: FloatArray = now.held_node_seconds
    usual = float(nodes[inside].mean()) if inside.any() else 0.0
    if inside.all() or usual <= 0:
        return 1.0
    return float(np.clip(1 - nodes[~inside].mean() / usual, 0.0, 1.0))


_PLACES = UseOffering | Relocate | UseSlots | SetReplicaGpus
_PEAK_QUANTILE = 0.95
_WORTH_USD_MO = 1.0


class DriftKind(Enum):
    """What no longer holds."""

    ACTIVITY = "activity"
    MEMORY = "memory"
    COMMITMENT = "commitment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One alert: on what, the reading and what it was compared with (shares 0..1), and what to do."""

    kind: DriftKind
    subject: str
    action: str
    """The plan's action it belongs to; empty where none."""
    seen_frac: float
    limit_frac: float
    advice: str


def drifts(plan: Plan, fleet: Fleet, market: Market, settings: Settings) -> tuple[Drift, ...]:
    """Return the alerts of a later fleet."""
    return (*_places(plan, fleet, market, settings), *_commitments(plan, fleet, market))


def _places(plan: Plan, fleet: Fleet, market: Market, settings: Settings) -> list[Drift]:
    """Look at workloads that were moved or made to share: do they still fit their GPUs, and do these still keep up?"""
    found = []
    workloads = {workload.name: workload for workload in fleet.workloads}
    for action in plan.actions:
        for change in action.changes:
            now = workloads.get(change.subject)
            moved = isinstance(change.effect, _PLACES | SetGpuCount)
            if now is not None and moved and _is_there(change.effect, now):
                found += _outgrown(action, now, market, settings)
    return found


def _is_there(effect: object, now: Workload) -> bool:
    return not isinstance(effect, _PLACES) or now.pool.instance_type == effect.pool.instance_type


def _outgrown(action: Action, now: Workload, market: Market, settings: Settings) -> list[Drift]:
    found = []
    busy = _busy_frac(now)
    limit = settings.bands.at_risk_frac
    if busy is not None and busy > limit:
        found.append(
            Drift(
                kind=DriftKind.ACTIVITY,
                subject=now.name,
                action=action.id,
                seen_frac=busy,
                limit_frac=limit,
                advice="its GPUs are busy for good: add a replica, or undo the move; audit again",
            )
        )
    gpu, peak = market.gpu(now.gpu), now.activity.memory_peak_gib
    room = 1 / (1 + settings.assumptions.memory_headroom_frac)
    if gpu is not None and peak is not None and peak > gpu.memory_gib * room:
        found.append(
            Drift(
                kind=DriftKind.MEMORY,
                subject=now.name,
                action=action.id,
                seen_frac=peak / gpu.memory_gib,
                limit_frac=room,
                advice="less than the planned headroom of GPU memory is left: move it to a larger GPU before it runs out",
            )
        )
    return found


def _busy_frac(now: Workload) -> float | None:
    """Return the activity that a workload's GPUs reach in its busiest hours; None where not measured."""
    held: FloatArray = now.gpu_seconds / S_PER_HR
    busy = now.activity.busy_gpus
    known = (held > 0) & np.isfinite(busy)
    return float(np.quantile(busy[known] / held[known], _PEAK_QUANTILE)) if known.any() else None


def _commitments(plan: Plan, fleet: Fleet, market: Market) -> list[Drift]:
    """Look at reserved nodes: are they held for more of their time than what pays them?"""
    found = []
    buys = {pool.instance_type: action.id for action in plan.actions for pool in _bought(action)}
    for pool, (paid, held) in sorted(reserved_use(fleet).items()):
        listed = usd(market.rate(pool.held_as(CapacityType.ON_DEMAND)))
        break_even = min(1.0, usd(market.rate(pool)) / listed)
        used = held / paid if paid else 0.0
        lost = (break_even - used) * paid / fleet.window.seconds * listed * HR_PER_MO
        if lost > _WORTH_USD_MO:
            found.append(
                Drift(
                    kind=DriftKind.COMMITMENT,
                    subject=str(pool),
                    action=buys.get(pool.instance_type, ""),
                    seen_frac=used,
                    limit_frac=break_even,
                    advice=f"on demand would be ${lost:,.0f} a month cheaper: move work onto it, sell it on, let it end",
                )
            )
    return found


def _bought(action: Action) -> list[Pool]:
    return [change.effect.pool for change in action.changes if isinstance(change.effect, BuyCommitment)]


def reserved_use(fleet: Fleet) -> dict[Pool, tuple[float, float]]:
    """Return node-seconds paid and node-seconds held by any workload, of each reserved pool."""
    cells = fleet.holdings
    mine = cells.owner != IDLE
    held = np.zeros(len(fleet.nodes))
    np.add.at(held, cells.node[mine], cells.node_seconds[mine])
    found: dict[Pool, tuple[float, float]] = {}
    for row, node in enumerate(fleet.nodes):
        if node.pool.capacity_type is CapacityType.RESERVED:
            up = float(fleet.node_seconds[row].sum())
            paid, used = found.get(node.pool, (0.0, 0.0))
            found[node.pool] = (paid + up, used + min(up, float(held[row])))
    return found
