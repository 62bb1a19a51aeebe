"""Queues of Kueue and Volcano: what they ration, how many wait, and the runs that wait in them.

Shapes: kueue.x-k8s.io v1beta1 and v1beta2 (ClusterQueue, LocalQueue, Workload), scheduling.volcano.sh v1beta1 (Queue,
PodGroup).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.sources.kube_lineage import controller_of, owners_of
from trimtab.sources.kube_objects import Object, Objects, at, condition, listed, mapping, moment_at, number, text
from trimtab.sources.kube_owners import name_of_family
from trimtab.sources.kube_quantity import quantity
from trimtab.sources.kube_requests import asked_by, is_gpu_resource

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
_MOST = 10**12
_WAITING_PHASES = frozenset({"Pending", "Inqueue"})

Row = dict[str, object]


def queue_of(one: Object) -> str | None:
    """Return the queue that a pod or a run names in its labels or annotations, or None."""
    labels, notes = mapping(one, "metadata", "labels"), mapping(one, "metadata", "annotations")
    named = labels.get(KUEUE_QUEUE) or notes.get(KUEUE_QUEUE) or notes.get(VOLCANO_QUEUE) or labels.get(VOLCANO_QUEUE)
    return named or text(one, "spec", "queue") or None


def queue_names(objects: Objects) -> dict[str, str]:
    """Return the queue of each run, by namespace/name of the run."""
    found = {}
    for kind in ("Job", "PodGroup", "Workload"):
        for one in objects.of(kind):
            queue = text(one, "spec", "queueName") or queue_of(one)
            if queue:
                found[_run(one) if kind != "Job" else _name(one)] = queue
    return found


def queued_rows(objects: Objects) -> list[Row]:
    """Return a `jobs` row for each run with GPUs that still waits in a queue."""
    waiting = [*_waiting_in_kueue(objects), *_waiting_in_volcano(objects)]
    parents = owners_of(objects).parents
    rows: list[Row] = []
    for one, gpus, queue in waiting:
        created = moment_at(one, "metadata", "creationTimestamp")
        if gpus <= 0 or created is None:
            continue
        rows.append(
            {
                "job": _run(one),
                "workload": _workload(one, parents),
                "submit": created,
                "start": None,
                "end": None,
                "gpus": gpus,
                "state": "queued",
                "node": None,
                "queue": queue or None,
            }
        )
    return rows


def _waiting_in_kueue(objects: Objects) -> Iterator[tuple[Object, float, str]]:
    for one in objects.of("Workload"):
        if condition(one, "Admitted") is None and condition(one, "Finished") is None:
            gpus = sum(
                (number(part, "count") or 0.0) * asked_by(at(part, "template", "spec")).gpu_pieces
                for part in listed(one, "spec", "podSets")
            )
            yield one, gpus, text(one, "spec", "queueName")


def _waiting_in_volcano(objects: Objects) -> Iterator[tuple[Object, float, str]]:
    for one in objects.of("PodGroup"):
        if text(one, "status", "phase") in _WAITING_PHASES and not number(one, "status", "running"):
            asked = at(one, "spec", "minResources")
            yield one, _gpus(asked) or 0.0, text(one, "spec", "queue")


def _workload(one: Object, parents: Mapping[tuple[str, str, str], tuple[str, str]]) -> str:
    namespace = text(one, "metadata", "namespace")
    kind, name = controller_of(one) or ("", text(one, "metadata", "name"))
    kind, name = parents.get((namespace, kind, name), (kind, name))
    return f"{namespace}/{name_of_family(name)}"


def _run(one: Object) -> str:
    """Return namespace/name of the run that a Kueue Workload or a PodGroup stands for: its controller, else itself."""
    owner = controller_of(one)
    return f"{text(one, 'metadata', 'namespace')}/{owner[1]}" if owner else _name(one)


def _name(one: Object) -> str:
    return f"{text(one, 'metadata', 'namespace')}/{text(one, 'metadata', 'name')}"


def queue_rows(objects: Objects) -> list[Row]:
    """Return the rows of `queues`."""
    return [
        *(row for one in objects.of("ClusterQueue") for row in _cluster_queue(one)),
        *(_local_queue(one) for one in objects.of("LocalQueue")),
        *(_volcano_queue(one) for one in objects.of("Queue")),
    ]


def _cluster_queue(one: Object) -> Iterator[Row]:
    used = {
        (text(flavor, "name"), text(resource, "name")): quantity(at(resource, "total"))
        for flavor in listed(one, "status", "flavorsUsage")
        for resource in listed(flavor, "resources")
    }
    base = _base(one, "ClusterQueue", text(one, "spec", "cohortName") or text(one, "spec", "cohort"))
    none = True
    for group in listed(one, "spec", "resourceGroups"):
        for flavor in listed(group, "flavors"):
            for resource in listed(flavor, "resources"):
                name = text(resource, "name")
                if is_gpu_resource(name):
                    none = False
                    yield base | {
                        "resource": name,
                        "flavor": text(flavor, "name") or None,
                        "quota_gpus": quantity(at(resource, "nominalQuota")),
                        "borrowing_gpus": quantity(at(resource, "borrowingLimit")),
                        "used_gpus": used.get((text(flavor, "name"), name)),
                    }
    if none:
        yield base


def _base(one: Object, kind: str, parent: str) -> Row:
    return {
        "kind": kind,
        "namespace": text(one, "metadata", "namespace") or None,
        "name": text(one, "metadata", "name"),
        "parent": parent or None,
        "pending": _count(one, "status", "pendingWorkloads"),
        "admitted": _count(one, "status", "admittedWorkloads"),
    }


def _count(one: Object, *path: str) -> int | None:
    """Return a count, or None where there is none that can be."""
    found = number(one, *path)
    return int(found) if found is not None and 0 <= found <= _MOST else None


def _local_queue(one: Object) -> Row:
    return _base(one, "LocalQueue", text(one, "spec", "clusterQueue"))


def _volcano_queue(one: Object) -> Row:
    return _base(one, "Queue", text(one, "spec", "parent")) | {
        "quota_gpus": _gpus(at(one, "spec", "deserved")),
        "borrowing_gpus": _gpus(at(one, "spec", "capability")),
        "used_gpus": _gpus(at(one, "status", "allocated")),
        "pending": _count(one, "status", "pending"),
        "admitted": _count(one, "status", "running"),
    }


def _gpus(resources: object) -> float | None:
    if not isinstance(resources, Mapping):
        return None
    amounts = [quantity(value) for name, value in resources.items() if isinstance(name, str) and is_gpu_resource(name)]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
