"""What cron patches at certain hours: the queue of runs that wait for an hour of the day, and notebooks that close at night.

Runs wait in a Kueue LocalQueue that cron closes ahead of the hour and opens at it.
`stopPolicy: Hold` admits nothing new and leaves what runs alone (kueue.sigs.k8s.io, LocalQueue). A run comes into the queue by
the label `kueue.x-k8s.io/queue-name`, which the Component of its workload sets; behind all such queues stands one ClusterQueue
whose quota is the limits of the node pools, so that it holds runs for the hour and for nothing else.

A Notebook has no replicas that KEDA could set. Kubeflow's controller stops one that carries an annotation and starts it again
without it (kubeflow/kubeflow, notebook-controller, pkg/culler).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from trimtab.deployment.effects import DeferRuns
from trimtab.emit.manifests.facts import WorkloadFacts
from trimtab.emit.manifests.karpenter import GPU_RESOURCE
from trimtab.emit.manifests.objects import CRON_JOB_LENGTH, Plain, dns_name, metadata
from trimtab.emit.manifests.week import CronSpan
from trimtab.plan.model import Action
from trimtab.units import S_PER_DAY, S_PER_HR, S_PER_MIN

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
