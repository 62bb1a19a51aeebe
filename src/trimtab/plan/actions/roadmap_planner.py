"""Work out the year ahead: the plan's order, the order in which the year costs least, and the order that guides give.

minimise   sum over actions i of the order  (12 - done[i])+ * (bill(i and all before) - bill(all before))
    subject to done[i] = start[i] + months[i],  start[i] = max(done of the one before, month of a lever not taken up yet)
               whatever must come before i does

A set of actions that is done has one bill, whatever the order, but may be done at several times, because levers wait for their
month: dynamic programming over sets (Held and Karp, 1962) and the times at which they can be done, with a bound.

Any set of actions is billed exactly, with the commitments that suit the use it leaves: the fixed order is flattered by that,
because whoever commits before the other levers keeps what was bought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, cycle, pairwise
from typing import NamedTuple

from trimtab.fleet.settings import Planning, Settings
from trimtab.levers.lever import Risk
from trimtab.levers.registry import effort_of_lever
from trimtab.plan.actions.attribution import EXACT_PLAYERS, components
from trimtab.plan.actions.draft_plan import DraftPlan
from trimtab.plan.actions.roadmap import (
    Before,
    Slot,
    efforts,
    fixed_order,
    levers_taken,
    precedence,
    ranked,
    scheduled,
    targets_first,
)
from trimtab.plan.model import EffortSensitivity, Roadmap, Schedule, ScheduledAction
from trimtab.units import MO_PER_QUARTER, MO_PER_YEAR, per_month, usd

EXACT_ACTIONS = 10
"""Up to so many actions every order is considered."""
_MOST_TRIED = 1_000
"""Exchanges tried in a longer order."""
_CENT = 0.01

Bill = Callable[[frozenset[int]], float]
"""The monthly bill when a set of actions is done."""


class Clock(NamedTuple):
    """When the team is free, and when it may take up another lever."""

    now_mo: float
    lever_mo: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one team does one action at a time: months and lever per action, what must come first, months between levers."""

    months: Sequence[float]
    levers: Sequence[str | None]
    """None for what takes up no lever: a purchase that waits for nothing."""
    before: Before
    apart_mo: float

    def fresh(self, number: int, done: frozenset[int]) -> bool:
        """Return whether an action takes up a lever."""
        lever = self.levers[number]
        return lever is not None and all(self.levers[other] != lever for other in done)

    def after(self, clock: Clock, number: int, *, fresh: bool) -> Clock:
        """Return the time after an action that is worked on as soon as can be."""
        start = max(clock.now_mo, clock.lever_mo) if fresh else clock.now_mo
        return Clock(start + self.months[number], start + self.apart_mo if fresh else clock.lever_mo)

    def ready(self, done: frozenset[int]) -> Iterator[int]:
        """Yield the actions whose turn it can be: where each waits for another, all that are left."""
        left = [number for number in range(len(self.months)) if number not in done]
        yield from [number for number in left if self.before[number] <= done] or left


class _Way(NamedTuple):
    """One way to have done a set of actions by some time: the cost of the year if nothing followed, and the order."""

    year_usd: float
    order: tuple[int, ...]


def year_of(order: Sequence[int], work: Work, bill: Bill) -> float:
    """Return what a year costs in an order."""
    clock, done, year_usd = Clock(0.0, 0.0), frozenset[int](), _start(bill).year_usd
    for number in order:
        clock = work.after(clock, number, fresh=work.fresh(number, done))
        then = done | {number}
        year_usd += max(0.0, MO_PER_YEAR - clock.now_mo) * (bill(then) - bill(done))
        done = then
    return year_usd


def best_order(first: Sequence[int], work: Work, bill: Bill) -> tuple[int, ...]:
    """Return the order in which the year costs least; `first` where it costs no more than a cent above that.

    Raises ValueError for more actions than every order of which can be considered.
    """
    if len(first) > EXACT_ACTIONS:
        raise ValueError(f"up to {EXACT_ACTIONS} actions can be put in order exactly, got {len(first)}")
    near = better_order(first, lambda order: year_of(order, work, bill), work.before)
    ceiling_usd = year_of(near, work, bill)
    floors = _least_bills(len(first), bill)
    ways = {frozenset[int](): {Clock(0.0, 0.0): _start(bill)}}
    for _ in first:
        longer: dict[frozenset[int], dict[Clock, _Way]] = {}
        for done, by_clock in ways.items():
            for number in sorted(work.ready(done), key=first.index):
                then = done | {number}
                rise_usd_mo, drop_usd_mo = bill(then) - bill(done), bill(then) - floors[then]
                kept = longer.setdefault(then, {})
                fresh = work.fresh(number, done)
                for clock, way in by_clock.items():
                    after = work.after(clock, number, fresh=fresh)
                    left_mo = max(0.0, MO_PER_YEAR - after.now_mo)
                    year_usd = way.year_usd + left_mo * rise_usd_mo
                    if year_usd - left_mo * drop_usd_mo > ceiling_usd:
                        continue
                    if after not in kept or year_usd < kept[after].year_usd:
                        kept[after] = _Way(year_usd, (*way.order, number))
        ways = longer
    found = min(
        (way for by_clock in ways.values() for way in by_clock.values()), key=lambda way: way.year_usd, default=None
    )
    if found is None or found.year_usd >= ceiling_usd - _CENT:
        found = _Way(ceiling_usd, near)
    return found.order if found.year_usd < year_of(first, work, bill) - _CENT else tuple(first)


def _least_bills(actions: int, bill: Bill) -> dict[frozenset[int], float]:
    """Return, per set, the least bill of it and of all that it can grow into."""
    least: dict[frozenset[int], float] = {}
    for size in range(actions, -1, -1):
        for some in combinations(range(actions), size):
            done = frozenset(some)
            grown = [least[done | {number}] for number in range(actions) if number not in done]
            least[done] = min([bill(done), *grown])
    return least


def better_order(first: Sequence[int], year: Callable[[Sequence[int]], float], before: Before) -> tuple[int, ...]:
    """Exchange pairs of an order, neighbours first, as long as a year then costs less."""
    order, least = tuple(first), year(first)
    pairs = [(at, at + apart) for apart in range(1, len(order)) for at in range(len(order) - apart)]
    tried, since = 0, 0
    for at, other in cycle(pairs) if pairs else ():
        if since == len(pairs) or tried == _MOST_TRIED:
            break
        since += 1
        exchanged = _exchanged(order, at, other, before)
        if exchanged is not None:
            tried += 1
            cost = year(exchanged)
            if cost < least - _CENT:
                order, least, since = exchanged, cost, 0
    return order


def _exchanged(order: tuple[int, ...], one: int, other: int, before: Before) -> tuple[int, ...] | None:
    """Return an order with the actions at two places exchanged; None where what must come first then would not."""
    places = [*order]
    places[one], places[other] = places[other], places[one]
    kept = all(not before[places[at]] & set(places[at:]) for at in range(one, other + 1))
    return tuple(places) if kept else None


def _start(bill: Bill) -> _Way:
    return _Way(MO_PER_YEAR * bill(frozenset()), ())


SWAYS = (0.5, 2.0)
"""Factors on a lever's effort under which the order is tried again."""
_ROUNDING_MO = 1e-9


@dataclass(slots=True, kw_only=True, eq=False)
class RoadmapPlanner:
    """Orders the actions of a draft, given what each earns a month, and plays orders through a year."""

    drafted: DraftPlan
    savings_usd_mo: Sequence[float]
    needed_first: dict[int, frozenset[int]]
    settings: Settings
    _groups: tuple[frozenset[int], ...] = field(init=False)
    _today: float = field(init=False)
    _bills: dict[frozenset[int], float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        actions = self.drafted.actions
        groups = components(len(actions), [draft.touches for draft in actions])
        self._groups = tuple(frozenset(group) for group in groups)
        self._today = self._usd_mo(frozenset())

    def slots(self, settings: Settings | None = None) -> tuple[Slot, ...]:
        """Return the plan's order with its months, under other settings where they are given.

        It starts from the order by saving per engineer-week. Of a few actions, done one at a time, it is the order of all in
        which the year costs least; of more, exchanges of pairs that make the year cheaper have been made. Several at once stay
        in the order by saving per engineer-week.
        """
        chosen = settings or self.settings
        first = self._by_worth(chosen)
        order = [slot.number for slot in first]
        if len(order) < 2 or chosen.planning.levers_at_once > 1 or chosen.planning.engineers <= 0:
            return first
        work = self._work(chosen)
        if len(order) <= EXACT_ACTIONS:
            better = best_order(order, work, self._bill)
        else:
            better = better_order(order, lambda some: year_of(some, work, self._bill), work.before)
        return first if better == tuple(order) else self._in_turn(better, chosen)

    def _by_worth(self, settings: Settings) -> tuple[Slot, ...]:
        """Return the order by saving per engineer-week, with its months."""
        actions = self.drafted.actions
        weeks = efforts(actions, settings)
        order = ranked(actions, self.savings_usd_mo, weeks, self.needed_first)
        return self._scheduled(order, weeks, precedence(actions, self.needed_first), settings.planning)

    def _work(self, settings: Settings) -> Work:
        actions, planning = self.drafted.actions, settings.planning
        pace = planning.engineers * planning.weeks_per_quarter / MO_PER_QUARTER
        return Work(
            months=[weeks / pace for weeks in efforts(actions, settings)],
            levers=levers_taken(actions),
            before=precedence(actions, self.needed_first),
            apart_mo=1 / planning.levers_per_mo if planning.levers_per_mo > 0 else 0.0,
        )

    def _bill(self, some: frozenset[int]) -> float:
        """Return the monthly bill when some actions are done: what touches nothing in common adds up.

        The bills of small groups were all worked out for the shares; in larger groups each action's share stands for them.
        """
        if some not in self._bills:
            saved = sum(
                self._today - self._usd_mo(some & group)
                if len(group) <= EXACT_PLAYERS
                else sum(self.savings_usd_mo[number] for number in some & group)
                for group in self._groups
                if some & group
            )
            self._bills[some] = self._today - saved
        return self._bills[some]

    def roadmap(self) -> Roadmap:
        """Return the year ahead."""
        mine = self.slots()
        names = {slot.number: f"a{place + 1}" for place, slot in enumerate(mine)}
        weeks = efforts(self.drafted.actions, self.settings)
        firm = targets_first(self.drafted.actions, self.needed_first)
        other = fixed_order(self.drafted.actions, self.savings_usd_mo, self.needed_first)
        fixed = self._scheduled(other, weeks, firm, self.settings.planning)
        return Roadmap(
            course=self._course(mine, names, weeks),
            fixed=self._course(fixed, names, weeks),
            per_week_loss_usd=self._year_usd(self._by_worth(self.settings)) - self._year_usd(mine),
            best=len(mine) <= EXACT_ACTIONS and self.settings.planning.levers_at_once == 1,
            sways=tuple(self._sways(mine, names)),
        )

    def year_in(self, order: Sequence[int], names: dict[int, str]) -> Schedule:
        """Return the year in an order of all actions, each begun after the one before it; `names` are their ids."""
        slots = self._in_turn(order, self.settings)
        return self._course(slots, names, efforts(self.drafted.actions, self.settings))

    def _scheduled(
        self, order: Sequence[int], weeks: Sequence[float], before: dict[int, frozenset[int]], planning: Planning
    ) -> tuple[Slot, ...]:
        return scheduled(order, levers_taken(self.drafted.actions), weeks, before, planning)

    def _course(self, slots: Sequence[Slot], names: dict[int, str], weeks: Sequence[float]) -> Schedule:
        finished = sorted(slots, key=lambda slot: slot.done_mo)
        done = [frozenset(slot.number for slot in finished[: count + 1]) for count in range(len(finished))]
        bills = {slot.number: self._usd_mo(some) for slot, some in zip(finished, done, strict=True)}
        ends = [(slot.done_mo, bills[slot.number]) for slot in finished]
        today = self._usd_mo(frozenset())
        return Schedule(
            steps=tuple(
                ScheduledAction(
                    action=names[slot.number],
                    start_mo=slot.start_mo,
                    done_mo=slot.done_mo,
                    bill_usd_mo=bills[slot.number],
                    quick_win=self._quick(slot.number, weeks[slot.number]),
                )
                for slot in slots
            ),
            bill_usd_mo=tuple(
                next((bill for end, bill in reversed(ends) if end <= month + _ROUNDING_MO), today)
                for month in range(MO_PER_YEAR + 1)
            ),
            year_usd=_over_a_year(today, ends),
        )

    def _usd_mo(self, some: frozenset[int]) -> float:
        return per_month(usd(self.drafted.cost(some)), self.drafted.fleet.window.hours)

    def _quick(self, number: int, weeks: float) -> bool:
        planning = self.settings.planning
        pays = self.savings_usd_mo[number] >= weeks * planning.engineer_week_usd
        return weeks <= planning.quick_win_weeks and pays and self.drafted.actions[number].risk is Risk.LOW

    def _sways(self, slots: Sequence[Slot], names: dict[int, str]) -> list[EffortSensitivity]:
        found = []
        for lever in sorted({draft.lever for draft in self.drafted.actions}):
            for factor in SWAYS:
                changed = effort_of_lever(lever, self.settings).scaled(factor)
                swayed = replace(self.settings, efforts={**self.settings.efforts, lever: changed})
                theirs = self.slots(swayed)
                kept = self._in_turn([slot.number for slot in slots], swayed)
                found.append(
                    EffortSensitivity(
                        lever=lever,
                        factor=factor,
                        same_frac=_same([slot.number for slot in slots], [slot.number for slot in theirs]),
                        first=names[theirs[0].number],
                        regret_usd=self._year_usd(kept) - self._year_usd(theirs),
                    )
                )
        return found

    def _in_turn(self, order: Sequence[int], settings: Settings) -> tuple[Slot, ...]:
        """Return an order with its months: each action begins after all before it."""
        weeks = efforts(self.drafted.actions, settings)
        chain = {number: frozenset(order[:place]) for place, number in enumerate(order)}
        return self._scheduled(order, weeks, chain, settings.planning)

    def _year_usd(self, slots: Sequence[Slot]) -> float:
        """Return what a year costs in some order."""
        done: frozenset[int] = frozenset()
        ends = []
        for slot in sorted(slots, key=lambda slot: slot.done_mo):
            done |= {slot.number}
            ends.append((slot.done_mo, self._bill(done)))
        return _over_a_year(self._today, ends)


def _over_a_year(today_usd_mo: float, ends: Sequence[tuple[float, float]]) -> float:
    """Return what a year costs whose monthly bill is each end's from that month on."""
    marks = [(0.0, today_usd_mo), *((end, bill) for end, bill in ends if end < MO_PER_YEAR), (float(MO_PER_YEAR), 0.0)]
    return sum((end - start) * bill for (start, bill), (end, _) in pairwise(marks))


def _same(mine: Sequence[int], theirs: Sequence[int]) -> float:
    """Return the share of pairs in the same order.

    >>> _same([1, 2, 3], [2, 1, 3])
    0.6666666666666666
    """
    place = {number: at for at, number in enumerate(theirs)}
    pairs = [place[number] < place[other] for at, number in enumerate(mine) for other in mine[at + 1 :]]
    return sum(pairs) / len(pairs) if pairs else 1.0
