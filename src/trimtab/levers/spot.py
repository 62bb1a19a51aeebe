"""Run interruptible work on spot, with on-demand to fall back on: runs that save and resume, services that are spread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, HedgeOnSpot, SetCapacityType
from trimtab.fleet.market import Market
from trimtab.fleet.model import RUN_KINDS, Workload
from trimtab.fleet.reach import offerings_for
from trimtab.fleet.settings import Assumptions, Effort
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
from trimtab.tables.workloads import WorkloadKind

NAME = "spot"
FLOORS = (0, 4, 2)
"""One replica in so many stays on demand; 0: none."""


def propose(workload: Workload, market: Market, assumptions: Assumptions) -> tuple[SetCapacityType, ...]:
    """Return spot pools wherever it may run, for work declared interruptible; cheaper than on demand, or not at all."""
    if workload.kind not in RUN_KINDS or workload.jobs is None or not workload.spec.interruptible:
        return ()
    return tuple(
        SetCapacityType(
            pool=offering.pool.held_as(CapacityType.SPOT),
            loss_per_hr=odds.loss_per_hr,
            unavailable_frac=odds.unavailable_frac,
            drought_s=odds.drought_s,
            droughts_take=assumptions.spot_droughts_take,
        )
        for offering in offerings_for(workload, market)
        if offering.spot is not None
        and market.rate(offering.pool.held_as(CapacityType.SPOT)) < offering.rate_micro_usd_hr
        for odds in (market.spot_odds(offering),)
    )


def hedges(workload: Workload, market: Market, assumptions: Assumptions) -> tuple[HedgeOnSpot, ...]:
    """Return ways to serve from spot, for services declared interruptible: each pool with each floor on demand."""
    if workload.kind is not WorkloadKind.SERVING or not workload.spec.interruptible:
        return ()
    return tuple(
        HedgeOnSpot(
            pool=offering.pool.held_as(CapacityType.SPOT),
            one_in=one_in,
            zones=assumptions.spot_zones,
            loss_per_hr=odds.loss_per_hr,
            outage_s=odds.drought_s,
        )
        for offering in offerings_for(workload, market)
        if offering.spot is not None
        and market.rate(offering.pool.held_as(CapacityType.SPOT)) < offering.rate_micro_usd_hr
        for odds in (market.zone_odds(offering),)
        for one_in in FLOORS
    )


def _offers(ask: LeverRequest) -> Mapping[Pool, Sequence[SetCapacityType | HedgeOnSpot]]:
    """Return every way to run a workload from spot, by its kind and the nodes that it would be on demand.

    Nothing where it is not declared interruptible, or spot is ruled out.
    """
    by_nodes: dict[Pool, list[SetCapacityType | HedgeOnSpot]] = defaultdict(list)
    if ask.settings.limits.use_spot:
        for work in (propose, hedges):
            for offer in work(ask.workload, ask.market, ask.assumptions):
                by_nodes[offer.pool.nodes].append(offer)
    return dict(by_nodes)


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    """Yield the ways to hold a place on spot; none for slots of shared nodes, or where other nodes stand behind its own."""
    offers = ask.once(_offers)
    if not offers:
        return
    place = ask.evaluator.place(base)
    if place.shared is None and place.further_pool is None:
        for offer in offers.get(place.pool.nodes, ()):
            yield base.plus((NAME, offer))


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    for effect in applied.effects:
        if not isinstance(effect, SetCapacityType | HedgeOnSpot):
            continue
        odds = applied.market.held_odds(effect.pool, by_zone=isinstance(effect, HedgeOnSpot))
        if odds is not None and odds.loss_per_hr > 0:
            after_hr = (f"{1 / rate:,.0f}" for rate in (odds.loss_per_hr, odds.loss_high_per_hr, odds.loss_low_per_hr))
            yield Fact(
                "a spot node is lost",
                "the provider's band of interruptions, spot_events",
                "once in {} h of life ({}-{})".format(*after_hr),
            )


def _why_not(ask: LeverRequest, judged: JudgedWays) -> str | None:
    if ask.workload.kind not in RUN_KINDS:
        return None
    if not ask.workload.spec.interruptible:
        said = ask.workload.spec.interruptible is False
        return "declared not interruptible" if said else "interruptible is not declared (workloads.yaml)"
    return usual_reason(NAME, ask, judged)


def _canary(effect: Effect) -> tuple[str, ...]:
    if isinstance(effect, HedgeOnSpot):
        return (
            "Let one replica run on spot first, spread over the zones, and watch its p95 through one peak.",
            "Take its node away by hand: it must be back, on spot or on demand, within the cold start.",
        )
    return (
        "Send one run in ten to spot nodes, with its checkpoints on.",
        "Kill one of them by hand: the run must resume and lose no more than one checkpoint interval.",
    )


LEVER = Lever(
    name=NAME,
    title="Spot",
    meaning="Runs interruptible work on spot nodes, with on-demand ones to fall back on",
    page="how-to/serve-on-spot.md",
    stage=CompositionStage.BUY,
    kinds=RUN_KINDS | {WorkloadKind.SERVING},
    effort=Effort(weeks=0.8, per="class", first_weeks=1.5),
    first_steps=(
        EffortStep("the spot node pool with its taint, and a fallback on demand", 2.0),
        EffortStep("notices: the interruption queue, draining, alerts", 2.5),
        EffortStep("a drill: nodes taken away by hand, with the team", 3.0),
    ),
    steps=(
        EffortStep("read the emitted patch, and have it merged", 1.0),
        EffortStep("checkpoints on and their interval set, or replicas spread over zones", 2.0),
        EffortStep("kill one by hand, and see it resume", 1.0),
    ),
    risk=Risk.MEDIUM,
    rollback="remove spot from the node pool's capacity types; runs go on from their last checkpoint on demand",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    why_not=_why_not,
    drift_frac=0.072,
    guide_order=2,
)
