"""Replay the ways that the joint choice asks for, and no others.

A way that was not replayed is in the program with a lower bound of its use (`service_replays`). Such a program
is a relaxation of the one with every way replayed: what it chooses costs no more, and its bound holds for both. While it
chooses such ways they are replayed, and it is solved again. Once it chooses only what was replayed and keeps its targets, that
is a plan, and the bound beside it is one over all ways, replayed or not: nothing is lost by those that were not.

Which ways are replayed before the next solution is a matter of work alone: of each workload whose choice was not replayed the
best first, until one that keeps its targets costs no more than the next could.

Under quotas a plan of what is known may keep the limits while the bound stays below it: then all that a better plan could hold
is replayed (`NeededReplays.within_reach`).

The ways of one workload are judged without those of another, so that `Workers` elsewhere can do it (`judged_by`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.fleet.market import Market
from trimtab.ledger import Commitment
from trimtab.ledger.arrays import FloatArray
from trimtab.levers.autoscaling import other_windows
from trimtab.levers.lever import LeverRequest
from trimtab.plan.options.composition import Candidate
from trimtab.plan.options.unneeded import UnneededPlaces
from trimtab.plan.options.workload_options import (
    Judge,
    JudgedWorkload,
    OptionFilter,
    WorkloadOptions,
    fixed_cost,
    options_of,
)
from trimtab.plan.problem import KEEP
from trimtab.plan.program.solve import ChosenPlan, WantedWays
from trimtab.replay.compiled import side_by_side
from trimtab.replay.outcomes.outcome import Case, Outcome
from trimtab.units import S_PER_HR, usd

_Work = TypeVar("_Work")
_Answer = TypeVar("_Answer")
Rows = Sequence[WorkloadOptions | None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NeededReplays:
    """Makes the replays that a choice asks for."""

    market: Market
    with_headroom: bool = True
    """Whether the choice is among ways that keep the margin of every target; else among those that may use it up, too."""

    def asked_for(self, rows: Rows, chosen: WantedWays) -> tuple[WorkloadOptions | None, ...] | None:
        """Return the options with what a choice among them asks for replayed; None where it asks for nothing."""
        known = {number: judged for number, judged in enumerate(rows) if judged is not None}
        asked = {
            number: chosen.choice[number] - len(self._known(judged))
            for number, judged in known.items()
            if chosen.choice[number] >= len(self._known(judged))
        }
        if not asked:
            return None

        def found(number: int) -> WorkloadOptions:
            return self._replayed(known[number], asked[number], chosen.reduced_usd[number])

        replayed = dict(zip(asked, side_by_side(found, asked), strict=True))
        return tuple(replayed.get(number, judged) for number, judged in enumerate(rows))

    def within_reach(self, rows: Rows, chosen: ChosenPlan) -> tuple[WorkloadOptions | None, ...] | None:
        """Return the options with every way replayed that a better plan might hold; None where there is none.

        Under quotas a plan of what is known may keep the limits where none was found that does with ways that wait.
        """
        found = list(rows)
        for number, judged in enumerate(rows):
            if judged is None or not chosen.room_usd:
                continue
            known, waiting = len(self._known(judged)) + 1, self._waiting(judged)
            least_usd = chosen.reduced_usd[number][known:]
            near = np.flatnonzero(least_usd <= chosen.room_usd)
            if judged.sieve is not None and len(near):
                sieve = judged.sieve.copy()
                for place in near.tolist():
                    self._replay_queue(sieve, waiting[place], chosen.room_usd - float(least_usd[place]))
                found[number] = sieve.judged()
        changed = any(before is not after for before, after in zip(rows, found, strict=True))
        return tuple(found) if changed else None

    def _replay_queue(self, sieve: Judge, way: Candidate | None, room_usd: float) -> None:
        """Replay a way and those behind it that cost about so much more at most."""
        while way is not None and room_usd >= 0:
            following = sieve.replay(way, with_headroom=self.with_headroom).following
            if following is not None:
                room_usd -= self._dearer_usd(following, way)
            way = following

    def rows(self, rows: Rows) -> tuple[WorkloadOptions | None, ...]:
        """Return the options as this choice is made among them: what is known, and what waits."""
        if self.with_headroom:
            return tuple(rows)
        return tuple(
            None if judged is None else replace(judged, candidates=self._known(judged), waiting=self._waiting(judged))
            for judged in rows
        )

    def known(self, rows: Rows) -> tuple[WorkloadOptions | None, ...]:
        """Return the options that this choice is made among without those that wait."""
        return tuple(
            None if judged is None else replace(judged, candidates=self._known(judged), waiting=()) for judged in rows
        )

    def some_wait(self, rows: Rows) -> bool:
        """Return whether any way waits that this choice is made among."""
        return any(judged is not None and self._waiting(judged) for judged in rows)

    def _known(self, judged: WorkloadOptions) -> tuple[Candidate, ...]:
        return judged.candidates if self.with_headroom else judged.without_headroom

    def _waiting(self, judged: WorkloadOptions) -> tuple[Candidate, ...]:
        return judged.waiting if self.with_headroom else (*judged.waiting, *judged.refused)

    def _replayed(self, judged: WorkloadOptions, first: int, reduced_usd: FloatArray) -> WorkloadOptions:
        """Replay the way that was chosen, by its place among those that wait, and those that might be chosen next."""
        if judged.sieve is None:
            raise ValueError(f"{judged.evaluator.case.workload.name}: its ways cannot be replayed one by one")
        sieve, ways = judged.sieve.copy(), [*self._waiting(judged)]
        known = len(self._known(judged)) + 1  # staying as it is comes first
        least_usd, best_usd = reduced_usd[known:].tolist(), float(reduced_usd[:known].min())
        # the one that was chosen, whatever it costs; then the cheapest
        asked = [(-math.inf if at == first else cost_usd, at) for at, cost_usd in enumerate(least_usd)]
        heapq.heapify(asked)
        while asked:
            wanted_usd, place = heapq.heappop(asked)
            if wanted_usd >= best_usd:
                break
            kept, following = sieve.replay(ways[place], with_headroom=self.with_headroom)
            if kept is not None:
                best_usd = min(best_usd, least_usd[place] + self._dearer_usd(kept, ways[place]))
            if following is not None:
                least_usd.append(least_usd[place] + self._dearer_usd(following, ways[place]))
                heapq.heappush(asked, (least_usd[-1], len(ways)))
                ways.append(following)
        return sieve.judged()

    def _dearer_usd(self, way: Candidate, other: Candidate) -> float:
        """Return about how much more one way costs than another at the prices of the bound.

        Only how much is replayed before the next solution rests on it.
        """
        return list_usd(way, self.market) - list_usd(other, self.market)


WINDOW_GAIN_FRAC = 0.02
"""How much less a rule with another window must use: less is within what a bill from the emitted files may be off by."""


SLACK_LEFT_FRAC = 0.5
"""How much of what a rule attains beyond each target must be left under another window: a short one saves little, and what it
saves comes off the margin that unseen history needs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OtherWindows:
    """Tries other windows of scaling down on the autoscalers that were chosen: few replays, since the load is settled then."""

    market: Market
    tried: set[tuple[int, Deployment]] = field(default_factory=set)
    """By workload; grows as choices are asked about."""

    def asked_for(self, rows: Rows, chosen: WantedWays) -> tuple[WorkloadOptions | None, ...] | None:
        """Return the options with the windows that save enough and keep the targets; None where nothing is new.

        What they are compared with stays among the options: the proof may yet refuse them.
        """
        found = list(rows)
        for number, judged in enumerate(rows):
            if judged is None or not isinstance(judged.sieve, OptionFilter) or chosen.choice[number] == KEEP:
                continue
            candidate = judged.candidates[chosen.choice[number]]
            key = (number, candidate.deployment)
            if key not in self.tried:
                self.tried.add(key)
                found[number] = self._with_windows(judged, judged.sieve.copy(), candidate)
        changed = any(before is not after for before, after in zip(rows, found, strict=True))
        return tuple(found) if changed else None

    def _with_windows(self, judged: WorkloadOptions, sieve: OptionFilter, chosen: Candidate) -> WorkloadOptions:
        considered, most_usd = sieve.considered, (1 - WINDOW_GAIN_FRAC) * list_usd(chosen, self.market)

        def is_worth(found: Candidate) -> bool:
            return list_usd(found, self.market) <= most_usd and _leaves_slack(found.outcome, chosen.outcome)

        rule = chosen.deployment.scaling
        for other in other_windows(rule) if isinstance(rule, SetReplicaPolicy) else ():
            changes = ((lever, other if effect == rule else effect) for lever, effect in chosen.deployment.changes)
            sieve.tries(Deployment.of(*changes), is_worth)
        return sieve.judged() if sieve.considered > considered else judged


def _leaves_slack(found: Outcome, usual: Outcome) -> bool:
    """Return whether an outcome attains every target with enough of the slack that another has."""
    before = {attained.target: attained for attained in usual.attained}
    return all(
        now - attained.target.required_frac >= SLACK_LEFT_FRAC * max(0.0, then - attained.target.required_frac)
        for attained in found.attained
        for now, then in (
            (attained.frac, before[attained.target].frac),
            (attained.safe_frac, before[attained.target].safe_frac),
        )
    )


def list_usd(way: Candidate, market: Market) -> float:
    """Return what a way costs at list prices, its slots at their share of a node."""
    slots = sum(
        market.rate(shared.pool) * int(held.sum()) / shared.slots_per_node for shared, held in way.slots.items()
    )
    return usd(fixed_cost(way.usage, market) // S_PER_HR) + usd(round(slots))


def explained(rows: Rows) -> tuple[WorkloadOptions | None, ...]:
    """Return the options with why each lever would not be in the plan."""
    return tuple(None if judged is None else judged.explained() for judged in rows)


def with_replays_forgotten(rows: Rows) -> tuple[WorkloadOptions | None, ...]:
    """Return the options, unexplained, with the memory of their replays given back; outcomes stay."""
    for judged in rows:
        if judged is not None:
            judged.evaluator.forget_replays()
    return tuple(rows)


class Workers(Protocol):
    """Other processes that do what this one could, on this machine or on others."""

    def answers(self, job: Callable[[_Work], _Answer], work: Sequence[_Work]) -> Iterator[_Answer]:
        """Yield what a function of a module says of each piece of work, in order; both are pickled.

        A piece whose worker is lost is done again by another.
        """
        ...


_AT_A_TIME = 4
"""Workloads that a worker is sent at once: what the market offers goes with them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Batch:
    """Workloads whose options are judged together, with all that it takes."""

    cases: Sequence[Case]
    largest: Sequence[bool]
    market: Market
    owned: tuple[Commitment, ...]
    unneeded: UnneededPlaces


def judged_by(
    workers: Workers,
    asks: Sequence[LeverRequest],
    market: Market,
    owned: tuple[Commitment, ...],
    unneeded: UnneededPlaces,
) -> Iterator[WorkloadOptions]:
    """Yield the options of workloads as workers judge them, in order; what they replayed is known here from then on.

    Ways whose least use is known wait for their replays, which are made here. What is kept of earlier runs is not sent.
    """
    batches = [
        _Batch(
            cases=[replace(ask.case, store=None) for ask in asks[first : first + _AT_A_TIME]],
            largest=[ask.among_largest for ask in asks[first : first + _AT_A_TIME]],
            market=market,
            owned=owned,
            unneeded=unneeded,
        )
        for first in range(0, len(asks), _AT_A_TIME)
    ]
    judged = (workload for answer in workers.answers(_judged, batches) for workload in answer)
    for ask, workload in zip(asks, judged, strict=True):
        yield workload.options(ask, owned)


def _judged(batch: _Batch) -> list[JudgedWorkload]:
    """Judge a batch of workloads: what a worker does."""
    return [
        JudgedWorkload.of(
            options_of(case, batch.market, batch.owned, among_largest=largest, unneeded=batch.unneeded, as_needed=True)
        )
        for case, largest in zip(batch.cases, batch.largest, strict=True)
    ]
