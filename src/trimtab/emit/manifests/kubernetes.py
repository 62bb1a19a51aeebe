"""HorizontalPodAutoscaler (autoscaling/v2) as replayed, PodDisruptionBudget, and the adapter rules that feed an HPA.

Of several metrics an HPA takes the one that asks for the most replicas, as KEDA's does: the guards of KEDA's triggers are
external metrics here. KEDA's ScaledObjects and staged patches take the behaviours from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.demand_rules import LOAD_WANTED, PER_REPLICA, SCALING, followed_series
from trimtab.emit.manifests.emission import MANAGED_BY, Plain, dns_name, metadata
from trimtab.emit.manifests.facts import SCALE_APIS, EmitFacts, WorkloadFacts
from trimtab.emit.manifests.latency_guards import GUARD_LOAD, guard_loads
from trimtab.plan.model import Action
from trimtab.policies.scaling import SYNC_S, HpaPolicy, Metric

DEFAULT_TOLERANCE_FRAC = 0.1
"""Of the controller (--horizontal-pod-autoscaler-tolerance); other values need the field, which Kubernetes has from 1.33."""


def behaviour(policy: HpaPolicy, *, add_only: bool) -> dict[str, Plain]:
    """Return both directions: at most the larger of a share and a number of pods per period, after stabilization.

    `add_only` switches scale-down off: the canary of an autoscaler.
    """
    if add_only:
        policy = policy._replace(down_frac=0.0, down_pods=0)
    return {
        "scaleUp": _direction(
            policy.up_frac, policy.up_pods, policy.period_s, policy.up_stabilization_s, policy.tolerance_up_frac
        ),
        "scaleDown": _direction(
            policy.down_frac, policy.down_pods, policy.period_s, policy.down_stabilization_s, policy.tolerance_down_frac
        ),
    }


def _direction(
    frac: float, pods: int, period_s: int, stabilization_s: int, tolerance_frac: float
) -> Mapping[str, Plain]:
    limits: list[Plain] = [
        {"type": kind, "value": value, "periodSeconds": period_s}
        for kind, value in (("Percent", round(frac * 100)), ("Pods", pods))
        if value > 0
    ]
    rules: dict[str, Plain] = {"stabilizationWindowSeconds": stabilization_s}
    if not limits:
        return {**rules, "selectPolicy": "Disabled"}
    if tolerance_frac != DEFAULT_TOLERANCE_FRAC:
        rules["tolerance"] = f"{tolerance_frac:g}"
    return {**rules, "selectPolicy": "Max", "policies": limits}


def horizontal_pod_autoscaler(
    action: Action, effect: SetReplicaPolicy, known: WorkloadFacts, facts: EmitFacts
) -> dict[str, Plain]:
    """Return the autoscaler of a service that never goes to zero replicas."""
    policy = effect.hpa
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(
            dns_name("trimtab", known.short_name), [action], namespace=known.namespace, assumes=known.assumes
        ),
        "spec": {
            "scaleTargetRef": scale_target(known),
            "minReplicas": policy.min_replicas,
            "maxReplicas": policy.max_replicas,
            "metrics": [_metric(policy, known), *_guards(effect, known)],
            "behavior": behaviour(policy, add_only=facts.add_only),
        },
    }


def scale_target(known: WorkloadFacts) -> dict[str, Plain]:
    """Return the reference to what is scaled."""
    return {"apiVersion": SCALE_APIS[known.owner_kind], "kind": known.owner_kind, "name": known.short_name}


def api_metric(recorded: str) -> str:
    """Return a recorded series' name as the metrics APIs carry it: colons are for recording rules only."""
    return recorded.replace(":", "_")


def _metric(policy: HpaPolicy, known: WorkloadFacts) -> Mapping[str, Plain]:
    target = {"type": "AverageValue", "averageValue": f"{policy.target_frac:g}"}
    if policy.metric is not Metric.SIGNAL and policy.window_s <= SYNC_S:
        return {"type": "Pods", "pods": {"metric": {"name": api_metric(PER_REPLICA)}, "target": target}}
    # the mean of a window is one of the whole service: pods come and go within it
    labels: Mapping[str, Plain] = {"workload": known.short_name}
    metric: Mapping[str, Plain] = {"name": api_metric(followed_series(policy)), "selector": {"matchLabels": labels}}
    return {"type": "External", "external": {"metric": metric, "target": target}}


def _guards(effect: SetReplicaPolicy, known: WorkloadFacts) -> Iterator[Mapping[str, Plain]]:
    target: dict[str, Plain] = {"type": "AverageValue", "averageValue": f"{effect.hpa.target_frac:g}"}
    for guard in guard_loads(effect, known):
        labels: dict[str, Plain] = {"workload": known.short_name, "guard": guard}
        metric: dict[str, Plain] = {"name": api_metric(GUARD_LOAD), "selector": {"matchLabels": labels}}
        yield {"type": "External", "external": {"metric": metric, "target": target}}


def pod_disruption_budget(action: Action, known: WorkloadFacts) -> dict[str, Plain]:
    """Return the budget of a service for an action."""
    return disruption_budget(known, metadata(_budget_name(known), [action], namespace=known.namespace))


def disruption_budget(known: WorkloadFacts, about: Mapping[str, Plain] | None = None) -> dict[str, Plain]:
    """Return a budget that lets one replica of a service go at a time, as node consolidation will ask, with its metadata."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": about or {"name": _budget_name(known), "namespace": known.namespace, "labels": dict(MANAGED_BY)},
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": dict(sorted(known.pod_labels.items()))},
        },
    }


def _budget_name(known: WorkloadFacts) -> str:
    return dns_name("trimtab", known.short_name)


def adapter_values() -> dict[str, Plain]:
    """Return Helm values of prometheus-adapter that serve the recorded series to HorizontalPodAutoscalers."""
    return {
        "rules": {
            "custom": [
                _adapter_rule(PER_REPLICA, {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}})
            ],
            "external": [
                _adapter_rule(recorded, {"namespace": {"resource": "namespace"}})
                for recorded in (LOAD_WANTED, SCALING, GUARD_LOAD)
            ],
        }
    }


def _adapter_rule(recorded: str, resources: Mapping[str, Plain]) -> Mapping[str, Plain]:
    return {
        "seriesQuery": f'{recorded}{{namespace!=""}}',
        "resources": {"overrides": resources},
        "name": {"as": api_metric(recorded)},
        "metricsQuery": "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    }
