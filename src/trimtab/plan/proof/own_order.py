"""What a year costs if a plan's actions are done in an order that people choose, and what that order gets wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from trimtab.plan.actions.roadmap import precedence, targets_first
from trimtab.plan.actions.roadmap_planner import RoadmapPlanner
from trimtab.plan.model import Schedule
from trimtab.plan.planner import Planned
from trimtab.units import per_month, usd


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFault:
    """An action that comes before another which should be done first."""

    action: str
    needs: str
    misses_target: bool
    """True where a target is missed until `needs` is done; else a purchase that `needs` may leave partly unused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedYear:
    """The year in one order of the actions."""

    course: Schedule
    faults: tuple[OrderFault, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnOrders:
    """Plays a plan's actions through a year in any order. Bills of sets of actions are kept between orders."""

    planned: Planned

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the actions in the plan's order."""
        return tuple(action.id for action in self.planned.plan.actions)

    def complete(self, order: Sequence[str]) -> tuple[str, ...]:
        """Return an order of all actions: those named first, each once, then the others in the plan's order."""
        named = dict.fromkeys(name for name in order if name in self.ids)
        return (*named, *(name for name in self.ids if name not in named))

    def year(self, order: Sequence[str]) -> OrderedYear:
        """Return the year in an order; actions that it does not name come last, in the plan's order.

        One action is worked on after the other, at the pace of the team. In the plan's own order it is the plan's roadmap.
        """
        whole = self.complete(order)
        roadmap = self.planned.plan.roadmap
        if whole == self.ids and roadmap is not None:
            return OrderedYear(course=roadmap.course, faults=())
        numbers = [self._number[name] for name in whole]
        names = {number: name for name, number in self._number.items()}
        return OrderedYear(course=self._path.year_in(numbers, names), faults=self._faults(whole))

    def _faults(self, order: Sequence[str]) -> tuple[OrderFault, ...]:
        """Return each pair in which an action comes before one that it depends on."""
        drafts, needed = self._path.drafted.actions, self._path.needed_first
        everything, targets = precedence(drafts, needed), targets_first(drafts, needed)
        names = {number: name for name, number in self._number.items()}
        faults = []
        for place, name in enumerate(order):
            later = {self._number[other] for other in order[place + 1 :]}
            faults += [
                OrderFault(
                    action=name, needs=names[other], misses_target=other in targets.get(self._number[name], frozenset())
                )
                for other in sorted(everything[self._number[name]] & later)
            ]
        return tuple(faults)

    @cached_property
    def _number(self) -> dict[str, int]:
        """Return the number that each action has in the draft."""
        return dict(zip(self.ids, self.planned.order, strict=True))

    @cached_property
    def _path(self) -> RoadmapPlanner:
        planned = self.planned
        if planned.prospects is None:
            raise ValueError("a plan that was read back holds no prospects: it cannot be put in another order")
        hours = planned.drafted.fleet.window.hours
        savings = {
            number: per_month(usd(action.saving_micro_usd), hours)
            for number, action in zip(planned.order, planned.plan.actions, strict=True)
        }
        return RoadmapPlanner(
            drafted=planned.drafted,
            savings_usd_mo=[savings[number] for number in range(len(savings))],
            needed_first=planned.drafted.needed_first(),
            settings=planned.prospects.settings,
        )
