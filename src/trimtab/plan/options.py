"""Every way to run each workload that fits and keeps its targets, and why the others were dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

import numpy as np

from trimtab.catalog.pools import Pool, SharedPool
from trimtab.fleet.effects import Effect, SetCapacityType, SetGpuCount, UseOffering, UseSlots
from trimtab.fleet.market import Market
from trimtab.fleet.model import IntArray
from trimtab.fleet.settings import Lever
from trimtab.levers import autoscaling, batching, deferral, gpu_count, idle_release, right_size, schedule, sharing, spot
from trimtab.plan.batch_options import batched_options
from trimtab.plan.coupling import Coupling
from trimtab.plan.evaluate import Evaluator
from trimtab.plan.hedged_options import hedged_options
from trimtab.plan.outcome import Case, Effects, Outcome, placement
from trimtab.plan.precision_options import precision_note, quantized_options
from trimtab.plan.service_outcome import cold_start_of, demand_of
from trimtab.plan.training_options import training_note, training_options
from trimtab.tables.workloads import TargetMetric, WorkloadKind

_Where = TypeVar("_Where", Pool, SharedPool)

TRAINS = frozenset({WorkloadKind.TRAINING, WorkloadKind.EXPERIMENT})
"""Kinds of runs that may train a model."""
Choices = tuple[Effect | None, ...]
"""The effects of one lever to choose from; None leaves that lever alone."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A consistent set of effects on a workload, what it would use by pool and hold in shared ones, and what it attained."""

    effects: Effects
    usage: Mapping[Pool, IntArray]
    outcome: Outcome
    slots: Mapping[SharedPool, IntArray] = field(default_factory=dict)


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


def options_of(case: Case, market: Market) -> WorkloadOptions:
    """Enumerate, replay and filter a workload's candidates."""
    evaluator = Evaluator(case=case)
    menu, refused = _menu(case, market)
    kept, missed = [], Counter[Lever]()
    bold: list[Candidate] = []
    considered = sum(refused.values())
    batched = batched_options(evaluator, _places(menu), market)
    scaled = menu.get(Lever.AUTOSCALING, (None,))
    may_hedge = case.settings.limits.use_spot
    hedged = hedged_options(evaluator, _places(menu), scaled, market) if may_hedge else ()
    quantized = quantized_options(case, market, list(_ways(menu)))
    trained = training_options(case, market, menu[Lever.SPOT], list(_ways(menu)))
    for effects in chain(_combinations(menu, case.workload.pool), batched, hedged, quantized, trained):
        considered += 1
        reason = refusal(case, effects)
        if reason is not None:
            refused[reason] += 1
            continue
        if not evaluator.keeps_targets(effects):
            refused["misses a target in replay"] += 1
            missed.update(effects.keys())
            bold += _bold(evaluator, effects)
            continue
        outcome, place = evaluator.outcome(effects), placement(case.workload, effects)
        if place.shared is not None and not place.slots(outcome):
            refused["fills whole nodes alone: nothing to share"] += 1
            continue
        kept.append(Candidate(effects=effects, usage=place.usage(outcome), slots=place.slots(outcome), outcome=outcome))
    coupling = Coupling.of(case.settings.limits, market)
    candidates, dominated = _undominated(kept, market, coupling)
    refused.update(dominated)
    notes = _notes(evaluator, market, kept)
    evaluator.forget_replays()
    return WorkloadOptions(
        evaluator=evaluator,
        candidates=candidates,
        considered=considered,
        dropped=refused,
        missed=missed,
        bold=_undominated([*candidates, *bold], market, coupling)[0] if bold else candidates,
        notes=notes,
    )


def _bold(evaluator: Evaluator, effects: Effects) -> list[Candidate]:
    """Return the candidate that misses a target's margin only, where these effects make one."""
    outcome, place = evaluator.judged(effects), placement(evaluator.case.workload, effects)
    slots = place.slots(outcome)
    if any(one.frac < one.target.required_frac for one in outcome.attained) or (place.shared is not None and not slots):
        return []
    return [Candidate(effects=effects, usage=place.usage(outcome), slots=slots, outcome=outcome)]


def _notes(evaluator: Evaluator, market: Market, kept: list[Candidate]) -> dict[Lever, str]:
    """Return why levers that depend on what is known of a workload's model have nothing to offer, or what they would save."""
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


def _menu(case: Case, market: Market) -> tuple[dict[Lever, Choices], Counter[str]]:
    workload, settings = case.workload, case.settings
    sizing = right_size.propose(workload, market, settings.assumptions)
    shares = sharing.propose(workload, market, settings.assumptions)
    menu: dict[Lever, tuple[Effect, ...]] = {
        Lever.RIGHT_SIZE: sizing.fitting,
        Lever.SHARING: shares.fitting,
        Lever.GPU_COUNT: gpu_count.propose(workload, market),
        Lever.SPOT: spot.propose(workload, market, settings.assumptions) if settings.limits.use_spot else (),
        Lever.IDLE_RELEASE: idle_release.propose(workload, settings.assumptions),
        Lever.SCHEDULE: (
            *schedule.propose(workload, case.window, settings.bands, settings.assumptions, _throughput_required(case)),
            *deferral.propose(workload, settings.assumptions),
        ),
    }
    if workload.kind is WorkloadKind.SERVING:
        menu[Lever.AUTOSCALING] = autoscaling.propose(workload, demand_of(case), cold_start_of(case))
    return {lever: (None, *effects) for lever, effects in menu.items()}, sizing.refused + shares.refused


def _throughput_required(case: Case) -> float:
    """Return the share of activity that a timetable must hold, with the plan's margin."""
    required = [target.required_frac for target in case.targets if target.metric is TargetMetric.THROUGHPUT]
    margin = case.settings.planning.target_margin_frac
    return 1 - (1 - max(required, default=0.0)) * (1 - margin)


def _combinations(menu: Mapping[Lever, Choices], home: Pool) -> Iterator[dict[Lever, Effect]]:
    """Yield consistent sets of effects, the empty one excepted."""
    spot_of = {
        effect.pool.instance_type: effect for effect in menu.get(Lever.SPOT, ()) if isinstance(effect, SetCapacityType)
    }
    for where in _places(menu):
        for how in _ways(menu):
            effects = {**where, **how}
            if effects:
                yield effects
            if spot_of and Lever.SHARING not in where:
                offer = spot_of.get(_pool(where, home).instance_type)
                if offer is not None:
                    yield {**effects, Lever.SPOT: offer}


def _places(menu: Mapping[Lever, Choices]) -> Iterator[dict[Lever, Effect]]:
    """Yield count and offering: a smaller count with any offering, its own node size standing for the same GPU."""
    counts = [effect for effect in menu[Lever.GPU_COUNT] if isinstance(effect, SetGpuCount)]
    sizes = [effect for effect in menu[Lever.RIGHT_SIZE] if isinstance(effect, UseOffering)]
    yield {}
    for size in sizes:
        yield {Lever.RIGHT_SIZE: size}
    for slots in menu[Lever.SHARING]:
        if slots is not None:
            yield {Lever.SHARING: slots}
    for count in counts:
        yield {Lever.GPU_COUNT: count}
    for size in sizes:
        if counts and size.pool not in {count.pool for count in counts}:
            yield {Lever.GPU_COUNT: counts[0], Lever.RIGHT_SIZE: size}


def _ways(menu: Mapping[Lever, Choices]) -> Iterator[dict[Lever, Effect]]:
    """Yield how nodes are held: as they are, scaled, released, or by schedule; one of them."""
    yield {}
    for lever in (Lever.AUTOSCALING, Lever.IDLE_RELEASE, Lever.SCHEDULE):
        for effect in menu.get(lever, ()):
            if effect is not None:
                yield {lever: effect}


def _pool(where: Mapping[Lever, Effect], home: Pool) -> Pool:
    for lever in (Lever.RIGHT_SIZE, Lever.SHARING, Lever.GPU_COUNT):
        effect = where.get(lever)
        if isinstance(effect, UseOffering | UseSlots | SetGpuCount):
            return effect.pool
    return home


def refusal(case: Case, effects: Effects) -> str | None:
    """Say, before any replay, why these effects cannot keep the targets; None where a replay must decide."""
    workload = case.workload
    place = placement(workload, effects)
    if place.nodes_per_run > placement(workload, {}).nodes_per_run:
        return "would spread a run over more nodes"
    if workload.kind is WorkloadKind.SERVING:
        return None if Lever.BATCHING in effects else _hopeless(case, place.speed.low)
    required = [target.required_frac for target in case.targets if target.metric is TargetMetric.THROUGHPUT]
    return "slower than the target allows" if required and place.speed.low < max(required) else None


def _hopeless(case: Case, speed: float) -> str | None:
    """Say that a service would miss a latency target at every load, even the best one."""
    if case.law is None or speed >= 1:
        return None
    for target in case.targets:
        if target.limit_s is not None and case.law.ok_frac(target.limit_s, speed).max() < target.required_frac:
            return "slower than the latency target allows at any load"
    return None


def _undominated(
    candidates: list[Candidate], market: Market, coupling: Coupling
) -> tuple[tuple[Candidate, ...], Counter[str]]:
    """Drop candidates that another beats at every price: a dearer one of fixed cost, or one that uses no less in any hour.

    Nothing is lost: in any plan the better one can take the other's place, at no more cost and within the same limits.
    """
    dropped: Counter[str] = Counter()
    fixed = [one for one in candidates if not one.slots and not any(coupling.couples(pool) for pool in one.usage)]
    others = [one for one in candidates if one not in fixed]
    if fixed:
        cheapest = min(fixed, key=lambda one: fixed_cost(one.usage, market))
        dropped["dearer, and no commitment can change that"] += len(fixed) - 1
        fixed = [cheapest]
    kept: list[Candidate] = []
    for one in sorted(others, key=_size):
        if any(_beats(other, one, coupling) for other in kept):
            dropped["uses no less in any hour than another"] += 1
        else:
            kept.append(one)
    return (*fixed, *kept), dropped


def fixed_cost(usage: Mapping[Pool, IntArray], market: Market) -> int:
    """Return what a use costs at its pools' rates, before commitments, in micro-dollars times seconds."""
    return sum(market.rate(pool) * int(seconds.sum()) for pool, seconds in usage.items())


def _size(candidate: Candidate) -> int:
    """Return a number that is never larger for a candidate that beats another."""
    return sum(int(held.sum()) for held in (*candidate.usage.values(), *candidate.slots.values()))


def _beats(one: Candidate, other: Candidate, coupling: Coupling) -> bool:
    if coupling.limits_spot and (one.slots or other.slots):
        return False
    if coupling.spot_excess_s(one.usage) > coupling.spot_excess_s(other.usage):
        return False
    return _within(one.usage, other.usage) and _within(one.slots, other.slots)


def _within(one: Mapping[_Where, IntArray], other: Mapping[_Where, IntArray]) -> bool:
    return one.keys() <= other.keys() and all(bool(np.all(one[where] <= other[where])) for where in one)
