"""Give up a service's last replica while no requests arrive, where its owner allows it and something else wakes it.

A model server's own metrics go with its pods, and a Kubernetes Service holds nothing back while no pod is ready
(kubernetes.io/blog, "Scale Workloads to Zero with HorizontalPodAutoscaler", 2026-09-02). So both must come from what stands
before the replicas: a gateway that holds requests (the KEDA HTTP add-on, Knative's activator), or a queue.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, SetReplicaPolicy, ShortenStart, Wake
from trimtab.fleet.model import ServiceObservation
from trimtab.fleet.settings import Effort
from trimtab.levers.autoscaling import ROOM_TO_GROW, TARGET_LOADS, WINDOWS_S
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
from trimtab.policies.keda import KedaPolicy
from trimtab.policies.scaling import SYNC_S, HpaPolicy, window_steps
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.outcomes.service_model import WAIT_COUNTED_S, cold_start_of, demand_of
from trimtab.tables.workloads import TargetMetric, WorkloadKind, averaged_over_s
from trimtab.units import S_PER_MIN

NAME = "scale-to-zero"
COARSEST_STEP_S = 5 * S_PER_MIN
"""Requests counted over longer say nothing of the minutes in which none came."""
_LOADS = TARGET_LOADS[4::2]
"""30 % to 80 % of what a replica can serve."""
_LEAST_COOLDOWN_S = 5 * S_PER_MIN
"""KEDA's default."""
_COOLDOWN_TIMES = (1, 3, 6)


def cooldowns_s(cold_start_s: float) -> tuple[int, ...]:
    """Return how long no request must have come before the last replica goes, in whole minutes: several, from the shortest on.

    Longer than a start: else a replica that one request woke would be given up before it is ready, while the request waits
    where KEDA's trigger counts arrivals only.

    >>> cooldowns_s(480.0), cooldowns_s(90.0)
    ((540, 1620, 3240), (300, 900, 1800))
    """
    least = max(_LEAST_COOLDOWN_S, math.ceil((cold_start_s + S_PER_MIN) / S_PER_MIN) * S_PER_MIN)
    return tuple(least * times for times in _COOLDOWN_TIMES)


def longest_idle_s(demand: ServiceObservation) -> float:
    """Return the longest time in which no request came; a step without a measurement ends it."""
    longest = run = 0
    for arrived in demand.arrivals:
        run = run + 1 if arrived == 0 else 0
        longest = max(longest, run)
    return longest * demand.step_s


def impossible(case: Case, start: ShortenStart | None = None) -> str | None:
    """Say why a service whose owner allows it cannot go to zero, with starts as planned; None where a replay must decide."""
    wake, service = case.workload.spec.wakes_on, case.workload.service
    if wake is None:
        return (
            "min_replicas: 0 is declared, and nothing wakes it: its server's metrics disappear with its last pod. Put what "
            "holds requests in front of it (a gateway, a queue), and declare wakes_on, a query of it and how long it holds"
        )
    if service is None or service.step_s > COARSEST_STEP_S:
        return (
            f"its requests are not known every {COARSEST_STEP_S // S_PER_MIN} min: "
            "hourly counts do not show when no requests arrive"
        )
    longest_s = cold_start_of(case, start) + 2 * SYNC_S
    if longest_s > wake.hold_s:
        return (
            f"a start takes up to {longest_s:.0f} s, and what comes first is held for {wake.hold_s:.0f} s (wakes_on.hold_s): "
            "it would fail"
        )
    shortest_s = cooldowns_s(cold_start_of(case, start))[0]
    idle_s = longest_idle_s(service)
    if idle_s < shortest_s:
        return (
            f"somebody asks at least every {max(idle_s, service.step_s) / S_PER_MIN:.0f} min, and it stays up for "
            f"{shortest_s / S_PER_MIN:.0f} min after a request: longer than a start takes"
        )
    return None


def allowed(case: Case) -> bool:
    """Return whether the owner of a service allows it to have no replica."""
    return case.workload.spec.min_replicas == 0


def propose(case: Case, start: ShortenStart | None = None) -> tuple[SetReplicaPolicy, ...]:
    """Return a rule per target load, window and cooldown that it idles through, of a service that may go to zero and can."""
    wake, demand = case.workload.spec.wakes_on, demand_of(case)
    if not allowed(case) or wake is None or impossible(case, start) is not None:
        return ()
    top = max(1, case.workload.spec.max_replicas or demand.most_replicas * ROOM_TO_GROW)
    idle_s = longest_idle_s(demand)
    return tuple(
        SetReplicaPolicy(
            policy=KedaPolicy(
                hpa=HpaPolicy(target_frac=load, min_replicas=0, max_replicas=top, window_s=window_s),
                polling_s=SYNC_S,
                cooldown_s=cooldown_s,
                # it stays active while either trigger is: demand's, or the waking one
                activation_window_s=max(window_s, window_steps(averaged_over_s(wake.query)) * SYNC_S),
            ),
            metric="requests per replica",
            wake=Wake(query=wake.query, hold_s=wake.hold_s),
        )
        for cooldown_s in cooldowns_s(cold_start_of(case, start))
        if cooldown_s <= idle_s
        for window_s in WINDOWS_S
        for load in _LOADS
    )


def rules(ask: LeverRequest) -> tuple[SetReplicaPolicy, ...]:
    """Return the rules that a service is offered."""
    return propose(ask.case)


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    room = ask.evaluator.place(base).quota_pods
    for rule in ask.once(rules):
        within = rule if room is None else rule.at_most(room)
        if within is not None:
            yield base.plus((NAME, within))


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    if not allowed(ask.case):
        return None
    return usual_reason(NAME, ask, judged, own=impossible(ask.case))


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    yield held_and_used(applied.workload)
    case, outcome = applied.evaluator.case, applied.outcome
    if outcome.gpus is not None:
        empty = int((outcome.gpus == 0).sum())
        yield Fact("hours without any replica", "replay of the fit window", f"{empty:,} of {len(outcome.gpus):,}")
    waited = [attained.frac for attained in outcome.attained if attained.target.metric is TargetMetric.THROUGHPUT]
    if waited:
        yield Fact(
            f"requests that wait more than {WAIT_COUNTED_S:.0f} s, most of them for the first replica to start "
            f"({cold_start_of(case, applied.deployment.start) / S_PER_MIN:.0f} min)",
            "replay of the fit window",
            f"{1 - waited[0]:.2%}",
        )
    if any(attained.target.limit_s is not None and not attained.target.declared for attained in outcome.attained):
        yield Fact(
            "latency without a declared limit",
            "replay of the fit window",
            "as observed while a replica is up; who wakes the service waits, as min_replicas: 0 allows",
        )


def _canary(effect: Effect) -> tuple[str, ...]:
    return (
        "Put a copy without a replica behind the same gateway and ask it once: it must answer while the request is held.",
        "Apply it on an evening with minReplicaCount 1, and check that its wake trigger shows 1 with a request and 0 without.",
        "Set minReplicaCount 0 for one night; count requests that failed and starts in the morning.",
    )


LEVER = Lever(
    name=NAME,
    title="Scale to zero",
    meaning="Gives up a service's last replica while no requests arrive, and starts one for the first request, which is held",
    ends="a last replica that receives no requests",
    page="how-to/scale-to-zero.md",
    stage=CompositionStage.HOLD,
    kinds=frozenset({WorkloadKind.SERVING}),
    effort=Effort(weeks=0.8, per="class", first_weeks=1.5),
    first_steps=(
        EffortStep("install KEDA, and have the gateway or queue hold first requests and export how many wait", 3.0),
        EffortStep("see the query count them while no replica is up, and set the alerts", 2.0),
        EffortStep("make a replica start and drain cleanly: image, readiness, model weights", 2.5),
    ),
    steps=(
        EffortStep("read the emitted ScaledObject, rules and patch, and have them merged", 1.0),
        EffortStep("agree with its callers who waits for a start, and set time-outs of clients and gateway", 1.0),
        EffortStep("watch two nights down and up", 2.0),
    ),
    risk=Risk.MEDIUM,
    rollback="set minReplicaCount to 1 in its ScaledObject, or delete that and set replicas back to their former number",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
)
