"""Serve from nodes of which a quota allows too few, and from the next cheapest type of node beyond them.

Where the cheapest nodes could carry a service alone, nothing here is offered: two types cost work, and save nothing. Requests
are dealt out evenly over the replicas, so that each is planned as if it were on the slower type (`Placement.speed`): a faster
one only answers sooner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, OverflowTo, UseOffering
from trimtab.deployment.placement import Placement, slower
from trimtab.fleet.reach import quota_of_pools, quotas_of
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
    speed_fact,
    usual_reason,
)
from trimtab.levers.right_size import sizes
from trimtab.physics.transfer import SAME_SPEED
from trimtab.tables.workloads import WorkloadKind

NAME = "overflow"
_MOST_TYPES = 2
"""Types of further nodes that are tried at a place: each with every way of holding replicas there."""
_SHARES = (1.0, 0.75, 0.5, 0.25)
"""Of the quota, which others may need too: replicas do the same whatever is left of it, so that these cost no replay."""


def further_nodes(base: Deployment, ask: LeverRequest) -> tuple[UseOffering, ...]:
    """Return the nodes on which replicas beyond a place's quota run cheapest, the cheapest first; none where all have room.

    Each holds a replica on one node, is more expensive than the place's own, and has a quota left if one is stated.
    """
    place = ask.evaluator.place(base)
    room = place.quota_pods
    is_whole = not (base.sharing or base.precision or base.relocation)
    # activity is the mean over replicas of both types, which a rule on it would take for the load of either
    if room is None or room < 1 or not is_whole or ask.workload.service is None:
        return ()
    if ask.evaluator.hopeless(base) is not None or ask.evaluator.least_number(base) <= room:
        return ()
    workload, market = ask.workload, ask.market
    offered = list(ask.once(sizes).fitting)
    if workload.gpu is not None:
        offered.append(
            UseOffering(pool=workload.pool, gpu=workload.gpu, gpus_per_node=workload.gpus_per_node, speed=SAME_SPEED)
        )
    pools = [offering.pool for offering in offered]
    left = quota_of_pools(quotas_of(ask.settings.limits.quotas), pools)
    own = market.rate(place.pool) / place.pods_per_node
    priced = sorted(
        (
            (_replica_rate(offering, place, ask) / slower(place.speed, offering.speed).value, offering.pool, offering)
            for offering in offered
            if offering.pool != place.pool
            and not offering.only_quantized
            and offering.gpus_per_node >= place.gpus_per_pod
            and left.get(offering.pool, 1) > 0
            and _replica_rate(offering, place, ask) > own
        ),
        key=lambda row: row[:2],
    )
    return tuple(offering for _, _, offering in priced[:_MOST_TYPES])


def _replica_rate(offering: UseOffering, place: Placement, ask: LeverRequest) -> float:
    """Return what a replica costs there, in micro-dollars an hour, on a node that is full of them."""
    beside = max(1, math.floor(offering.gpus_per_node / place.gpus_per_pod + 1e-9))
    return ask.market.rate(offering.pool) / beside


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    place = ask.evaluator.place(base)
    if place.quota_nodes is None or place.nodes_per_pod > 1:
        return
    for rank, further in enumerate(further_nodes(base, ask)):
        for share in _SHARES if rank == 0 else (1.0,):
            first_nodes = math.ceil(place.quota_nodes * share)
            yield base.plus((NAME, OverflowTo(pool=place.pool, first_nodes=first_nodes, further=further)))


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    for effect in applied.effects:
        if isinstance(effect, OverflowTo):
            yield Fact("nodes that may be held", "limits.quotas", f"{effect.first_nodes} x {effect.pool.instance_type}")
            yield speed_fact(f"speed on {effect.further.gpu}", effect.further.speed)


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    # worth a line only where quotas are stated
    return usual_reason(NAME, ask, judged) if ask.settings.limits.quotas else None


def _canary(effect: Effect) -> tuple[str, ...]:
    there = effect.further.pool.instance_type if isinstance(effect, OverflowTo) else "the further nodes"
    return (
        f"Run one replica on {there} beside those on the first type for a day, and compare their latency by pod.",
        "Lower the first pool's limit by a node for an hour: a replica must come back on the other type within its cold start.",
    )


LEVER = Lever(
    name=NAME,
    title="Overflow",
    meaning="Serves from the cheapest nodes as far as a quota allows, and from another type of node beyond them",
    page="how-to/overflow.md",
    stage=CompositionStage.PLACE,
    kinds=frozenset({WorkloadKind.SERVING}),
    effort=Effort(weeks=0.8, per="class", first_weeks=1.0),
    first_steps=(EffortStep("a node pool of another type: quota, image, driver", 5.0),),
    steps=(
        EffortStep("read the emitted pools and patch, and have them merged", 1.0),
        EffortStep("a day of replicas on both types, with their latency compared", 2.0),
        EffortStep("a drill: the first pool's limit lowered by a node", 1.0),
    ),
    risk=Risk.MEDIUM,
    rollback="point the workload's node selector at one of both pools; replicas that have no room there wait",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
    guide_order=2,
)
