"""One way to run a workload that keeps its targets, as the joint choice takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab.catalog.pools import Pool, SharedPool
from trimtab.fleet.market import Market
from trimtab.fleet.model import IntArray
from trimtab.plan.effort import Effort, effort_of_effects
from trimtab.plan.outcomes.change_cost import entries_of, own_micro_usd
from trimtab.plan.outcomes.outcome import Case, Effects, Outcome, placement


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A consistent set of effects on a workload, what it would use by pool and hold in shared ones, and what it attained."""

    effects: Effects
    usage: Mapping[Pool, IntArray]
    outcome: Outcome
    slots: Mapping[SharedPool, IntArray] = field(default_factory=dict)
    own_micro_usd: int = 0
    """What it costs over the window besides nodes."""
    needs: frozenset[str] = frozenset()
    """Entries that must be paid for it: other clouds."""
    effort: Effort = field(default_factory=dict)
    """What it asks of the team."""


def candidate_of(case: Case, effects: Effects, outcome: Outcome, market: Market) -> Candidate | None:
    """Return the candidate that effects with this outcome make; None where it would share nodes and fills them alone."""
    place = placement(case.workload, effects)
    slots = place.slots(outcome)
    if place.shared is not None and not slots:
        return None
    return Candidate(
        effects=effects,
        usage=place.usage(outcome),
        slots=slots,
        outcome=outcome,
        own_micro_usd=own_micro_usd(case.workload, effects, market, case.settings, case.window.hours),
        needs=entries_of(case.workload, effects),
        effort=effort_of_effects(case.workload, effects, case.settings),
    )
