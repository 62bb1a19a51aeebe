"""Change how training uses memory, and so the GPUs it needs: recomputation, 8-bit states, ZeRO stage, micro-batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trimtab.catalog import Gpu, Lifecycle
from trimtab.fleet.effects import SetTrainingMemory
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import Workload
from trimtab.fleet.reach import offerings_at_home
from trimtab.fleet.settings import Assumptions, Lever
from trimtab.fleet.trained_model import TrainedModel, on_gpus
from trimtab.physics.predict import calibrated
from trimtab.physics.support import native_precision
from trimtab.physics.training_memory import Method, Optimizer, Recompute, Sharding, Training
from trimtab.physics.transfer import Z_80
from trimtab.provenance import Basis, Estimate

LEVER = Lever.TRAINING_MEMORY
SAME_GPU_SPREAD = 0.12
"""Standard deviation of ln(predicted / measured) that one measured point leaves on one GPU (docs/benchmarks/physics.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """GPUs of one kind for a run, on the nodes of an offering."""

    gpu: Gpu
    gpus: int
    offering: Offering


def propose(
    workload: Workload, model: TrainedModel, market: Market, assumptions: Assumptions
) -> tuple[SetTrainingMemory, ...]:
    """Return the fastest plan that fits on each offering and number of GPUs, no more of them than today."""
    home = market.gpu(workload.gpu)
    if home is None:
        return ()
    found = (_best(workload, model, home, place, assumptions) for place in _places(workload, model, market))
    return tuple(one for one in found if one is not None)


def _places(workload: Workload, model: TrainedModel, market: Market) -> Iterator[_Place]:
    """Yield counts of GPUs on nodes that cost no more than today's: larger GPUs are right-sizing's to offer."""
    rate = market.rate(workload.pool)
    for offering in offerings_at_home(workload, market):
        if offering.rate_micro_usd_hr > rate:
            continue
        same_cpu = offering.cpu_arch == (market.cpu_arch(workload.pool) or offering.cpu_arch)
        current = offering.lifecycle is Lifecycle.CURRENT or offering.pool == workload.pool
        if (
            same_cpu
            and current
            and native_precision(offering.gpu) is native_precision(market.gpu(workload.gpu) or offering.gpu)
        ):
            for gpus in (2**power for power in range(model.gpus.bit_length())):
                if gpus <= offering.gpus_per_node:
                    yield _Place(gpu=offering.gpu, gpus=gpus, offering=offering)


def plans_on(model: TrainedModel, gpus: int) -> Iterator[Training]:
    """Yield the memory plans to try on so many GPUs; what is trained, the sequence and the step's batch stay."""
    base = on_gpus(model.plan, gpus)
    optimizers = {base.optimizer}
    if base.optimizer is Optimizer.ADAMW and base.method is Method.FULL:
        optimizers.add(Optimizer.ADAMW_8BIT)
    shardings = {base.sharding, Sharding.WEIGHTS} if gpus > 1 else {Sharding.NONE}
    for optimizer in sorted(optimizers, key=lambda one: one.value):
        for sharding in sorted(shardings, key=lambda one: one.value):
            for recompute in Recompute:
                yield replace(base, optimizer=optimizer, sharding=sharding, recompute=recompute)


def _best(
    workload: Workload, model: TrainedModel, home: Gpu, place: _Place, assumptions: Assumptions
) -> SetTrainingMemory | None:
    room_gib = place.gpu.memory_gib * (1 - assumptions.training_headroom_frac)
    fitting = [fit for plan in plans_on(model, place.gpus) if (fit := _largest(model, plan, room_gib)) is not None]
    if not fitting:
        return None
    speed, plan = max(
        ((model.tok_s(plan, place.gpu), plan) for plan in fitting), key=lambda pair: (pair[0], -pair[1].micro_batch)
    )
    if plan == model.plan and place.offering.pool == workload.pool:
        return None
    return SetTrainingMemory(
        pool=place.offering.pool,
        gpu=place.gpu.name,
        gpus_per_node=place.offering.gpus_per_node,
        gpus=place.gpus,
        before=model.gpus,
        optimizer=plan.optimizer,
        recompute=plan.recompute,
        sharding=plan.sharding,
        micro_batch=plan.micro_batch,
        accumulate=max(1, round(model.global_batch / (plan.micro_batch * place.gpus))),
        memory_gib=model.memory_gib(plan),
        speed=_speed(speed / model.tok_s(model.plan, home), same=place.gpu == home and place.gpus == model.gpus),
        model=workload.spec.model or plan.model.name,
    )


def _largest(model: TrainedModel, plan: Training, room_gib: float) -> Training | None:
    """Return the plan with the largest micro-batch that fits and divides the step's batch; None where not even one does."""
    share = max(1, model.global_batch // plan.parallel.data)
    for size in sorted((one for one in range(1, share + 1) if share % one == 0), reverse=True):
        tried = replace(plan, micro_batch=size)
        if model.memory_gib(tried) <= room_gib:
            return tried
    return None


def _speed(ratio: float, *, same: bool) -> Estimate:
    if not same:
        return calibrated(ratio)
    spread = math.exp(Z_80 * SAME_GPU_SPREAD)
    because = "predicted time of a step under both plans on the same GPUs, fixed to the runs' own"
    return Estimate(value=ratio, low=ratio / spread, high=ratio * spread, basis=Basis.CALIBRATED, because=because)
