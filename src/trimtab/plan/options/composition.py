"""Every consistent way to run a workload, composed from what the levers propose, stage by stage (`levers.lever.Stage`).

1. *Place*: each lever goes on from the places that the levers before it proposed; the present place comes first.
2. *Hold*: at each place as it is held today, and by each way of holding of each lever: one of them.
3. *Form*: at each place, each lever's forms of serving; they bring their own number of replicas, or an autoscaler.
4. *Buy*: on demand; and in each other way, where what is bought keeps its targets on demand (`plan.options.workload_options`).

Nobody else decides what goes together: the planner's bound holds over all of these ways that keep their targets in replay.
"""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.levers.lever import CompositionStage, LeverRequest
from trimtab.levers.registry import serving


def places(ask: LeverRequest) -> tuple[Deployment, ...]:
    """Return every place at every precision that the team accepts; the present one as it is comes first."""
    found = [AS_IT_IS]
    for lever in serving(ask.workload.kind, CompositionStage.PLACE):
        found += [way for base in tuple(found) for way in lever.ways(base, ask)]
    return tuple(found)


def on_demand(ask: LeverRequest) -> Iterator[Deployment]:
    """Yield every way on demand; first the one that changes nothing."""
    for place in places(ask):
        yield from at_place(place, ask)


def at_place(place: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    """Yield every way on demand at a place; first as it is held today."""
    yield place
    for lever in (
        *serving(ask.workload.kind, CompositionStage.HOLD),
        *serving(ask.workload.kind, CompositionStage.FORM),
    ):
        yield from lever.ways(place, ask)


def bought(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    """Yield the other ways to buy the nodes of a way on demand."""
    for lever in serving(ask.workload.kind, CompositionStage.BUY):
        yield from lever.ways(base, ask)
