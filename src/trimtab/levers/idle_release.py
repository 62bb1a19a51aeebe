"""Hold nodes only while something runs on them, and give back those that no workload holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Effect, ReleaseIdle, ReleaseNodes
from trimtab.fleet.model import RUN_KINDS, Fleet, Workload
from trimtab.fleet.settings import Assumptions, Effort
from trimtab.fleet.starts import run_startup_s
from trimtab.ledger import IDLE
from trimtab.levers.lever import (
    AppliedLever,
    CompositionStage,
    EffortStep,
    Fact,
    FleetPurchase,
    Lever,
    LeverRequest,
    Risk,
    held_and_used,
)

NAME = "idle-release"


def propose(workload: Workload, assumptions: Assumptions) -> tuple[ReleaseIdle, ...]:
    """Offer nodes that come with a run and go with it, to workloads that consist of runs."""
    if workload.kind not in RUN_KINDS or workload.jobs is None:
        return ()
    return (ReleaseIdle(startup_s=run_startup_s(workload, assumptions)),)


def unheld_nodes(fleet: Fleet) -> tuple[int, ...]:
    """Return the indices of nodes that no workload held a GPU of in the whole window, but for those that no plan touches."""
    held = {*np.unique(fleet.holdings.node[fleet.holdings.owner != IDLE]).tolist()}
    return tuple(index for index, node in enumerate(fleet.nodes) if index not in held and not fleet.is_left_alone(node))


def release(fleet: Fleet, nodes: tuple[int, ...]) -> ReleaseNodes:
    """Return the effect that gives these nodes back."""
    return ReleaseNodes(nodes=tuple(fleet.nodes[index].name for index in nodes))


def _ways(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    for release_idle in propose(ask.workload, ask.assumptions):
        yield base.plus((NAME, release_idle))


def _evidence(applied: AppliedLever) -> Iterator[Fact]:
    yield held_and_used(applied.workload)


def _fleet_evidence(bought: FleetPurchase) -> Iterator[Fact]:
    yield Fact("GPUs held", "allocations by node", "0 in every hour")


def _canary(effect: Effect) -> tuple[str, ...]:
    if isinstance(effect, ReleaseNodes):
        return ("Cordon the nodes for a day; if nothing asks for them, delete them.",)
    return (
        "Let empty nodes stay for an hour at first (Karpenter: `consolidateAfter: 1h`).",
        "Check for a day that nothing that was queued waited longer than its target.",
    )


LEVER = Lever(
    name=NAME,
    title="Release idle nodes",
    meaning="Holds nodes only while something runs on them, and gives back those that no workload holds",
    ends="nodes held in hours without work",
    page="how-to/read-an-audit.md",
    stage=CompositionStage.HOLD,
    kinds=RUN_KINDS,
    effort=Effort(weeks=0.5, per="class", first_weeks=0.5),
    first_steps=(EffortStep("a node autoscaler that scales the GPU pools, or its settings", 2.5),),
    steps=(
        EffortStep("read the emitted pool or order, and have it merged", 0.5),
        EffortStep("one node with a long delay for a day, queues watched", 1.0),
        EffortStep("the rest, and the delays set", 1.0),
    ),
    risk=Risk.LOW,
    rollback="give the old node group its minimum and size back (a NodePool of Karpenter: its limits); empty nodes stay then",
    canary=_canary,
    ways=_ways,
    evidence=_evidence,
    fleet_evidence=_fleet_evidence,
    drift_frac=0.122,
)
