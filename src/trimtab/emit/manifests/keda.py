"""KEDA ScaledObject: demand, queue, KV cache and latency as triggers of one autoscaler, to none and back, or hours of the week.

Every trigger asks for an average value, so that the autoscaler wants ceil(sum / threshold) replicas and takes the highest.
The demand trigger is the replayed policy. The KV cache and latency triggers are guards: 0 until their limit is passed, so that
they change nothing that was replayed while limits are kept; the audit's robustness replays the latency triggers too
(`latency_guards`). KV cache use alone misleads (it can stand at a third while the
queue grows without bound: llm-d-autoscaler#662), which is why it never stands alone. A service that goes to none has one more
trigger, which wakes it: all others rest on its pods, and say 0 while there are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from trimtab.deployment.effects import SetReplicaPolicy, Wake
from trimtab.emit.manifests.cron_files import CronSpan
from trimtab.emit.manifests.demand_rules import READY, series
from trimtab.emit.manifests.emission import Plain, dns_name, metadata
from trimtab.emit.manifests.facts import EmitFacts, WorkloadFacts
from trimtab.emit.manifests.kubernetes import behaviour, scale_target
from trimtab.emit.manifests.latency_guards import KV_CACHE, guard_query, kv_cache_query, latency_guards
from trimtab.emit.manifests.prometheus import external_series
from trimtab.plan.model import Action
from trimtab.policies.keda import KedaPolicy
from trimtab.policies.scaling import SYNC_S

_COOLDOWN_S = 300
_FAILURES = 4
"""Failed polls (a minute) before the fallback holds."""


def scaled_object(action: Action, effect: SetReplicaPolicy, known: WorkloadFacts, facts: EmitFacts) -> dict[str, Plain]:
    """Return the ScaledObject that enacts a replica policy; where its metric fails, it holds today's replicas or more."""
    policy = effect.hpa
    polling_s, cooldown_s = SYNC_S, max(_COOLDOWN_S, policy.down_stabilization_s)
    if isinstance(effect.policy, KedaPolicy):
        polling_s, cooldown_s = effect.policy.polling_s, effect.policy.cooldown_s
    # KEDA's own name for the autoscaler puts nine letters before this one, and refuses what is then too long
    name = dns_name("trimtab", known.short_name)
    spec: dict[str, Plain] = {
        "scaleTargetRef": scale_target(known),
        "pollingInterval": polling_s,
        "cooldownPeriod": cooldown_s,
        **({"idleReplicaCount": 0} if isinstance(effect.policy, KedaPolicy) and effect.policy.idles else {}),
        "minReplicaCount": policy.min_replicas,
        "maxReplicaCount": policy.max_replicas,
        "fallback": {
            "failureThreshold": _FAILURES,
            "replicas": min(max(known.replicas, policy.min_replicas), policy.max_replicas),
            "behavior": "currentReplicasIfHigher",
        },
        "advanced": {
            "horizontalPodAutoscalerConfig": {"name": name, "behavior": behaviour(policy, add_only=facts.add_only)}
        },
        "triggers": list(_triggers(effect, known, facts)),
    }
    return _object(action, known, spec)


def scheduled_object(
    action: Action, known: WorkloadFacts, spans: Sequence[CronSpan], *, replicas: int
) -> dict[str, Plain]:
    """Return the ScaledObject that holds replicas in these stretches of the week and none outside them."""
    triggers: list[Plain] = [
        {
            "type": "cron",
            "name": f"held-{number}",
            "metadata": {
                "timezone": "Etc/UTC",
                "start": span.start,
                "end": span.end,
                "desiredReplicas": str(replicas),
            },
        }
        for number, span in enumerate(spans, start=1)
    ]
    spec: dict[str, Plain] = {
        "scaleTargetRef": scale_target(known),
        "cooldownPeriod": _COOLDOWN_S,
        "advanced": {"horizontalPodAutoscalerConfig": {"name": dns_name("trimtab", known.short_name)}},
        "minReplicaCount": 0,
        "maxReplicaCount": replicas,
        "triggers": triggers,
    }
    return _object(action, known, spec)


def _object(action: Action, known: WorkloadFacts, spec: Mapping[str, Plain]) -> dict[str, Plain]:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata(
            dns_name("trimtab", known.short_name), [action], namespace=known.namespace, assumes=known.assumes
        ),
        "spec": spec,
    }


def _triggers(effect: SetReplicaPolicy, known: WorkloadFacts, facts: EmitFacts) -> Iterator[Mapping[str, Plain]]:
    demand = series(external_series(effect), known)
    if effect.wake is not None:
        demand = _none_without_pods(demand, known)
        yield _waking(effect.wake, facts)
    yield prometheus_trigger("demand", demand, f"{effect.hpa.target_frac:g}", facts)
    if (cache := kv_cache_query(known)) is not None:
        yield prometheus_trigger(KV_CACHE, cache, "1", facts)
    for guard in latency_guards(known):
        yield prometheus_trigger(guard.name, guard_query(known, guard), f"{effect.hpa.target_frac:g}", facts)


def _waking(wake: Wake, facts: EmitFacts) -> dict[str, Plain]:
    """Return the trigger that wakes a service: it asks for one replica while requests arrive for it, and for none else.

    Where its series is missing it is a fault, and the fallback holds replicas: it never reads as silence.
    """
    trigger = prometheus_trigger("wake", waking_query(wake), "1", facts)
    return {**trigger, "metadata": {**cast("Mapping[str, Plain]", trigger["metadata"]), "activationThreshold": "0"}}


def waking_query(wake: Wake) -> str:
    """Return PromQL that is 1 while there are requests, else 0."""
    return f"clamp_max(ceil(sum({wake.query.strip()})), 1)"


def _none_without_pods(demand: str, known: WorkloadFacts) -> str:
    """Return a demand that is 0 where no pod is ready to export it; where one is, its absence stays a fault."""
    return f"sum({demand}) or (vector(0) unless on () ({series(READY, known)} > 0))"


def prometheus_trigger(name: str, query: str, threshold: str, facts: EmitFacts) -> dict[str, Plain]:
    """Return a trigger that asks for ceil(query / threshold) replicas."""
    kind, _, auth = facts.prometheus_auth.rpartition("/")
    reference: dict[str, Plain] = {"name": auth, **({"kind": "ClusterTriggerAuthentication"} if kind else {})}
    return {
        **({"authenticationRef": reference} if auth else {}),
        "type": "prometheus",
        "name": name,
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": facts.prometheus_url,
            "query": query,
            "threshold": threshold,
            # An empty answer is a fault, not a demand of 0: without this KEDA would scale down on a lost metric.
            "ignoreNullValues": "false",
        },
    }
