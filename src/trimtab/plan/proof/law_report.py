"""What each service's law rests on, how it did in its back-test, and what a load test could buy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.fleet.law_evidence import Bound, LawEvidence
from trimtab.fleet.market import Market
from trimtab.fleet.service_law import activity_law, service_law
from trimtab.levers import autoscaling, replica_count, scale_to_zero
from trimtab.levers.lever import LeverRequest
from trimtab.plan.options.workload_options import fixed_cost
from trimtab.plan.planner import Planned
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Case
from trimtab.units import S_PER_HR, per_month, usd

_REPLAYED = 20
"""Workloads, the largest ones, for which it is worked out what a load test could save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTest:
    """A load test of one replica: the load to sustain, and what the plan could save with it at most."""

    reach_req_s: float
    saves_usd_mo: float | None
    """Before commitments; None where that cannot be worked out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LawFinding:
    """A service's law as the plan takes it."""

    workload: str
    capacity_req_s: float
    """What the plan lets a replica serve at most; without request metrics, busy GPUs."""
    top_req_s: float
    """The highest load that a plan's rules aim at."""
    requests: bool
    """False: GPU activity is used instead of requests."""
    tested: LawEvidence
    load_test: LoadTest | None


def law_findings(planned: Planned, market: Market) -> Iterator[LawFinding]:
    """Yield the laws of all services that could be judged, in the fleet's order."""
    largest = sorted(planned.cases.values(), key=lambda case: -case.workload.gpu_hours)[:_REPLAYED]
    names = {case.workload.name for case in largest}
    for case in planned.cases.values():
        law, name = case.law, case.workload.name
        if law is None or law.tested is None:
            continue
        healthy_frac = case.settings.bands.healthy_frac
        test = None
        if law.tested.bound is Bound.UNTOLD:
            saves = _saved_usd_mo(case, planned.deployments.get(name, AS_IT_IS), market) if name in names else None
            if saves != 0.0:
                test = LoadTest(reach_req_s=healthy_frac * law.tested.activity_req_s, saves_usd_mo=saves)
        yield LawFinding(
            workload=name,
            capacity_req_s=law.capacity_req_s,
            top_req_s=healthy_frac * law.capacity_req_s,
            requests=case.workload.service is not None,
            tested=law.tested,
            load_test=test,
        )


def _saved_usd_mo(case: Case, deployment: Deployment, market: Market) -> float | None:
    """Return how much less the service would cost if a replica served what activity says; None where that is unknown.

    By the plan's own kind of rule, at the highest load that then keeps the targets; by a constant number of replicas where
    there is no rule.
    """
    healthy_frac = case.settings.bands.healthy_frac
    workload = case.workload
    law = activity_law(workload, healthy_frac) if workload.service is None else service_law(workload, healthy_frac)
    if isinstance(law, str):
        return None
    shown, other = Evaluator(case=case), Evaluator(case=replace(case, law=law))
    unscaled = deployment.without("scaling")
    if isinstance(deployment.scaling, SetReplicaPolicy):
        start = unscaled.start
        offered = (*autoscaling.propose(case, start), *scale_to_zero.propose(case, start))
        alike = [scaler for scaler in offered if type(scaler.policy) is type(deployment.scaling.policy)]
        ways = (
            unscaled.plus((autoscaling.NAME, scaler))
            for scaler in sorted(alike, key=lambda scaler: -scaler.hpa.target_frac)
        )
        way = next((candidate for candidate in ways if other.keeps_targets(candidate)), None)
    elif unscaled.batching or unscaled.holding or unscaled.split:
        return None
    else:
        way = replica_count.fewest(unscaled, LeverRequest(evaluator=other, market=market))
    if way is None:
        return 0.0
    saved = _cost_usd(shown, deployment, market) - _cost_usd(other, way, market)
    return max(0.0, per_month(saved, case.window.hours))


def _cost_usd(evaluator: Evaluator, deployment: Deployment, market: Market) -> float:
    """Return what its nodes cost over the window, before commitments."""
    usage = evaluator.outcome(deployment).usage(evaluator.place(deployment))
    return usd(fixed_cost(usage, market) // S_PER_HR)
