"""Change how training uses memory, and so the GPUs it needs: recomputation, 8-bit states, ZeRO stage, micro-batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from trimtab.catalog import Gpu, Lifecycle
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import Effect, SetTrainingMemory
from trimtab.deployment.fitting import may_be_compared
from trimtab.fleet.declared_models import TrainedModel, on_gpus, trained_model
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.model import RUN_KINDS, Workload
from trimtab.fleet.reach import offerings_at_home
from trimtab.fleet.settings import Assumptions, Effort
from trimtab.levers.lever import (
    AppliedLever,
    CompositionStage,
    EffortStep,
    Fact,
    JudgedWays,
    Lever,
    LeverRequest,
    Risk,
    is_candidate,
    memory_peak,
    speed_fact,
    usual_reason,
)
from trimtab.physics.formats import native_precision
from trimtab.physics.predict import calibrated
from trimtab.physics.training import Method, Optimizer, Recompute, Sharding, Training
from trimtab.physics.transfer import Z_80
from trimtab.provenance import Basis, Estimate
from trimtab.tables.workloads import TargetMetric, WorkloadKind
from trimtab.units import S_PER_HR, usd

NAME = "training-memory"
TRAINS = frozenset({WorkloadKind.TRAINING, WorkloadKind.EXPERIMENT})
"""Kinds of runs that may train a model."""
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
    return tuple(plan for plan in found if plan is not None)


def _places(workload: Workload, model: TrainedModel, market: Market) -> Iterator[_Place]:
    """Yield counts of GPUs on nodes that cost no more than today's: larger GPUs are right-sizing's to offer."""
    rate, home = market.rate(workload.pool), market.gpu(workload.gpu)
    for offering in offerings_at_home(workload, market):
        if offering.rate_micro_usd_hr > rate or not (home is None or may_be_compared(home, offering.gpu)):
            continue
        same_cpu = offering.cpu_arch == (market.cpu_arch(workload.pool) or offering.cpu_arch)
        current = offering.lifecycle is Lifecycle.CURRENT or offering.pool == workload.pool
        if same_cpu and current and native_precision(offering.gpu) is native_precision(home or offering.gpu):
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
    for optimizer in sorted(optimizers, key=lambda optimizer: optimizer.value):
        for sharding in sorted(shardings, key=lambda sharding: sharding.value):
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
    for size in sorted((size for size in range(1, share + 1) if share % size == 0), reverse=True):
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


def plans(ask: LeverRequest) -> tuple[SetTrainingMemory, ...]:
    """Return the memory plans of a training run that fit somewhere; none where its own is not known."""
    model = trained_model(ask.workload)
    if isinstance(model, str) or ask.workload.jobs is None:
        return ()
    return propose(ask.workload, model, ask.market, ask.assumptions)


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    if not base.changes:
        for plan in ask.once(plans):
            yield base.plus((NAME, plan))


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    """Say why runs keep their memory plan; None of those that declare none, or where the cheapest keeps the target."""
    own = _note(ask) if ask.workload.kind in TRAINS else None
    return usual_reason(NAME, ask, judged, own=own) if own is not None or is_candidate(NAME, judged) else None


def _note(ask: LeverRequest) -> str | None:
    """Say why no memory plan can be judged, or what the cheapest would cost a run where it is too slow for the target."""
    workload = ask.workload
    model = trained_model(workload)
    if isinstance(model, str):
        asked = workload.kind is WorkloadKind.TRAINING or workload.spec.training is not None
        return model if asked else None
    found = ask.once(plans)
    if not found:
        return "no other memory plan fits a GPU of the region that costs no more"
    cheapest = min(found, key=lambda plan: _run_usd(ask, AS_IT_IS.plus((NAME, plan))))
    required = [target.required_frac for target in ask.case.targets if target.metric is TargetMetric.THROUGHPUT]
    if cheapest.speed.low >= max(required, default=0.0):
        return None
    now, then = _run_usd(ask, AS_IT_IS), _run_usd(ask, AS_IT_IS.plus((NAME, cheapest)))
    return (
        f"cheapest a run: {cheapest.describe()}; it takes {1 / cheapest.speed.value:.1f} times as long, which its target "
        f"forbids, for ${then:,.0f} a run on demand, not ${now:,.0f}"
    )


def _run_usd(ask: LeverRequest, deployment: Deployment) -> float:
    """Return what the mean run would cost on demand, its nodes held for its own time only."""
    jobs = ask.workload.jobs
    if jobs is None or not jobs.count:
        return 0.0
    place = ask.evaluator.place(deployment)
    hours = float((jobs.end_s - jobs.start_s).mean()) / S_PER_HR / place.speed.value
    return usd(ask.market.rate(place.pool)) * place.nodes_per_pod * hours


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    for plan in applied.effects:
        if isinstance(plan, SetTrainingMemory):
            takes = f"memory of {plan.gpu} it will take"
            yield memory_peak(applied.workload, what="memory peak of a GPU")
            yield Fact(takes, "physics, fixed to that peak", f"{plan.memory_gib:.1f} GiB")
            yield speed_fact("speed of a run", plan.speed)


def _canary(effect: Effect) -> tuple[str, ...]:
    memory = f" ({effect.memory_gib:.0f} GiB expected)" if isinstance(effect, SetTrainingMemory) else ""
    return (
        "Run 200 steps with the new settings from the last checkpoint, and 200 with the present ones.",
        f"Compare loss, speed and peak memory{memory}; go on if the losses agree.",
    )


LEVER = Lever(
    name=NAME,
    title="Training memory",
    meaning="Trains with another memory plan, and so on fewer or smaller GPUs",
    page="how-to/train-in-less-memory.md",
    stage=CompositionStage.PLACE,
    kinds=RUN_KINDS,
    effort=Effort(weeks=1.0, per="class"),
    steps=(
        EffortStep("the settings in the trainer, and 200 steps beside the present ones", 2.0),
        EffortStep("losses compared over a longer run", 2.0),
        EffortStep("templates and defaults of the others", 1.0),
    ),
    risk=Risk.MEDIUM,
    rollback="resubmit with the former settings, from the last checkpoint; keep its optimizer states",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
)
