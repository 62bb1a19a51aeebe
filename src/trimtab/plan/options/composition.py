"""Every consistent way to run a workload, composed stage by stage from what levers propose.

1. *Place*: each lever goes on from the places that the levers before it proposed; the present place comes first.
2. *Hold*: at each place as it is held today, and by each way of holding of each lever: one of them. Places that say so
   themselves (runs on GPUs that services leave over) come with their way of holding.
3. *Form*: at each place, each lever's forms of serving; they bring their own number of replicas, or an autoscaler.
4. *Buy*: on demand; and in each other way, where what is bought keeps its targets on demand (`plan.options.workload_options`).

No other module decides what goes together: the planner's bound holds over all of these ways that keep their targets in replay.
What a replay of unseen history forbids is left out (`Veto`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.fleet.market import Market
from trimtab.fleet.model import Target
from trimtab.ledger.arrays import IntArray
from trimtab.levers.lever import CompositionStage, Lever, LeverRequest
from trimtab.levers.registry import serving
from trimtab.plan.effort import Effort, effort_of_deployment
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Outcome, entries_of, own_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Candidate:
    """A deployment of a workload, what it would use by pool and hold in shared ones, and what it attained."""

    deployment: Deployment
    usage: Mapping[Pool, IntArray]
    outcome: Outcome
    slots: Mapping[SharedPool, IntArray] = field(default_factory=dict)
    own_micro_usd: int = 0
    """What it costs over the window besides nodes."""
    needs: frozenset[str] = frozenset()
    """Entries that must be paid for it: other clouds."""
    effort: Effort = field(default_factory=dict)
    """What it asks of the team."""


def candidate_of(evaluator: Evaluator, deployment: Deployment, outcome: Outcome, market: Market) -> Candidate | None:
    """Return the candidate that a deployment with this outcome makes; None where it would share nodes and fills them alone."""
    case, place = evaluator.case, evaluator.place(deployment)
    slots = outcome.slots(place)
    if place.shared is not None and not slots:
        return None
    return Candidate(
        deployment=deployment,
        usage=outcome.usage(place),
        slots=slots,
        outcome=outcome,
        own_micro_usd=own_micro_usd(case.workload, deployment, market, case.settings, case.window.hours),
        needs=entries_of(case.workload, deployment),
        effort=effort_of_deployment(case.workload, deployment, case.settings),
    )


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
        # runs beside services say with their place when they take it
        if place.holding is None or lever.stage is not CompositionStage.HOLD:
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
"""A safer way leaves at most this share of the misses that the refused one left: fewer rounds than step by step.

Not asked of the same way with an autoscaler that waits longer before it scales down: it never serves worse, and what too short
a wait did on the unseen window says nothing of the rest of the rule.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Veto:
    """Refuses ways by what they attained on the *fit* window: nothing of the unseen history but the miss itself comes in.

    `safe_frac` maps each target that was missed to what the refused way attained of it on the fit window under stress.
    """

    safe_frac: Mapping[Target, float]
    keeps: bool = False
    """Refuse every way: the workload stays as it is."""
    ways: tuple[Deployment, ...] = ()
    """Those that were refused."""

    def refuses(self, way: Deployment, outcome: Outcome) -> bool:
        """Return whether a way with this outcome on the fit window is no safer than the refused one."""
        longer = bool(self.ways) and all(waits_longer(way, refused) for refused in self.ways)
        left_frac = 1.0 if longer else _MISSES_LEFT_FRAC
        return self.keeps or any(
            attained.safe_frac <= self.safe_frac[attained.target]
            or 1 - attained.safe_frac > (1 - self.safe_frac[attained.target]) * left_frac
            for attained in outcome.attained
            if attained.target in self.safe_frac
        )

    def stricter(self, other: Veto) -> Veto:
        """Return a veto that refuses what either refuses."""
        targets = {*self.safe_frac, *other.safe_frac}
        safe_frac = {
            target: max(self.safe_frac.get(target, 0.0), other.safe_frac.get(target, 0.0)) for target in targets
        }
        return Veto(
            safe_frac=safe_frac,
            keeps=self.keeps or other.keeps,
            ways=(*self.ways, *other.ways),
        )


def waits_longer(way: Deployment, other: Deployment) -> bool:
    """Return whether a way is another one whose autoscaler waits longer before it scales down."""
    one, two = way.scaling, other.scaling
    if not isinstance(one, SetReplicaPolicy) or not isinstance(two, SetReplicaPolicy):
        return False
    alike = one.as_long_as(two) == two and way.without("scaling") == other.without("scaling")
    return alike and one.hpa.down_stabilization_s > two.hpa.down_stabilization_s
