"""The ways of running a workload that a missing permission would admit, and how the one to take is found among alike ones.

Only a few ways are tried, those near the plan's own, so that what is found is possible and may not be the most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.levers import autoscaling, closed_hours, quantization, replica_count, scale_to_zero, sharing
from trimtab.levers.lever import LeverRequest
from trimtab.plan.options.composition import bought, on_demand
from trimtab.policies.keda import KedaPolicy
from trimtab.policies.scaling import HpaPolicy
from trimtab.replay.outcomes.service_model import demand_of

_PLACES = 2
"""Places with a format that are tried, the cheapest for a replica."""
_SLOTS = 6
"""Shares of nodes that are tried, the cheapest ones."""

Worth = Callable[[Deployment], bool]
"""Return whether a way might still be of use: where none of those left is, a search ends."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """Alike ways, of which one is taken if it keeps the targets, with the ways to buy its nodes."""

    lower_bounds: Sequence[Deployment]
    """Ways of which one uses no more in any hour than whatever is found; none where no such way is known."""
    find: Callable[[Worth], Iterator[Deployment]]
    """Looks for it, by replays."""


Ways = Callable[[LeverRequest], Iterator[Search]]
"""What a permission admits, given the workload as if it were declared."""


def bought_ways(ask: LeverRequest) -> Iterator[Search]:
    """Yield what can be bought in place of every way that keeps the targets, wherever it runs."""

    def find(_: Worth) -> Iterator[Deployment]:
        for way in on_demand(ask):
            if ask.evaluator.hopeless(way) is None:
                kept = way if ask.evaluator.keeps_targets(way) else replica_count.instead(way, ask)
                if kept is not None:
                    yield from bought(kept, ask)

    yield Search(lower_bounds=(), find=find)


def spot_ways(ask: LeverRequest, planned: Deployment) -> Iterator[Search]:
    """Yield the plan's own way, and that of today, on spot."""

    def find(_: Worth) -> Iterator[Deployment]:
        for base in dict.fromkeys((planned.without("buying"), AS_IT_IS)):
            if ask.evaluator.keeps_targets(base):
                yield from bought(base, ask)

    yield Search(lower_bounds=(), find=find)


def held_ways(ask: LeverRequest, planned: Deployment, near: Sequence[Deployment]) -> Iterator[Search]:
    """Yield ways of holding replicas at the plan's place and at the cheapest other ones."""
    now = _place_of(planned)
    place = ask.evaluator.place(now)
    one_node = place.shared is None and place.pods_per_node >= demand_of(ask.case).most_replicas
    for base in dict.fromkeys((now, *_cheapest(near, ask)[:_PLACES])):
        if base != now or not one_node:
            yield from _at(base, ask, planned)


def sleeping_ways(ask: LeverRequest, planned: Deployment, near: Sequence[Deployment]) -> Iterator[Search]:
    """Yield, at the plan's place and the cheapest others, by cooldown and window the rule that runs replicas hottest."""
    for base in dict.fromkeys((_place_of(planned), *_cheapest(near, ask)[:_PLACES])):
        if ask.evaluator.hopeless(base) is not None:
            continue
        alike: dict[tuple[int, int], list[Deployment]] = {}
        for way in scale_to_zero.LEVER.ways(base, ask):
            if isinstance(way.scaling, SetReplicaPolicy) and isinstance(way.scaling.policy, KedaPolicy):
                policy = way.scaling.policy
                alike.setdefault((policy.cooldown_s, policy.hpa.window_s), []).append(way)
        for ways in alike.values():
            yield _hottest(ways, ask)


def quantized_ways(ask: LeverRequest, planned: Deployment) -> Iterator[Search]:
    """Yield ways of holding replicas on the places that are cheapest for what a replica then serves."""
    formats = quantization.formats_of(ask.workload)
    if isinstance(formats, str):
        return
    found = [where for stored in formats.accepted for where in quantization.places(ask, formats, stored, near=True)]
    for where in _cheapest(found, ask)[:_PLACES]:
        yield from _at(where, ask, planned)


def closed_ways(ask: LeverRequest, planned: Deployment) -> Iterator[Search]:
    """Yield closing outside the declared hours, at the plan's place and at that of today."""

    def find(_: Worth) -> Iterator[Deployment]:
        for base in dict.fromkeys((_place_of(planned), AS_IT_IS)):
            yield from closed_hours.LEVER.ways(base, ask)

    yield Search(lower_bounds=(), find=find)


def shared_ways(ask: LeverRequest, planned: Deployment) -> Iterator[Search]:
    """Yield the cheapest shares of a node for a replica, those of nodes like its own first: others who share are there.

    As replicas are held today and by the hottest rule.
    """
    slots = {way: way.sharing for way in sharing.LEVER.ways(AS_IT_IS, ask) if way.sharing is not None}

    def dear(way: Deployment) -> tuple[bool, float]:
        share = slots[way].slots / slots[way].shared.slots_per_node
        return slots[way].pool != ask.workload.pool, ask.market.rate(slots[way].pool) * share

    for where in sorted(slots, key=dear)[:_SLOTS]:
        yield from _at(where, ask, planned)


def _at(base: Deployment, ask: LeverRequest, planned: Deployment) -> Iterator[Search]:
    """Yield, at a place, the constant number and the rule that run replicas hottest, on demand and not."""
    if ask.evaluator.hopeless(base) is not None:
        return
    yield _and_bought(Search(lower_bounds=(base,), find=lambda _: iter((base,))), ask)
    yield _and_bought(_fewest(base, ask), ask)
    for forecasts in {False, isinstance(planned.scaling, SetReplicaPolicy) and not _is_hpa(planned)}:
        alike = [way for way in autoscaling.LEVER.ways(base, ask) if _is_hpa(way) is not forecasts]
        yield _and_bought(_hottest(alike, ask), ask)


def _fewest(base: Deployment, ask: LeverRequest) -> Search:
    """Return a search for the fewest replicas, the same at all times, that keep the targets at a place."""
    likely = replica_count.fewest_likely(base, ask)

    def find(worth: Worth) -> Iterator[Deployment]:
        found = replica_count.fewest(base, ask) if likely is None or worth(likely) else None
        if found is not None:
            yield found

    return Search(lower_bounds=() if likely is None else (likely,), find=find)


def _hottest(ways: Sequence[Deployment], ask: LeverRequest) -> Search:
    """Return a search for the first way that keeps the targets, the hottest first: those after it are taken to keep them too.

    Of rules that differ in their heat alone the hottest holds the fewest replicas.
    """
    ordered = sorted(ways, key=_heat)
    least: dict[object, Deployment] = {}
    for way in ordered:
        least.setdefault(_but_for_heat(way), way)

    def find(worth: Worth) -> Iterator[Deployment]:
        low, high = 0, len(ordered)
        while low < high:
            # the first that keeps them is one of these, or there is none
            if not any(worth(way) for way in ordered[low : high + 1]):
                return
            middle = (low + high) // 2
            if ask.evaluator.keeps_targets(ordered[middle]):
                high = middle
            else:
                low = middle + 1
        yield from ordered[low : low + 1]

    return Search(lower_bounds=tuple(least.values()), find=find)


def _and_bought(search: Search, ask: LeverRequest) -> Search:
    """Return a search with the other ways to buy the nodes of what it finds: of these no least use is known."""

    def find(worth: Worth) -> Iterator[Deployment]:
        for way in search.find(worth):
            yield way
            yield from bought(way, ask)

    sold_otherwise = any(True for way in search.lower_bounds[:1] for _ in bought(way, ask))
    return Search(lower_bounds=() if sold_otherwise else search.lower_bounds, find=find)


def _place_of(planned: Deployment) -> Deployment:
    return planned.only("offering", "relocation", "sharing", "precision")


def _cheapest(found: Sequence[Deployment], ask: LeverRequest) -> list[Deployment]:
    """Return places on nodes of their own that may keep the targets, by what a replica costs for what it serves."""

    def served_usd(where: Deployment) -> float:
        place = ask.evaluator.place(where)
        return ask.market.rate(place.pool) * place.nodes_per_pod / place.pods_per_node / place.speed.value

    fitting = [way for way in found if way.sharing is None and ask.evaluator.hopeless(way) is None]
    return sorted(fitting, key=served_usd)


def _but_for_heat(way: Deployment) -> object:
    """Return what tells a rule from those of another heat."""
    scaling = way.scaling
    if not isinstance(scaling, SetReplicaPolicy):
        return None
    hpa, policy = scaling.hpa._replace(target_frac=1.0), scaling.policy
    return hpa if isinstance(policy, HpaPolicy) else policy._replace(hpa=hpa)


def _is_hpa(way: Deployment) -> bool:
    return isinstance(way.scaling, SetReplicaPolicy) and isinstance(way.scaling.policy, HpaPolicy)


def _heat(way: Deployment) -> float:
    return -way.scaling.hpa.target_frac if isinstance(way.scaling, SetReplicaPolicy) else 0.0
