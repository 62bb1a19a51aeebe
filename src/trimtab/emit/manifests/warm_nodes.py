"""Nodes ahead of scheduled runs: placeholders of the lowest priority that cron starts early and the run pushes aside.

A placeholder is an index of a Job that is not tried again: what a controller made anew after the run took its place would bring
another node, since Karpenter knows no priority below which it makes none (kubernetes-sigs/karpenter#1396).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab.deployment.effects import StartBeforeRuns
from trimtab.emit.manifests.facts import WorkloadFacts
from trimtab.emit.manifests.objects import CRON_JOB_LENGTH, MANAGED_BY, Plain, dns_name, metadata
from trimtab.emit.manifests.pool_specs import PoolSpec
from trimtab.emit.manifests.week import cron_spans
from trimtab.emit.manifests.workload_patch import GpuAsk, pool_selector, pool_tolerations
from trimtab.plan.model import Action
from trimtab.units import HR_PER_WEEK, S_PER_HR, S_PER_MIN

PRIORITY_CLASS = "trimtab-placeholder"
_IMAGE = "registry.k8s.io/pause:3.10"
_PRIORITY = -10
"""Below every default, so that any pod may take its place; not so low that Cluster Autoscaler ignores it (below -10)."""
_OVERLAP_S = 10 * S_PER_MIN
"""How long the placeholder stays after the run should have begun."""
_NOBODY = 65535
"""The user that the pause image runs as."""
_RESTRICTED: Mapping[str, Plain] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": _NOBODY,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the restricted Pod Security Standard asks for."""


def warm_objects(
    action: Action,
    effect: StartBeforeRuns,
    known: WorkloadFacts,
    spec: PoolSpec,
    ask: GpuAsk,
    templates: Mapping[str, str] | None = None,
) -> tuple[dict[str, Plain], ...]:
    """Return the timetables of placeholders for a workload whose `run_starts` are known, each asking for what its run will.

    `templates`: where its pods claim their GPUs, the names of those claims and what ResourceClaimTemplate each is made from.
    """
    spans = cron_spans(tuple(_early(hour, effect.lead_s) for hour in known.run_starts))
    return tuple(
        _timetable(action, effect, known, number, span.start, _pod(spec, ask, templates or {}))
        for number, span in enumerate(spans, start=1)
    )


def _early(hour: int, lead_s: float) -> tuple[int, int]:
    week_s = HR_PER_WEEK * S_PER_HR
    start = (hour * S_PER_HR - round(lead_s)) % week_s
    return start, start + round(lead_s) + _OVERLAP_S


def placeholder_priority(actions: Sequence[Action]) -> dict[str, Plain]:
    """Return the priority class of all placeholders: it belongs to the cluster, so there is one."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata(PRIORITY_CLASS, actions),
        "value": _PRIORITY,
        "preemptionPolicy": "Never",
        "globalDefault": False,
        "description": "Holds a node for a run that is about to start; gives way to any pod.",
    }


def _timetable(
    action: Action, effect: StartBeforeRuns, known: WorkloadFacts, number: int, start: str, pod: Mapping[str, Plain]
) -> dict[str, Plain]:
    name = dns_name("trimtab-warm", known.short_name, str(number), length=CRON_JOB_LENGTH)
    job: Mapping[str, Plain] = {
        "completionMode": "Indexed",
        "completions": known.replicas,
        "parallelism": known.replicas,
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": known.replicas,
        "activeDeadlineSeconds": round(effect.lead_s) + _OVERLAP_S,
        "ttlSecondsAfterFinished": S_PER_HR,
        "template": {"metadata": {"labels": {"app.kubernetes.io/name": name, **MANAGED_BY}}, "spec": pod},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata(name, [action], namespace=known.namespace),
        "spec": {
            "schedule": start,
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Replace",
            "startingDeadlineSeconds": max(S_PER_MIN, round(effect.lead_s)),
            "jobTemplate": {"spec": job},
        },
    }


def _pod(spec: PoolSpec, ask: GpuAsk, templates: Mapping[str, str]) -> dict[str, Plain]:
    gpus: Mapping[str, Plain] = {} if templates else {ask.resource: str(ask.count)}
    asks: Mapping[str, Plain] = {"cpu": "10m", "memory": "16Mi", **gpus}
    used: Mapping[str, Plain] = {"claims": [{"name": name} for name in templates]} if templates else {}
    claims = [{"name": name, "resourceClaimTemplateName": template} for name, template in templates.items()]
    container: Mapping[str, Plain] = {
        "name": "pause",
        "image": _IMAGE,
        "resources": {"requests": asks, "limits": asks, **used},
        "securityContext": dict(_RESTRICTED),
    }
    return {
        "priorityClassName": PRIORITY_CLASS,
        "terminationGracePeriodSeconds": 0,
        "restartPolicy": "Never",
        "nodeSelector": pool_selector(spec),
        "tolerations": pool_tolerations(spec),
        "containers": [container],
        **({"resourceClaims": claims} if claims else {}),
    }
