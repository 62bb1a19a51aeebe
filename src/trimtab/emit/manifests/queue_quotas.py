"""Quotas of queues that would keep a plan's runs waiting: Kueue's ClusterQueues and their flavors, Volcano's queues.

Kueue keeps runs waiting above the quota of their ClusterQueue, and for good where that does not cover a resource which they ask
for. Volcano keeps them waiting above the capability of their queue and of each queue above it; what a capability does not name
is not limited. What a Volcano queue is guaranteed, or deserves, limits others only while GPUs are short: a plan's nodes change
that.

Sources: kueue.sigs.k8s.io, "Cluster Queue" (quotas, borrowing), "Resource Flavor"; volcano
pkg/scheduler/plugins/capacity/capacity.go (jobEnqueueable, checkJobEnqueueableHierarchically).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from trimtab.diagnose.cluster_records import number, pairs
from trimtab.emit.manifests.asked_resources import (
    SLACK,
    Asking,
    Needed,
    Row,
    StandingQuotas,
    amount_words,
    askers,
    kubectl_patch,
    need,
    quantity_words,
)
from trimtab.emit.manifests.facts import namespace_of
from trimtab.emit.manifests.pool_specs import PlacedWorkload, PoolSpec
from trimtab.emit.manifests.scope import Scope
from trimtab.emit.manifests.workload_patch import pool_selector
from trimtab.tables.schemas import DEVICES_OF_CLASS

_CLUSTER_QUEUE, _LOCAL_QUEUE, _VOLCANO = "ClusterQueue", "LocalQueue", "Queue"


def of_cluster_queues(asking: Sequence[Asking], standing: StandingQuotas) -> Iterator[Needed]:
    """Yield each quota of a ClusterQueue that the plan would exceed, in words, with those that ask for more."""
    behind = _cluster_queues(asking, standing)
    waiting: dict[tuple[str, str], list[Asking]] = defaultdict(list)
    for one in asking:
        queue = behind.get(one.placed.name, "")
        for resource in one.most if queue else ():
            if _is_extended(resource) and one.grows(resource):
                waiting[queue, resource].append(one)
    rows = [row for row in standing.queues if row["kind"] == _CLUSTER_QUEUE]
    for (queue, resource), growing in sorted(waiting.items(), key=lambda item: item[0]):
        mine = [row for row in rows if row["name"] == queue]
        covered = [row for row in mine if row["resource"] == resource]
        if any(row["quota_gpus"] is None for row in covered):
            continue
        asked = math.ceil(sum(one.most.get(resource, 0.0) for one in growing) - SLACK)
        if mine and not covered:
            who = askers(growing, resource, 0.0, resource)
            why = "Kueue never lets in what asks for a resource that its queue does not cover"
            words = f"let ClusterQueue {queue} cover {resource} with a quota of {asked}: {who}, and {why}"
            yield Needed(what=words, askers=tuple(growing))
            continue
        quota = sum(number(row["quota_gpus"]) for row in covered)
        told = [row["used_gpus"] for row in covered]
        # where nothing tells what is used, what asks for more uses at least what it holds
        own = sum(one.now.get(resource, 0.0) for one in growing)
        used = own if None in told else sum(map(number, told))
        wanted, room = need(used, growing, resource), quota + sum(_borrowable(row, rows) for row in covered)
        if covered and wanted > room + SLACK:
            head = f"raise {resource} of ClusterQueue {queue} from {amount_words(resource, quota)} to"
            who = askers(growing, resource, used, resource)
            words = f"{head} {amount_words(resource, quota + wanted - room)}: {who}, and Kueue keeps the rest waiting"
            yield Needed(what=words, askers=tuple(growing))


def _borrowable(row: Row, rows: Sequence[Row]) -> float:
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
    """Return whether Kueue counts a resource by this name: what claims ask for it names by its own configuration."""
    return "/" in resource and not resource.endswith(DEVICES_OF_CLASS)


def _cluster_queues(asking: Sequence[Asking], standing: StandingQuotas) -> dict[str, str]:
    """Return the ClusterQueue of each workload whose pods or runs name a LocalQueue."""
    behind = {
        (row["namespace"], row["name"]): str(row["parent"]) for row in standing.queues if row["kind"] == _LOCAL_QUEUE
    }
    named = {one.placed.name: _queue_of(one, standing) for one in asking}
    found = {name: behind.get((namespace_of(name), queue), "") for name, queue in named.items()}
    return {name: queue for name, queue in found.items() if queue}


def of_volcano_queues(asking: Sequence[Asking], standing: StandingQuotas) -> Iterator[Needed]:
    """Yield each capability of a Volcano queue that the plan would exceed, with those that ask for more."""
    rows = [row for row in standing.queues if row["kind"] == _VOLCANO]
    above = {str(row["name"]): str(row["parent"] or "") for row in rows}
    of_kueue = _cluster_queues(asking, standing)
    growing: dict[str, list[Asking]] = defaultdict(list)
    for one in asking:
        queue = "" if one.placed.name in of_kueue else _queue_of(one, standing)
        for name in _with_ancestors(queue, above):
            growing[name].append(one)
    for row in sorted(rows, key=lambda row: (str(row["name"]), str(row["resource"] or ""))):
        resource, name = str(row["resource"] or ""), str(row["name"])
        more = [one for one in growing[name] if resource and one.grows(resource)]
        if not more or row["limit_gpus"] is None:
            continue
        own = sum(one.now.get(resource, 0.0) for one in more)
        used = own if row["used_gpus"] is None else number(row["used_gpus"])
        wanted, most = need(used, more, resource), number(row["limit_gpus"])
        if wanted > most + SLACK:
            head = f"raise {resource} in capability of Volcano's Queue {name} from {amount_words(resource, most)} to"
            who = askers(more, resource, used, resource)
            patch = {"spec": {"capability": {resource: quantity_words(resource, math.ceil(wanted - SLACK))}}}
            yield Needed(
                what=f"{head} {amount_words(resource, wanted)}: {who}, and Volcano keeps the rest waiting",
                askers=tuple(more),
                command=kubectl_patch("queues.scheduling.volcano.sh", name, "", patch),
            )


def _queue_of(asking: Asking, standing: StandingQuotas) -> str:
    """Return the queue that a workload's pods or runs name; empty for none."""
    return str(asking.pod.get("queue") or standing.queue_of.get(asking.placed.name) or "")


def _with_ancestors(queue: str, above: Mapping[str, str]) -> list[str]:
    """Return a Volcano queue and those above it; none where there is no such queue."""
    found: list[str] = []
    while queue in above and queue not in found:
        found.append(queue)
        queue = above[queue]
    return found


def of_flavors(asking: Sequence[Asking], standing: StandingQuotas, scope: Scope) -> Iterator[Needed]:
    """Yield each ClusterQueue none of whose flavors lets its pods go to the plan's nodes, in words.

    Kueue has pods select nodes by the labels of their flavor as well: on nodes without them they never start.
    """
    behind = _cluster_queues(asking, standing)
    without: dict[tuple[str, str], list[Asking]] = defaultdict(list)
    for one in asking:
        spec, queue = scope.spec(one.placed.name), behind.get(one.placed.name, "")
        if spec is None or not queue:
            continue
        flavors = [
            pairs(row["flavor_labels"])
            for row in standing.queues
            if row["kind"] == _CLUSTER_QUEUE and row["name"] == queue and row["resource"] in one.most
        ]
        if flavors and not any(_fits(labels, one.placed, spec) for labels in flavors):
            words = ", ".join(f"{key}: {value}" for key, value in pool_selector(spec).items())
            without[queue, words].append(one)
    for (queue, words), waiting in without.items():
        names = ", ".join(one.placed.name for one in waiting)
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
