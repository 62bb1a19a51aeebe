"""Nodes ahead of scheduled runs: a placeholder of the lowest priority that cron starts early and the run pushes aside."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.deployment.effects import StartBeforeRuns
from trimtab.emit.manifests.facts import WorkloadFacts
from trimtab.emit.manifests.karpenter import GPU_RESOURCE, GPU_TAINT
from trimtab.emit.manifests.keda import scheduled_object
from trimtab.emit.manifests.objects import MANAGED_BY, dns_name, metadata
from trimtab.emit.manifests.week import CronSpan, cron_spans
from trimtab.emit.plain import Plain
from trimtab.plan.model import Action
from trimtab.units import HR_PER_WEEK, S_PER_HR, S_PER_MIN

_IMAGE = "registry.k8s.io/pause:3.10"
_PRIORITY = -10
"""Below every default, so that any pod may take its place; not so low that Cluster Autoscaler ignores it (below -10)."""
_OVERLAP_S = 10 * S_PER_MIN
"""How long the placeholder stays after the run should have begun."""


def warm_objects(
    action: Action, effect: StartBeforeRuns, known: WorkloadFacts, node_pool: str
) -> tuple[dict[str, Plain], ...]:
    """Return priority class, placeholder and its timetable for a workload whose `run_starts` are known."""
    name = dns_name("trimtab-warm", known.short_name)
    spans = cron_spans(tuple(_early(hour, effect.lead_s) for hour in known.run_starts))
    return (_priority(action), _placeholder(action, known, name, node_pool), _timetable(action, known, name, spans))


def _early(hour: int, lead_s: float) -> tuple[int, int]:
    week_s = HR_PER_WEEK * S_PER_HR
    start = (hour * S_PER_HR - round(lead_s)) % week_s
    return start, start + round(lead_s) + _OVERLAP_S


def _priority(action: Action) -> dict[str, Plain]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata("trimtab-placeholder", [action]),
        "value": _PRIORITY,
        "preemptionPolicy": "Never",
        "globalDefault": False,
        "description": "Holds a node for a run that is about to start; gives way to any pod.",
    }


def _placeholder(action: Action, known: WorkloadFacts, name: str, node_pool: str) -> dict[str, Plain]:
    labels: Mapping[str, Plain] = {"app.kubernetes.io/name": name, **MANAGED_BY}
    gpus = {GPU_RESOURCE: str(round(known.gpus_per_pod))}
    pod: Mapping[str, Plain] = {
        "priorityClassName": "trimtab-placeholder",
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"karpenter.sh/nodepool": node_pool},
        "tolerations": [{"key": GPU_TAINT["key"], "operator": "Exists", "effect": GPU_TAINT["effect"]}],
        "containers": [{"name": "pause", "image": _IMAGE, "resources": {"limits": gpus}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(name, [action], namespace=known.namespace),
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _timetable(action: Action, known: WorkloadFacts, name: str, spans: tuple[CronSpan, ...]) -> dict[str, Plain]:
    stand_in = WorkloadFacts(name=f"{known.namespace}/{name}", owner_kind="Deployment")
    return scheduled_object(action, stand_in, spans, replicas=known.replicas)
