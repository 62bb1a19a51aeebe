"""Replay the ways that the joint choice asks for, and no others.

A way that nobody replayed stands in the program at the least that it could use (`replay.outcomes.least_held`). Such a program
is a relaxation of the one with every way replayed: what it chooses costs no more, and its bound holds for both. While it
chooses such ways they are replayed, and it is solved again. Once it chooses only what was replayed and keeps its targets, that
is a plan, and the bound beside it is one over all ways, replayed or not: nothing is lost by those that were not.

Which ways are replayed before the next solution is a matter of work alone: of each workload whose choice was not replayed the
best first, until one that keeps its targets costs no more than the next could.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from trimtab.fleet.market import Market
from trimtab.fleet.model import FloatArray
from trimtab.plan.options.candidate import Candidate
from trimtab.plan.options.workload_options import WorkloadOptions, fixed_cost
from trimtab.plan.program.solve import ChosenPlan
from trimtab.units import S_PER_HR, usd

Rows = Sequence[WorkloadOptions | None]
AT_ONCE = 2
"""Workloads whose ways are replayed at once: compiled replays let go of the lock."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NeededReplays:
    """Makes the replays that a choice asks for."""

    market: Market
    with_headroom: bool = True
    """Whether the choice is among ways that keep the margin of every target; else among those that may use it up, too."""

    def asked_for(self, rows: Rows, chosen: ChosenPlan) -> tuple[WorkloadOptions | None, ...] | None:
        """Return the options with what a choice among them asks for replayed; None where it asks for nothing."""
        asked = {
            number: chosen.choice[number] - len(self._known(judged))
            for number, judged in enumerate(rows)
            if judged is not None and chosen.choice[number] >= len(self._known(judged))
        }
        if not asked:
            return None

        def found(number: int) -> WorkloadOptions | None:
            judged = rows[number]
            if judged is None or number not in asked:
                return judged
            return self._replayed(judged, asked[number], chosen.reduced_usd[number])

        with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            return tuple(pool.map(found, range(len(rows))))

    def _known(self, judged: WorkloadOptions) -> tuple[Candidate, ...]:
        return judged.candidates if self.with_headroom else judged.without_headroom

    def _replayed(self, judged: WorkloadOptions, first: int, reduced_usd: FloatArray) -> WorkloadOptions:
        """Replay the way that was chosen, by its place among those that wait, and those that might be chosen next."""
        if judged.sieve is None:
            raise ValueError(f"{judged.evaluator.case.workload.name}: its ways cannot be replayed one by one")
        sieve = judged.sieve.copy()
        known = len(self._known(judged)) + 1  # staying as it is comes first
        least_usd, best_usd = reduced_usd[known:], float(reduced_usd[:known].min())
        for place in [first, *(at for at in np.argsort(least_usd, kind="stable").tolist() if at != first)]:
            if place != first and least_usd[place] >= best_usd:
                break
            way = judged.waiting[place]
            kept = sieve.replay(way, with_headroom=self.with_headroom)
            if kept is not None:
                # about what it costs at the same prices: only how much is replayed before the next solution rests on it
                more_usd = self._list_usd(kept) - self._list_usd(way)
                best_usd = min(best_usd, float(least_usd[place]) + more_usd)
        return sieve.judged()

    def _list_usd(self, way: Candidate) -> float:
        """Return what a way costs at list prices, its slots at their share of a node."""
        slots = sum(
            self.market.rate(shared.pool) * int(held.sum()) / shared.slots_per_node
            for shared, held in way.slots.items()
        )
        return usd(fixed_cost(way.usage, self.market) // S_PER_HR) + usd(round(slots))


def explained(rows: Rows) -> tuple[WorkloadOptions | None, ...]:
    """Return the options with why each lever would not be in the plan."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return tuple(pool.map(lambda judged: None if judged is None else judged.explained(), rows))


def with_replays_forgotten(rows: Rows) -> tuple[WorkloadOptions | None, ...]:
    """Return the options, unexplained, with the memory of their replays given back; outcomes stay."""
    for judged in rows:
        if judged is not None:
            judged.evaluator.forget_replays()
    return tuple(rows)
