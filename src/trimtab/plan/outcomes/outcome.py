"""What a workload would have used and kept under a set of effects: one replay, whatever its kind.

The same functions judge the fit window (to plan) and the proof window (to prove): `Case` says whose history is replayed and
which targets and service law, both learnt on the fit window, apply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from trimtab.catalog.pools import Pool, SharedPool
from trimtab.fleet.effects import (
    BookBlocks,
    Effect,
    HedgeOnSpot,
    Relocate,
    SetCapacityType,
    SetGpuCount,
    SetPrecision,
    SetTrainingMemory,
    UseOffering,
    UseSlots,
)
from trimtab.fleet.model import IntArray, Target, Window, Workload
from trimtab.fleet.service_law import ServiceLaw
from trimtab.fleet.settings import Lever, Settings
from trimtab.provenance import Basis, Estimate, product
from trimtab.tables.workloads import TargetMetric, WorkloadKind
from trimtab.units import S_PER_HR

Effects = Mapping[Lever, Effect]
"""At most one effect per lever; none = as history had it, on nodes of its own."""

_ROUNDING = 1e-9
_ROUND_TRIP = frozenset({TargetMetric.LATENCY, TargetMetric.TTFT})
SAME_SPEED = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED, because="the same GPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stress:
    """How far the world departs from what the plan took it for: a factor on the speed of replicas and of moved runs.

    Runs that stay on their GPU keep their speed: it was measured, not predicted.
    """

    speed: float = 1.0


AS_PREDICTED = Stress()


class OutcomeStore(Protocol):
    """Keeps outcomes by key (`outcome_store.outcome_key`)."""

    def get(self, key: str) -> Outcome | None:
        """Return a kept outcome."""
        ...

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """Whose history is replayed, over which window, against which targets and law."""

    workload: Workload
    window: Window
    targets: tuple[Target, ...]
    law: ServiceLaw | None
    settings: Settings
    seed: int
    stress: Stress = AS_PREDICTED
    store: OutcomeStore | None = None
    """Where outcomes are looked up before they are replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attained:
    """A target and the share that was attained; `safe_frac` is that share at the low end of the speed estimate, and for
    services under more demand than history had."""

    target: Target
    frac: float
    safe_frac: float


def safe_required_frac(target: Target, margin_frac: float) -> float:
    """Return the share to attain under stress, so that a share of the allowed misses is left unused."""
    return 1 - (1 - target.required_frac) * (1 - margin_frac) - _ROUNDING


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """Node-seconds per hour (n_hours,), what was attained, and what spot cost it. Prices play no part in it."""

    on_demand: IntArray
    spot: IntArray
    attained: tuple[Attained, ...]
    interruptions: int = 0
    lost_gpu_hr: float = 0.0
    booked: IntArray | None = None
    """Node-seconds per hour (n_hours,) in capacity blocks, paid whether used or not; None where none are booked."""
    booked_used_frac: float | None = None
    """The share of the booked node-seconds that runs used."""
    gpus: IntArray | None = None
    """GPU-seconds per hour that were up (n_hours,), for pictures; None where nodes say it all."""
    replicas: IntArray | None = None
    """The most replicas held at once in each hour (n_hours,), of workloads that can share nodes."""
    stopped: bool = False
    """A replay ended once a target was out of reach: what was attained is at most that; what was used is known only where
    every target is kept where nothing departs."""

    def missed(self, margin_frac: float) -> tuple[Target, ...]:
        """Return the targets that are not kept with that share of their allowed misses left unused."""
        return tuple(one.target for one in self.attained if one.safe_frac < safe_required_frac(one.target, margin_frac))


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a workload runs under its effects, and how many GPUs one run or replica holds there."""

    pool: Pool
    gpus_per_node: int
    gpus_per_run: float
    speed: Estimate
    work_speed: Estimate
    """The speed of work that keeps the GPU itself busy."""
    spot: SetCapacityType | None
    shared: UseSlots | None = None
    hedge: HedgeOnSpot | None = None
    blocks: BookBlocks | None = None
    """The capacity blocks of its own nodes that it holds."""
    move: Relocate | None = None
    """How it came to another region or cloud; None at home."""

    @property
    def rtt_s(self) -> float:
        """Return what each request gains on its way to another region."""
        return 0.0 if self.move is None else self.move.rtt_s

    @property
    def nodes_per_run(self) -> int:
        """Return how many whole nodes one run needs."""
        return max(1, math.ceil(self.gpus_per_run / self.gpus_per_node - 1e-9))

    @property
    def runs_per_node(self) -> int:
        """Return how many runs a node holds; 1 where a run spans nodes."""
        return max(1, math.floor(self.gpus_per_node / self.gpus_per_run + 1e-9))

    def usage(self, outcome: Outcome) -> dict[Pool, IntArray]:
        """Return an outcome's node-seconds by the pool that is billed; of shared nodes, those that it fills alone."""
        by_pool = {self.pool: outcome.on_demand}
        if self.shared is not None and outcome.replicas is not None:
            by_pool = {self.pool: self._filled(self.shared, outcome.replicas) * S_PER_HR}
        for held in (self.spot, self.hedge):
            if held is not None:
                by_pool[held.pool] = outcome.spot
        if self.blocks is not None and outcome.booked is not None:
            by_pool[self.blocks.pool] = outcome.booked
        return {pool: seconds for pool, seconds in by_pool.items() if seconds.any()}

    def slots(self, outcome: Outcome) -> dict[SharedPool, IntArray]:
        """Return the slots per hour that an outcome holds beside others, on nodes that it does not fill alone.

        Taking full nodes out changes no bill, since ceil(q + r / S) = q + ceil(r / S), and makes the program's bound tight.
        """
        if self.shared is None or outcome.replicas is None:
            return {}
        shared = self.shared.shared
        filled = self._filled(self.shared, outcome.replicas)
        rest = outcome.replicas * self.shared.slots - filled * shared.slots_per_node
        return {shared: rest} if rest.any() else {}

    def _filled(self, slot: UseSlots, replicas: IntArray) -> IntArray:
        """Return the nodes per hour that replicas fill alone; none where slots of other kinds may stand between them."""
        if slot.shared.room:
            return np.zeros_like(replicas)
        return np.asarray(replicas * slot.slots // slot.shared.slots_per_node, dtype=np.int64)


def placement(workload: Workload, effects: Effects) -> Placement:
    """Resolve the effects that say where and on how many GPUs; a spot effect must name the same instance type.

    Slots and spot nodes of another region count only together with the move there. Capacity blocks of other nodes than those
    that the other effects lead to are not bought.
    """
    pool, gpus_per_node, gpus = workload.pool, workload.gpus_per_node, workload.gpus_per_pod
    speed = work_speed = SAME_SPEED
    count = effects.get(Lever.GPU_COUNT)
    if isinstance(count, SetGpuCount):
        pool, gpus_per_node, gpus = count.pool, count.gpus_per_node, float(count.gpus)
    size, precision, move = (effects.get(one) for one in (Lever.RIGHT_SIZE, Lever.QUANTIZATION, Lever.RELOCATION))
    if isinstance(move, Relocate):
        size = move.to
    moves = isinstance(size, UseOffering) and (isinstance(precision, SetPrecision) or not size.only_quantized)
    if isinstance(size, UseOffering) and moves:
        pool, gpus_per_node, speed = size.pool, size.gpus_per_node, size.speed
        work_speed = size.work_speed or size.speed
    memory = effects.get(Lever.TRAINING_MEMORY)
    if isinstance(memory, SetTrainingMemory):
        pool, gpus_per_node, gpus = memory.pool, memory.gpus_per_node, float(memory.gpus)
        speed = work_speed = memory.speed
    there = move if isinstance(move, Relocate) and moves else None
    slots, shared = effects.get(Lever.SHARING), None
    holds = isinstance(slots, UseSlots) and slots.pool.is_beside(pool)
    if isinstance(slots, UseSlots) and holds and (isinstance(precision, SetPrecision) or not slots.only_quantized):
        pool, gpus_per_node, gpus, shared = slots.pool, slots.gpus_per_node, slots.gpus, slots
        speed, work_speed, moves = slots.speed, slots.work_speed, True
    if isinstance(precision, SetPrecision):
        speed = product(speed, precision.speed_there if moves else precision.speed)
        further = precision.work_speed_there if moves else precision.work_speed
        work_speed = work_speed if further is None else product(work_speed, further)
    capacity = None if shared else effects.get(Lever.SPOT)
    if isinstance(capacity, SetCapacityType | HedgeOnSpot) and not capacity.pool.is_beside(pool):
        capacity = None
    spot = capacity if isinstance(capacity, SetCapacityType) else None
    if spot is not None and spot.pool.instance_type != pool.instance_type:
        spot = SetCapacityType(
            pool=pool.held_as(spot.pool.capacity_type),
            loss_per_hr=spot.loss_per_hr,
            on_demand_after=spot.on_demand_after,
        )
    blocks = effects.get(Lever.CAPACITY_BLOCK)
    booked = isinstance(blocks, BookBlocks) and blocks.pool == pool.held_as(blocks.pool.capacity_type)
    return Placement(
        pool=pool,
        gpus_per_node=gpus_per_node,
        gpus_per_run=gpus,
        speed=speed,
        work_speed=work_speed,
        spot=spot,
        shared=shared,
        blocks=blocks if isinstance(blocks, BookBlocks) and booked and not (spot or shared) else None,
        hedge=replace(capacity, pool=pool.held_as(capacity.pool.capacity_type))
        if isinstance(capacity, HedgeOnSpot)
        else None,
        move=there,
    )


def targets_at(targets: Sequence[Target], place: Placement) -> tuple[Target, ...]:
    """Return what is left of each target for the service itself: a round trip to another region comes off latency limits.

    Time between tokens is not touched: a stream's round trip is paid once. A limit below the trip leaves nothing.
    """
    return tuple(
        replace(one, limit_s=max(0.0, one.limit_s - place.rtt_s))
        if one.limit_s is not None and place.rtt_s and one.metric in _ROUND_TRIP
        else one
        for one in targets
    )


def is_unchanged(workload: Workload, effects: Effects, target: Target) -> bool:
    """Tell whether a target that nobody declared holds by itself: the same replicas, and no way that got longer."""
    longer = target.limit_s is not None and placement(workload, effects).rtt_s > 0
    return not target.declared and not longer and same_replicas(workload, effects)


def same_replicas(workload: Workload, effects: Effects) -> bool:
    """Tell whether a service keeps as many replicas as it had, each on as many GPUs of the same type, isolated from others.

    What it attains is then what it attained: "no worse than observed" holds by itself, whatever a replay's rounding says
    (`is_unchanged`: unless requests have a longer way).
    """
    place = placement(workload, effects)
    return (
        workload.kind is WorkloadKind.SERVING
        and effects.keys() <= {Lever.RIGHT_SIZE, Lever.RELOCATION, Lever.SHARING}
        and place.speed.low == place.speed.value == 1.0
        and place.gpus_per_run >= workload.gpus_per_pod - 1e-9
        and (place.shared is None or not place.shared.shared.is_cut)
    )


def run_speed(case: Case, place: Placement) -> float:
    """Return the speed of a run there, beside its speed in history."""
    return place.speed.value if place.speed == SAME_SPEED else place.speed.value * case.stress.speed


def held_usage(workload: Workload, place: Placement) -> IntArray:
    """Return the node-seconds per hour (n_hours,) of holding there what history held, in whole nodes."""
    now = placement(workload, {})
    runs = workload.held_node_seconds / S_PER_HR * now.runs_per_node / now.nodes_per_run
    nodes = np.ceil(runs / place.runs_per_node - 1e-6) * place.nodes_per_run
    return np.asarray(nodes * S_PER_HR, dtype=np.int64)


def held_replicas(workload: Workload) -> IntArray:
    """Return how many replicas or runs history held in each hour (n_hours,), on the high side."""
    held = workload.gpu_seconds / S_PER_HR / workload.gpus_per_pod
    return np.asarray(np.ceil(held - 1e-6), dtype=np.int64)


def held_as(place: Placement, seconds: IntArray) -> tuple[IntArray, IntArray]:
    """Return node-seconds as (on demand, spot), by how the place is held."""
    nothing = np.zeros_like(seconds)
    return (seconds, nothing) if place.spot is None else (nothing, seconds)


def speed_attained(target: Target, ratio: float, speed: Estimate) -> Attained:
    """Judge a throughput target by the speed ratio reached, and by that ratio at the low end of the speed estimate."""
    return Attained(target=target, frac=min(1.0, ratio), safe_frac=min(1.0, ratio * speed.low / speed.value))
