"""Serving in batches as options: on each place the way to batch that serves most within the targets, and the fewest replicas.

A batch policy is chosen by the requests a second that one replica serves within every latency target, as its replayed batches
show; the number of replicas by replay of the service. Where more than the fewest allowed are needed, autoscalers are offered
on top.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from trimtab.fleet.effects import BatchForm, Effect, SetBatchPolicy
from trimtab.fleet.market import Market
from trimtab.fleet.served_model import need_on, served_model
from trimtab.fleet.settings import Lever
from trimtab.levers import autoscaling, batching
from trimtab.levers.batching import BatchProfile
from trimtab.plan.outcomes.batch_place import batching_law
from trimtab.plan.outcomes.evaluate import Evaluator
from trimtab.plan.outcomes.outcome import Case, Placement, placement, targets_at
from trimtab.plan.outcomes.places import board_of, stored_as
from trimtab.plan.outcomes.service_outcome import JUDGED, cold_start_of, demand_of, floor_replicas
from trimtab.policies.scaling import HpaPolicy
from trimtab.provenance import Basis

_BETTER_FRAC = 0.01
"""A larger batch or a window must serve this much more to be chosen over a simpler policy."""
_SCALERS_STEP = 2
"""Every second target load is offered: a batched replica's law is smooth in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A batch policy and the requests a second that one replica serves within every latency target."""

    policy: SetBatchPolicy
    req_s: float


def rated_policies(case: Case, place: Placement, profile: BatchProfile) -> tuple[Rated, ...]:
    """Return the ways to batch on a place, best first; those that keep no target at any load are left out."""
    targets = targets_at(case.targets, place)
    limits = [target.limit_s for target in targets if target.metric in JUDGED and target.limit_s is not None]
    before = autoscaling.observed_replicas(demand_of(case))
    policies = batching.propose(
        profile, before=before, limit_s=min(limits, default=None), model=case.workload.spec.model
    )
    rated = [Rated(policy=policy, req_s=served_within_targets(case, place, policy)) for policy in policies]
    worth = sorted((one for one in rated if one.req_s > 0), key=_rank)
    return tuple(worth)


def _rank(one: Rated) -> tuple[float, bool, int]:
    return (-one.req_s, one.policy.form is not BatchForm.GREEDY, one.policy.max_batch)


def best_policies(rated: tuple[Rated, ...]) -> tuple[SetBatchPolicy, ...]:
    """Return the policy that serves most, and the simplest that serves nearly as much: greedy, and the smallest batches."""
    if not rated:
        return ()
    good = [one for one in rated if one.req_s >= rated[0].req_s * (1 - _BETTER_FRAC)]
    simplest = min(good, key=lambda one: _rank(one)[1:])
    return tuple(dict.fromkeys((rated[0].policy, simplest.policy)))


def served_within_targets(case: Case, place: Placement, policy: SetBatchPolicy) -> float:
    """Return the most requests a second at which one replica keeps every latency target, at the low end of its speed."""
    if case.law is None:
        return 0.0
    law = batching_law(policy, place, case.law, low=True)
    load = 1.0
    for target in targets_at(case.targets, place):
        if target.metric in JUDGED and target.limit_s is not None:
            kept = law.grid()[law.ok_frac(target.limit_s, metric=target.metric) >= target.required_frac]
            load = min(load, float(kept.max(initial=0.0)))
    return load * law.capacity_req_s


def fitting_profile(
    case: Case, where: Mapping[Lever, Effect], profile: BatchProfile, market: Market
) -> BatchProfile | None:
    """Return the profile cut to the batches that fit the place's memory; None where not even two requests are known to.

    The GPU on which the profile was measured held all of it. On one with less memory, and where it was predicted, each
    request's need must be known; weights stored in fewer bits leave more room.
    """
    workload = case.workload
    home, there = market.gpu(workload.gpu), board_of(workload, where, market)
    if home is None or there is None:
        return None
    if there.memory_gib >= home.memory_gib and profile.basis is Basis.CALIBRATED:
        return profile
    need_gib = need_on(workload, served_model(workload), there, stored_as(where))
    if profile.item_gib is None or need_gib is None:
        return None
    room_gib = there.memory_gib * (1 - case.settings.assumptions.memory_headroom_frac) - need_gib
    count = sum((size - 1) * profile.item_gib <= room_gib for size in profile.sizes)
    return None if count < 2 else replace(profile, sizes=profile.sizes[:count], seconds=profile.seconds[:count])


def batches_fit(case: Case, effects: Mapping[Lever, Effect], market: Market) -> bool:
    """Tell whether the largest batch of some effects fits the memory of the place that they name; True without batches."""
    policy = effects.get(Lever.BATCHING)
    profile = batching.profile_of(case.workload, market.gpu(case.workload.gpu))
    if not isinstance(policy, SetBatchPolicy) or isinstance(profile, str):
        return True
    fitting = fitting_profile(case, effects, profile, market)
    return fitting is not None and fitting.sizes[-1] >= policy.max_batch


def batched_ways(
    evaluator: Evaluator, where: Mapping[Lever, Effect], profile: BatchProfile, market: Market
) -> Iterator[dict[Lever, Effect]]:
    """Yield the ways to batch on a place: the best policies with the fewest replicas, or scaled; none in time slices."""
    place = placement(evaluator.case.workload, where)
    fitting = fitting_profile(evaluator.case, where, profile, market)
    if fitting is None or (place.shared is not None and place.shared.others):
        return
    for policy in best_policies(rated_policies(evaluator.case, place, fitting)):
        yield from _counted(evaluator, where, policy)


def _counted(
    evaluator: Evaluator, where: Mapping[Lever, Effect], policy: SetBatchPolicy
) -> Iterator[dict[Lever, Effect]]:
    """Yield the fewest replicas that keep the targets; where more than the floor are needed, autoscalers too.

    At the floor nothing is lost: no autoscaler goes below it.
    """
    case = evaluator.case
    floor = min(floor_replicas(case), policy.before)
    count = fewest_replicas(evaluator, where, policy, floor, autoscaling.ROOM_TO_GROW * policy.before)
    if count is not None:
        yield {Lever.BATCHING: replace(policy, replicas=count)}
    if count != floor:
        for scaling in _scalers(case):
            yield {Lever.BATCHING: policy, Lever.AUTOSCALING: scaling}


def fewest_replicas(
    evaluator: Evaluator, where: Mapping[Lever, Effect], policy: SetBatchPolicy, floor: int, top: int
) -> int | None:
    """Return the fewest replicas that keep the targets, by bisection: more replicas never serve worse."""

    def enough(count: int) -> bool:
        effects: dict[Lever, Effect] = {**where, Lever.BATCHING: replace(policy, replicas=count)}
        return evaluator.keeps_targets(effects)

    low, high = floor, max(floor, top)
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def _scalers(case: Case) -> Iterator[Effect]:
    """Yield plain autoscalers, whose rule does not rest on the law of one request at a time."""
    offers = autoscaling.propose(case.workload, demand_of(case), cold_start_of(case))
    plain = [one for one in offers if isinstance(one.policy, HpaPolicy)]
    yield from plain[::_SCALERS_STEP]
