"""What a batching action rests on: requests a second within the targets, and replicas in real time against in windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from trimtab.fleet.effects import Effect, SetBatchPolicy
from trimtab.fleet.model import Target
from trimtab.fleet.settings import Lever
from trimtab.fleet.targets import latency_targets
from trimtab.levers.autoscaling import ROOM_TO_GROW
from trimtab.levers.batching import BatchProfile
from trimtab.plan.options.batch_options import fewest_replicas, rated_policies
from trimtab.plan.outcomes.evaluate import Evaluator
from trimtab.plan.outcomes.outcome import Case, Effects, placement
from trimtab.provenance import Basis

_REAL_TIME_RATIO = 3.0
"""Real time, in what is shown beside windows: an answer within this many times today's p99."""
_MAY_WAIT_RATIO = 10.0
"""A declared limit this many times real time leaves room to gather requests into windows."""


class Fact(NamedTuple):
    """A line of evidence: what, from what, its value, and what it is held against."""

    what: str
    query: str
    value: str
    threshold: str


def batching_facts(evaluator: Evaluator, effects: Effects) -> Iterator[Fact]:
    """Yield the facts behind a batch policy: seconds by batch size, rates of the ways to batch, replicas either way."""
    policy = effects.get(Lever.BATCHING)
    if not isinstance(policy, SetBatchPolicy):
        return
    profile = BatchProfile(sizes=policy.sizes, seconds=policy.seconds, item_gib=None, basis=policy.basis)
    times = ", ".join(f"{size}: {second_s:.3g}" for size, second_s in zip(policy.sizes, policy.seconds, strict=True))
    told = "workloads.yaml" if policy.basis is Basis.CALIBRATED else "predicted for a continuous-batching engine"
    yield Fact("seconds by batch size", f"{told}, fixed to the observed time of one request", times, "")
    best: dict[str, float] = {}
    for one in rated_policies(evaluator.case, placement(evaluator.case.workload, effects), profile):
        best.setdefault(one.policy.form.value, one.req_s)
    rates = ", ".join(f"{form} {req_s:.3g}" for form, req_s in best.items())
    yield Fact("requests a second of a replica within the targets", "replayed batches, low end of the speed", rates, "")
    yield from _windows(evaluator, effects, policy, profile)


def _windows(evaluator: Evaluator, effects: Effects, policy: SetBatchPolicy, profile: BatchProfile) -> Iterator[Fact]:
    """Yield the replicas needed to answer in real time and to use the promised time, where that leaves room."""
    case = evaluator.case
    declared = [target.limit_s for target in case.targets if target.declared and target.limit_s is not None]
    at_once = _real_time(case)
    if not declared or at_once is None or min(declared) < _MAY_WAIT_RATIO * (at_once.limit_s or 0.0):
        return
    places = (Lever.RIGHT_SIZE, Lever.RELOCATION)
    where: dict[Lever, Effect] = {lever: effect for lever, effect in effects.items() if lever in places}
    quick = Evaluator(case=replace(case, targets=(at_once,)))
    rated = rated_policies(quick.case, placement(case.workload, where), profile)
    for served, asked, best in (
        (f"answering 99 % within {at_once.limit_s:.2g} s", quick, rated[0].policy if rated else policy),
        ("keeping the promise", evaluator, policy),
    ):
        for way, how in ((replace(policy, max_batch=1, window_s=0.0), "one request at a time"), (best, "in batches")):
            count = fewest_replicas(asked, where, way, 1, ROOM_TO_GROW * policy.before)
            value = "no number is enough" if count is None else f"{count} ({_saved(policy.before - count)})"
            yield Fact(f"replicas {served}, {how}", "replay of the service", value, f"{policy.before} today")


def _real_time(case: Case) -> Target | None:
    """Return what a service would have to keep if its callers waited for the answer."""
    seen = () if case.workload.service is None else latency_targets(case.workload.service)
    slowest = max(seen, key=lambda target: target.required_frac, default=None)
    if slowest is None or slowest.limit_s is None:
        return None
    return replace(slowest, limit_s=_REAL_TIME_RATIO * slowest.limit_s)


def _saved(replicas: int) -> str:
    return f"{replicas} saved" if replicas >= 0 else f"{-replicas} more"
