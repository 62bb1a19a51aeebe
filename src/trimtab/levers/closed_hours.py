"""Hold a service's replicas in the hours in which it must answer, where somebody declared them, and none outside.

What is asked of it outside these hours is refused then, which is for its owner to say and for no history: without the
declaration nothing is offered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, SetSchedule
from trimtab.fleet.settings import Effort
from trimtab.levers.lever import (
    AppliedLever,
    CompositionStage,
    EffortStep,
    Fact,
    JudgedWays,
    Lever,
    LeverRequest,
    Risk,
    held_and_used,
    usual_reason,
)
from trimtab.replay.outcomes.service_model import cold_start_of
from trimtab.replay.outcomes.service_outcome import outside_hours
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import HR_PER_WEEK, S_PER_HR

NAME = "closed-hours"


def held_hours(open_hours: tuple[int, ...], cold_start_s: float) -> tuple[int, ...]:
    """Return the hours of the week in which replicas are held: the open ones, and whole hours ahead to start in.

    >>> held_hours((9, 10), cold_start_s=480)
    (8, 9, 10)
    """
    ahead = range(math.ceil(cold_start_s / S_PER_HR) + 1)
    return tuple(sorted({(hour - lead) % HR_PER_WEEK for hour in open_hours for lead in ahead}))


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    declared = ask.workload.spec.open_hours
    if declared is None:
        return
    held = held_hours(declared.hours_of_week, cold_start_of(ask.case))
    if len(held) < HR_PER_WEEK:
        yield base.plus((NAME, SetSchedule(hours_of_week=held)))


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    return None if ask.workload.spec.open_hours is None else usual_reason(NAME, ask, judged)


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    yield held_and_used(applied.workload)
    refused = outside_hours(applied.evaluator.case)
    if refused is not None:
        yield Fact("requests outside its declared hours, refused then", "demand.arrivals", str(refused))


def _canary(effect: Effect) -> tuple[str, ...]:
    return (
        "Close one replica by the timetable for a night, and see who asks in the hours that are said to be closed.",
        "Check that all replicas answer at the first open minute; then close the others.",
    )


LEVER = Lever(
    name=NAME,
    title="Close out of hours",
    meaning="Holds a service's replicas in the hours in which its owner says that it must answer, and none outside them",
    ends="replicas held in hours in which the service need not answer",
    page="how-to/close-out-of-hours.md",
    stage=CompositionStage.HOLD,
    kinds=frozenset({WorkloadKind.SERVING}),
    effort=Effort(weeks=0.5, per="class"),
    steps=(
        EffortStep("ask who may call in the closed hours", 1.0),
        EffortStep("one replica for a night, then the others", 1.5),
    ),
    risk=Risk.MEDIUM,
    rollback="remove the timetable and set replicas back to their former number",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
)
