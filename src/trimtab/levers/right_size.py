"""Move to a GPU that fits: the memory it needs, no slower than the target allows, for less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import Effect, UseOffering
from trimtab.deployment.fitting import Fitting, fitting_offerings
from trimtab.fleet.market import Market
from trimtab.fleet.model import Workload
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
    memory_peak,
    software_fact,
    speed_fact,
    usual_reason,
)
from trimtab.physics.formats import WeightFormat
from trimtab.tables.workloads import WorkloadKind

NAME = "right-size"


def propose(
    workload: Workload, market: Market, assumptions: Assumptions, *, stored: WeightFormat | None = None
) -> Fitting:
    """Judge every whole-GPU node on demand in the workload's region; its own GPU in other node sizes is among them.

    With weights `stored` another way it may fit where it does not today; speeds are those of the present format.
    """
    return fitting_offerings(workload, offerings_at_home(workload, market), market, assumptions, stored)


def sizes(ask: LeverRequest) -> Fitting:
    """Return the offerings that fit a workload as it is."""
    return propose(ask.workload, ask.market, ask.assumptions)


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    if not base.changes:
        for size in ask.once(sizes).fitting:
            yield base.plus((NAME, size))


def _refused(ask: LeverRequest) -> Counter[str]:
    return ask.once(sizes).refused


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str:
    found = ask.once(sizes)
    others = [size for size in found.fitting if size.gpu != ask.workload.gpu]
    hopeless = [ask.evaluator.hopeless(AS_IT_IS.plus((NAME, size))) for size in others]
    if None in hopeless:
        otherwise = "possible, but more expensive than the plan"
    else:
        why = found.refused + Counter(reason for reason in hopeless if reason is not None)
        otherwise = f"no GPU of the region fits: {why.most_common(1)[0][0]}" if why else "nothing to change"
    return usual_reason(NAME, ask, judged, otherwise=otherwise)


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    for size in applied.effects:
        if isinstance(size, UseOffering):
            yield memory_peak(applied.workload, size.gpu)
            yield speed_fact(f"speed on {size.gpu}", size.speed)
            yield from software_fact(applied.market.gpu(applied.workload.gpu), applied.market.gpu(size.gpu))


def _canary(effect: Effect) -> tuple[str, ...]:
    there = effect.pool.instance_type if isinstance(effect, UseOffering) else "the new nodes"
    return (
        f"Run one replica or one run on {there} beside the present ones for a day.",
        "Compare its speed and peak memory with the prediction; go on if it is within the interval.",
    )


LEVER = Lever(
    name=NAME,
    title="Right-size",
    meaning="Moves work to a GPU that fits it, in its own region",
    ends="a GPU larger than the work fills",
    page="how-to/read-an-audit.md",
    stage=CompositionStage.PLACE,
    kinds=frozenset(WorkloadKind),
    effort=Effort(weeks=1.0, per="class", first_weeks=1.0),
    first_steps=(EffortStep("a node pool of another type: quota, image, driver, drain of the old one", 5.0),),
    steps=(
        EffortStep("read the emitted pool and patch, and have them merged", 1.0),
        EffortStep("a day of one replica or run beside the present ones, with its readings compared", 2.0),
        EffortStep("move the rest, keep the old pool a week, give it back", 2.0),
    ),
    risk=Risk.MEDIUM,
    rollback="point the workload's node selector back to the former instance type; keep the old node pool for a week",
    canary=_canary,
    ways=_ways,
    refused=_refused,
    evidence=_evidence,
    why_not=_why_not,
    drift_frac=0.122,
    guide_order=1,
)
