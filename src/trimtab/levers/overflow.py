"""Serve from nodes of which there are too few, by a quota or because no more are paid for, and from another type beyond them.

Where one type of node could carry a service alone, nothing here is offered: two types cost work, and save nothing. Requests
are dealt out evenly over the replicas (a Kubernetes Service: at random or in turn), so that each is planned as if it were on
the slower type (`Placement.speed`): a faster one only answers sooner. What that leaves unused is 1 to 11 %
(`benchmarks.overflow_routing`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, OverflowTo, UseOffering
from trimtab.deployment.fitting import as_offering
from trimtab.deployment.placement import pods_beside, slower
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
from trimtab.tables.workloads import WorkloadKind

NAME = "overflow"
_MOST_TYPES = 2
"""Types of further nodes that are tried at a place: each with every way of holding replicas there."""
_SHARES = (1.0, 0.75, 0.5, 0.25)
"""Of the quota, which others may need too: replicas do the same whatever is left of it, so that these cost no replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScarceNodes:
    """Nodes of a place of which there are too few for a service: how many may come first, the most first."""

    counts: tuple[int, ...]
    paid: bool
    """Whether they are paid already, under commitments."""


def scarce_nodes(base: Deployment, ask: LeverRequest) -> ScarceNodes | None:
    """Return a place's own nodes where there are too few for all replicas that the targets need; None where there are not."""
    place = ask.evaluator.place(base)
    quota, owned = place.quota_nodes, ask.owned_nodes.get(place.pool, 0)
    is_whole = not (base.sharing or base.precision or base.relocation or base.replica_gpus) and place.nodes_per_pod == 1
    # activity is the mean over replicas of both types, which a rule on it would take for the load of either
    if (quota is None and not owned) or not is_whole or ask.workload.service is None:
        return None
    if ask.evaluator.hopeless(base) is not None:
        return None
    needed = ask.evaluator.least_number(base)
    if quota is not None and place.pods_on(quota) < needed:
        counts = {math.ceil(quota * share) for share in _SHARES}
        return ScarceNodes(counts=tuple(sorted(counts, reverse=True)), paid=False) if quota else None
    return ScarceNodes(counts=(owned,), paid=True) if owned and place.pods_on(owned) < needed else None


def further_nodes(base: Deployment, scarce: ScarceNodes, ask: LeverRequest) -> tuple[UseOffering, ...]:
    """Return the nodes on which replicas beyond a place's own run cheapest, the cheapest first.

    Each holds a replica on one node, and has a quota left if one is stated. Behind a quota they are more expensive than the
    place's own, or all would be better off there; behind nodes that are paid they are cheaper than more of the same.
    """
    place, workload, market = ask.evaluator.place(base), ask.workload, ask.market
    offered = list(ask.once(sizes).fitting)
    if (home := as_offering(workload)) is not None:
        offered.append(home)
    left = quota_of_pools(quotas_of(ask.settings.limits.quotas), [offering.pool for offering in offered])
    own = market.rate(place.pool) / place.pods_per_node
    priced = []
    for offering in offered:
        rate = market.rate(offering.pool) / float(pods_beside(offering.gpus_per_node, place.gpus_per_pod))
        if (
            offering.pool != place.pool
            and not offering.only_quantized
            and offering.gpus_per_node >= place.gpus_per_pod
            and left.get(offering.pool, 1) > 0
            and (rate < own if scarce.paid else rate > own)
        ):
            priced.append((rate / slower(place.speed, offering.speed).value, offering.pool, offering))
    return tuple(offering for *_, offering in sorted(priced, key=lambda row: row[:2])[:_MOST_TYPES])


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    scarce = scarce_nodes(base, ask)
    if scarce is None:
        return
    pool = ask.evaluator.place(base).pool
    for rank, further in enumerate(further_nodes(base, scarce, ask)):
        for first_nodes in scarce.counts if rank == 0 else scarce.counts[:1]:
            yield base.plus((NAME, OverflowTo(pool=pool, first_nodes=first_nodes, further=further)))


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    for effect in applied.effects:
        if isinstance(effect, OverflowTo):
            yield Fact(
                "nodes that come first", "quotas and commitments", f"{effect.first_nodes} x {effect.pool.instance_type}"
            )
            yield speed_fact(f"speed on {effect.further.gpu}", effect.further.speed)


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    # worth a line only where some nodes are scarce
    return usual_reason(NAME, ask, judged) if ask.settings.limits.quotas or ask.owned_nodes else None


def _canary(effect: Effect) -> tuple[str, ...]:
    there = effect.further.pool.instance_type if isinstance(effect, OverflowTo) else "the further nodes"
    return (
        f"Run one replica on {there} beside those on the first type for a day, and compare their latency by pod.",
        "Lower the first pool's limit by a node for an hour: a replica must come back on the other type within its cold start.",
    )


LEVER = Lever(
    name=NAME,
    title="Overflow",
    meaning="Serves from as many of a type of node as a quota allows or are paid for, and from another type beyond them",
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
