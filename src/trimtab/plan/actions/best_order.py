"""The order of actions in which a year costs least: exact for a few actions, exchanges of pairs for more.

    minimise   sum over actions i of the order  (12 - done[i])+ * (bill(i and all before) - bill(all before))
    subject to done[i] = start[i] + months[i],  start[i] = max(done of the one before, month of a lever not taken up yet)
               whatever must come before i does

A set of actions that is done has one bill, whatever the order, but may be done at several times, because levers wait for their
month: dynamic programming over sets (Held and Karp, 1962) and the times at which they can be done, with a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, cycle
from typing import NamedTuple

from trimtab.plan.actions.roadmap import Before
from trimtab.units import MO_PER_YEAR

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
        """Tell whether an action takes up a lever."""
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
