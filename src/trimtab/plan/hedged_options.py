"""Ways to serve from spot nodes: floors on demand, and scalers with room for what a lost zone takes.

Every place and scaler that keeps the targets on demand is ranked by its cost at spot rates; the cheapest few are replayed on
spot, with each floor and room. The others are not considered: a service that is dearer before any loss gains nothing by losses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from trimtab.catalog.pools import Pool
from trimtab.fleet.effects import Effect, HedgeOnSpot, SetReplicaPolicy
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Lever
from trimtab.levers import spot
from trimtab.plan.evaluate import Evaluator
from trimtab.plan.outcome import placement
from trimtab.policies.forecast import ForecastPolicy

ROOMS = (1.0, 1.25, 1.5)
"""Replicas to have for each that the load needs: with three zones, 1.5 bears the loss of one."""
RANKED = 4
"""Places with their scalers that are replayed on spot."""


def hedged_options(
    evaluator: Evaluator, places: Iterator[Mapping[Lever, Effect]], scalers: Sequence[Effect | None], market: Market
) -> Iterator[dict[Lever, Effect]]:
    """Yield effects that serve from spot, for a service declared interruptible."""
    case = evaluator.case
    by_type: dict[str, list[HedgeOnSpot]] = {}
    for hedge in spot.hedges(case.workload, market, case.settings.assumptions):
        by_type.setdefault(hedge.pool.instance_type, []).append(hedge)
    if not by_type:
        return
    for effects, pool in _cheapest(evaluator, places, scalers, by_type, market):
        scaling = effects.get(Lever.AUTOSCALING)
        for hedge in by_type[pool.instance_type]:
            if isinstance(scaling, SetReplicaPolicy):
                for room in ROOMS:
                    yield {**effects, Lever.SPOT: hedge, Lever.AUTOSCALING: with_room(scaling, room)}
            else:
                yield {**effects, Lever.SPOT: hedge}


def _cheapest(
    evaluator: Evaluator,
    places: Iterator[Mapping[Lever, Effect]],
    scalers: Sequence[Effect | None],
    by_type: Mapping[str, Sequence[HedgeOnSpot]],
    market: Market,
) -> list[tuple[dict[Lever, Effect], Pool]]:
    """Return the places and scalers that keep the targets on demand, the cheapest at spot rates."""
    case = evaluator.case
    found: list[tuple[int, dict[Lever, Effect], Pool]] = []
    for where in places:
        place = placement(case.workload, where)
        if place.shared is not None:
            continue
        if place.pool.instance_type not in by_type or place.nodes_per_run > placement(case.workload, {}).nodes_per_run:
            continue
        rate = market.rate(by_type[place.pool.instance_type][0].pool)
        for scaling in scalers:
            effects = {**where, **({Lever.AUTOSCALING: scaling} if scaling is not None else {})}
            if evaluator.keeps_targets(effects):
                found.append((rate * int(evaluator.outcome(effects).on_demand.sum()), effects, place.pool))
    return [(effects, pool) for _, effects, pool in sorted(found, key=lambda one: one[0])[:RANKED]]


def with_room(effect: SetReplicaPolicy, room: float) -> SetReplicaPolicy:
    """Return the scaler with `room` times the replicas for the same load."""
    hpa = effect.hpa._replace(target_frac=effect.hpa.target_frac / room)
    if isinstance(effect.policy, ForecastPolicy):
        return replace(effect, policy=effect.policy._replace(hpa=hpa))
    return replace(effect, policy=hpa)
