"""Nobody waits for nothing: runs are held for an hour only where starting them at once would cost more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import DeferRuns
from trimtab.fleet.settings import Settings
from trimtab.plan.actions.drafted import Drafted
from trimtab.plan.effort import effort_micro_usd
from trimtab.plan.options.workload_options import WorkloadOptions


def prompt(drafted: Drafted, options: Sequence[WorkloadOptions | None], settings: Settings) -> Drafted:
    """Return the draft with each deferral replaced by another way to hold the same nodes, where that costs no more.

    What it asks of the team counts as cost.
    """
    for index, deployment in drafted.deployments.items():
        one = options[index]
        if one is None or not isinstance(deployment.holding, DeferRuns):
            continue
        for other in _at_once(deployment, one):
            trial = Drafted(
                fleet=drafted.fleet,
                enacted=drafted.enacted,
                deployments={**drafted.deployments, index: other},
                released=drafted.released,
                discounts=drafted.discounts,
            )
            if _whole_cost(trial, settings) <= _whole_cost(drafted, settings):
                drafted = trial
                break
    return drafted


def _whole_cost(drafted: Drafted, settings: Settings) -> float:
    """Return the bill with all actions and what they ask of the team, in micro-dollars over the window."""
    asked = effort_micro_usd(drafted.actions, settings, drafted.fleet.window.hours)
    return drafted.cost(drafted.everything) + asked


def _at_once(deployment: Deployment, options: WorkloadOptions) -> Iterator[Deployment]:
    """Yield the candidates that differ in how nodes are held only, and hold no run back."""
    for candidate in options.candidates:
        other = candidate.deployment
        same = other.without("holding") == deployment.without("holding")
        if same and other.changes and not isinstance(other.holding, DeferRuns):
            yield other
