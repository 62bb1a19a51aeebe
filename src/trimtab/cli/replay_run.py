"""Replay a fleet's services under named policies: tuned on the fit window, replayed over the window that follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.catalog import load_catalog
from trimtab.errors import InputError, UnknownName
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.effects import SetReplicaPolicy
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, ServiceObservation, Window
from trimtab.fleet.settings import Settings
from trimtab.levers.autoscaling import observed_replicas
from trimtab.pipeline import SEED, audit, split_window
from trimtab.plan.evaluate import cases_of
from trimtab.plan.outcome import Case, placement
from trimtab.plan.service_outcome import JUDGED, demand_of, service_model
from trimtab.policies.scaling import StaticReplicas
from trimtab.replay.compare import PolicyRun, compare
from trimtab.replay.named import FitContext, expanded, named_policy
from trimtab.replay.services import ScalingPolicy, ServiceHistory, ServiceModel
from trimtab.tables.bundle import Bundle
from trimtab.units import S_PER_HR, mul_div, per_month, usd

PLAN = "plan"
DEFAULT_POLICIES = ("static", "hpa:70", "hpa:85", "keda:70", "knative:70", "saturation", "cron", "forecast")
_ROOM_TO_GROW = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServiceRuns:
    """One service's runs over the replayed window, and what a node of its costs in micro-dollars an hour."""

    workload: str
    window: Window
    history: ServiceHistory
    model: ServiceModel
    node_micro_usd_hr: int
    runs: Sequence[PolicyRun]

    def usd_mo(self, run: PolicyRun) -> float:
        """Return what the billed nodes of a run would cost in a month, on demand."""
        micro = mul_div(int(run.replay.node_seconds.sum()), self.node_micro_usd_hr, S_PER_HR)
        return per_month(usd(micro), self.window.hours)


def replay_services(
    bundle: Bundle, names: Sequence[str], only: Sequence[str], settings: Settings, tell: Callable[[str, float], None]
) -> list[ServiceRuns]:
    """Replay each judged service of a bundle, or those named, under each policy; raises where there is none."""
    whole = bundle_window(bundle)
    split = split_window(whole, settings)
    tell("reading the fleet", 0.0)
    fit, rest = build_fleet(bundle, settings, split.fit), build_fleet(bundle, settings, split.proof)
    market = Market(catalog=load_catalog(), at=whole.end.date(), max_term_years=1, assumptions=settings.assumptions)
    cases = {name: case for name, case in cases_of(fit, settings, SEED).items() if _is_service(case)}
    chosen = _chosen(cases, only)
    planned = _planned(bundle, settings) if PLAN in names else {}
    texts = [text for name in names for text in expanded(name)]
    found = []
    for at, case in enumerate(chosen):
        tell(f"replaying {case.workload.name}", at / len(chosen))
        found.append(_replay_case(case, fit, rest, texts, planned, market))
    return found


def _is_service(case: Case | str) -> bool:
    return isinstance(case, Case) and case.law is not None


def _chosen(cases: dict[str, Case | str], only: Sequence[str]) -> list[Case]:
    for name in only:
        if name not in cases:
            raise UnknownName("service", name, cases)
    chosen = [case for name, case in cases.items() if isinstance(case, Case) and (not only or name in only)]
    if not chosen:
        raise InputError("no service in this history can be replayed: its requests or its activity are missing")
    return chosen


def _planned(bundle: Bundle, settings: Settings) -> dict[str, ScalingPolicy]:
    """Return the scaling rule that an audit of the same bundle gives each service."""
    found = audit(bundle, settings)
    return {
        change.subject: change.effect.policy
        for action in found.plan.actions
        for change in action.changes
        if isinstance(change.effect, SetReplicaPolicy)
    }


def _replay_case(
    case: Case,
    fit: Fleet,
    rest: Fleet,
    texts: Sequence[str],
    planned: dict[str, ScalingPolicy],
    market: Market,
) -> ServiceRuns:
    assert case.law is not None
    place = placement(case.workload, {})
    targets = tuple(target for target in case.targets if target.metric in JUDGED)
    model = service_model(case, case.law, place, targets, 1.0)
    past = demand_of(case)
    observed = observed_replicas(past)
    context = FitContext(
        history=_history(past, fit.window),
        model=model,
        required_frac=np.array([target.required_frac for target in targets]),
        observed_replicas=observed,
        min_replicas=case.workload.spec.min_replicas or 1,
        max_replicas=case.workload.spec.max_replicas or observed * _ROOM_TO_GROW,
        slack_frac=1 - case.settings.planning.target_margin_frac,
    )
    policies = {
        text: planned.get(case.workload.name, StaticReplicas(observed)) if text == PLAN else named_policy(text, context)
        for text in texts
    }
    ahead = _later(case, rest)
    history = _history(ahead, rest.window)
    runs = compare(history, model, policies, required_frac=context.required_frac, past=past.arrivals)
    return ServiceRuns(
        workload=case.workload.name,
        window=rest.window,
        history=history,
        model=model,
        node_micro_usd_hr=market.rate(place.pool),
        runs=runs,
    )


def _later(case: Case, rest: Fleet) -> ServiceObservation:
    """Return what came to the same service in the window that is replayed."""
    for workload in rest.workloads:
        if workload.name == case.workload.name:
            return demand_of(
                Case(
                    workload=workload,
                    window=rest.window,
                    targets=case.targets,
                    law=case.law,
                    settings=case.settings,
                    seed=case.seed,
                )
            )
    raise InputError(f"{case.workload.name} is not in the window {rest.window}")


def _history(demand: ServiceObservation, window: Window) -> ServiceHistory:
    return ServiceHistory(arrivals=demand.arrivals, step_s=demand.step_s, start_hour=window.first_week_hour)
