"""Every way to run each workload that fits and keeps its targets, and why the others were dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from trimtab.catalog.pools import Pool, SharedPool
from trimtab.fleet.market import Market
from trimtab.fleet.model import IntArray
from trimtab.fleet.settings import Lever
from trimtab.ledger import NO_DISCOUNTS, Discounts
from trimtab.levers import batching
from trimtab.plan.options.block_options import booked_ways, can_book
from trimtab.plan.options.candidate import Candidate, candidate_of
from trimtab.plan.options.composition import SpotOffers, on_demand
from trimtab.plan.options.coupling import Coupling
from trimtab.plan.options.precision_note import precision_note
from trimtab.plan.options.relocation_note import relocation_note
from trimtab.plan.options.training_note import training_note
from trimtab.plan.outcomes.evaluate import Evaluator
from trimtab.plan.outcomes.outcome import Case, Effects, Placement, placement, targets_at
from trimtab.plan.outcomes.places import places_of
from trimtab.plan.outcomes.time_slices import contended_law
from trimtab.tables.workloads import TargetMetric, WorkloadKind
from trimtab.units import S_PER_HR

_Where = TypeVar("_Where", Pool, SharedPool)

MISSES = "misses a target in replay"
MISSES_ON_DEMAND = "on spot, where it misses a target on demand already"
TRAINS = frozenset({WorkloadKind.TRAINING, WorkloadKind.EXPERIMENT})
"""Kinds of runs that may train a model."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkloadOptions:
    """A workload's candidates that keep its targets; how many were considered; how many were dropped for which reason."""

    evaluator: Evaluator
    candidates: tuple[Candidate, ...]
    considered: int
    dropped: Counter[str]
    missed: Counter[Lever]
    """Candidates that missed a target, by each lever in them: what the report says of levers that found nothing."""
    bold: tuple[Candidate, ...] = ()
    """The candidates of a planner without headroom: all that keep the targets where everything goes as predicted."""
    notes: Mapping[Lever, str] = field(default_factory=dict)
    """Why a lever had nothing to offer, in its own words."""


def options_of(case: Case, market: Market, owned: Discounts = NO_DISCOUNTS) -> WorkloadOptions:
    """Enumerate, replay and filter a workload's candidates; what is `owned` couples the pools that it may cover."""
    evaluator = Evaluator(case=case)
    places = places_of(case, market)
    sieve = _Sieve(evaluator=evaluator, market=market, dropped=places.refused, considered=sum(places.refused.values()))
    spot = SpotOffers.of(case, market)
    for effects in on_demand(evaluator, market, places.fitting):
        offers = spot.for_place(effects)
        books = can_book(case, effects, market)
        if sieve.keeps(effects) if effects else (offers or books) and evaluator.keeps_targets(effects):
            for offer in offers:
                sieve.keeps({**effects, Lever.SPOT: offer})
            for calendar in booked_ways(evaluator, effects, market) if books else ():
                sieve.keeps({**effects, Lever.CAPACITY_BLOCK: calendar})
        else:
            sieve.drop(MISSES_ON_DEMAND, len(offers))
    coupling = Coupling.of(case.settings.limits, market, owned)
    candidates, dominated = undominated(sieve.kept, market, coupling)
    notes = _notes(evaluator, market, sieve.kept, sieve.missed)
    evaluator.forget_replays()
    return WorkloadOptions(
        evaluator=evaluator,
        candidates=candidates,
        considered=sieve.considered,
        dropped=sieve.dropped + dominated,
        missed=sieve.missed,
        bold=undominated([*candidates, *sieve.bold], market, coupling)[0] if sieve.bold else candidates,
        notes=notes,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class _Sieve:
    """Judges sets of effects one after the other, and counts."""

    evaluator: Evaluator
    market: Market
    dropped: Counter[str]
    considered: int
    kept: list[Candidate] = field(default_factory=list)
    bold: list[Candidate] = field(default_factory=list)
    """Those that miss a target's margin only."""
    missed: Counter[Lever] = field(default_factory=Counter)

    def keeps(self, effects: Effects) -> bool:
        """Tell whether some effects keep the targets, and take the candidate that they make."""
        reason = refusal(self.evaluator.case, effects)
        if reason is not None:
            self.drop(reason)
            self.missed.update({Lever.RELOCATION} & effects.keys())
            return False
        keeps = self.evaluator.keeps_targets(effects)
        outcome = self.evaluator.judged(effects)
        if not keeps:
            self.drop(MISSES)
            self.missed.update(effects.keys())
            if any(one.frac < one.target.required_frac for one in outcome.attained):
                return False
        candidate = candidate_of(self.evaluator.case, effects, outcome, self.market)
        if candidate is not None:
            (self.kept if keeps else self.bold).append(candidate)
            self.considered += keeps
        elif keeps:
            self.drop("fills whole nodes alone: nothing to share")
        return keeps

    def drop(self, reason: str, count: int = 1) -> None:
        """Count what is refused."""
        self.considered += count
        self.dropped[reason] += count


def _notes(evaluator: Evaluator, market: Market, kept: list[Candidate], missed: Counter[Lever]) -> dict[Lever, str]:
    """Return why levers that depend on what is known of a workload have nothing to offer, or what they would save."""
    moving = relocation_note(evaluator.case, market, kept, misses=missed[Lever.RELOCATION] > 0)
    notes = _model_notes(evaluator, market, kept)
    return notes if moving is None else {**notes, Lever.RELOCATION: moving}


def _model_notes(evaluator: Evaluator, market: Market, kept: list[Candidate]) -> dict[Lever, str]:
    workload = evaluator.case.workload
    if workload.kind in TRAINS:
        note = training_note(evaluator.case, market)
        return {} if note is None else {Lever.TRAINING_MEMORY: note}
    if workload.kind is not WorkloadKind.SERVING:
        return {}
    profile = batching.profile_of(workload, market.gpu(workload.gpu))
    notes = {Lever.BATCHING: profile} if isinstance(profile, str) else {}
    alone = [(one.effects, one.usage) for one in kept if not one.slots]
    precision = precision_note(evaluator, market, alone)
    return notes if precision is None else {**notes, Lever.QUANTIZATION: precision}


def refusal(case: Case, effects: Effects) -> str | None:
    """Say, before any replay, why these effects cannot keep the targets; None where a replay must decide."""
    workload = case.workload
    place = placement(workload, effects)
    if place.nodes_per_run > placement(workload, {}).nodes_per_run:
        return "would spread a run over more nodes"
    if workload.kind is WorkloadKind.SERVING:
        return None if Lever.BATCHING in effects else _hopeless(case, place)
    required = [target.required_frac for target in case.targets if target.metric is TargetMetric.THROUGHPUT]
    return "slower than the target allows" if required and place.speed.low < max(required) else None


def _hopeless(case: Case, place: Placement) -> str | None:
    """Say that a service would miss a latency target at every load, even the best one."""
    if case.law is None:
        return None
    law, speed = contended_law(case.law, place.shared, low=True), place.speed.low
    if law is case.law and speed >= 1 and not place.rtt_s:
        return None
    for target in targets_at(case.targets, place):
        if (
            target.limit_s is not None
            and law.ok_frac(target.limit_s, speed, target.metric).max() < target.required_frac
        ):
            if place.move is not None:
                return f"misses a latency target from {place.move.place}: each request takes {place.rtt_s:g} s longer"
            return "slower than the latency target allows at any load"
    return None


def undominated(
    candidates: list[Candidate], market: Market, coupling: Coupling
) -> tuple[tuple[Candidate, ...], Counter[str]]:
    """Drop candidates that another beats at every price: a dearer one of fixed cost, or one that uses no less in any hour.

    Nothing is lost: in any plan the better one can take the other's place, at no more cost, within the same limits, and asking
    nothing else of the team.
    """
    dropped: Counter[str] = Counter()
    alone = [one for one in candidates if not one.slots and not any(coupling.couples(pool) for pool in one.usage)]
    others = [one for one in candidates if one not in alone]
    fixed: list[Candidate] = []
    for one in sorted(alone, key=lambda one: (_fixed_cost(one, market), len(one.needs), _effort(one))):
        if any(_asks_no_more(other, one) for other in fixed):
            dropped["dearer, and no commitment can change that"] += 1
        else:
            fixed.append(one)
    kept: list[Candidate] = []
    for one in sorted(others, key=lambda one: (_size(one), one.own_micro_usd, len(one.needs), _effort(one))):
        if any(_beats(other, one, coupling) for other in kept):
            dropped["uses no less in any hour than another"] += 1
        else:
            kept.append(one)
    return (*fixed, *kept), dropped


def _effort(candidate: Candidate) -> float:
    return sum(candidate.effort.values())


def _asks_no_more(one: Candidate, other: Candidate) -> bool:
    """Tell whether one candidate needs no entry and asks for no work that another does not."""
    return one.needs <= other.needs and one.effort.keys() <= other.effort.keys()


def fixed_cost(usage: Mapping[Pool, IntArray], market: Market) -> int:
    """Return what a use costs at its pools' rates, before commitments, in micro-dollars times seconds."""
    return sum(market.rate(pool) * int(seconds.sum()) for pool, seconds in usage.items())


def _fixed_cost(candidate: Candidate, market: Market) -> int:
    return fixed_cost(candidate.usage, market) + candidate.own_micro_usd * S_PER_HR


def _size(candidate: Candidate) -> int:
    """Return a number that is never larger for a candidate that beats another."""
    return sum(int(held.sum()) for held in (*candidate.usage.values(), *candidate.slots.values()))


def _beats(one: Candidate, other: Candidate, coupling: Coupling) -> bool:
    if not _asks_no_more(one, other) or (coupling.limits_spot and (one.slots or other.slots)):
        return False
    if one.own_micro_usd > other.own_micro_usd:
        return False
    if coupling.spot_excess_s(one.usage) > coupling.spot_excess_s(other.usage):
        return False
    return _within(one.usage, other.usage) and _within(one.slots, other.slots)


def _within(one: Mapping[_Where, IntArray], other: Mapping[_Where, IntArray]) -> bool:
    return one.keys() <= other.keys() and all(bool(np.all(one[where] <= other[where])) for where in one)
