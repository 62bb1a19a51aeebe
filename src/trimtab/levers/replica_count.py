"""Run as many replicas of a service as its busiest hours need, the same at all times: a line of YAML, and no autoscaler."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, SetReplicas
from trimtab.fleet.settings import Effort
from trimtab.levers.autoscaling import ROOM_TO_GROW
from trimtab.levers.lever import (
    AppliedLever,
    CompositionStage,
    EffortStep,
    Fact,
    JudgedWays,
    Lever,
    LeverRequest,
    Risk,
    fewest_from,
    held_and_used,
    usual_reason,
)
from trimtab.replay.outcomes.service_model import demand_of, floor_replicas
from trimtab.tables.workloads import WorkloadKind

NAME = "replica-count"


def least_replicas(base: Deployment, ask: LeverRequest) -> int | None:
    """Return the fewest replicas that keep every target at a place; None where no number on offer does.

    Not below the fewest to plan with, nor above what a quota holds.
    """
    high, likely = _most_allowed(base, ask), _likely(base, ask)
    return fewest_from(lambda count: ask.evaluator.keeps_targets(_with(base, ask, count)), likely, high)


def _most_allowed(base: Deployment, ask: LeverRequest) -> int:
    high = ask.workload.spec.max_replicas or _most(ask) * ROOM_TO_GROW
    room = ask.evaluator.place(base).quota_pods
    return high if room is None else min(high, room)


def fewest_likely(base: Deployment, ask: LeverRequest) -> Deployment | None:
    """Return, without a replay, a way of holding replicas at a place that holds no more than any that keeps the targets.

    None where the lever has nothing to say of the place, or holds no replica there.
    """
    if not ask.once(stands_still) or ask.evaluator.hopeless(base) is not None:
        return None
    likely = _likely(base, ask)
    return _with(base, ask, likely) if likely > 0 else None


def fewest(base: Deployment, ask: LeverRequest) -> Deployment | None:
    """Return the way of holding the fewest replicas that keep the targets at a place, by replays; None where there is none."""
    if not ask.once(stands_still) or ask.evaluator.hopeless(base) is not None:
        return None
    replicas = least_replicas(base, ask)
    return None if replicas is None or replicas == _most(ask) else _with(base, ask, replicas)


def instead(way: Deployment, ask: LeverRequest) -> Deployment | None:
    """Return the fewest replicas that keep the targets where a way of this lever holds too few for them; None if none do."""
    found = fewest(way.without("scaling"), ask) if NAME in way.levers else None
    return None if found == way else found


def _likely(base: Deployment, ask: LeverRequest) -> int:
    """Return a number of replicas, no less than may be planned with, below which a target is missed."""
    low = floor_replicas(ask.case)
    return max(low, ask.evaluator.least_number(_with(base, ask, max(1, low))))


def _with(base: Deployment, ask: LeverRequest, replicas: int) -> Deployment:
    return base.plus((NAME, SetReplicas(replicas=replicas, before=_most(ask))))


def _most(ask: LeverRequest) -> int:
    return demand_of(ask.case).most_replicas


def stands_still(ask: LeverRequest) -> bool:
    """Return whether history ran the same number of replicas at all times: what moves has an autoscaler already."""
    replicas = demand_of(ask.case).replicas
    seen = replicas[np.isfinite(replicas) & (replicas > 0)]
    return bool(len(seen)) and float(np.quantile(seen, 0.95) - np.quantile(seen, 0.05)) < 0.5


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    """Yield the fewest replicas that may do at a place: if a replay says that they do not, `fewest` are those that do."""
    if not ask.once(stands_still) or ask.evaluator.hopeless(base) is not None:
        return
    if _most(ask) <= floor_replicas(ask.case) and ask.evaluator.keeps_targets(base):
        return  # none fewer may be held, and those there are will do
    likely = _likely(base, ask)
    if likely == _most(ask):
        found = fewest(base, ask)
    else:
        found = _with(base, ask, likely) if likely <= _most_allowed(base, ask) else None
    if found is not None:
        yield found


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    own = None if ask.once(stands_still) else "its replicas came and went: something scales it already"
    return usual_reason(NAME, ask, judged, own=own, otherwise="its targets need the replicas that it has")


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    yield held_and_used(applied.workload)
    attained = [met for met in applied.outcome.attained if met.safe_frac is not None]
    for met in attained:
        yield Fact(
            f"{met.target.describe()} with the demand headroom of the plan",
            "replay of the fit window",
            f"{met.safe_frac:.2%}",
            f">= {met.target.required_frac:.2%}",
        )


def _canary(effect: Effect) -> tuple[str, ...]:
    return (
        "Take one replica away before the busiest hour, and watch latency and queue through it.",
        "Go on one replica a day while both stay within their targets.",
    )


LEVER = Lever(
    name=NAME,
    title="Set the replica count",
    meaning="Runs as many replicas of a service as its busiest hours need, the same at all times",
    ends="more replicas than demand",
    page="how-to/read-an-audit.md",
    stage=CompositionStage.HOLD,
    kinds=frozenset({WorkloadKind.SERVING}),
    effort=Effort(weeks=0.4, per="class"),
    steps=(
        EffortStep("read the emitted patch, and have it merged", 0.5),
        EffortStep("one replica less a day, latency and queue watched", 1.5),
    ),
    risk=Risk.MEDIUM,
    rollback="set replicas back to their former number",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
)
