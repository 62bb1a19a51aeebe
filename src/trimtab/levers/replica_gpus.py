"""Serve a language model with another number of GPUs a replica (tensor parallel), prompts and answers in one pool.

Fewer GPUs a replica take longer steps and have less memory for requests in work, and exchange less; whether that costs less
within the limits depends on the model, the board and the lengths of requests. Offered where a plan knows what it must
(`levers.served_models`): the cheapest pools by the engine's scheduler, each with the times by load of its own replay. Where a
replica keeps its number of GPUs, `levers.right_size` says where it may run and how fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, SetReplicaGpus, UseOffering
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
    software_fact,
    speed_fact,
)
from trimtab.levers.served_models import (
    MOST_POOLS,
    SEQUENCES_TOGETHER,
    KnownDemand,
    cheapest_pools,
    columns_of,
    drawn_requests,
    known_demand,
    likely_req_s,
    offers_of,
    pool_of,
    reason_where_known,
    today_usd,
    ways_held,
)
from trimtab.physics.predict import calibrated
from trimtab.physics.serving import first_token_fit
from trimtab.physics.serving_query import ServingQuery, serving_keys
from trimtab.replay.disaggregated import most_req_s_together, together_times
from trimtab.tables.workloads import WorkloadKind

NAME = "replica-gpus"


def numbers(ask: LeverRequest) -> tuple[SetReplicaGpus, ...] | str:
    """Return the other numbers of GPUs a replica that are worth a replay, or why there are none."""
    known = _judged(ask)
    if isinstance(known, str):
        return known
    ranked = ask.once(cheapest_pools)
    pools = [pool for pool in ranked if pool.query.tensor != known.model.tensor]
    # another board alone is no merit of another number: both are compared as predicted
    same = next((pool for pool in ranked if pool.query.tensor == known.model.tensor), None)
    if not pools:
        return "no other number of GPUs holds the model and keeps the limits"
    if same is not None and same.usd_hr <= pools[0].usd_hr:
        return f"with as many GPUs a replica as today it is predicted to cost no more: {same.describe()}"
    most_usd_hr = min(today_usd(ask), math.inf if same is None else same.usd_hr)
    worth = [pool for pool in pools if pool.usd_hr < most_usd_hr][:MOST_POOLS]
    if not worth:
        return f"the cheapest other number, {pools[0].describe()}, is predicted to cost more than today's nodes"
    found = (_served(ask, known, pool.query, pool.offer.instance_type, pool.concurrency) for pool in worth)
    return tuple(effect for effect in found if effect is not None)


def stated_number(ask: LeverRequest, instance_type: str, gpus: int, concurrency: int | None) -> SetReplicaGpus | str:
    """Return what is predicted of replicas that somebody stated; or why nothing is.

    `concurrency` is what they say of requests in work at once; None: what the engine does by itself.
    """
    known = _judged(ask)
    if isinstance(known, str):
        return known
    for way in ways_held(ask, known):
        if way.query.tensor == gpus and instance_type in {offer.instance_type for offer in way.offers}:
            effect = _served(ask, known, way.query, instance_type, concurrency or SEQUENCES_TOGETHER[-1])
            return effect or "requests pile up there at every load"
    return f"{gpus} GPUs of {instance_type} do not hold the model or keep its time per token"


def _judged(ask: LeverRequest) -> KnownDemand | str:
    """Return what is known of a service whose replicas could have another number of GPUs, or why nothing is said of it."""
    known = ask.once(known_demand)
    if isinstance(known, str):
        return known
    workload = ask.workload
    if workload.pool.capacity_type.paid_anyway:
        return "its nodes are paid anyway"
    if workload.gpus_per_pod != round(workload.gpus_per_pod) or len(workload.pod_sizes) > 1:
        return "its replicas do not all hold the same number of whole GPUs"
    return known


def _served(
    ask: LeverRequest, known: KnownDemand, query: ServingQuery, instance_type: str, concurrency: int
) -> SetReplicaGpus | None:
    """Return replicas of a query with their times by load; None where requests pile up at every load."""
    law, offering = ask.case.law, offers_of(ask)[instance_type]
    assert law is not None
    # without limits: where requests begin to pile up
    pool, costs = pool_of(query, columns_of(query), concurrency, known.scale), first_token_fit().of(serving_keys(query))
    requests = drawn_requests(known)
    most_req_s = most_req_s_together(pool, costs, requests, (), likely_req_s(known, query) / known.scale)
    times = together_times(pool, costs, requests, most_req_s) if most_req_s else None
    if times is None:
        return None
    speed = calibrated(1.0)
    return SetReplicaGpus(
        nodes=UseOffering(pool=offering.pool, gpu=offering.gpu.name, gpus_per_node=offering.gpus_per_node, speed=speed),
        gpus=query.tensor,
        before=known.model.tensor,
        concurrency=concurrency,
        replica_req_s=most_req_s,
        today_req_s=law.capacity_req_s,
        loads=times.loads,
        wait_s=times.wait_s,
        token_s=times.token_s,
        answer_s=times.answer_s,
    )


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    if base.changes:
        return
    found = ask.once(numbers)
    for number in () if isinstance(found, str) else found:
        yield base.plus((NAME, number))


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    for number in applied.effects:
        if isinstance(number, SetReplicaGpus):
            each = f"{number.replica_req_s:.3g} on {number.gpus} x {number.nodes.gpu}"
            law = applied.evaluator.case.law
            seen = "" if law is None else f"{law.capacity_req_s * law.seen_load:.3g} at most seen on {number.before}"
            yield Fact("requests a second of a replica at full load", "the engine's scheduler, scaled", each, seen)
            yield speed_fact("speed beside its prediction", number.speed)
            yield from software_fact(applied.market.gpu(applied.workload.gpu), applied.market.gpu(number.nodes.gpu))


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    return reason_where_known(NAME, ask.once(numbers), ask, judged)


def _canary(effect: Effect) -> tuple[str, ...]:
    there = "the new nodes"
    if isinstance(effect, SetReplicaGpus):
        there = f"{effect.gpus} GPU{'s' if effect.gpus != 1 else ''} of {effect.pool.instance_type}"
    return (
        f"Run one replica on {there} beside the present ones for a day, with its share of the requests.",
        "Compare time to first token, time per token and tokens a second at its busiest with the prediction; go on if they are "
        "within the interval.",
    )


LEVER = Lever(
    name=NAME,
    title="GPUs a replica",
    meaning="Serves a language model with another number of GPUs a replica, on the board that then costs least",
    ends="more GPUs a replica than the limits take",
    page="how-to/change-gpus-per-replica.md",
    stage=CompositionStage.PLACE,
    kinds=frozenset({WorkloadKind.SERVING}),
    effort=Effort(weeks=1.4, per="class", first_weeks=1.0),
    first_steps=(EffortStep("a node pool of another type: quota, image, driver, drain of the old one", 5.0),),
    steps=(
        EffortStep("read the emitted pool and patch, and have them merged", 1.0),
        EffortStep("a day of one replica beside the present ones, with both times compared", 3.0),
        EffortStep("move the rest through one peak, keep the old pool a week, give it back", 3.0),
    ),
    risk=Risk.MEDIUM,
    rollback="set GPUs and --tensor-parallel-size back, and the node selector; keep the old node pool a week",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
    guide_order=1,
)
