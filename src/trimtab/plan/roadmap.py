"""The order and the quarter of each action: saving per engineer-week first, what must come before, within the team's weeks."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.fleet.settings import Lever, Planning, Settings
from trimtab.plan.actions import Draft

QUARTERS = 4


def efforts(drafts: Sequence[Draft], settings: Settings) -> list[float]:
    """Return engineer-weeks per action: what is paid once per fleet or class is shared by the actions that need it."""
    keys = [_paid_once(draft, settings) for draft in drafts]
    return [settings.efforts[draft.lever].weeks / keys.count(key) for draft, key in zip(drafts, keys, strict=True)]


def _paid_once(draft: Draft, settings: Settings) -> tuple[object, ...]:
    match settings.efforts[draft.lever].per:
        case "fleet":
            return (draft.lever,)
        case "class":
            return (draft.lever, draft.class_name)
        case _:
            return (draft.lever, draft.class_name, draft.subject)


def ranked(drafts: Sequence[Draft], savings: Sequence[float], weeks: Sequence[float]) -> list[int]:
    """Return the order of actions: by saving per engineer-week, a commitment after every action on the nodes it covers."""
    order = sorted(range(len(drafts)), key=lambda i: (-savings[i] / max(weeks[i], 0.01), drafts[i].subject))
    placed = [index for index in order if drafts[index].lever is not Lever.COMMITMENT]
    for index in order:
        if drafts[index].lever is Lever.COMMITMENT:
            after = [place for place, other in enumerate(placed) if drafts[other].touches & drafts[index].touches]
            placed.insert(max(after, default=-1) + 1, index)
    return placed


def quarters(order: Sequence[int], weeks: Sequence[float], planning: Planning) -> dict[int, int]:
    """Return the quarter (1..4; 0 = later) in which each action ends, done one after another by the team."""
    capacity = planning.engineers * planning.weeks_per_quarter
    spent, when = 0.0, {}
    for index in order:
        spent += weeks[index]
        quarter = max(1, -(-spent // capacity)) if capacity > 0 else QUARTERS + 1
        when[index] = int(quarter) if quarter <= QUARTERS else 0
    return when
