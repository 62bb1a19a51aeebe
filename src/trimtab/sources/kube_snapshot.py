"""A fleet bundle's tables from a snapshot of Kubernetes: what its objects, read once, still tell of the past.

A snapshot knows the nodes that are there, with their age, and the pods that were not yet deleted. Nodes and pods that went
before it are not seen, and it has no readings of what the GPUs did: activity comes from Prometheus or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from trimtab.catalog import Catalog, load_catalog
from trimtab.errors import InputError
from trimtab.sources.clusters import Collected
from trimtab.sources.hour_grid import Life, moment
from trimtab.sources.kube_jobs import JobFacts, job_rows
from trimtab.sources.kube_lineage import metric_label
from trimtab.sources.kube_nodes import NO_TYPE, UNKNOWN, KubeNode, described_node
from trimtab.sources.kube_objects import Object, Objects, listed, mapping, moment_at, number, text
from trimtab.sources.kube_owners import Owner
from trimtab.sources.kube_place import image_rows, scaler_rows, volume_rows
from trimtab.sources.kube_placed import holds_of, placed_pods, pod_row, shares_of_a_board
from trimtab.sources.kube_pods import Hold, mig_share
from trimtab.sources.kube_quantity import quantity
from trimtab.sources.kube_queues import queue_names, queue_rows, queued_rows
from trimtab.sources.kube_requests import GPU_RESOURCES, MIG_PREFIX
from trimtab.sources.prometheus.fleet_rows import allocation_rows, gpu_name
from trimtab.sources.prometheus.gpu_series import Tally
from trimtab.sources.spot_events import spot_event_rows
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import BundleMeta

_PROVIDER_OF_LABEL = (
    ("eks.amazonaws.com/", "aws"), ("cloud.google.com/gke", "gcp"), ("kubernetes.azure.com/", "azure"),
)  # fmt: skip
_MOST_BOARDS = 1024
"""More on one node is damage, not hardware."""
NO_READINGS = "no readings of GPU activity: only who held what and what it cost can be judged; add --prometheus URL"


def snapshot_moment(objects: Objects) -> datetime:
    """Return the newest moment that any object tells: about when the snapshot was made. Raises InputError where none does."""
    newest = None
    for kind in objects.by_kind:
        for one in objects.of(kind):
            for seen in _moments(one):
                newest = seen if newest is None or seen > newest else newest
    if newest is None:
        raise InputError(
            "the dump holds no object with a moment (metadata.creationTimestamp); "
            "write it with: kubectl get nodes,pods,... -A -o json"
        )
    return newest


def _moments(one: Object) -> Iterable[datetime]:
    places: Sequence[tuple[object, tuple[str, ...]]] = [
        (one, ("metadata", "creationTimestamp")),
        (one, ("status", "startTime")),
        (one, ("status", "completionTime")),
        *((item, ("lastHeartbeatTime",)) for item in listed(one, "status", "conditions")),
        *((item, ("lastTransitionTime",)) for item in listed(one, "status", "conditions")),
        *((item, ("state", "terminated", "finishedAt")) for item in listed(one, "status", "containerStatuses")),
    ]
    for place, path in places:
        seen = moment_at(place, *path)
        if seen is not None:
            yield seen


def collect_snapshot(
    objects: Objects, start: datetime, end: datetime, *, source: str, catalog: Catalog | None = None
) -> Collected:
    """Return the tables of a snapshot over `[start, end)`. Raises InputError where it holds no node or no moment."""
    tally = Tally(counts=dict(objects.counts))
    facts = catalog or load_catalog()
    nodes = [_node(one) for one in objects.of("Node")]
    if not nodes:
        raise InputError(
            f"{source}: no nodes among its {objects.kept} objects; write them with: kubectl get nodes,pods,... -A -o json"
        )
    pods = placed_pods(objects, tally)
    tables: dict[str, list[dict[str, object]]] = {
        "devices": [],
        "nodes": _node_rows(nodes, facts, tally),
        "gpu_usage": [],
        "pods": [pod_row(pod) for pod in pods],
        "scalers": scaler_rows(objects),
        "queues": queue_rows(objects),
        "images": image_rows(objects),
        "volumes": volume_rows(objects, {(pod.namespace, pod.name): pod.owner.workload for pod in pods}),
    }
    holds = holds_of(pods, {str(row["node"]) for row in tables["nodes"]}, end, tally)
    owners = {(pod.namespace, pod.name): pod.owner for pod in pods}
    tables["allocations"] = allocation_rows(holds, owners)
    tables["spot_events"] = spot_event_rows(tables["nodes"], tables["allocations"], start, objects)
    tables["jobs"] = _jobs(objects, holds, owners, start)
    meta = BundleMeta(
        start=start,
        end=end,
        sources=(f"{source} ({objects.kept} objects kept of {objects.read} read)",),
        notes=(NO_READINGS, "a snapshot: nodes and pods that were deleted before it are not seen"),
        counts=dict(sorted(tally.counts.items())),
    )
    return Collected(tables={name: table_from_rows(name, rows) for name, rows in tables.items()}, meta=meta)


def kube_nodes(objects: Objects) -> list[KubeNode]:
    """Return the nodes of a snapshot, with and without GPUs."""
    return [_node(one) for one in objects.of("Node")]


def _node(one: Object) -> KubeNode:
    raw = mapping(one, "metadata", "labels")
    created = moment_at(one, "metadata", "creationTimestamp")
    taints = {
        text(taint, "key"): f"{text(taint, 'value')}:{text(taint, 'effect')}" for taint in listed(one, "spec", "taints")
    }
    node = described_node(
        text(one, "metadata", "name"),
        provider_id=text(one, "spec", "providerID"),
        labels={metric_label(key): value for key, value in raw.items()},
        taints=taints,
        gpu_count=_boards(one, raw),
        spans=(Life(start_s=created.timestamp() if created else 0.0, end_s=None),),
    )
    provider = node.provider
    if provider == UNKNOWN:
        provider = next(
            (name for prefix, name in _PROVIDER_OF_LABEL if any(k.startswith(prefix) for k in raw)), UNKNOWN
        )
    own = {key: value for key, value in node.labels.items() if key == "provider_id"}
    notes = tuple("nodes without the label node.kubernetes.io/instance-type" if n == NO_TYPE else n for n in node.notes)
    return replace(node, provider=provider, labels={**raw, **own}, notes=notes)


def _boards(one: Object, labels: Mapping[str, str]) -> int:
    """Return the boards of a node: as feature discovery labels it, else as capacity tells (MIG: the fewest that hold)."""
    labelled = quantity(labels.get("nvidia.com/gpu.count"))
    if labelled and labelled <= _MOST_BOARDS:
        return int(labelled)
    capacity = mapping(one, "status", "capacity")
    pieces = [quantity(capacity[name]) or 0.0 for name in GPU_RESOURCES if name in capacity]
    whole = max(pieces, default=0.0) / shares_of_a_board(labels)
    slices = sum(
        (quantity(count) or 0.0) * mig_share(name.removeprefix(MIG_PREFIX), labels.get("nvidia.com/gpu.product", ""))
        for name, count in capacity.items()
        if name.startswith(MIG_PREFIX)
    )
    return int(min(whole, _MOST_BOARDS)) or math.ceil(min(slices, _MOST_BOARDS))


def _node_rows(nodes: Sequence[KubeNode], catalog: Catalog, tally: Tally) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for node in nodes:
        if not node.gpu_count:
            tally.count("nodes without GPUs, left out")
            continue
        for note in node.notes:
            tally.count(note)
        rows.append(
            {
                "node": node.name,
                "provider": node.provider,
                "instance_type": node.instance_type,
                "region": node.region,
                "zone": node.zone,
                "capacity_type": node.capacity_type,
                "start": moment(node.lives[0].start_s),
                "gpu": gpu_name(node.product, catalog, tally),
                "gpu_count": node.gpu_count,
                "labels": dict(node.labels),
                "taints": dict(node.taints),
            }
        )
    return rows


def _jobs(
    objects: Objects, holds: Sequence[Hold], owners: Mapping[tuple[str, str], Owner], start: datetime
) -> list[dict[str, object]]:
    facts = {
        (text(one, "metadata", "namespace"), text(one, "metadata", "name")): _job_facts(one)
        for one in objects.of("Job", "batch")
    }
    ran = job_rows(holds, owners, facts, start.timestamp())
    queues = queue_names(objects)
    for row in ran:
        row["queue"] = queues.get(str(row["job"]))
    known = {str(row["job"]) for row in ran}
    return ran + [row for row in queued_rows(objects) if row["job"] not in known]


def _job_facts(one: Object) -> JobFacts:
    def seconds(*path: str) -> float | None:
        seen = moment_at(one, *path)
        return None if seen is None else seen.timestamp()

    return JobFacts(
        created_s=seconds("metadata", "creationTimestamp"),
        started_s=seconds("status", "startTime"),
        completed_s=seconds("status", "completionTime"),
        failed_pods=number(one, "status", "failed") or 0.0,
    )
