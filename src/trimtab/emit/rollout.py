"""How to try an action on a small part first: the canary steps of its levers."""

from __future__ import annotations

from trimtab.levers.registry import lever_named
from trimtab.plan.model import Action


def canary_steps(action: Action) -> tuple[str, ...]:
    """Return the canary steps of an action, each once, in the order of its changes."""
    lever = lever_named(action.lever)
    steps = [step for change in action.changes for step in lever.canary(change.effect)]
    return tuple(dict.fromkeys(steps))
