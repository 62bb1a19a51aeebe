"""Serve several requests at once where a replica takes one at a time: batches that leave together, greedy or by a window.

A batch policy is chosen by the requests a second that one replica serves within every latency target, as its replayed batches
show; the number of replicas by replay of the service. Where more than the fewest allowed are needed, autoscalers are offered
on top. How batches take turns with those of others has not been measured, so none are offered in time slices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from trimtab.catalog import Gpu
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import BatchForm, Effect, SetBatchPolicy, SetReplicaPolicy
from trimtab.deployment.placement import Placement, board_of
from trimtab.fleet.declared_models import ServedModel, need_on, served_model
from trimtab.fleet.market import Market
from trimtab.fleet.model import ServiceObservation, Target, Workload
from trimtab.fleet.service_law import seconds_one_by_one
from trimtab.fleet.settings import Effort
from trimtab.fleet.targets import latency_targets
from trimtab.levers import autoscaling
from trimtab.levers.lever import (
    AppliedLever,
    CompositionStage,
    EffortStep,
    Fact,
    JudgedWays,
    Lever,
    LeverRequest,
    Risk,
    fewest,
    usual_reason,
)
from trimtab.policies.scaling import HpaPolicy
from trimtab.provenance import Basis
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Case, targets_at
from trimtab.replay.outcomes.replica_law import replica_law
from trimtab.replay.outcomes.service_model import JUDGED, demand_of, floor_replicas
from trimtab.tables.workloads import WorkloadKind

NAME = "batching"
_BELIEVED_RATIO = 2.0
"""A declared time of one request that is off the observed one by more than this is about something else."""
_BUSY_ENOUGH = 0.9
"""Requests in work a replica, at the busiest, above which one at a time is seen and not only unused room."""
_PEAK_QUANTILE = 0.999
SIZES = (1, 2, 4, 8, 16, 32)
"""Requests at once for which a continuous-batching engine is predicted."""
_BETTER_FRAC = 0.01
"""A larger batch or a window must serve this much more to be chosen over a simpler policy."""
_SCALERS_STEP = 2
"""Every second target load is offered: a batched replica's law is smooth in it."""
_REAL_TIME_RATIO = 3.0
"""Real time, in what is shown beside windows: an answer within this many times today's p99."""
_MAY_WAIT_RATIO = 10.0
"""A declared limit this many times real time leaves room to gather requests into windows."""
MEASURE = (
    "measure the seconds that batches of 1, 2, 4, ... take and declare them under batching: in workloads.yaml "
    "(docs/how-to/batching.md)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProfile:
    """Seconds by batch size on the present GPU, the memory of each further request (None: unknown), and the basis.

    Calibrated: measured by the team in batches that leave together. Modelled: predicted for a continuous-batching engine.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    item_gib: float | None
    basis: Basis


def profile_of(workload: Workload, gpu: Gpu | None) -> BatchProfile | str:
    """Return how a service would batch on its GPU, fixed to its own observed time a request, or what is missing to know.

    Where batches were not measured, those of a continuous-batching engine are predicted, if the language model is known.
    """
    service, declared = workload.service, workload.spec.batching
    if service is None:
        return "no request metrics: whether it batches is unknown"
    alone_s = seconds_one_by_one(service)
    if alone_s is None:
        most = _most_at_once(service)
        if np.isnan(most):
            return "concurrent requests were not measured, so its batch size is unknown: collect running_mean"
        at_once = f"up to {most:.0f}" if most >= 2 else "several"
        return f"runs {at_once} requests a replica at once already"
    if declared is None and _most_at_once(service) < _BUSY_ENOUGH:
        return f"batch size unknown: never busy enough to show whether it takes several requests at once; {MEASURE}"
    if declared is None:
        model = served_model(workload)
        if isinstance(model, ServedModel) and gpu is not None:
            return _predicted(model, gpu, alone_s)
        return f"takes one request at a time, and how long a batch takes is unknown; {MEASURE}"
    sizes = tuple(sorted(declared.seconds))
    ratio = alone_s / declared.seconds[1]
    if not 1 / _BELIEVED_RATIO <= ratio <= _BELIEVED_RATIO:
        seen = f"declares {declared.seconds[1]:.3g} s for one request, and {alone_s:.3g} s were seen"
        return f"{seen}: measure the batch times again"
    return BatchProfile(
        sizes=sizes,
        seconds=tuple(declared.seconds[size] * ratio for size in sizes),
        item_gib=declared.item_gib,
        basis=Basis.CALIBRATED,
    )


def _predicted(model: ServedModel, gpu: Gpu, alone_s: float) -> BatchProfile:
    """Return a continuous-batching engine's time of a request by how many share it, fixed to the observed time of one alone."""
    times_s = [replace(model, requests=float(size)).request_s(gpu, model.stored) for size in SIZES]
    one, two = (replace(model, most_requests=float(size)).need_gib(gpu, model.stored) for size in (1, 2))
    return BatchProfile(
        sizes=SIZES,
        seconds=tuple(alone_s * time_s / times_s[0] for time_s in np.maximum.accumulate(times_s).tolist()),
        item_gib=two - one,
        basis=Basis.MODELLED,
    )


def _most_at_once(service: ServiceObservation) -> float:
    each = service.running / np.where(service.replicas > 0, service.replicas, np.nan)
    return float(np.nanquantile(each, _PEAK_QUANTILE)) if np.isfinite(each).any() else math.nan


def propose(
    profile: BatchProfile, *, before: int, limit_s: float | None, model: str | None
) -> tuple[SetBatchPolicy, ...]:
    """Return the ways to batch up to each measured size: greedy, full batches, and as late as the latency limit allows."""
    found = []
    for size, second_s in zip(profile.sizes[1:], profile.seconds[1:], strict=True):
        windows = {BatchForm.CONTINUOUS: 0.0}
        if profile.basis is Basis.CALIBRATED:
            windows = {BatchForm.GREEDY: 0.0, BatchForm.FIXED: second_s}
            if limit_s is not None and limit_s > 2 * second_s:
                windows[BatchForm.TARGET] = limit_s - 2 * second_s
        found += [
            SetBatchPolicy(
                form=form,
                max_batch=size,
                window_s=window_s,
                replicas=None,
                before=before,
                sizes=profile.sizes,
                seconds=profile.seconds,
                basis=profile.basis,
                model=model,
            )
            for form, window_s in windows.items()
        ]
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedPolicy:
    """A batch policy and the requests a second that one replica serves within every latency target."""

    policy: SetBatchPolicy
    req_s: float


def rated_policies(case: Case, place: Placement, profile: BatchProfile) -> tuple[RatedPolicy, ...]:
    """Return the ways to batch on a place, best first; those that keep no target at any load are left out."""
    targets = targets_at(case.targets, place)
    limits = [target.limit_s for target in targets if target.metric in JUDGED and target.limit_s is not None]
    before = demand_of(case).most_replicas
    policies = propose(profile, before=before, limit_s=min(limits, default=None), model=case.workload.spec.model)
    rated = [RatedPolicy(policy=policy, req_s=served_within_targets(case, place, policy)) for policy in policies]
    worth = sorted((policy for policy in rated if policy.req_s > 0), key=_rank)
    return tuple(worth)


def _rank(rated: RatedPolicy) -> tuple[float, bool, int]:
    return (-rated.req_s, rated.policy.form is not BatchForm.GREEDY, rated.policy.max_batch)


def best_policies(rated: tuple[RatedPolicy, ...]) -> tuple[SetBatchPolicy, ...]:
    """Return the policy that serves most, and the simplest that serves nearly as much: greedy, and the smallest batches."""
    if not rated:
        return ()
    good = [policy for policy in rated if policy.req_s >= rated[0].req_s * (1 - _BETTER_FRAC)]
    simplest = min(good, key=lambda policy: _rank(policy)[1:])
    return tuple(dict.fromkeys((rated[0].policy, simplest.policy)))


def served_within_targets(case: Case, place: Placement, policy: SetBatchPolicy) -> float:
    """Return the most requests a second at which one replica keeps every latency target, at the low end of its speed."""
    if case.law is None:
        return 0.0
    batched = replace(place, batching=policy)
    law, _ = replica_law(case.law, batched, low=True)
    load = 1.0
    for target in targets_at(case.targets, place):
        if target.metric in JUDGED and target.limit_s is not None:
            kept = law.grid()[law.ok_frac(target.limit_s, metric=target.metric) >= target.required_frac]
            load = min(load, float(kept.max(initial=0.0)))
    return load * law.capacity_req_s


def fitting_profile(case: Case, place: Placement, profile: BatchProfile, market: Market) -> BatchProfile | None:
    """Return the profile cut to the batches that fit the place's memory; None where not even two requests are known to.

    The GPU on which the profile was measured held all of it. On one with less memory, and where it was predicted, each
    request's need must be known; weights stored in fewer bits leave more room.
    """
    workload = case.workload
    home, there = market.gpu(workload.gpu), board_of(place, market)
    if home is None or there is None:
        return None
    if there.memory_gib >= home.memory_gib and profile.basis is Basis.CALIBRATED:
        return profile
    stored = None if place.precision is None else place.precision.after
    need_gib = need_on(workload, served_model(workload), there, stored)
    if profile.item_gib is None or need_gib is None:
        return None
    room_gib = there.memory_gib * (1 - case.settings.assumptions.memory_headroom_frac) - need_gib
    count = sum((size - 1) * profile.item_gib <= room_gib for size in profile.sizes)
    return None if count < 2 else replace(profile, sizes=profile.sizes[:count], seconds=profile.seconds[:count])


def batches_fit(case: Case, place: Placement, market: Market) -> bool:
    """Return whether the largest batch at a place fits its memory; True without batches."""
    profile = profile_of(case.workload, market.gpu(case.workload.gpu))
    if place.batching is None or isinstance(profile, str):
        return True
    fitting = fitting_profile(case, place, profile, market)
    return fitting is not None and fitting.sizes[-1] >= place.batching.max_batch


def profile_here(ask: LeverRequest) -> BatchProfile | str:
    """Return how a workload would batch on its present GPU, or what is missing to know."""
    return profile_of(ask.workload, ask.market.gpu(ask.workload.gpu))


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    """Yield the ways to batch on a place: the best policies with the fewest replicas, or scaled.

    None in time slices, on another number of GPUs than its batches were measured on, nor on two types of GPU, whose memory may
    hold batches of different sizes.
    """
    profile = ask.once(profile_here)
    if isinstance(profile, str):
        return
    place = ask.evaluator.place(base)
    if place.replica_gpus is not None:
        return
    fitting = fitting_profile(ask.case, place, profile, ask.market)
    if fitting is None or place.overflow is not None or (place.shared is not None and place.shared.others):
        return
    for policy in best_policies(rated_policies(ask.case, place, fitting)):
        yield from _counted(base, ask, policy)


def _counted(base: Deployment, ask: LeverRequest, policy: SetBatchPolicy) -> Iterator[Deployment]:
    """Yield the fewest replicas that keep the targets; where more than the floor are needed, autoscalers too.

    At the floor nothing is lost: no autoscaler goes below it.
    """
    floor = floor_replicas(ask.case)
    count = fewest_replicas(ask.evaluator, base, policy, floor, autoscaling.ROOM_TO_GROW * policy.before)
    if count is not None:
        yield base.plus((NAME, replace(policy, replicas=count)))
    if count != floor:
        for scaler in _plain_scalers(ask):
            yield base.plus((NAME, policy), (autoscaling.NAME, scaler))


def _plain_scalers(ask: LeverRequest) -> list[SetReplicaPolicy]:
    """Return autoscalers whose rule does not rest on the law of one request at a time."""
    plain = [scaler for scaler in ask.once(autoscaling.scalers) if isinstance(scaler.policy, HpaPolicy)]
    return plain[::_SCALERS_STEP]


def fewest_replicas(evaluator: Evaluator, base: Deployment, policy: SetBatchPolicy, floor: int, top: int) -> int | None:
    """Return the fewest replicas that keep the targets; None where not even `top` do."""
    return fewest(
        lambda count: evaluator.keeps_targets(base.plus((NAME, replace(policy, replicas=count)))),
        floor,
        max(floor, top),
    )


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str:
    profile = ask.once(profile_here)
    return usual_reason(NAME, ask, judged, own=profile if isinstance(profile, str) else None)


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    """Yield seconds by batch size, the rates of the ways to batch, and replicas in real time beside those in windows."""
    policy = applied.deployment.batching
    if policy is None:
        return
    profile = BatchProfile(sizes=policy.sizes, seconds=policy.seconds, item_gib=None, basis=policy.basis)
    times = ", ".join(f"{size}: {second_s:.3g}" for size, second_s in zip(policy.sizes, policy.seconds, strict=True))
    told = "workloads.yaml" if policy.basis is Basis.CALIBRATED else "predicted for a continuous-batching engine"
    yield Fact("seconds by batch size", f"{told}, fixed to the observed time of one request", times)
    best: dict[str, float] = {}
    for rated in rated_policies(applied.evaluator.case, applied.place, profile):
        best.setdefault(rated.policy.form.value, rated.req_s)
    rates = ", ".join(f"{form} {req_s:.3g}" for form, req_s in best.items())
    yield Fact("requests a second of a replica within the targets", "replayed batches, low end of the speed", rates)
    yield from _windows(applied, policy, profile)


def _windows(applied: AppliedLever, policy: SetBatchPolicy, profile: BatchProfile) -> Iterator[Fact]:
    """Yield the replicas needed to answer in real time and to use the promised time, where that leaves room."""
    case = applied.evaluator.case
    declared = [target.limit_s for target in case.targets if target.declared and target.limit_s is not None]
    at_once = _real_time(case)
    if not declared or at_once is None or min(declared) < _MAY_WAIT_RATIO * (at_once.limit_s or 0.0):
        return
    where = applied.deployment.only("offering", "relocation")
    quick = Evaluator(case=replace(case, targets=(at_once,)))
    rated = rated_policies(quick.case, quick.place(where), profile)
    for served, evaluator, best in (
        (f"answering 99 % within {at_once.limit_s:.2g} s", quick, rated[0].policy if rated else policy),
        ("keeping the promise", applied.evaluator, policy),
    ):
        for way, how in ((replace(policy, max_batch=1, window_s=0.0), "one request at a time"), (best, "in batches")):
            count = fewest_replicas(evaluator, where, way, 1, autoscaling.ROOM_TO_GROW * policy.before)
            value = "no number is enough" if count is None else f"{count} ({_saved(policy.before - count)})"
            yield Fact(f"replicas {served}, {how}", "replay of the service", value, f"{policy.before} today")


def _real_time(case: Case) -> Target | None:
    """Return what a service would have to keep if its callers waited for the answer."""
    seen = () if case.workload.service is None else latency_targets(case.workload.service)
    slowest = max(seen, key=lambda target: target.required_frac, default=None)
    if slowest is None or slowest.limit_s is None:
        return None
    return replace(slowest, limit_s=_REAL_TIME_RATIO * slowest.limit_s)


def _saved(replicas: int) -> str:
    return f"{replicas} saved" if replicas >= 0 else f"{-replicas} more"


def _canary(effect: Effect) -> tuple[str, ...]:
    at_once = effect.max_batch if isinstance(effect, SetBatchPolicy) else 2
    return (
        f"Batch up to {at_once} requests on one replica; leave the others and their number as they are.",
        "Compare its batch times and p95 with the plan through one peak; then lower the replicas one at a time.",
    )


LEVER = Lever(
    name=NAME,
    title="Batch requests",
    meaning="Serves several requests at once where a replica takes one at a time",
    ends="requests are served one at a time",
    page="how-to/batching.md",
    stage=CompositionStage.FORM,
    kinds=frozenset({WorkloadKind.SERVING}),
    effort=Effort(weeks=2.0, per="class"),
    steps=(
        EffortStep("batch requests in the server, with its own tests", 4.0),
        EffortStep("one replica through one peak, batch times compared", 2.0),
        EffortStep("the rest, and replicas taken away one at a time", 4.0),
    ),
    risk=Risk.MEDIUM,
    rollback="set the largest batch to 1 and replicas back to their former number",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
)
