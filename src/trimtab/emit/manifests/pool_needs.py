"""What the changes of a plan ask of node pools: gathered by workload, then merged into the few pools that serve them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool, SharedPool, Site
from trimtab.emit.manifests.cuts import Cut, alike, side_by_side
from trimtab.emit.manifests.facts import SCALABLE, EmitFacts
from trimtab.emit.manifests.objects import node_name
from trimtab.fleet.effects import (
    BookBlocks,
    BuyCommitment,
    BuySpendPlan,
    DeferRuns,
    HedgeOnSpot,
    ReleaseIdle,
    ReleaseNodes,
    Relocate,
    SetBatchPolicy,
    SetCapacityType,
    SetGpuCount,
    SetPrecision,
    SetReplicaPolicy,
    SetSchedule,
    SetTrainingMemory,
    StartBeforeRuns,
    UseOffering,
    UseSlots,
)
from trimtab.plan.model import Action, Change


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNeed:
    """What one change asks of the nodes under a workload; None where it says nothing.

    `offered`: the pool is another offering, which goes over the one that a GPU count names. `empties`: its pods are runs that
    must not be moved, so that only empty nodes go. `gpus` is the most it may hold. `slots`: it shares those nodes.
    """

    action: Action
    workload: str
    pool: Pool | None = None
    gpus_per_node: int = 1
    offered: bool = False
    spot_pool: Pool | None = None
    block_pool: Pool | None = None
    empties: bool = False
    gpus: float | None = None
    slots: UseSlots | None = None
    one_in: int = 0
    """One replica in so many stays on demand; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """One NodePool: its nodes, how they may be held, and who asked for it."""

    pool: Pool
    gpus_per_node: int
    spot: bool
    blocks: bool
    """Nodes in capacity blocks come first."""
    empties: bool
    gpus: float | None
    """The most that its workloads may hold together; None where one of them does not say."""
    one_in: int
    """One replica in so many stays in an on-demand pool beside this one; 0: none, and there is no such pool."""
    actions: tuple[Action, ...]
    workloads: tuple[str, ...]
    cut: Cut | None = None
    """How its nodes are cut into slots; None where whoever runs there is not counted in slots."""
    beside: str = ""
    """The name that pools have in common whose nodes are cut in several ways for the same workloads; empty: just this one."""

    @property
    def name(self) -> str:
        """Return the NodePool's name."""
        held = "spot" if self.spot else "block" if self.blocks else "on-demand"
        use = "runs" if self.empties else "services"
        cut = "" if self.cut is None else self.cut.name if len(self.cut.kinds) > 1 else self.cut.kinds[0].layout
        parts = [cut, use, str(self.one_in) if self.one_in else ""]
        return node_name("trimtab", self.pool.instance_type, self.pool.region, held, *parts)

    @property
    def floor_name(self) -> str:
        """Return the name of the on-demand pool beside it."""
        return f"{self.name}-floor"

    @property
    def capacity_types(self) -> tuple[CapacityType, ...]:
        """Return how nodes may be held, in the order in which Karpenter prefers them: on demand is always the last resort."""
        if self.blocks:
            return (CapacityType.RESERVED, CapacityType.ON_DEMAND)
        return (CapacityType.SPOT, CapacityType.ON_DEMAND) if self.spot else (CapacityType.ON_DEMAND,)


def need_of(action: Action, change: Change, facts: EmitFacts) -> PoolNeed | None:
    """Return what a change asks of node pools; None where it asks nothing."""
    need = PoolNeed(action=action, workload=change.subject)
    known = facts.workload(change.subject)
    gpus_per_pod = known.gpus_per_pod if known else 1.0
    runs = known is not None and known.owner_kind not in SCALABLE
    effect = change.effect
    match effect:
        case UseOffering():
            return replace(need, pool=effect.pool, gpus_per_node=effect.gpus_per_node, offered=True, empties=runs)
        case UseSlots():
            return replace(
                need,
                pool=effect.pool,
                gpus_per_node=effect.gpus_per_node,
                offered=True,
                gpus=known.replicas * effect.gpus if known else None,
                slots=effect,
            )
        case SetTrainingMemory():
            return replace(need, pool=effect.pool, gpus_per_node=effect.gpus_per_node, offered=True, empties=True)
        case SetGpuCount():
            return replace(need, pool=effect.pool, gpus_per_node=effect.gpus_per_node, empties=True)
        case SetCapacityType():
            return replace(need, spot_pool=effect.pool, empties=True)
        case BookBlocks():
            return replace(need, block_pool=effect.pool, empties=True)
        case HedgeOnSpot():
            return replace(need, spot_pool=effect.pool, one_in=effect.one_in)
        case SetReplicaPolicy():
            return replace(need, gpus=effect.hpa.max_replicas * gpus_per_pod)
        case SetBatchPolicy():
            return replace(need, gpus=None if effect.replicas is None else effect.replicas * gpus_per_pod)
        case SetSchedule():
            return replace(need, gpus=known.replicas * gpus_per_pod if known else None, empties=True)
        case StartBeforeRuns() | DeferRuns() | ReleaseIdle():
            return replace(need, empties=True)
        case SetPrecision() | ReleaseNodes() | BuyCommitment() | BuySpendPlan() | Relocate():
            return None
    assert_never(effect)


def by_workload(needs: Iterable[PoolNeed], facts: EmitFacts) -> dict[str, tuple[PoolNeed, ...]]:
    """Return each workload's needs, all on the pool that its changes end at: the one they name, else its home.

    Workloads whose pool nobody knows are left out.
    """
    grouped: dict[str, list[PoolNeed]] = defaultdict(list)
    for need in needs:
        grouped[need.workload].append(need)
    return {
        name: tuple(replace(one, pool=place[0], gpus_per_node=place[1]) for one in _in_slots(name, wanted, facts))
        for name, wanted in grouped.items()
        if (place := _place(name, wanted, facts)) is not None
    }


def _in_slots(name: str, wanted: list[PoolNeed], facts: EmitFacts) -> list[PoolNeed]:
    """Return the needs of a workload that shares nodes, all of them in its slots; those of others as they are."""
    slots = next((one.slots for one in wanted if one.slots is not None), None)
    known = facts.workload(name)
    if slots is None or known is None:
        return wanted
    return [
        replace(
            one,
            slots=slots,
            gpus=one.gpus if one.slots or one.gpus is None else one.gpus / known.gpus_per_pod * slots.gpus,
        )
        for one in wanted
    ]


def _place(name: str, wanted: Iterable[PoolNeed], facts: EmitFacts) -> tuple[Pool, int] | None:
    """Return the pool and the GPUs of its nodes: an offering over a GPU count over home; a spot pool's own nodes first."""
    known = facts.workload(name)
    place = (known.pool, known.gpus_per_node) if known is not None and known.pool is not None else None
    for one in sorted(wanted, key=lambda one: one.offered):
        if one.pool is not None:
            place = (one.pool, one.gpus_per_node)
    for one in wanted:
        held = one.spot_pool or one.block_pool
        if held is not None:
            same = place is not None and place[0].instance_type == held.instance_type
            place = place if same else (held, _width(held, facts))
    return None if place is None else (place[0].held_as(CapacityType.ON_DEMAND), place[1])


def _width(pool: Pool, facts: EmitFacts) -> int:
    priced = facts.priced(pool.held_as(CapacityType.ON_DEMAND))
    return priced.gpus_per_node if priced else 1


def pool_specs(placed: dict[str, tuple[PoolNeed, ...]]) -> tuple[PoolSpec, ...]:
    """Merge workloads that want the same nodes, held and released the same way, into one pool each.

    Where they want slices of several profiles on the same nodes, there is a pool for each layout that a node has.
    """
    merged: dict[tuple[Pool, bool, bool, bool, Site | None, int], list[tuple[PoolNeed, ...]]] = defaultdict(list)
    for needs in placed.values():
        pool = needs[0].pool
        if pool is not None:
            shared = _shared_by(needs)
            spot, empties = any(one.spot_pool is not None for one in needs), any(one.empties for one in needs)
            blocks = any(one.block_pool is not None for one in needs)
            site = None if shared is None else shared.site
            merged[pool, spot, blocks, empties, site, max(one.one_in for one in needs)].append(needs)
    return tuple(
        replace(spec, cut=cut, beside=beside)
        for (pool, spot, blocks, empties, _, one_in), members in sorted(
            merged.items(), key=lambda item: [str(one) for one in item[0]]
        )
        for spec in (_spec(pool, members, spot=spot, blocks=blocks, empties=empties, one_in=one_in),)
        for cut, beside in _cuts(members, spec)
    )


def _shared_by(needs: Iterable[PoolNeed]) -> SharedPool | None:
    return next((one.slots.shared for one in needs if one.slots and one.slots.shared.is_cut), None)


def _cuts(members: list[tuple[PoolNeed, ...]], spec: PoolSpec) -> list[tuple[Cut | None, str]]:
    """Return how the nodes under some workloads are cut: not, all alike, or in several ways that have a name in common."""
    wanted: Counter[SharedPool] = Counter()
    for needs in members:
        shared = _shared_by(needs)
        if shared is not None:
            gpus = max((one.gpus for one in needs if one.gpus is not None), default=0.0)
            wanted[shared] += max(1, math.ceil(gpus / spec.gpus_per_node * shared.slots_per_node - 1e-9))
    if not wanted:
        return [(None, "")]
    if len(wanted) == 1:
        return [(alike(next(iter(wanted)), spec.gpus_per_node), "")]
    common = f"{spec.name}-slices"
    return [(cut, common) for cut in side_by_side(wanted, spec.gpus_per_node)]


def _spec(
    pool: Pool,
    members: list[tuple[PoolNeed, ...]],
    *,
    spot: bool,
    blocks: bool,
    empties: bool,
    one_in: int,
) -> PoolSpec:
    ceilings = [max((one.gpus for one in needs if one.gpus is not None), default=None) for needs in members]
    known = [ceiling for ceiling in ceilings if ceiling is not None]
    actions = {one.action.id: one.action for needs in members for one in needs}
    return PoolSpec(
        pool=pool,
        gpus_per_node=max(one.gpus_per_node for needs in members for one in needs),
        spot=spot,
        blocks=blocks,
        empties=empties,
        gpus=sum(known) if len(known) == len(members) else None,
        one_in=one_in,
        actions=tuple(actions[name] for name in sorted(actions, key=action_order)),
        workloads=tuple(sorted(needs[0].workload for needs in members)),
    )


def action_order(name: str) -> tuple[int, str]:
    """Return a key that puts a2 before a10."""
    digits = "".join(letter for letter in name if letter.isdigit())
    return (int(digits) if digits else 0, name)
