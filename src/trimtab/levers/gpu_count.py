"""Ask for as many GPUs as a run uses."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, SetGpuCount
from trimtab.fleet.market import Market
from trimtab.fleet.model import RUN_KINDS, Workload
from trimtab.fleet.reach import offerings_at_home
from trimtab.fleet.settings import Effort
from trimtab.ledger.arrays import FloatArray
from trimtab.levers.lever import (
    AppliedLever,
    CompositionStage,
    EffortStep,
    Fact,
    JudgedWays,
    Lever,
    LeverRequest,
    Risk,
    usual_reason,
)

NAME = "gpu-count"


def smaller_sizes(workload: Workload) -> dict[int, int]:
    """Return how many GPUs pods need, by how many they hold, where that is fewer: as many as the pod that used most of them.

    A workload may run on 1 GPU and on 4: those of each size are judged by what they did. Sizes for which it is
    unknown which GPUs worked are left out.
    """
    return {
        round(size.gpus): needed
        for size in workload.pod_sizes
        if size.used_gpus is not None and (needed := max(1, math.ceil(size.used_gpus - 1e-6))) < round(size.gpus)
    }


def gpus_used(workload: Workload, pod_gpus: FloatArray) -> FloatArray:
    """Return how many of the GPUs of pods (n,) some pod of their size ever used; all of them where that was not measured."""
    used = pod_gpus.copy()
    for before, needed in smaller_sizes(workload).items():
        used = np.where(np.rint(pod_gpus) == before, float(needed), used)
    return used


def propose(workload: Workload, market: Market) -> tuple[SetGpuCount, ...]:
    """Return the smaller counts, one per size of pods and instance type with the same GPU that holds that many on one node."""
    gpu = market.gpu(workload.gpu)
    if workload.kind not in RUN_KINDS or gpu is None:
        return ()
    return tuple(
        SetGpuCount(gpus=needed, before=before, pool=offering.pool, gpus_per_node=offering.gpus_per_node)
        for before, needed in smaller_sizes(workload).items()
        for offering in offerings_at_home(workload, market)
        if offering.gpu == gpu and offering.gpus_per_node >= needed
    )


def counts(ask: LeverRequest) -> tuple[SetGpuCount, ...]:
    """Return the smaller counts of a workload's runs."""
    return propose(ask.workload, ask.market)


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    """Yield each count at home; elsewhere the count alone, on nodes that no count at home is for."""
    smaller = ask.once(counts)
    if not base.changes:
        for count in smaller:
            yield base.plus((NAME, count))
    elif base.sharing is None and not _is_covered(base, smaller):
        for count in {count.before: count for count in reversed(smaller)}.values():
            yield base.plus((NAME, count))


def _is_covered(base: Deployment, smaller: tuple[SetGpuCount, ...]) -> bool:
    return base.offering is not None and base.offering.pool in {count.pool for count in smaller}


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    """Say that it is unknown which GPUs of a run worked, where some did not; else what every lever says."""
    share, sizes = ask.workload.activity.active_devices_frac, ask.workload.pod_sizes
    unknown = share is not None and share < 1 and all(size.used_gpus is None for size in sizes)
    own = "allocations do not name the GPUs that each run held, so it is unknown which of them it used"
    return usual_reason(NAME, ask, judged, own=own if unknown else None)


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    for effect in applied.effects:
        if isinstance(effect, SetGpuCount):
            most = f"at most {effect.gpus} of {effect.before}"
            yield Fact("GPUs of a run that did anything", "gpu_usage by device and hour", most, str(effect.before))


def _canary(effect: Effect) -> tuple[str, ...]:
    asks = f"{effect.gpus} GPU{'s' if effect.gpus != 1 else ''}" if isinstance(effect, SetGpuCount) else "fewer GPUs"
    return (
        f"Start the next run with {asks}; leave the rest as they are.",
        "Compare steps per second with the last run; go on if it is within 10 %.",
    )


LEVER = Lever(
    name=NAME,
    title="Fewer GPUs a run",
    meaning="Asks for as many GPUs as a run uses",
    ends="runs hold more GPUs than do anything",
    page="how-to/read-an-audit.md",
    stage=CompositionStage.PLACE,
    kinds=RUN_KINDS,
    effort=Effort(weeks=0.6, per="class", first_weeks=0.4),
    first_steps=(EffortStep("where runs ask for GPUs, and what their launcher does with another number", 2.0),),
    steps=(
        EffortStep("one run with fewer, its steps per second compared", 1.5),
        EffortStep("templates and defaults of the others", 1.5),
    ),
    risk=Risk.LOW,
    rollback="set the GPU request back and resubmit; runs under way are not touched",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
    guide_order=1,
)
