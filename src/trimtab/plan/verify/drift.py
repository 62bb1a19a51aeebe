"""What a plan assumed that a later window no longer shows.

Workloads that were moved may have outgrown their GPUs by activity or memory, and commitments may be used less than pays them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import BuyCommitment, Relocate, SetGpuCount, UseOffering, UseSlots
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, FloatArray, Workload
from trimtab.fleet.settings import Settings
from trimtab.ledger import IDLE
from trimtab.plan.model import Action, Plan
from trimtab.units import HR_PER_MO, S_PER_HR, usd

_PLACES = UseOffering | Relocate | UseSlots
_PEAK_QUANTILE = 0.95
_WORTH_USD_MO = 1.0


class DriftKind(Enum):
    """What no longer holds."""

    ACTIVITY = "activity"
    MEMORY = "memory"
    COMMITMENT = "commitment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One alert: on what, the reading and what it was held against (shares 0..1), and what to do."""

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
