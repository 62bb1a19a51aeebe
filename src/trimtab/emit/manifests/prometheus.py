"""PrometheusRule: the recorded demand that the autoscaler reads, an absent() alert beside it, alerts when reality drifts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.deployment.effects import SetReplicaPolicy, Wake
from trimtab.emit.manifests.demand_rules import (
    CURRENT,
    DEMAND,
    LOAD,
    PER_REPLICA,
    READY,
    SCALING,
    DemandRules,
    demand_rules,
    followed_series,
    scaling_demand,
    series,
    server_selector,
)
from trimtab.emit.manifests.emission import MANAGED_BY, Plain, dns_name, metadata
from trimtab.emit.manifests.facts import Autoscaler, EmitFacts, ServiceFacts, WorkloadFacts
from trimtab.emit.manifests.forecast_rules import forecast_records
from trimtab.emit.manifests.latency_guards import guard_load_records, guard_records, latency_guards, latency_quantile
from trimtab.fleet.model import Target
from trimtab.plan.model import Action
from trimtab.policies.forecast import ForecastPolicy
from trimtab.policies.scaling import SYNC_S
from trimtab.units import S_PER_MIN

_ABSENT_FOR = "5m"
_DRIFT_FOR = "15m"
_SCRAPES_OVER_S = 10 * S_PER_MIN
_SCRAPED_FRAC = 0.7
"""Of the scrapes that there should be: between those that are missed now and then and half as many."""


def prometheus_rule(
    action: Action, effect: SetReplicaPolicy, known: WorkloadFacts, facts: EmitFacts
) -> dict[str, Plain]:
    """Return the PrometheusRule of one service: a group that records and one that alerts."""
    rules = demand_rules(known, facts, effect.hpa.metric, effect.tokens)
    records = [*_records(effect, known, rules, loads=any(latency_guards(known))), *guard_records(effect, known)]
    if facts.autoscaler is Autoscaler.HPA:
        records += guard_load_records(effect, known)
    name = dns_name("trimtab", known.short_name)
    about = metadata(name, [action], namespace=known.namespace, assumes=known.assumes)
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {**about, "labels": {**MANAGED_BY, **facts.rule_labels}},
        "spec": {
            "groups": [
                {"name": f"{name}.demand", "interval": f"{SYNC_S}s", "rules": records},
                {"name": f"{name}.alerts", "rules": list(_alerts(action, effect, known, facts))},
            ]
        },
    }


def _records(
    effect: SetReplicaPolicy, known: WorkloadFacts, rules: DemandRules, *, loads: bool
) -> Iterator[Mapping[str, Plain]]:
    recorded = {
        PER_REPLICA: rules.per_replica,
        DEMAND: rules.total,
        READY: rules.ready,
        CURRENT: rules.current,
        **_followed(effect, known, rules, loads=loads),
    }
    for name, expression in recorded.items():
        yield {"record": name, "expr": expression, "labels": {"workload": known.short_name}}


def _followed(effect: SetReplicaPolicy, known: WorkloadFacts, rules: DemandRules, *, loads: bool) -> dict[str, str]:
    """Return the rules of what an autoscaler on an external metric follows: the forecast, or demand that holds.

    `loads`: record the load without the queue also where only guards read it.
    """
    policy = effect.policy
    if isinstance(policy, ForecastPolicy):
        forecast = forecast_records(policy, series(LOAD, known), series(DEMAND, known), series("", known))
        return {LOAD: rules.load, **forecast}
    arriving = {LOAD: rules.load} if loads or effect.hpa.window_s > SYNC_S else {}
    return {**arriving, SCALING: scaling_demand(effect.hpa, known)}


def external_series(effect: SetReplicaPolicy) -> str:
    """Return the name of the series that an autoscaler on an external metric follows."""
    return followed_series(effect.hpa)


def _alerts(
    action: Action, effect: SetReplicaPolicy, known: WorkloadFacts, facts: EmitFacts
) -> Iterator[Mapping[str, Plain]]:
    demand, ready = series(DEMAND, known), series(READY, known)
    policy = effect.hpa
    absent, uncounted = f"absent({series(external_series(effect), known)})", f"absent({ready})"
    if effect.wake is not None:
        # without a pod there is nothing that could export them
        absent = f"{absent} and on () ({ready} > 0)"
        uncounted = f"{uncounted} and on () ({series(CURRENT, known)} > 0)"
        yield from _waking_alerts(action, effect.wake, known)
    yield _alert(
        action,
        "TrimtabDemandAbsent",
        absent,
        _ABSENT_FOR,
        f"{known.name}: the demand that its autoscaler reads is missing",
        "The autoscaler holds or falls back. Check that the server's metrics are scraped and the rule is loaded.",
    )
    yield _alert(
        action,
        "TrimtabReplicasAbsent",
        uncounted,
        _ABSENT_FOR,
        f"{known.name}: the number of its ready replicas is missing",
        "Check that kube-state-metrics is scraped.",
    )
    yield _alert(
        action,
        "TrimtabAtCeiling",
        f"{ready} >= {policy.max_replicas} and {demand} > {policy.max_replicas * policy.target_frac:.6g}",
        _DRIFT_FOR,
        f"{known.name} is at its ceiling of {policy.max_replicas} replicas and needs more",
        "Demand has outgrown the history that the plan was made on: raise the ceiling, then audit again.",
    )
    yield _alert(
        action,
        "TrimtabOverloaded",
        f"{demand} > {ready}",
        _DRIFT_FOR,
        f"{known.name} is asked for more than its ready replicas serve",
        "Replicas start too slowly, or serve less each than in the history: check cold start and capacity.",
    )
    if known.service is not None:
        yield _scraped_too_seldom(action, known, known.service, facts)
    for target in known.service.targets if known.service else ():
        if known.service and (expression := _target_missed(known.service, target, known)):
            yield _alert(
                action,
                "TrimtabTargetMissed",
                expression,
                _DRIFT_FOR,
                f"{known.name} misses {target.describe()}",
                f"Undo if it lasts: {action.rollback}.",
            )


def _waking_alerts(action: Action, wake: Wake, known: WorkloadFacts) -> Iterator[Mapping[str, Plain]]:
    yield _alert(
        action,
        "TrimtabWakeAbsent",
        f"absent(sum({wake.query.strip()}))",
        _ABSENT_FOR,
        f"{known.name}: what would wake it is missing",
        "KEDA falls back to replicas that stay up. Correct the query of wakes_on, or what it reads.",
    )
    yield _alert(
        action,
        "TrimtabNotWoken",
        f"sum({wake.query.strip()}) > 0 unless on () (sum({series(READY, known)}) > 0)",
        f"{wake.hold_s:.0f}s",
        f"{known.name} is asked, and no replica was ready for as long as requests are held",
        "Requests fail now. Look for nodes that cannot be had, and at the start of its pods.",
    )


def _scraped_too_seldom(
    action: Action, known: WorkloadFacts, service: ServiceFacts, facts: EmitFacts
) -> dict[str, Plain]:
    """Return the alert that the rules were made for more scrapes than there are: growth of the queue would be read too high."""
    counter = service.signals.waiting or service.signals.arrived or service.signals.completed
    expected = _SCRAPES_OVER_S / facts.scrape_s(known)
    seen = f"max by (namespace) (count_over_time({counter}{server_selector(known)}[{_SCRAPES_OVER_S}s]))"
    return _alert(
        action,
        "TrimtabScrapedTooSeldom",
        f"{seen} < {_SCRAPED_FRAC * expected:.6g}",
        _DRIFT_FOR,
        f"{known.name} is not scraped every {facts.scrape_s(known)} s, as its rules take it",
        "State scrape_interval_s in the cluster file and emit again, or fix the scrape.",
    )


def _target_missed(service: ServiceFacts, target: Target, known: WorkloadFacts) -> str | None:
    """Return PromQL that is true while a latency target is missed; None where the server does not export it."""
    quantile = latency_quantile(service, target, known)
    return None if quantile is None else f"{quantile} > {target.limit_s:.6g}"


def _alert(action: Action, name: str, expression: str, wait: str, summary: str, cure: str) -> dict[str, Plain]:
    return {
        "alert": name,
        "expr": expression,
        "for": wait,
        "labels": {"severity": "warning", "trimtab_action": action.id},
        "annotations": {"summary": summary, "description": cure},
    }
