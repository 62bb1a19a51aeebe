"""Hours of the week as cron, and what cron does at them: the queue of runs that wait, and nodes ahead of scheduled runs.

Runs wait in a Kueue LocalQueue that cron closes ahead of the hour and opens at it.
`stopPolicy: Hold` admits nothing new and leaves what runs alone (kueue.sigs.k8s.io, LocalQueue). A run comes into the queue by
the label `kueue.x-k8s.io/queue-name`, which the Component of its workload sets; behind all such queues stands one ClusterQueue
whose quota is the limits of the node pools, so that it holds runs for the hour and for nothing else.

A Notebook has no replicas that KEDA could set. Kubeflow's controller stops one that carries an annotation and starts it again
without it (kubeflow/kubeflow, notebook-controller, pkg/culler).

A placeholder is an index of a Job that is not retried. A controller that recreated it after the run took its place would cause
another node, because Karpenter makes nodes for pods of any priority (kubernetes-sigs/karpenter#1396).
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.deployment.effects import DeferRuns, StartBeforeRuns
from trimtab.emit.manifests.emission import CRON_JOB_LENGTH, MANAGED_BY, Plain, dns_name, metadata
from trimtab.emit.manifests.facts import WorkloadFacts
from trimtab.emit.manifests.karpenter import GPU_RESOURCE
from trimtab.emit.manifests.pool_specs import PoolSpec
from trimtab.emit.manifests.workload_patch import GpuAsk, pool_selector, pool_tolerations
from trimtab.plan.model import Action
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, HR_PER_WEEK, S_PER_DAY, S_PER_HR, S_PER_MIN

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSpan:
    """A stretch that repeats: cron expressions (UTC) of its start and its end."""

    start: str
    end: str


def held_stretches(hours_of_week: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return hours of the week (Monday 00:00 is 0) as `[start, end)` stretches; one that passes Sunday midnight stays whole.

    All 168 hours are one stretch of a week. Raises ValueError for an hour outside 0..167.
    """
    held = sorted(set(hours_of_week))
    if held and not 0 <= held[0] <= held[-1] < HR_PER_WEEK:
        raise ValueError(f"hours of the week run from 0 to {HR_PER_WEEK - 1}, got {held[0]}..{held[-1]}")
    stretches: list[list[int]] = []
    for hour in held:
        if stretches and stretches[-1][1] == hour:
            stretches[-1][1] = hour + 1
        else:
            stretches.append([hour, hour + 1])
    if len(stretches) > 1 and stretches[0][0] == 0 and stretches[-1][1] == HR_PER_WEEK:
        first = stretches.pop(0)
        stretches[-1][1] += first[1]
    return tuple((start, end) for start, end in stretches)


def cron_spans(stretches_s: Sequence[tuple[int, int]]) -> tuple[CronSpan, ...]:
    """Return stretches of the week, in seconds from Monday 00:00 UTC, as cron; days with the same times share one."""
    days: dict[tuple[int, int], list[int]] = defaultdict(list)
    for start, end in stretches_s:
        day = start // (HR_PER_DAY * S_PER_HR)
        midnight = day * HR_PER_DAY * S_PER_HR
        days[start - midnight, end - midnight].append(day)
    return tuple(
        CronSpan(start=_cron(start, at), end=_cron(end, at)) for (start, end), at in sorted(days.items(), key=str)
    )


def hours_in_words(stretches: Sequence[tuple[int, int]]) -> str:
    """Return stretches of hours of the week in words, days with the same hours together: `Mon, Tue 08:00-20:00`."""
    days: dict[tuple[int, int], list[int]] = defaultdict(list)
    for start, end in stretches:
        day, hour = divmod(start, HR_PER_DAY)
        days[hour, end - day * HR_PER_DAY].append(day)
    return "; ".join(
        f"{', '.join(_DAYS[day] for day in at)} {start:02d}:00-{_closing(at, end)}"
        for (start, end), at in sorted(days.items(), key=lambda item: (item[1], item[0]))
    )


def _closing(days: Sequence[int], end: int) -> str:
    """Return when a stretch ends; with its day where that is not the one on which it began."""
    later, hour = divmod(end, HR_PER_DAY)
    if later == 0 or (later, hour) == (1, 0):
        return f"{hour or HR_PER_DAY:02d}:00"
    return f"{hour:02d}:00 {f'of {_DAYS[(days[0] + later) % DAYS_PER_WEEK]}' if len(days) == 1 else f'{later} d later'}"


def _cron(second_of_day: int, days: Sequence[int]) -> str:
    day_on, within = divmod(second_of_day, HR_PER_DAY * S_PER_HR)
    hour, rest = divmod(within, S_PER_HR)
    # cron counts days from Sunday = 0; the week here starts on Monday
    on = sorted({(day + day_on + 1) % DAYS_PER_WEEK for day in days})
    return f"{rest // S_PER_MIN} {hour} * * {','.join(map(str, on)) if len(on) < DAYS_PER_WEEK else '*'}"


KUBECTL = "registry.k8s.io/kubectl:v1.34.0"
CLUSTER_QUEUE = "trimtab-deferrable"
_GROUP = "kueue.x-k8s.io"
_MIN_PER_HR = S_PER_HR // S_PER_MIN
QUEUE_LABEL = f"{_GROUP}/queue-name"
NOTEBOOKS = "notebooks.kubeflow.org"
NOTEBOOK_STOPPED = "kubeflow-resource-stopped"
"""The annotation of a Notebook that is stopped; its value is when, which nothing decides by."""
_SOME_TIME = "2026-01-01T00:00:00Z"
_LEAST_OPEN_S = S_PER_HR
_AGAIN_MIN = 10
_BOUNDLESS = "1000000"


def deferral_objects(action: Action, effect: DeferRuns, known: WorkloadFacts) -> tuple[dict[str, Plain], ...]:
    """Return the queue, the two timetables that close and open it, and what they may do."""
    name = queue_name(known)
    opens_s = effect.policy.start_hour * S_PER_HR
    # held all day: it opens for as long as its runs need to be let in, or it would close as it opens
    open_s = max(_LEAST_OPEN_S, S_PER_DAY - effect.policy.within_s)
    closes_s = (opens_s + open_s) % S_PER_DAY
    return (
        _queue(action, known, name),
        *_may_patch(action, known, name, f"localqueues.{_GROUP}", name),
        _turn(action, known, name, "close", closes_s, "Hold"),
        _turn(action, known, name, "open", opens_s, "None"),
    )


def queue_name(known: WorkloadFacts) -> str:
    """Return the name of a workload's LocalQueue."""
    return dns_name("trimtab-defer", known.short_name, length=CRON_JOB_LENGTH - len("-close"))


def cluster_queue_objects(actions: Sequence[Action], gpus: int) -> tuple[dict[str, Plain], ...]:
    """Return the ClusterQueue and its flavor, for so many GPUs at once: of the rest it has more than any cluster."""
    quotas = {
        "cpu": _BOUNDLESS,
        "memory": f"{_BOUNDLESS}Gi",
        "ephemeral-storage": f"{_BOUNDLESS}Gi",
        GPU_RESOURCE: str(gpus),
    }
    resources: list[Plain] = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    group: Mapping[str, Plain] = {
        "coveredResources": list(quotas),
        "flavors": [{"name": CLUSTER_QUEUE, "resources": resources}],
    }
    return (
        {
            "apiVersion": f"{_GROUP}/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": metadata(CLUSTER_QUEUE, actions),
            "spec": {},
        },
        {
            "apiVersion": f"{_GROUP}/v1beta2",
            "kind": "ClusterQueue",
            "metadata": metadata(CLUSTER_QUEUE, actions),
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
    )


def _queue(action: Action, known: WorkloadFacts, name: str) -> dict[str, Plain]:
    return {
        "apiVersion": f"{_GROUP}/v1beta2",
        "kind": "LocalQueue",
        "metadata": metadata(name, [action], namespace=known.namespace),
        "spec": {"clusterQueue": CLUSTER_QUEUE},
    }


def notebook_hours(action: Action, known: WorkloadFacts, spans: Sequence[CronSpan]) -> tuple[dict[str, Plain], ...]:
    """Return the timetables that start a Notebook and stop it at these times, and what they may do."""
    name = dns_name("trimtab-hours", known.short_name, length=CRON_JOB_LENGTH - len("-start-99"))
    turns = []
    for number, span in enumerate(spans, start=1):
        for verb, schedule, stopped in (("start", span.start, None), ("stop", span.end, _SOME_TIME)):
            body: Mapping[str, Plain] = {"metadata": {"annotations": {NOTEBOOK_STOPPED: stopped}}}
            turns.append(
                _patch_at(
                    action, known, name, f"{verb}-{number}", schedule, (NOTEBOOKS, known.short_name, json.dumps(body))
                )
            )
    return (*_may_patch(action, known, name, NOTEBOOKS, known.short_name), *turns)


def _may_patch(
    action: Action, known: WorkloadFacts, name: str, resource: str, target: str
) -> tuple[dict[str, Plain], ...]:
    """Return an account that may patch one object and nothing else."""
    account: dict[str, Plain] = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(name, [action], namespace=known.namespace),
    }
    return account, _role(action, known, name, resource, target), _binding(action, known, name)


def _role(action: Action, known: WorkloadFacts, name: str, resource: str, target: str) -> dict[str, Plain]:
    plural, _, group = resource.partition(".")
    rules: Sequence[Plain] = [
        {"apiGroups": [group], "resources": [plural], "resourceNames": [target], "verbs": ["get", "patch"]}
    ]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(name, [action], namespace=known.namespace),
        "rules": rules,
    }


def _binding(action: Action, known: WorkloadFacts, name: str) -> dict[str, Plain]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(name, [action], namespace=known.namespace),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": known.namespace}],
    }


def _turn(action: Action, known: WorkloadFacts, name: str, verb: str, at_s: int, policy: str) -> dict[str, Plain]:
    """Return a CronJob that sets the queue's stop policy every day at a time (UTC)."""
    hour, minute = divmod(at_s // S_PER_MIN, _MIN_PER_HR)
    # once more after some minutes: a turn that fails would hold, or let in, the runs of a day
    minutes = f"{minute}" if minute + _AGAIN_MIN >= _MIN_PER_HR else f"{minute},{minute + _AGAIN_MIN}"
    patch = f'{{"spec":{{"stopPolicy":"{policy}"}}}}'
    schedule = f"{minutes} {hour} * * *"
    return _patch_at(action, known, name, verb, schedule, (f"localqueues.{_GROUP}", name, patch))


def _patch_at(
    action: Action, known: WorkloadFacts, name: str, verb: str, schedule: str, patch: tuple[str, str, str]
) -> dict[str, Plain]:
    """Return a CronJob that merges a patch into an object: its resource, its name and the patch."""
    resource, target, body = patch
    order = ["patch", resource, target, "--type=merge", f"--patch={body}"]
    pod: Plain = {
        "serviceAccountName": name,
        "restartPolicy": "OnFailure",
        "containers": [{"name": "kubectl", "image": KUBECTL, "args": order}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata(dns_name(name, verb, length=CRON_JOB_LENGTH), [action], namespace=known.namespace),
        "spec": {
            "schedule": schedule,
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Replace",
            "jobTemplate": {"spec": {"template": {"spec": pod}}},
        },
    }


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
    # a run that is wider than a node gets a placeholder for each of its nodes: no pod spans several
    nodes = max(1, math.ceil(ask.count / spec.gpus_per_node)) if ask.resource == GPU_RESOURCE and not templates else 1
    each = GpuAsk(resource=ask.resource, count=math.ceil(ask.count / nodes))
    return tuple(
        _timetable(effect, known, known.replicas * nodes, action, number, span.start, _pod(spec, each, templates or {}))
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
    effect: StartBeforeRuns,
    known: WorkloadFacts,
    pods: int,
    action: Action,
    number: int,
    start: str,
    pod: Mapping[str, Plain],
) -> dict[str, Plain]:
    name = dns_name("trimtab-warm", known.short_name, str(number), length=CRON_JOB_LENGTH)
    job: Mapping[str, Plain] = {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": pods,
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
