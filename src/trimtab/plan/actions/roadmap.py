"""The order of the actions and the months in which they are done: what must come before, and little work in progress at once.

One lever is taken up a month and finished before the next (`planning.levers_per_mo`, `planning.levers_at_once`): a team that
starts everything finishes nothing, and a bill that falls after each step can be compared with the plan after each step.
Further actions of a lever already taken up need no new month.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.fleet.settings import Planning, Settings
from trimtab.levers.registry import effort_of_lever, lever_named
from trimtab.plan.actions.draft_actions import DraftAction
from trimtab.units import MO_PER_QUARTER, MO_PER_YEAR

_LEAST_WEEKS = 0.01
Before = Mapping[int, frozenset[int]]
"""What must be done before an action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """When an action is worked on, in months from the start."""

    number: int
    start_mo: float
    done_mo: float

    @property
    def quarter(self) -> int:
        """Return the quarter (1..4) in which it is done; 0 = later than a year."""
        return quarter_of(self.done_mo)


def quarter_of(done_mo: float) -> int:
    """Return the quarter (1..4) that a month lies in; 0 = later than a year.

    >>> quarter_of(3.0), quarter_of(3.1), quarter_of(12.5)
    (1, 2, 0)
    """
    if done_mo > MO_PER_YEAR:
        return 0
    return max(1, math.ceil(done_mo / MO_PER_QUARTER))


def efforts(drafts: Sequence[DraftAction], settings: Settings, *, entries: bool = True) -> list[float]:
    """Return engineer-weeks per action: what is paid once per fleet or class is shared by the actions that need it.

    So is the work of going to another cloud; without `entries` it is left out, for the bill holds it already.
    """
    keys = [_paid_once(draft, settings) for draft in drafts]
    levers = [draft.lever for draft in drafts]
    works = [effort_of_lever(lever, settings) for lever in levers]
    clouds = [cloud for draft in drafts for cloud in draft.clouds]
    return [
        work.each_weeks / keys.count(key)
        + work.once_weeks / levers.count(draft.lever)
        + entries * sum(settings.alternatives.migration_weeks / clouds.count(cloud) for cloud in draft.clouds)
        for draft, key, work in zip(drafts, keys, works, strict=True)
    ]


def _paid_once(draft: DraftAction, settings: Settings) -> tuple[object, ...]:
    match effort_of_lever(draft.lever, settings).per:
        case "fleet":
            return (draft.lever,)
        case "class":
            return (draft.lever, draft.class_name)
        case _:
            return (draft.lever, draft.class_name, draft.subject)


def levers_taken(drafts: Sequence[DraftAction]) -> list[str | None]:
    """Return the lever that each action takes up; None for a purchase that no action can make wrong: it is an hour's work."""
    return [None if draft.used_in_any_order else draft.lever for draft in drafts]


def precedence(drafts: Sequence[DraftAction], needed_first: Before) -> dict[int, frozenset[int]]:
    """Return what must come before each action.

    A commitment comes after every action on the nodes it covers, unless they stay used whatever is done; an action without
    which others would miss a target comes before them (`needed_first` maps it to them).
    """
    before = {index: {*others} for index, others in targets_first(drafts, needed_first).items()}
    for index, draft in enumerate(drafts):
        if draft.discounts and not draft.used_in_any_order:
            before[index] |= {i for i, other in enumerate(drafts) if i != index and other.touches & draft.touches}
    return {index: frozenset(others) for index, others in before.items()}


def targets_first(drafts: Sequence[DraftAction], needed_first: Before) -> dict[int, frozenset[int]]:
    """Return what must come before each action for the sake of targets alone."""
    before: dict[int, set[int]] = {index: set() for index in range(len(drafts))}
    for index in before:
        for other in needed_first.get(index, frozenset()):
            if index not in needed_first.get(other, frozenset()):
                before[other].add(index)
    return {index: frozenset(others) for index, others in before.items()}


def ranked(
    drafts: Sequence[DraftAction], savings: Sequence[float], weeks: Sequence[float], needed_first: Before
) -> list[int]:
    """Return the order of actions: by saving per engineer-week, among those whose turn it can be."""
    worth = {index: savings[index] / max(weeks[index], _LEAST_WEEKS) for index in range(len(drafts))}
    for index, others in needed_first.items():
        worth[index] = max(worth[index], *(worth[other] for other in others), worth[index])
    return _by_worth(worth, precedence(drafts, needed_first))


def fixed_order(drafts: Sequence[DraftAction], savings: Sequence[float], needed_first: Before) -> list[int]:
    """Return the same actions in the order that guides give, the larger saving first within a group; targets come first."""
    group = {index: lever_named(draft.lever).guide_order for index, draft in enumerate(drafts)}
    most = max([abs(saving) for saving in savings], default=0.0) + 1.0
    worth = {index: savings[index] / most - 2.0 * group[index] for index in group}
    return _by_worth(worth, targets_first(drafts, needed_first))


def _by_worth(worth: Mapping[int, float], before: Before) -> list[int]:
    placed: list[int] = []
    done: set[int] = set()
    left = set(worth)
    while left:
        ready = [index for index in left if before[index] <= done] or [*left]
        best = max(ready, key=lambda index: (worth[index], -index))
        placed.append(best)
        done.add(best)
        left.remove(best)
    return placed


def scheduled(
    order: Sequence[int], levers: Sequence[str | None], weeks: Sequence[float], before: Before, planning: Planning
) -> tuple[Slot, ...]:
    """Return when each action is worked on, in the order of their starts.

    `planning.levers_at_once` actions go on at once, the team divided evenly among them. Whoever is free takes what can start
    soonest, the first of the order among those: all that must come before it is done, and its lever is taken up already or its
    month has come. An action without a lever (`levers_taken`) waits for no month.
    """
    lanes = max(1, planning.levers_at_once)
    pace = planning.engineers * planning.weeks_per_quarter / MO_PER_QUARTER / lanes
    apart_mo = 1 / planning.levers_per_mo if planning.levers_per_mo > 0 else 0.0
    free = [0.0] * lanes
    next_lever_mo = 0.0
    slots: dict[int, Slot] = {}
    taken: dict[str, float] = {}
    left = list(order)

    def soonest(number: int, at: float) -> float:
        done = max((slots[other].done_mo for other in before[number] if other in slots), default=0.0)
        lever = levers[number]
        return max(at, done, 0.0 if lever is None else taken.get(lever, next_lever_mo))

    while left:
        at = heapq.heappop(free)
        ready = [number for number in left if before[number] <= slots.keys()] or left
        number = min(ready, key=lambda candidate: soonest(candidate, at))
        start = soonest(number, at)
        lever = levers[number]
        if lever is not None and lever not in taken:
            taken[lever] = start
            next_lever_mo = start + apart_mo
        slots[number] = Slot(
            number=number, start_mo=start, done_mo=start + weeks[number] / pace if pace > 0 else math.inf
        )
        heapq.heappush(free, slots[number].done_mo)
        left.remove(number)
    return tuple(sorted(slots.values(), key=lambda slot: (slot.start_mo, slot.done_mo)))
