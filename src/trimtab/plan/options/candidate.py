"""One way to run a workload that keeps its targets, as the joint choice takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.placement import resolve
from trimtab.fleet.market import Market
from trimtab.fleet.model import IntArray
from trimtab.plan.effort import Effort, effort_of_deployment
from trimtab.replay.outcomes.change_cost import entries_of, own_micro_usd
from trimtab.replay.outcomes.outcome import Case, Outcome


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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


def candidate_of(case: Case, deployment: Deployment, outcome: Outcome, market: Market) -> Candidate | None:
    """Return the candidate that a deployment with this outcome makes; None where it would share nodes and fills them alone."""
    place = resolve(case.workload, deployment)
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
