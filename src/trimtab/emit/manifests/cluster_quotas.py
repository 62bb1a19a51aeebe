"""Quotas of the cluster that would refuse a plan's pods: what has to be changed before an action, in words.

A ResourceQuota refuses pods above it, of each resource by its own name: a MIG slice is another one than a GPU. A LimitRange
refuses a pod or a container by what it asks for alone (`limit_ranges`), and queues keep runs waiting (`queue_quotas`). None of
them forbids a plan, since a person can change it: the action says how.

Sources: kubernetes.io, "Resource Quotas"; kubernetes pkg/quota/v1/evaluator/core/pods.go (scopes).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trimtab.diagnose.cluster_records import number
from trimtab.emit.manifests.asked_resources import (
    ASKED,
    DONE,
    SLACK,
    Asking,
    Needed,
    Row,
    StandingQuotas,
    amount_words,
    askers,
    asking_of,
    kubectl_patch,
    need,
    of_pod,
    quantity_words,
    summed,
)
from trimtab.emit.manifests.facts import EmitFacts, namespace_of
from trimtab.emit.manifests.limit_ranges import of_limit_ranges
from trimtab.emit.manifests.queue_quotas import of_cluster_queues, of_flavors, of_volcano_queues
from trimtab.emit.manifests.scope import actions_in, clusters_of, facts_in, scope_of
from trimtab.plan.model import Plan, Precondition
from trimtab.tables.schemas import DEVICES_OF_CLASS, UNKNOWN_SCOPES
from trimtab.tables.workloads import cluster_of, local_name

_ONE_NAME = {"requests.cpu": "cpu", "requests.memory": "memory", "count/pods": "pods"}


def with_preconditions(plan: Plan, facts: EmitFacts, standing: StandingQuotas) -> Plan:
    """Return the plan whose actions say which quotas and limits of the cluster must be changed before them.

    Others are assumed to hold what they held when the cluster was read; what a workload held never counts against itself.
    """
    said: dict[str, list[Precondition]] = defaultdict(list)
    clusters = clusters_of(facts, plan.actions)
    for cluster in clusters:
        alone = clusters == ("",)
        here = facts if alone else facts_in(facts, cluster)
        actions = plan.actions if alone else actions_in(plan.actions, facts, cluster)
        scope = scope_of(actions, here, replace(plan, actions=actions))
        rows = standing if alone else _in_cluster(standing, cluster)
        asking = [asking_of(placed, scope, rows.pods) for placed in scope.here.values()]
        told = (
            *_of_namespaces(asking, rows),
            *of_limit_ranges(asking, rows.limit_ranges, scope),
            *of_cluster_queues(asking, rows),
            *of_flavors(asking, rows, scope),
            *of_volcano_queues(asking, rows),
        )
        for needed in told:
            condition = Precondition(what=needed.what, command=needed.command, cluster=cluster)
            for action in dict.fromkeys(action.id for one in needed.askers for action in one.placed.actions):
                said[action].append(condition)
    return replace(
        plan, actions=tuple(replace(action, preconditions=tuple(said[action.id])) for action in plan.actions)
    )


def _in_cluster(standing: StandingQuotas, cluster: str) -> StandingQuotas:
    """Return what stands in one cluster, in its own names."""

    def local(rows: Sequence[Row], named_by: str, columns: Sequence[str]) -> list[Row]:
        mine = [row for row in rows if cluster_of(str(row[named_by])) == cluster]
        return [{**row, **{name: local_name(str(row[name])) for name in columns if row[name]}} for row in mine]

    return StandingQuotas(
        quotas=local(standing.quotas, "namespace", ["namespace"]),
        limit_ranges=local(standing.limit_ranges, "namespace", ["namespace"]),
        queues=local(standing.queues, "name", ["name", "parent"]),
        pods=local(standing.pods, "workload", ["workload"]),
        queue_of={local_name(name): queue for name, queue in standing.queue_of.items() if cluster_of(name) == cluster},
    )


def _of_namespaces(asking: Sequence[Asking], standing: StandingQuotas) -> Iterator[Needed]:
    """Yield each quota of a namespace that the plan would exceed, with those that ask for more."""
    for quota in standing.quotas:
        said, scopes, namespace = str(quota["resource"]), str(quota["scopes"] or ""), str(quota["namespace"])
        resource, hard = _resource(said), number(quota["hard"])
        counted = [one for one in asking if namespace_of(one.placed.name) == namespace and counts(scopes, one.pod)]
        growing = [one for one in counted if one.grows(resource)]
        rolling = [one for one in counted if one.surge.get(resource, 0.0) > SLACK and not one.grows(resource)]
        if not growing and not rolling:
            continue
        used = _used(quota, resource, standing)
        head = (
            f"raise {said} of ResourceQuota {quota['name']} in namespace {namespace} from {amount_words(said, hard)} to"
        )
        wanted = need(used, growing, resource)
        if growing and wanted > hard + SLACK:
            who, doubt = askers(growing, resource, used, said), _doubt(scopes, growing)
            words = f"{head} {amount_words(said, wanted)}{doubt}: {who}, and pods above the quota are refused"
            yield Needed(what=words, askers=tuple(growing), command=_raised(quota, wanted))
            continue
        held = wanted if growing else used
        for one in rolling:
            wanted = held + one.surge[resource]
            if wanted > hard + SLACK:
                why = "its first new pod comes before an old one goes (unless its strategy has maxUnavailable: 1)"
                doubt = _doubt(scopes, [one])
                words = f"{head} {amount_words(said, wanted)} while {one.placed.name} is rolled out{doubt}: {why}"
                yield Needed(what=f"{words}, and the quota refuses it", askers=(one,), command=_raised(quota, wanted))


def _doubt(scopes: str, askers: Sequence[Asking]) -> str:
    """Say why it is not certain that a quota of such scopes counts some pods; empty where it is."""
    if scopes == UNKNOWN_SCOPES:
        return ", if it counts these pods (kube-state-metrics does not say which)"
    if scopes and not all(one.pod for one in askers):
        return f", if it counts these pods (its scopes: {scopes}; none of them was read)"
    return ""


def _raised(quota: Row, wanted: float) -> str:
    """Return the command that raises a quota."""
    resource = str(quota["resource"])
    patch = {"spec": {"hard": {resource: quantity_words(resource, math.ceil(wanted - SLACK))}}}
    return kubectl_patch("resourcequota", str(quota["name"]), str(quota["namespace"]), patch)


def _used(quota: Row, resource: str, standing: StandingQuotas) -> float:
    """Return what a quota is used by: as its status says, else by the pods that it counts."""
    if quota["used"] is not None:
        return number(quota["used"])
    namespace, scopes = str(quota["namespace"]), str(quota["scopes"] or "")
    held = (of_pod(pod) for pod in standing.pods if _is_counted(pod, namespace) and counts(scopes, pod))
    return summed(held).get(resource, 0.0)


def _is_counted(pod: Row, namespace: str) -> bool:
    return pod["namespace"] == namespace and pod["phase"] not in DONE


def _resource(said: str) -> str:
    """Return the name of a resource by which pods ask for what a quota limits."""
    if "/" in said and not said.endswith(DEVICES_OF_CLASS):
        said = said.removeprefix("requests.")
    return _ONE_NAME.get(said, said)


def counts(scopes: str, pod: Row) -> bool:
    """Return whether a quota of such scopes (a cell of `resource_quotas`) counts a pod; where it cannot be known it may."""
    return not pod or all(_is_in(scope, pod) for scope in scopes.split("; ") if scope not in ("", UNKNOWN_SCOPES))


def _is_in(scope: str, pod: Row) -> bool:
    name, _, rest = scope.partition(" ")
    operator, _, values = rest.partition(" ")
    match name:
        case "PriorityClass":
            priority = str(pod.get("priority_class") or "")
            match operator:
                case "In":
                    return priority in values.split(",") and priority != ""
                case "NotIn":  # a pod without a class is in none of them
                    return priority not in values.split(",") or priority == ""
                case "DoesNotExist":
                    return priority == ""
                case _:
                    return priority != ""
        case "BestEffort":
            return _is_best_effort(pod)
        case "NotBestEffort":
            return not _is_best_effort(pod)
        case "Terminating":
            return pod.get("deadline_s") is not None
        case "NotTerminating":
            return pod.get("deadline_s") is None
        case _:
            return False


def _is_best_effort(pod: Row) -> bool:
    """Return whether a pod asks for no CPU and no memory: GPUs do not count there (kubernetes.io, "Pod QoS classes")."""
    return all(pod.get(column) is None for column in ASKED.values())
