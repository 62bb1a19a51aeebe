"""Scale a service's replicas with its demand: the exact HPA rule and our forecasting rule, at a range of target loads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, SetReplicaPolicy, ShortenStart
from trimtab.fleet.settings import Effort
from trimtab.fleet.token_work import TokenWork
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
from trimtab.policies.forecast import ForecastPolicy, forecast_policy
from trimtab.policies.scaling import SYNC_S, HpaPolicy
from trimtab.replay.outcomes.outcome import Case, Outcome
from trimtab.replay.outcomes.service_model import cold_start_of, demand_of, floor_replicas
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR, S_PER_MIN

NAME = "autoscaling"
TOKENS_METRIC = "token work per replica"
TARGET_LOADS = tuple(round(0.10 + 0.05 * step, 2) for step in range(15))
"""10 % to 80 % of what a replica can serve."""
WINDOWS_S = (SYNC_S, 5 * S_PER_MIN)
"""Over which demand is averaged: where few requests come, the highest of five minutes of 15 s counts is mostly chance."""
ROOM_TO_GROW = 4
"""A policy may grow to this many times the replicas that history ran, unless workloads.yaml says otherwise."""


_QUICK_S, _SLOW_S = S_PER_MIN, 15 * S_PER_MIN
"""Windows of scaling down that are tried beside Kubernetes' own of five minutes."""
FORECAST_LOADS = tuple(round(0.30 + 0.10 * step, 2) for step in range(6))
_FORECAST_TOLERANCE_FRAC = 0.05


def propose(case: Case, start: ShortenStart | None = None) -> tuple[SetReplicaPolicy, ...]:
    """Return an HPA rule per target load and window, and a forecasting rule per load; of a service, with starts as planned.

    None goes below the fewest replicas to plan with. A forecast needs requests by the minute: hourly activity is too coarse.
    Where demand is known in tokens, each rule is offered twice: counting requests, and counting the work of their tokens.
    """
    workload, demand = case.workload, demand_of(case)
    floor = floor_replicas(case)
    top = max(floor, workload.spec.max_replicas or demand.most_replicas * ROOM_TO_GROW)
    metric = "requests per replica" if workload.service is not None else "GPU activity per replica"
    policies: list[HpaPolicy | ForecastPolicy] = [
        HpaPolicy(target_frac=load, min_replicas=floor, max_replicas=top, window_s=window_s)
        for window_s in (WINDOWS_S if workload.service is not None else WINDOWS_S[:1])
        for load in TARGET_LOADS
    ]
    if workload.service is not None and demand.step_s <= S_PER_MIN:
        rate = np.nanmean(demand.arrivals) / demand.step_s if np.any(~np.isnan(demand.arrivals)) else 0.0
        required_frac = max(
            [target.required_frac for target in case.targets if target.limit_s is not None], default=0.999
        )
        policies += [
            forecast_policy(
                cold_start_s=cold_start_of(case, start),
                mean_req_s=float(rate),
                min_replicas=floor,
                max_replicas=top,
                target_frac=load,
                required_frac=required_frac,
                tolerance_frac=_FORECAST_TOLERANCE_FRAC,
            )
            for load in FORECAST_LOADS
        ]
    on_requests = tuple(SetReplicaPolicy(policy=policy, metric=metric) for policy in policies)
    work = case.law.counted if case.law is not None else None
    if work is None:
        return on_requests
    return (*on_requests, *(replace(rule, metric=TOKENS_METRIC, tokens=work) for rule in on_requests))


def other_windows(effect: SetReplicaPolicy) -> tuple[SetReplicaPolicy, ...]:
    """Return a rule on demand that scales down sooner, and one that does so later with hotter replicas; none of any other rule.

    A short window holds fewer replicas after each peak. A long one holds them until the next, so that each may bear the next
    load of the range.
    """
    hpa = effect.policy
    if not isinstance(hpa, HpaPolicy) or hpa.down_stabilization_s in (_QUICK_S, _SLOW_S):
        return ()
    hotter = [load for load in TARGET_LOADS if load > hpa.target_frac][:1]
    rules = [hpa._replace(down_stabilization_s=_QUICK_S)]
    rules += [hpa._replace(down_stabilization_s=_SLOW_S, target_frac=load) for load in hotter]
    return tuple(replace(effect, policy=rule) for rule in rules)


def scalers(ask: LeverRequest) -> tuple[SetReplicaPolicy, ...]:
    """Return the rules that a service is offered."""
    return propose(ask.case)


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    room = ask.evaluator.place(base).quota_pods
    for scaler in ask.once(scalers):
        within = scaler if room is None else scaler.at_most(room)
        if within is not None:
            yield base.plus((NAME, within))


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    """Say of a language model's service what its rule counts, and how that compares with counting the other."""
    case = applied.evaluator.case
    service, law = case.workload.service, case.law
    if service is None or service.tokens is None or law is None:
        return
    for effect in applied.effects:
        if isinstance(effect, SetReplicaPolicy) and isinstance(law.tokens, TokenWork):
            yield from _beside_the_other(applied, effect, law.tokens)
        elif isinstance(effect, SetReplicaPolicy):
            yield Fact("its rule counts requests and not tokens", "demand", str(law.tokens))


def _beside_the_other(applied: AppliedLever, chosen: SetReplicaPolicy, work: TokenWork) -> Iterator[Fact]:
    """Compare a rule with the cheapest one that keeps the targets and counts requests where it counts tokens, or tokens."""
    if chosen.tokens is not None:
        weights = f"a prompt's {work.input_req:.3g}, an answer's {work.output_req:.3g}"
        yield Fact("a token's share of the work of a mean request", "demand", weights)
    other = "tokens" if chosen.tokens is None else "requests"
    rules = [rule for rule in propose(applied.evaluator.case) if (rule.tokens is None) != (chosen.tokens is None)]
    kept = [
        gpu_hr
        for rule in rules
        if (within := rule.at_most(chosen.hpa.max_replicas)) is not None
        and (gpu_hr := _kept_gpu_hr(applied, chosen, within)) is not None
    ]
    used = f", this one {_gpu_hr(applied.outcome):,.0f}"
    value = f"{min(kept):,.0f} GPU-hours{used}" if kept else f"none keeps the targets{used} GPU-hours"
    yield Fact(f"cheapest rule that counts {other} and keeps the targets", "replay of the fit window", value)


def _kept_gpu_hr(applied: AppliedLever, chosen: SetReplicaPolicy, other: SetReplicaPolicy) -> float | None:
    """Return the GPU-hours of the same deployment under another rule; None where that misses a target."""
    way = Deployment.of(
        *((lever, other if effect == chosen else effect) for lever, effect in applied.deployment.changes)
    )
    return _gpu_hr(applied.evaluator.outcome(way)) if applied.evaluator.keeps_targets(way) else None


def _gpu_hr(outcome: Outcome) -> float:
    return 0.0 if outcome.gpus is None else float(outcome.gpus.sum()) / S_PER_HR


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str:
    return usual_reason(NAME, ask, judged)


def _canary(effect: Effect) -> tuple[str, ...]:
    return (
        "Apply the autoscaler with scale-down switched off for one day: it may only add.",
        "Then allow scale-down for the least busy service, and watch its p95 through one peak.",
    )


LEVER = Lever(
    name=NAME,
    title="Autoscale",
    meaning="Scales the replicas of a service with its demand, in requests or in tokens, or with what recording rules forecast",
    ends="more replicas than demand",
    page="how-to/replay-policies.md",
    stage=CompositionStage.HOLD,
    kinds=frozenset({WorkloadKind.SERVING}),
    effort=Effort(weeks=0.6, per="class", first_weeks=1.5),
    first_steps=(
        EffortStep("install KEDA or the metrics adapter, and load the recording rules", 2.0),
        EffortStep("see their series beside the dashboards that the team trusts, and set the alerts", 2.0),
        EffortStep("make a replica start and drain cleanly: image, readiness, model weights", 2.5),
        EffortStep("a drill: the autoscaler off, replicas set by hand", 1.0),
    ),
    steps=(
        EffortStep("read the emitted ScaledObject, rules and patch, and have them merged", 1.0),
        EffortStep("a day of adding only, then scale-down through one peak", 1.5),
        EffortStep("the owner's questions", 0.5),
    ),
    risk=Risk.MEDIUM,
    rollback="delete the autoscaler and set replicas back to their former number",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
    drift_frac=0.640,
    guide_order=0,
)
