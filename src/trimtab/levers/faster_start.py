"""Start a service's replicas with what is on their node's disk, or from a snapshot of one that was ready.

A shorter start bears hotter replicas and a lower floor: peaks are met sooner, and a first request waits for less. It saves
nothing by itself, so it is offered with each autoscaler. Only what history measured is taken off (`fleet.starts`): the pulls of
images that kubelets reported, and loads of weights and kernels, where several were far shorter than the others. One or two
short ones may be chance: these are asked about among what is not declared (`plan.proof.permissions`).

How long a restored process takes depends on its memory, the storage and the node, and no exporter tells it: a snapshot is an
option where somebody measured that and declares it (`restore_s`), in place of a start as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, SetReplicaPolicy, ShortenStart
from trimtab.fleet.settings import Effort
from trimtab.fleet.starts import planned
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
from trimtab.replay.outcomes.service_model import planned_start_of
from trimtab.tables.workloads import WorkloadKind

NAME = "faster-start"
LEAST_SHORTER_FRAC = 0.1
"""A start that is not shorter by this share of it is not worth the work."""
_SCALERS_STEP = 2
"""Every second target load is offered: replicas are the same ones, only sooner there."""


def without_pulls(case: Case) -> ShortenStart | None:
    """Return a service's start without the pulls of its images; None where they were not measured, or are a small part."""
    return None if case.workload.pull_s is None else _shorter(case, images_s=case.workload.pull_s)


def as_loaded_before(case: Case) -> ShortenStart | None:
    """Return a service's start with loads as the short ones were; None where these were too few, or the rest is as short."""
    workload = case.workload
    short_s = planned(workload.short_loads_s)
    return None if short_s is None or workload.load_s is None else _shorter(case, load_s=workload.load_s - short_s)


def from_snapshot(case: Case) -> ShortenStart | None:
    """Return a service's start from a snapshot of its process; None where none is declared, or it is hardly shorter."""
    restore_s, start_s = case.workload.spec.restore_s, planned_start_of(case)
    if restore_s is None or start_s - restore_s <= LEAST_SHORTER_FRAC * start_s:
        return None
    return ShortenStart(start_s=restore_s, before_s=start_s, images=False, weights=False, restored=True)


def starts(case: Case) -> tuple[ShortenStart, ...]:
    """Return each shorter start of a service: those that history tells, both parts together first, and a declared one."""
    pulled, loaded = without_pulls(case), as_loaded_before(case)
    both = None
    if pulled is not None and loaded is not None:
        both = _shorter(case, images_s=pulled.saved_s, load_s=loaded.saved_s)
    return tuple(start for start in (both, pulled, loaded, from_snapshot(case)) if start is not None)


def _shorter(case: Case, *, images_s: float = 0.0, load_s: float = 0.0) -> ShortenStart | None:
    """Return a start less some of its parts; None where that is too little.

    A start that is declared or stated is not taken apart: what its parts are is not known.
    """
    start_s = case.workload.start_s
    if start_s is None or planned_start_of(case) != start_s:
        return None
    shorter_s = min(images_s + load_s, start_s)
    if shorter_s < LEAST_SHORTER_FRAC * start_s:
        return None
    return ShortenStart(
        start_s=round(start_s - shorter_s, 1), before_s=start_s, images=images_s > 0, weights=load_s > 0
    )


def _starts(ask: LeverRequest) -> tuple[ShortenStart, ...]:
    return starts(ask.case)


def _rules(ask: LeverRequest) -> tuple[tuple[ShortenStart, str, SetReplicaPolicy], ...]:
    """Return the autoscalers that are offered with each shorter start, with their levers."""
    return tuple((start, *rule) for start in ask.once(_starts) for rule in _rules_with(ask.case, start))


def _rules_with(case: Case, start: ShortenStart) -> Iterator[tuple[str, SetReplicaPolicy]]:
    plain = [rule for rule in autoscaling.propose(case, start) if isinstance(rule.policy, HpaPolicy)]
    yield from ((autoscaling.NAME, rule) for rule in plain[::_SCALERS_STEP])
    yield from ((scale_to_zero.NAME, rule) for rule in scale_to_zero.propose(case, start))


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    if not ask.once(_starts):
        return
    room = ask.evaluator.place(base).quota_pods
    for start, lever, rule in ask.once(_rules):
        within = rule if room is None else rule.at_most(room)
        if within is not None:
            yield base.plus((NAME, start), (lever, within))


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    restore_s = ask.case.workload.spec.restore_s
    if ask.once(_starts):
        return usual_reason(NAME, ask, judged)
    if restore_s is not None:
        return f"restore_s {restore_s:.0f} s is hardly shorter than today's start, {planned_start_of(ask.case):.0f} s"
    return None


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    workload, start = applied.workload, applied.deployment.start
    if start is not None and start.restored:
        yield Fact(
            "start with its process restored from a snapshot", "workloads.yaml, restore_s", f"{start.start_s:.0f} s"
        )
        yield Fact("start as it is planned with today", "pods, or as declared or assumed", f"{start.before_s:.0f} s")
    if workload.start_s is None or start is None or start.restored:
        return
    yield Fact("start on a node that three of four do not exceed", "pods", f"{workload.start_s:.0f} s")
    if start.images and workload.pull_s is not None:
        yield Fact("of it, pulls of images", "kubelets' events, in pods", f"{workload.pull_s:.0f} s")
    if start.weights and workload.load_s is not None:
        short = f"{len(workload.short_loads_s)} took no more than {max(workload.short_loads_s):.0f} s"
        yield Fact("of it, from its containers' start to ready", "pods", f"{workload.load_s:.0f} s; {short}")


def _canary(effect: Effect) -> tuple[str, ...]:
    if not isinstance(effect, ShortenStart):
        return ()
    seen = "its events must show no pull" if effect.images else "it must read its weights from there"
    first = f"Make one node with the {effect.parts} on its disk, and start a replica there: {seen}."
    if effect.restored:
        first = "Restore one replica on a new node: it must answer as one that started without the snapshot does."
    return (
        first,
        f"From its place on the node to ready it must take no more than {effect.start_s:.0f} s; then let the autoscaler rely "
        "on it.",
    )


LEVER = Lever(
    name=NAME,
    title="Start replicas faster",
    meaning="Has images, weights and compiled kernels on each node's disk, or replicas restored from a snapshot, so that they "
    "come sooner and fewer stand by",
    ends="replicas that stand by because a start takes long",
    page="how-to/faster-starts.md",
    stage=CompositionStage.FORM,
    kinds=frozenset({WorkloadKind.SERVING}),
    effort=Effort(weeks=0.4, per="class", first_weeks=1.0),
    first_steps=(
        EffortStep("build node disks with all that replicas start with, in the pipeline that builds images", 4.0),
        EffortStep("have the node pools use them", 1.0),
    ),
    steps=(
        EffortStep("add what it starts with, and measure a start on a new node", 1.0),
        EffortStep("let the autoscaler rely on it, and watch a peak", 1.0),
    ),
    risk=Risk.MEDIUM,
    rollback="set the autoscaler back to its former rule; what is on disks does no harm",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
)
