"""Every consistent way to run a workload, composed from what the levers propose, stage by stage (`levers.lever.Stage`).

1. *Place*: each lever goes on from the places that the levers before it proposed; the present place comes first.
2. *Hold*: at each place as it is held today, and by each way of holding of each lever: one of them.
3. *Form*: at each place, each lever's forms of serving; they bring their own number of replicas, or an autoscaler.
4. *Buy*: on demand; and in each other way, where what is bought keeps its targets on demand (`plan.options.workload_options`).

Nobody else decides what goes together: the planner's bound holds over all of these ways that keep their targets in replay.
What a replay of unseen history forbids is left out (`Veto`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.fleet.model import Target
from trimtab.levers.lever import CompositionStage, Lever, LeverRequest
from trimtab.levers.registry import serving
from trimtab.replay.outcomes.outcome import Outcome


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
    for lever in ask.once(_at_places):
        yield from lever.ways(place, ask)


def bought(base: Deployment, ask: LeverRequest) -> Iterator[Deployment]:
    """Yield the other ways to buy the nodes of a way on demand."""
    for lever in ask.once(_buying):
        yield from lever.ways(base, ask)


def _at_places(ask: LeverRequest) -> tuple[Lever, ...]:
    kind = ask.workload.kind
    return (*serving(kind, CompositionStage.HOLD), *serving(kind, CompositionStage.FORM))


def _buying(ask: LeverRequest) -> tuple[Lever, ...]:
    return serving(ask.workload.kind, CompositionStage.BUY)


_MISSES_LEFT_FRAC = 0.5
"""A safer way leaves at most this share of the misses that the refused one left: fewer rounds than step by step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Veto:
    """Refuses ways by what they attained on the *fit* window: nothing of the unseen history but the miss itself comes in.

    `safe_frac` maps each target that was missed to what the refused way attained of it on the fit window under stress.
    """

    safe_frac: Mapping[Target, float]
    keeps: bool = False
    """Refuse every way: the workload stays as it is."""

    def refuses(self, outcome: Outcome) -> bool:
        """Tell whether a way with this outcome on the fit window is no safer than the refused one."""
        return self.keeps or any(
            attained.safe_frac <= self.safe_frac[attained.target]
            or 1 - attained.safe_frac > (1 - self.safe_frac[attained.target]) * _MISSES_LEFT_FRAC
            for attained in outcome.attained
            if attained.target in self.safe_frac
        )

    def stricter(self, other: Veto) -> Veto:
        """Return the veto that refuses what either refuses."""
        targets = {*self.safe_frac, *other.safe_frac}
        safe_frac = {
            target: max(self.safe_frac.get(target, 0.0), other.safe_frac.get(target, 0.0)) for target in targets
        }
        return Veto(safe_frac=safe_frac, keeps=self.keeps or other.keeps)
