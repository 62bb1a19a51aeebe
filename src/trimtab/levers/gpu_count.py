"""Ask for as many GPUs as a run uses."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, SetGpuCount
from trimtab.fleet.kinds import RUN_KINDS
from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
from trimtab.fleet.reach import offerings_at_home
from trimtab.fleet.settings import Effort
from trimtab.levers.lever import Applied, Ask, Fact, Lever, Risk, Stage

NAME = "gpu-count"


def gpus_needed(workload: Workload) -> int | None:
    """Return how many of a run's GPUs ever did anything, or None where that was not measured."""
    share = workload.activity.active_devices_frac
    if share is None or share <= 0:
        return None
    return max(1, math.ceil(workload.gpus_per_pod * share - 1e-6))


def propose(workload: Workload, market: Market) -> tuple[SetGpuCount, ...]:
    """Return the smaller counts, one per instance type with the same GPU that holds that many on one node."""
    needed = gpus_needed(workload)
    before = round(workload.gpus_per_pod)
    gpu = market.gpu(workload.gpu)
    if workload.kind not in RUN_KINDS or needed is None or needed >= before or gpu is None:
        return ()
    return tuple(
        SetGpuCount(gpus=needed, before=before, pool=offering.pool, gpus_per_node=offering.gpus_per_node)
        for offering in offerings_at_home(workload, market)
        if offering.gpu == gpu and offering.gpus_per_node >= needed
    )


def counts(ask: Ask) -> tuple[SetGpuCount, ...]:
    """Return the smaller counts of a workload's runs."""
    return propose(ask.workload, ask.market)


def _ways(base: Deployment, ask: Ask) -> Iterator[Deployment]:
    """Yield each count at home; elsewhere the count alone, on nodes that no count at home is for."""
    smaller = ask.once(counts)
    if not base.changes:
        for count in smaller:
            yield base.plus((NAME, count))
    elif smaller and base.sharing is None and not _is_covered(base, smaller):
        yield base.plus((NAME, smaller[0]))


def _is_covered(base: Deployment, smaller: tuple[SetGpuCount, ...]) -> bool:
    return base.offering is not None and base.offering.pool in {count.pool for count in smaller}


def _evidence(applied: Applied) -> Iterator[Fact]:
    share = applied.workload.activity.active_devices_frac
    value = "not measured" if share is None else f"{share:.0%}"
    yield Fact("GPUs of a run that did anything", "gpu_usage by node and hour", value, "100%")


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
    page="how-to/read-an-audit.md",
    stage=Stage.PLACE,
    kinds=RUN_KINDS,
    effort=Effort(weeks=1.0, per="class"),
    risk=Risk.LOW,
    rollback="set the GPU request back and resubmit; runs under way are not touched",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    guide_order=1,
)
