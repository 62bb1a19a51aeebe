"""Have a service's images on each node's disk before its replicas start, where its own starts tell how long pulls take.

A shorter start bears hotter replicas and a lower floor: peaks are met sooner, and a first request waits for less. It saves
nothing by itself, so it is offered with each autoscaler. Only what history measured is taken off: the pulls that kubelets told
of (`fleet.starts`). What would shorten loads (weights on the disk, compile caches) no reading tells apart; it is priced among
what is not declared (`plan.proof.permissions`).
"""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, SetReplicaPolicy, ShortenStart
from trimtab.fleet.settings import Effort
from trimtab.levers import autoscaling, scale_to_zero
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
from trimtab.policies.scaling import HpaPolicy
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.outcomes.service_outcome import planned_start_of
from trimtab.tables.workloads import WorkloadKind

NAME = "faster-start"
LEAST_SHORTER_FRAC = 0.1
"""A start that is not shorter by this share of it is not worth the work."""
_SCALERS_STEP = 2
"""Every second target load is offered: replicas are the same ones, only sooner there."""


def without_pulls(case: Case) -> ShortenStart | None:
    """Return a service's start without the pulls of its images; None where they were not measured, or are a small part.

    A start that is declared or stated is not taken apart: what of it is a pull is not known.
    """
    start_s, pull_s = case.workload.start_s, case.workload.pull_s
    if start_s is None or pull_s is None or planned_start_of(case) != start_s:
        return None
    shorter_s = min(pull_s, start_s)
    if shorter_s < LEAST_SHORTER_FRAC * start_s:
        return None
    return ShortenStart(start_s=round(start_s - shorter_s, 1), before_s=start_s)


def _start(ask: LeverRequest) -> ShortenStart | None:
    return without_pulls(ask.case)


def _rules(ask: LeverRequest) -> tuple[tuple[str, SetReplicaPolicy], ...]:
    """Return the autoscalers that are offered with a shorter start, each with its lever."""
    start = ask.once(_start)
    plain = [rule for rule in autoscaling.propose(ask.case, start) if isinstance(rule.policy, HpaPolicy)]
    return (
        *((autoscaling.NAME, rule) for rule in plain[::_SCALERS_STEP]),
        *((scale_to_zero.NAME, rule) for rule in scale_to_zero.propose(ask.case, start)),
    )


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    start = ask.once(_start)
    if start is None:
        return
    room = ask.evaluator.place(base).quota_pods
    for lever, rule in ask.once(_rules):
        within = rule if room is None else rule.at_most(room)
        if within is not None:
            yield base.plus((NAME, start), (lever, within))


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    return None if ask.once(_start) is None else usual_reason(NAME, ask, judged)


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    workload = applied.workload
    if workload.start_s is not None and workload.pull_s is not None:
        yield Fact("start on a node that three of four do not exceed", "pods", f"{workload.start_s:.0f} s")
        yield Fact("of it, pulls of images", "kubelets' events, in pods", f"{workload.pull_s:.0f} s")


def _canary(effect: Effect) -> tuple[str, ...]:
    start_s = f"{effect.start_s:.0f} s" if isinstance(effect, ShortenStart) else "the planned time"
    return (
        "Make one node with the images on its disk, and start a replica there: its events must tell of no pull.",
        f"From its place on the node to ready it must take no more than {start_s}; then let the autoscaler count on it.",
    )


LEVER = Lever(
    name=NAME,
    title="Start replicas faster",
    meaning="Has a service's images on each node's disk, so that replicas come sooner and fewer stand by",
    ends="replicas that stand by because a start takes long",
    page="how-to/faster-starts.md",
    stage=CompositionStage.FORM,
    kinds=frozenset({WorkloadKind.SERVING}),
    effort=Effort(weeks=0.4, per="class", first_weeks=1.0),
    first_steps=(
        EffortStep("build node disks with images on them, in the pipeline that builds images", 4.0),
        EffortStep("have the node pools use them", 1.0),
    ),
    steps=(
        EffortStep("add its images, and measure a start on a new node", 1.0),
        EffortStep("let the autoscaler count on it, and watch a peak", 1.0),
    ),
    risk=Risk.MEDIUM,
    rollback="set the autoscaler back to its rule before; images on disks do no harm",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
)
