"""The order and the quarter of each action: saving per engineer-week first, what must come before, within the team's weeks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab.fleet.settings import Lever, Planning, Settings
from trimtab.plan.actions import Draft

QUARTERS = 4
_LEAST_WEEKS = 0.01


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


def ranked(
    drafts: Sequence[Draft],
    savings: Sequence[float],
    weeks: Sequence[float],
    needed_first: Mapping[int, frozenset[int]],
) -> list[int]:
    """Return the order of actions: by saving per engineer-week, among those whose turn it can be.

    A commitment comes after every action on the nodes it covers; an action without which others would miss a target comes
    before them (`needed_first` maps it to them).
    """
    before: dict[int, set[int]] = {index: set() for index in range(len(drafts))}
    for index, draft in enumerate(drafts):
        if draft.lever is Lever.COMMITMENT:
            before[index] |= {i for i, other in enumerate(drafts) if i != index and other.touches & draft.touches}
        for other in needed_first.get(index, frozenset()):
            if index not in needed_first.get(other, frozenset()):
                before[other].add(index)
    worth = {index: savings[index] / max(weeks[index], _LEAST_WEEKS) for index in before}
    for index, others in needed_first.items():
        worth[index] = max(worth[index], *(worth[other] for other in others), worth[index])
    placed: list[int] = []
    while len(placed) < len(drafts):
        ready = [index for index in before if index not in placed and before[index] <= {*placed}]
        ready = ready or [index for index in before if index not in placed]
        placed.append(max(ready, key=lambda index: (worth[index], -index)))
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
