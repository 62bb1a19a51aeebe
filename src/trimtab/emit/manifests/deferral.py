"""Runs that wait for an hour of the day: a Kueue LocalQueue that cron closes ahead of the hour and opens at it.

`stopPolicy: Hold` admits nothing new and leaves what runs alone (kueue.sigs.k8s.io, LocalQueue). A run comes into the queue by
the label `kueue.x-k8s.io/queue-name`; the queue needs a ClusterQueue of the name below over the flavor of the node pool.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.deployment.effects import DeferRuns
from trimtab.emit.manifests.facts import WorkloadFacts
from trimtab.emit.manifests.objects import dns_name, metadata
from trimtab.emit.plain import Plain
from trimtab.plan.model import Action
from trimtab.units import S_PER_DAY, S_PER_HR, S_PER_MIN

KUBECTL = "registry.k8s.io/kubectl:v1.34.0"
CLUSTER_QUEUE = "trimtab-deferrable"
_GROUP = "kueue.x-k8s.io"
_MIN_PER_HR = S_PER_HR // S_PER_MIN


def deferral_objects(action: Action, effect: DeferRuns, known: WorkloadFacts) -> tuple[dict[str, Plain], ...]:
    """Return the queue, the two timetables that close and open it, and what they may do."""
    name = dns_name("trimtab-defer", known.short_name)
    opens_s = effect.policy.start_hour * S_PER_HR
    closes_s = (opens_s - effect.policy.within_s) % S_PER_DAY
    return (
        _queue(action, known, name),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name, [action], namespace=known.namespace)},
        _role(action, known, name),
        _binding(action, known, name),
        _turn(action, known, name, "close", closes_s, "Hold"),
        _turn(action, known, name, "open", opens_s, "None"),
    )


def _queue(action: Action, known: WorkloadFacts, name: str) -> dict[str, Plain]:
    return {
        "apiVersion": f"{_GROUP}/v1beta2",
        "kind": "LocalQueue",
        "metadata": metadata(name, [action], namespace=known.namespace),
        "spec": {"clusterQueue": CLUSTER_QUEUE},
    }


def _role(action: Action, known: WorkloadFacts, name: str) -> dict[str, Plain]:
    rules: Sequence[Plain] = [
        {"apiGroups": [_GROUP], "resources": ["localqueues"], "resourceNames": [name], "verbs": ["get", "patch"]}
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
    patch = f'{{"spec":{{"stopPolicy":"{policy}"}}}}'
    order = ["patch", f"localqueues.{_GROUP}", name, "--type=merge", f"--patch={patch}"]
    pod: Plain = {
        "serviceAccountName": name,
        "restartPolicy": "OnFailure",
        "containers": [{"name": "kubectl", "image": KUBECTL, "args": order}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata(dns_name(name, verb), [action], namespace=known.namespace),
        "spec": {
            "schedule": f"{minute} {hour} * * *",
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Replace",
            "jobTemplate": {"spec": {"template": {"spec": pod}}},
        },
    }
