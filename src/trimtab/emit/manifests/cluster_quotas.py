"""Quotas of the cluster that would refuse a plan's pods: what has to be changed before an action, in words.

A ResourceQuota refuses pods above it, of each resource by its own name: a MIG slice is another one than a GPU. A LimitRange
refuses a pod or a container by what it asks for alone (`limit_ranges`). Queues keep runs waiting. None of them forbids a plan,
since a person can change it: the action says how.

Kueue keeps runs waiting above the quota of their ClusterQueue, and for good where that does not cover a resource which they ask
for. What a queue of Volcano may use is said at `of_volcano_queues`.

Sources: kubernetes.io, "Resource Quotas"; kubernetes pkg/quota/v1/evaluator/core/pods.go (scopes); kueue.sigs.k8s.io, "Cluster
Queue" (quotas, borrowing), "Resource Flavor".
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from trimtab.diagnose.cluster_records import number, pairs
from trimtab.emit.manifests.asked_resources import (
    ASKED,
    DONE,
    SLACK,
    AskedResources,
    Needed,
    StandingQuotas,
    amount_words,
    askers,
    asking_of,
    kubectl_patch,
    need,
    of_pod,
    quantity_words,
    queue_of,
    summed,
)
from trimtab.emit.manifests.facts import EmitFacts, namespace_of
from trimtab.emit.manifests.karpenter import GPU_RESOURCE
from trimtab.emit.manifests.limit_ranges import of_limit_ranges
from trimtab.emit.manifests.pool_specs import PlacedWorkload, PoolSpec
from trimtab.emit.manifests.scope import Scope, actions_in, clusters_of, facts_in, scope_of
from trimtab.emit.manifests.workload_patch import pool_selector
from trimtab.plan.model import Plan, Precondition
from trimtab.tables.arrow import RecordedRow
from trimtab.tables.schemas import DEVICES_OF_CLASS, UNKNOWN_SCOPES
from trimtab.tables.workloads import cluster_of, local_name

_CLUSTER_QUEUE, _LOCAL_QUEUE = "ClusterQueue", "LocalQueue"


def of_cluster_queues(asking: Sequence[AskedResources], standing: StandingQuotas) -> Iterator[Needed]:
    """Yield each quota of a ClusterQueue that the plan would exceed, in words, with those that ask for more."""
    behind = _cluster_queues(asking, standing)
    waiting: dict[tuple[str, str], list[AskedResources]] = defaultdict(list)
    rows = [row for row in standing.queues if row["kind"] == _CLUSTER_QUEUE]
    for each in asking:
        queue = behind.get(each.placed.name, "")
        names = _names_of_classes(queue, rows)
        asker = _as_kueue_counts(each, names)
        for resource in asker.most if queue else ():
            if (_is_extended(resource) or resource in names.values()) and asker.grows(resource):
                waiting[queue, resource].append(asker)
    for (queue, resource), growing in sorted(waiting.items(), key=lambda item: item[0]):
        mine = [row for row in rows if row["name"] == queue]
        covered = [row for row in mine if row["resource"] == resource]
        if any(row["quota_gpus"] is None for row in covered):
            continue
        asked = math.ceil(sum(asker.most.get(resource, 0.0) for asker in growing) - SLACK)
        if mine and not covered:
            who = askers(growing, resource, 0.0, resource)
            why = "Kueue never lets in what asks for a resource that its queue does not cover"
            words = f"let ClusterQueue {queue} cover {resource} with a quota of {asked}: {who}, and {why}"
            yield Needed(what=words, askers=tuple(growing))
            continue
        quota = sum(number(row["quota_gpus"]) for row in covered)
        told = [row["used_gpus"] for row in covered]
        # where nothing tells what is used, what asks for more uses at least what it holds
        own = sum(asker.now.get(resource, 0.0) for asker in growing)
        used = own if None in told else sum(map(number, told))
        wanted, room = need(used, growing, resource), quota + sum(_borrowable(row, rows) for row in covered)
        if covered and wanted > room + SLACK:
            head = f"raise {resource} of ClusterQueue {queue} from {amount_words(resource, quota)} to"
            who = askers(growing, resource, used, resource)
            words = f"{head} {amount_words(resource, quota + wanted - room)}: {who}, and Kueue keeps the rest waiting"
            yield Needed(what=words, askers=tuple(growing))


def _names_of_classes(queue: str, rows: Sequence[RecordedRow]) -> dict[str, str]:
    """Return the resources as which a ClusterQueue counts claimed devices, by the names that ResourceQuotas give these."""
    return {
        f"{device_class}{DEVICES_OF_CLASS}": str(row["resource"])
        for row in rows
        if row["name"] == queue and row["device_classes"]
        for device_class in str(row["device_classes"]).split(", ")
    }


def _as_kueue_counts(asker: AskedResources, names: Mapping[str, str]) -> AskedResources:
    """Return what a workload asks for, with claimed devices by the resources as which its queue counts them."""

    def counted(amounts: Mapping[str, float]) -> Mapping[str, float]:
        return summed({names.get(resource, resource): amount} for resource, amount in amounts.items())

    return replace(
        asker, now=counted(asker.now), past=counted(asker.past), most=counted(asker.most), surge=counted(asker.surge)
    )


def _borrowable(row: RecordedRow, rows: Sequence[RecordedRow]) -> float:
    """Return what a ClusterQueue can borrow of one flavor: what the others of its cohort leave, up to its own limit."""
    if not row["parent"]:
        return 0.0
    unused = sum(
        max(number(other["quota_gpus"]) - number(other["used_gpus"]), 0.0)
        for other in rows
        # a queue whose use is unknown may use all of it
        if other["used_gpus"] is not None
        and other["parent"] == row["parent"]
        and other["name"] != row["name"]
        and (other["resource"], other["flavor"]) == (row["resource"], row["flavor"])
    )
    limit = row["borrowing_gpus"]
    return unused if limit is None else min(unused, number(limit))


def _is_extended(resource: str) -> bool:
    """Return whether Kueue counts a resource by this name; claimed devices by those of its configuration."""
    return "/" in resource and not resource.endswith(DEVICES_OF_CLASS)


def _cluster_queues(asking: Sequence[AskedResources], standing: StandingQuotas) -> dict[str, str]:
    """Return the ClusterQueue of each workload whose pods or runs name a LocalQueue."""
    behind = {
        (row["namespace"], row["name"]): str(row["parent"]) for row in standing.queues if row["kind"] == _LOCAL_QUEUE
    }
    named = {asker.placed.name: queue_of(asker, standing) for asker in asking}
    found = {name: behind.get((namespace_of(name), queue), "") for name, queue in named.items()}
    return {name: queue for name, queue in found.items() if queue}


def of_flavors(asking: Sequence[AskedResources], standing: StandingQuotas, scope: Scope) -> Iterator[Needed]:
    """Yield each ClusterQueue none of whose flavors lets its pods go to the plan's nodes, in words.

    Kueue has pods select nodes by the labels of their flavor as well: on nodes without them they never start.
    """
    behind = _cluster_queues(asking, standing)
    without: dict[tuple[str, str], list[AskedResources]] = defaultdict(list)
    for asker in asking:
        spec, queue = scope.spec(asker.placed.name), behind.get(asker.placed.name, "")
        if spec is None or not queue:
            continue
        rows = [row for row in standing.queues if row["kind"] == _CLUSTER_QUEUE and row["name"] == queue]
        asked = _as_kueue_counts(asker, _names_of_classes(queue, rows)).most
        flavors = [pairs(row["flavor_labels"]) for row in rows if row["resource"] in asked]
        if flavors and not any(_fits(labels, asker.placed, spec) for labels in flavors):
            words = ", ".join(f"{key}: {value}" for key, value in pool_selector(spec).items())
            without[queue, words].append(asker)
    for (queue, words), waiting in without.items():
        names = ", ".join(asker.placed.name for asker in waiting)
        what = (
            f"give ClusterQueue {queue} a ResourceFlavor for the nodes with {words}: Kueue has the pods of "
            f"{names} select nodes by the labels of their flavor too, and these nodes have those of none"
        )
        yield Needed(what=what, askers=tuple(waiting))


_OF_THE_GPU = ("nvidia.com/gpu.", "cloud.google.com/gke-accelerator")
"""How labels begin that feature discovery and GKE give nodes by their GPU."""


def _fits(labels: Mapping[str, str], placed: PlacedWorkload, spec: PoolSpec) -> bool:
    """Return whether the nodes of a pool will have the labels of a flavor, as far as the plan says what they have."""
    there = {key: {str(value)} for key, value in pool_selector(spec).items()} | {
        "node.kubernetes.io/instance-type": set(spec.instance_types),
        "topology.kubernetes.io/region": {spec.pool.region},
        "karpenter.sh/capacity-type": {"on-demand", *(["spot"] if spec.spot else [])},
    }
    same_gpu = placed.place.gpu == placed.known.gpu
    return all(
        same_gpu if key.startswith(_OF_THE_GPU) else value in there.get(key, ()) for key, value in labels.items()
    )


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
            *of_volcano_queues(asking, rows, _cluster_queues(asking, rows)),
        )
        for needed in told:
            condition = Precondition(what=needed.what, command=needed.command, cluster=cluster)
            for action in dict.fromkeys(action.id for asker in needed.askers for action in asker.placed.actions):
                said[action].append(condition)
    return replace(
        plan, actions=tuple(replace(action, preconditions=tuple(said[action.id])) for action in plan.actions)
    )


def _in_cluster(standing: StandingQuotas, cluster: str) -> StandingQuotas:
    """Return what is in one cluster, in its own names."""

    def local(rows: Sequence[RecordedRow], named_by: str, columns: Sequence[str]) -> list[RecordedRow]:
        mine = [row for row in rows if cluster_of(str(row[named_by])) == cluster]
        return [{**row, **{name: local_name(str(row[name])) for name in columns if row[name]}} for row in mine]

    return StandingQuotas(
        quotas=local(standing.quotas, "namespace", ["namespace"]),
        limit_ranges=local(standing.limit_ranges, "namespace", ["namespace"]),
        queues=local(standing.queues, "name", ["name", "parent"]),
        pods=local(standing.pods, "workload", ["workload"]),
        queue_of={local_name(name): queue for name, queue in standing.queue_of.items() if cluster_of(name) == cluster},
        whole_boards={"": standing.whole_boards[cluster]} if cluster in standing.whole_boards else {},
    )


def _of_namespaces(asking: Sequence[AskedResources], standing: StandingQuotas) -> Iterator[Needed]:
    """Yield each quota of a namespace that the plan would exceed, with those that ask for more."""
    for quota in standing.quotas:
        said, scopes, namespace = str(quota["resource"]), str(quota["scopes"] or ""), str(quota["namespace"])
        resource, hard = _resource(said), number(quota["hard"])
        counted = [
            asker for asker in asking if namespace_of(asker.placed.name) == namespace and counts(scopes, asker.pod)
        ]
        growing = [asker for asker in counted if asker.grows(resource)]
        rolling = [asker for asker in counted if asker.surge.get(resource, 0.0) > SLACK and not asker.grows(resource)]
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
        for asker in rolling:
            wanted = held + asker.surge[resource]
            if wanted > hard + SLACK:
                why = "its first new pod comes before an old one goes (unless its strategy has maxUnavailable: 1)"
                doubt = _doubt(scopes, [asker])
                words = f"{head} {amount_words(said, wanted)} while {asker.placed.name} is rolled out{doubt}: {why}"
                yield Needed(what=f"{words}, and the quota refuses it", askers=(asker,), command=_raised(quota, wanted))


def _doubt(scopes: str, askers: Sequence[AskedResources]) -> str:
    """Say why it is not certain that a quota of such scopes counts some pods; empty where it is."""
    if scopes == UNKNOWN_SCOPES:
        return ", if it counts these pods (kube-state-metrics does not say which)"
    if scopes and not all(asker.pod for asker in askers):
        return f", if it counts these pods (its scopes: {scopes}; none of them was read)"
    return ""


def _raised(quota: RecordedRow, wanted: float) -> str:
    """Return the command that raises a quota."""
    resource = str(quota["resource"])
    patch = {"spec": {"hard": {resource: quantity_words(resource, math.ceil(wanted - SLACK))}}}
    return kubectl_patch("resourcequota", str(quota["name"]), str(quota["namespace"]), patch)


def _used(quota: RecordedRow, resource: str, standing: StandingQuotas) -> float:
    """Return what a quota is used by: as its status says, else by the pods that it counts."""
    if quota["used"] is not None:
        return number(quota["used"])
    namespace, scopes = str(quota["namespace"]), str(quota["scopes"] or "")
    held = (of_pod(pod) for pod in standing.pods if _is_counted(pod, namespace) and counts(scopes, pod))
    return summed(held).get(resource, 0.0)


def _is_counted(pod: RecordedRow, namespace: str) -> bool:
    return pod["namespace"] == namespace and pod["phase"] not in DONE


def _resource(said: str) -> str:
    """Return the name of a resource by which pods ask for what a quota limits."""
    if "/" in said and not said.endswith(DEVICES_OF_CLASS):
        said = said.removeprefix("requests.")
    return _ONE_NAME.get(said, said)


def counts(scopes: str, pod: RecordedRow) -> bool:
    """Return whether a quota of such scopes (a cell of `resource_quotas`) counts a pod; where it cannot be known it may."""
    return not pod or all(_is_in(scope, pod) for scope in scopes.split("; ") if scope not in ("", UNKNOWN_SCOPES))


def _is_in(scope: str, pod: RecordedRow) -> bool:
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


def _is_best_effort(pod: RecordedRow) -> bool:
    """Return whether a pod asks for no CPU and no memory: GPUs do not count there (kubernetes.io, "Pod QoS classes")."""
    return all(pod.get(column) is None for column in ASKED.values())


_VOLCANO_QUEUE, _VOLCANO_ROOT = "Queue", "root"


def of_volcano_queues(
    asking: Sequence[AskedResources], standing: StandingQuotas, of_kueue: Container[str]
) -> Iterator[Needed]:
    """Yield each limit of a Volcano queue that the plan would exceed, with those that ask for more.

    `of_kueue`: the workloads that wait in Kueue, whose queues may have the names of Volcano's.

    A queue may use its *real capability*: the least of its `capability`, which limits no resource that it does not name, and
    of what the queues beside it leave, each of which keeps its `guarantee` for itself alone, used or not:

        real capability = min(capability, max(above - sum of guarantees, 0) + own guarantee)

    `above` is all that the nodes have, and every queue stands beside every other, where queues are flat. In a hierarchy it is
    the real capability of the queue above, beside stand the queues of the same parent, and the root may use any amount that
    its own capability allows. A run waits for its own queue and for each above it. What a queue deserves limits others only
    while GPUs are short, and is not looked at.

    Volcano's controller gives every queue without a parent the parent `root`, so that only a queue under another one shows a
    hierarchy. Where there is none, the flat rule is assumed, and the words say so.

    Sources, volcano-sh/volcano at ed72c7c (2026-08-20, after v1.15): pkg/scheduler/plugins/capacity/capacity.go
    (buildQueueAttrs, buildHierarchicalQueueAttrs, checkHierarchicalQueue, jobEnqueueable, checkJobEnqueueableHierarchically),
    pkg/scheduler/plugins/proportion/proportion.go (OnSessionOpen), pkg/controllers/queue/queue_controller_action.go
    (updateQueueParent).
    """
    rows = [row for row in standing.queues if row["kind"] == _VOLCANO_QUEUE]
    above = {
        str(row["name"]): str(row["parent"] or ("" if row["name"] == _VOLCANO_ROOT else _VOLCANO_ROOT)) for row in rows
    }
    asks = [asker for asker in asking if asker.placed.name not in of_kueue]
    for resource in sorted({str(row["resource"]) for row in rows if row["resource"]}):
        stated = {str(row["name"]): row for row in rows if row["resource"] == resource}
        boards = standing.whole_boards.get("") if resource == GPU_RESOURCE else None
        growing: dict[str, list[AskedResources]] = defaultdict(list)
        for asker in asks:
            if asker.grows(resource):
                for name in _with_ancestors(queue_of(asker, standing), above):
                    growing[name].append(asker)
        yield from _of_volcano_resource(resource, stated, above, growing, boards)


def _of_volcano_resource(
    resource: str,
    stated: Mapping[str, RecordedRow],
    above: Mapping[str, str],
    growing: Mapping[str, Sequence[AskedResources]],
    boards: float | None,
) -> Iterator[Needed]:
    """Yield what a plan needs of one resource: `stated` are the queues' rows of it, `growing` who asks for more, by queue."""
    flat = not any(parent in above and parent != _VOLCANO_ROOT for parent in above.values())
    needs = {name: _needed_of_queue(stated.get(name), more, resource) for name, more in growing.items()}
    kept: dict[str, Mapping[str, float]] = {}
    # from the leaves up: what a queue needs of the one above it is more than its pods ask for, by what stands beside it
    for name in sorted(growing, key=lambda name: (-len(_with_ancestors(name, above)), name)):
        beside = [other for other in stated if other != name and (flat or above[other] == above[name])]
        guarantees = {other: amount for other in sorted(beside) if (amount := _guarantee(stated.get(other))) > SLACK}
        parent, needed = above[name], needs[name] + sum(guarantees.values())
        who = askers(growing[name], resource, _used_of_queue(stated.get(name), growing[name], resource), resource)
        if needs[name] > _guarantee(stated.get(name)) + SLACK:
            if flat and guarantees and name != _VOLCANO_ROOT:
                yield from _of_cluster(resource, name, who, needed, guarantees, growing[name], boards)
            elif not flat and needed > needs.get(parent, math.inf):
                needs[parent], kept[parent] = needed, {**kept.get(name, {}), **guarantees}
        if kept.get(name):
            who += f", beside what queues below it are guaranteed ({_guarantee_words(resource, kept[name])})"
        yield from _of_capability(resource, name, who, stated.get(name), needs[name], growing[name])


def _of_cluster(
    resource: str,
    name: str,
    who: str,
    needed: float,
    guarantees: Mapping[str, float],
    more: Sequence[AskedResources],
    boards: float | None,
) -> Iterator[Needed]:
    """Yield that a cluster must have as much of a resource as a queue needs and others keep for themselves."""
    if boards is not None and needed <= boards + SLACK:
        return
    has = "how many it has was not read" if boards is None else f"it has {amount_words(resource, boards)}"
    yield Needed(
        what=f"have {amount_words(resource, needed)} {resource} in the cluster ({has}), or lower the guarantees of Volcano's "
        f"queues ({_guarantee_words(resource, guarantees)}), which Queue {name} may not use: "
        f"{who}, and Volcano keeps the rest waiting (its queues seem flat; with enableHierarchy these "
        "guarantees do not limit)",
        askers=tuple(more),
    )


def _of_capability(
    resource: str, name: str, who: str, row: RecordedRow | None, needed: float, more: Sequence[AskedResources]
) -> Iterator[Needed]:
    """Yield that the capability of a queue must be raised."""
    if row is None or row["limit_gpus"] is None or needed <= number(row["limit_gpus"]) + SLACK:
        return
    most = amount_words(resource, number(row["limit_gpus"]))
    patch = {"spec": {"capability": {resource: quantity_words(resource, math.ceil(needed - SLACK))}}}
    yield Needed(
        what=f"raise {resource} in capability of Volcano's Queue {name} from {most} to {amount_words(resource, needed)}: "
        f"{who}, and Volcano keeps the rest waiting",
        askers=tuple(more),
        command=kubectl_patch("queues.scheduling.volcano.sh", name, "", patch),
    )


def _needed_of_queue(row: RecordedRow | None, more: Sequence[AskedResources], resource: str) -> float:
    """Return what the pods behind a queue may ask for at once."""
    return need(_used_of_queue(row, more, resource), more, resource)


def _used_of_queue(row: RecordedRow | None, more: Sequence[AskedResources], resource: str) -> float:
    """Return what is used of a queue; where it does not tell, at least what those that ask for more hold."""
    own = sum(asker.now.get(resource, 0.0) for asker in more)
    return own if row is None or row["used_gpus"] is None else number(row["used_gpus"])


def _guarantee(row: RecordedRow | None) -> float:
    return 0.0 if row is None or row["guaranteed_gpus"] is None else number(row["guaranteed_gpus"])


def _guarantee_words(resource: str, guarantees: Mapping[str, float]) -> str:
    return ", ".join(f"{amount_words(resource, amount)} for {name}" for name, amount in guarantees.items())


def _with_ancestors(queue: str, above: Mapping[str, str]) -> list[str]:
    """Return a Volcano queue and those above it; none where there is no such queue."""
    found: list[str] = []
    while queue in above and queue not in found:
        found.append(queue)
        queue = above[queue]
    return found
