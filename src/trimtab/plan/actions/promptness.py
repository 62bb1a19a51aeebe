"""Nobody waits for nothing: runs are held for an hour only where starting them at once would cost more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.fleet.effects import DeferRuns
from trimtab.fleet.settings import Lever, Settings
from trimtab.plan.actions.drafted import Drafted
from trimtab.plan.effort import effort_micro_usd
from trimtab.plan.options.workload_options import WorkloadOptions
from trimtab.plan.outcomes.outcome import Effects

_HOLDING = frozenset({Lever.SCHEDULE, Lever.IDLE_RELEASE})


def prompt(drafted: Drafted, options: Sequence[WorkloadOptions | None], settings: Settings) -> Drafted:
    """Return the draft with each deferral replaced by another way to hold the same nodes, where that costs no more.

    What it asks of the team counts as cost.
    """
    for index, effects in drafted.effects.items():
        one = options[index]
        if one is None or not isinstance(effects.get(Lever.SCHEDULE), DeferRuns):
            continue
        for other in _at_once(effects, one):
            trial = Drafted(
                fleet=drafted.fleet,
                enacted=drafted.enacted,
                effects={**drafted.effects, index: other},
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


def _at_once(effects: Effects, options: WorkloadOptions) -> Iterator[Effects]:
    """Yield the candidates that differ in how nodes are held only, and hold no run back."""
    kept = {lever: effect for lever, effect in effects.items() if lever not in _HOLDING}
    for candidate in options.candidates:
        other = candidate.effects
        same = {lever: effect for lever, effect in other.items() if lever not in _HOLDING} == kept
        if same and other and not isinstance(other.get(Lever.SCHEDULE), DeferRuns):
            yield other
