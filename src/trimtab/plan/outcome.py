"""What a workload would have used and kept under a set of effects: one replay, whatever its kind.

The same functions judge the fit window (to plan) and the proof window (to prove): `Case` says whose history is replayed and
which targets and service law, both learnt on the fit window, apply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trimtab.catalog.pools import Pool
from trimtab.fleet.effects import Effect, SetCapacityType, SetGpuCount, UseOffering
from trimtab.fleet.model import IntArray, Target, Window, Workload
from trimtab.fleet.service_law import ServiceLaw
from trimtab.fleet.settings import Lever, Settings
from trimtab.provenance import Basis, Estimate
from trimtab.units import S_PER_HR

Effects = Mapping[Lever, Effect]
"""At most one effect per lever; none = as history had it, on nodes of its own."""

_ROUNDING = 1e-9
SAME_SPEED = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED, because="the same GPU")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """Whose history is replayed, over which window, against which targets and law."""

    workload: Workload
    window: Window
    targets: tuple[Target, ...]
    law: ServiceLaw | None
    settings: Settings
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attained:
    """A target and the share that was attained; `safe_frac` is that share at the low end of the speed estimate, and for
    services under more demand than history had."""

    target: Target
    frac: float
    safe_frac: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """Node-seconds per hour (n_hours,), what was attained, and what spot cost it. Prices play no part in it."""

    on_demand: IntArray
    spot: IntArray
    attained: tuple[Attained, ...]
    interruptions: int = 0
    lost_gpu_hr: float = 0.0
    gpus: IntArray | None = None
    """GPU-seconds per hour that were up (n_hours,), for pictures; None where nodes say it all."""

    def keeps_targets(self, margin_frac: float) -> bool:
        """Tell whether every target is kept, with that share of its allowed misses left unused."""
        return all(
            one.safe_frac >= 1 - (1 - one.target.required_frac) * (1 - margin_frac) - 1e-9 for one in self.attained
        )


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

    @property
    def nodes_per_run(self) -> int:
        """Return how many whole nodes one run needs."""
        return max(1, math.ceil(self.gpus_per_run / self.gpus_per_node - 1e-9))

    @property
    def runs_per_node(self) -> int:
        """Return how many runs a node holds; 1 where a run spans nodes."""
        return max(1, math.floor(self.gpus_per_node / self.gpus_per_run + 1e-9))

    def usage(self, outcome: Outcome) -> dict[Pool, IntArray]:
        """Return an outcome's node-seconds by the pool that is billed."""
        by_pool = {self.pool: outcome.on_demand}
        if self.spot is not None:
            by_pool[self.spot.pool] = outcome.spot
        return {pool: seconds for pool, seconds in by_pool.items() if seconds.any()}


def placement(workload: Workload, effects: Effects) -> Placement:
    """Resolve the effects that say where and on how many GPUs; a spot effect must name the same instance type."""
    pool, gpus_per_node, gpus = workload.pool, workload.gpus_per_node, workload.gpus_per_pod
    speed = work_speed = SAME_SPEED
    count = effects.get(Lever.GPU_COUNT)
    if isinstance(count, SetGpuCount):
        pool, gpus_per_node, gpus = count.pool, count.gpus_per_node, float(count.gpus)
    size = effects.get(Lever.RIGHT_SIZE)
    if isinstance(size, UseOffering):
        pool, gpus_per_node, speed = size.pool, size.gpus_per_node, size.speed
        work_speed = size.work_speed or size.speed
    capacity = effects.get(Lever.SPOT)
    spot = capacity if isinstance(capacity, SetCapacityType) else None
    if spot is not None and spot.pool.instance_type != pool.instance_type:
        spot = SetCapacityType(
            pool=pool.held_as(spot.pool.capacity_type),
            loss_per_hr=spot.loss_per_hr,
            on_demand_after=spot.on_demand_after,
        )
    return Placement(
        pool=pool, gpus_per_node=gpus_per_node, gpus_per_run=gpus, speed=speed, work_speed=work_speed, spot=spot
    )


def held_usage(workload: Workload, place: Placement) -> IntArray:
    """Return the node-seconds per hour (n_hours,) of holding there what history held, in whole nodes."""
    now = placement(workload, {})
    runs = workload.held_node_seconds / S_PER_HR * now.runs_per_node / now.nodes_per_run
    nodes = np.ceil(runs / place.runs_per_node - 1e-6) * place.nodes_per_run
    return np.asarray(nodes * S_PER_HR, dtype=np.int64)


def held_as(place: Placement, seconds: IntArray) -> tuple[IntArray, IntArray]:
    """Return node-seconds as (on demand, spot), by how the place is held."""
    nothing = np.zeros_like(seconds)
    return (seconds, nothing) if place.spot is None else (nothing, seconds)


def speed_attained(target: Target, ratio: float, speed: Estimate) -> Attained:
    """Judge a throughput target by the speed ratio reached, and by that ratio at the low end of the speed estimate."""
    return Attained(target=target, frac=min(1.0, ratio), safe_frac=min(1.0, ratio * speed.low / speed.value))
