"""A fleet bundle's tables from a snapshot of Kubernetes, alone or put together with a collected fleet.

A snapshot knows the nodes that are there, with their age, and the pods that were not yet deleted. Nodes and pods that went
before it are not seen, and it has no readings of what the GPUs did: activity comes from Prometheus or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from trimtab.catalog import Catalog, load_catalog
from trimtab.catalog.providers import provider_of_node_labels
from trimtab.errors import InputError
from trimtab.sources.collected import Collected
from trimtab.sources.hour_grid import Life, moment
from trimtab.sources.kubernetes.board_shares import board_shares, registered_boards, vgpu_boards
from trimtab.sources.kubernetes.claimed_boards import KnownHolds, claimed_holds, together, with_known
from trimtab.sources.kubernetes.cluster_objects import (
    budget_rows,
    image_rows,
    queue_names,
    queue_rows,
    queued_rows,
    scaler_rows,
    volume_rows,
)
from trimtab.sources.kubernetes.health import fault_rows, image_pulls
from trimtab.sources.kubernetes.holds import Hold, JobFacts, job_rows, mig_share
from trimtab.sources.kubernetes.namespace_limits import limit_range_rows, quota_rows
from trimtab.sources.kubernetes.nodes import (
    BOARD_RESOURCES,
    NO_TYPE,
    NO_TYPE_LABEL,
    UNKNOWN,
    KubeNode,
    described_node,
    spot_event_rows,
)
from trimtab.sources.kubernetes.objects import Object, Objects, listed, mapping, moment_at, number, quantity, text
from trimtab.sources.kubernetes.owners import Owner, metric_label, owners_of
from trimtab.sources.kubernetes.pods import (
    MIG_PREFIX,
    REPLICA_LABELS,
    PlacedPod,
    holds_of,
    placed_pods,
    pod_row,
    shares_of_a_board,
)
from trimtab.sources.kubernetes.resource_claims import ResourceClaims, claimed_nodes, resource_claims
from trimtab.sources.kubernetes.resource_slices import ClaimableGpus, claimable_gpus
from trimtab.sources.prometheus.fleet_rows import allocation_rows, board_gib, gpu_name, product_of_type, typed
from trimtab.sources.prometheus.gpu_series import Tally
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import BundleMeta
from trimtab.units import BYTES_PER_GIB

_ROUNDING = 1e-9
_STALE_COUNT = (
    "nodes whose kubelet reports more GPUs than their label nvidia.com/gpu.count says: counted as the kubelet does"
)
_BY_TYPE = "nodes whose claimed GPUs are in no ResourceSlice, counted by their type: add resourceslices to the dump"
_MOST_BOARDS = 1024
"""More on one node is damage, not hardware."""
NO_READINGS = "no readings of GPU activity: only who held what and what it cost can be judged; add --prometheus URL"


def snapshot_moment(objects: Objects) -> datetime:
    """Return the newest moment that any object tells: about when the snapshot was made. Raises InputError where none does."""
    newest = None
    for kind in objects.by_kind:
        for item in objects.of(kind):
            for seen in _moments(item):
                newest = seen if newest is None or seen > newest else newest
    if newest is None:
        raise InputError(
            "the dump holds no object with a moment (metadata.creationTimestamp); "
            "write it with: kubectl get nodes,pods,... -A -o json"
        )
    return newest


def heartbeats_note(objects: Objects, newest: datetime) -> tuple[str, ...]:
    """Return what is to be said of a dump none of whose nodes tells a heartbeat: it may be younger than all that it tells."""
    conditions = (item for node in objects.of("Node") for item in listed(node, "status", "conditions"))
    if any(moment_at(item, "lastHeartbeatTime") is not None for item in conditions):
        return ()
    return (
        f"no node of the dump has a heartbeat: the window ends at {newest:%Y-%m-%d %H:%M} UTC, the newest "
        "timestamp in it; say with --to when it was made",
    )


def _moments(source: Object) -> Iterable[datetime]:
    places: Sequence[tuple[object, tuple[str, ...]]] = [
        (source, ("metadata", "creationTimestamp")),
        (source, ("status", "startTime")),
        (source, ("status", "completionTime")),
        *((item, ("lastHeartbeatTime",)) for item in listed(source, "status", "conditions")),
        *((item, ("lastTransitionTime",)) for item in listed(source, "status", "conditions")),
        *((item, ("state", "terminated", "finishedAt")) for item in listed(source, "status", "containerStatuses")),
        *((item, ("state", "running", "startedAt")) for item in listed(source, "status", "containerStatuses")),
        *((source, (name,)) for name in ("lastTimestamp", "eventTime")),
    ]
    for place, path in places:
        seen = moment_at(place, *path)
        if seen is not None:
            yield seen


def collect_snapshot(
    objects: Objects, start: datetime, end: datetime, *, source: str, catalog: Catalog | None = None
) -> Collected:
    """Return the tables of a snapshot over `[start, end)`. Raises InputError where it holds no node or no moment."""
    return _read(objects, start, end, source=source, catalog=catalog).collected


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """The tables of a snapshot, and what they do not say: which devices are held."""

    collected: Collected
    known: KnownHolds


def _read(objects: Objects, start: datetime, end: datetime, *, source: str, catalog: Catalog | None) -> _Snapshot:
    tally = Tally(counts=dict(objects.counts))
    facts = catalog or load_catalog()
    gpus = claimable_gpus(objects, tally)
    claimed_on = claimed_nodes(objects)
    nodes = [_node(node, gpus, claimed_on) for node in objects.of("Node")]
    if not nodes:
        raise InputError(
            f"{source}: no nodes among its {objects.kept} objects; write them with: kubectl get nodes,pods,... -A -o json"
        )
    claims = resource_claims(objects, gpus, tally, (node.name for node in nodes if node.gpu_count))
    shares = board_shares(objects, lambda product: board_gib(product, facts), tally)
    pods = placed_pods(objects, tally, claims, shares)
    pulls = image_pulls(objects, tally)
    tables: dict[str, list[dict[str, object]]] = {
        "devices": [],
        "nodes": _node_rows(nodes, facts, tally),
        "gpu_usage": [],
        "pods": [pod_row(pod, pulls.get((pod.namespace, pod.name))) for pod in pods],
        "scalers": scaler_rows(objects),
        "queues": queue_rows(objects),
        "resource_quotas": quota_rows(objects),
        "limit_ranges": limit_range_rows(objects),
        "images": image_rows(objects),
        "volumes": volume_rows(objects, {(pod.namespace, pod.name): pod.owner.workload for pod in pods}),
        "disruption_budgets": budget_rows(objects, {(pod.namespace, pod.name): pod.owner.workload for pod in pods}),
    }
    holds = holds_of(pods, {str(row["node"]) for row in tables["nodes"]}, {node.name for node in nodes}, end, tally)
    owners = {(pod.namespace, pod.name): pod.owner for pod in pods}
    claimed = claimed_holds(pods, claims)
    unseen = [hold for hold in claimed if (hold.namespace, hold.pod) not in owners]
    owners |= {(hold.namespace, hold.pod): owners_of(objects).of(hold.namespace, hold.pod) for hold in unseen}
    nodes_with_gpus = {str(row["node"]) for row in tables["nodes"]}
    holds += [hold for hold in together(unseen) if hold.node in nodes_with_gpus]
    tables["allocations"] = allocation_rows(holds, owners)
    tables["spot_events"] = spot_event_rows(tables["nodes"], tables["allocations"], start, objects)
    tables["jobs"] = _jobs(objects, holds, owners, start, claims)
    tables["faults"] = fault_rows(objects, nodes_with_gpus, start)
    meta = BundleMeta(
        start=start,
        end=end,
        sources=(f"{source} ({objects.kept} objects kept of {objects.read} read)",),
        notes=(NO_READINGS, "a snapshot: nodes and pods that were deleted before it are not seen"),
        counts=dict(sorted(tally.counts.items())),
    )
    found = Collected(tables={name: table_from_rows(name, rows) for name, rows in tables.items()}, meta=meta)
    until = {(pod.namespace, pod.name): pod.until for pod in pods if pod.until is not None}
    known = KnownHolds(
        holds=(*claimed, *_of_no_device(pods, holds)),
        owners=owners,
        stated=frozenset(shares.pods) | until.keys(),
        reserved_until=until,
    )
    return _Snapshot(collected=found, known=known)


def _of_no_device(pods: Sequence[PlacedPod], holds: Sequence[Hold]) -> Iterable[Hold]:
    """Yield what pods hold of devices that are not named: what their claims and parts of boards leave of what they ask for."""
    told = {(pod.namespace, pod.name): sum(share.gpus for share in pod.devices) for pod in pods}
    for hold in holds:
        left = hold.gpus - told.get((hold.namespace, hold.pod), hold.gpus)
        if left > _ROUNDING:
            yield replace(hold, gpus=left)


def kube_nodes(objects: Objects) -> list[KubeNode]:
    """Return the nodes of a snapshot, with and without GPUs."""
    gpus, claimed_on = claimable_gpus(objects, Tally()), claimed_nodes(objects)
    return [_node(node, gpus, claimed_on) for node in objects.of("Node")]


def _node(node_object: Object, gpus: ClaimableGpus, claimed_on: Container[str]) -> KubeNode:
    raw = mapping(node_object, "metadata", "labels")
    created = moment_at(node_object, "metadata", "creationTimestamp")
    taints = {
        text(taint, "key"): f"{text(taint, 'value')}:{text(taint, 'effect')}"
        for taint in listed(node_object, "spec", "taints")
    }
    name, catalog = text(node_object, "metadata", "name"), load_catalog()
    node = described_node(
        name,
        provider_id=text(node_object, "spec", "providerID"),
        labels={metric_label(key): value for key, value in raw.items()},
        taints=taints,
        gpu_count=None,
        spans=(Life(start_s=created.timestamp() if created else 0.0, end_s=None),),
    )
    provider = node.provider
    if provider == UNKNOWN:
        provider = provider_of_node_labels(raw) or UNKNOWN
    own = {key: value for key, value in node.labels.items() if key == "provider_id"}
    machine = catalog.instance_table.get((provider, node.instance_type))
    boards, label_is_stale = _boards(node_object, raw, None if machine is None else machine.gpu_count)
    notes = tuple(NO_TYPE_LABEL if note == NO_TYPE else note for note in node.notes)
    notes += (_STALE_COUNT,) if label_is_stale else ()
    boards = boards or gpus.boards_on(name)
    if not boards and machine is not None and name in claimed_on:
        # something runs on it: without its slices it would be in no bill
        boards, notes = machine.gpu_count, (*notes, _BY_TYPE)
    product = node.product or gpus.product_on(name)
    capacity = mapping(node_object, "status", "capacity")
    memory = quantity(capacity.get("memory"))
    node = replace(
        node,
        provider=provider,
        product=product,
        gpu_count=boards,
        labels={**raw, **own},
        notes=notes,
        vcpus=quantity(capacity.get("cpu")),
        memory_gib=None if memory is None else memory / BYTES_PER_GIB,
    )
    node = replace(node, product=product or product_of_type(node, catalog))
    return typed(node, gpu_name(product, catalog, Tally()), node.gpu_count or 0, catalog)


def _boards(node_object: Object, labels: Mapping[str, str], of_type: int | None) -> tuple[int, bool]:
    """Return the boards of a node, and whether the label that counts them is out of date.

    They are as many as feature discovery labels, as HAMi registers, else as capacity tells; of MIG instances and vGPUs, the
    fewest that hold them. A kubelet that reports more boards than the label is believed where that is what a node of its type
    has (`of_type`), or where the type is not known and the node says as how many shares it offers each board.
    """
    capacity = mapping(node_object, "status", "capacity")
    pieces = [quantity(capacity[name]) or 0.0 for name in BOARD_RESOURCES if name in capacity]
    whole = max(pieces, default=0.0) / shares_of_a_board(labels)
    labelled = quantity(labels.get("nvidia.com/gpu.count"))
    if labelled and labelled <= _MOST_BOARDS:
        is_believed = whole == of_type or (of_type is None and any(name in labels for name in REPLICA_LABELS))
        return (int(whole), True) if labelled < whole <= _MOST_BOARDS and is_believed else (int(labelled), False)
    registered = registered_boards(node_object, Tally())
    if registered:
        return len(registered), False
    slices = sum(
        (quantity(count) or 0.0) * mig_share(name.removeprefix(MIG_PREFIX), labels.get("nvidia.com/gpu.product", ""))
        for name, count in capacity.items()
        if name.startswith(MIG_PREFIX)
    )
    parts = vgpu_boards(capacity, quantity(labels.get("nvidia.com/gpu.memory")))
    return int(min(whole, _MOST_BOARDS)) or math.ceil(min(slices + parts, _MOST_BOARDS)), False


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
                "start": moment(node.lifetimes[0].start_s),
                "gpu": gpu_name(node.product, catalog, tally),
                "gpu_count": node.gpu_count,
                "labels": dict(node.labels),
                "taints": dict(node.taints),
            }
        )
    return rows


def _jobs(
    objects: Objects,
    holds: Sequence[Hold],
    owners: Mapping[tuple[str, str], Owner],
    start: datetime,
    claims: ResourceClaims,
) -> list[dict[str, object]]:
    facts = {
        (text(job, "metadata", "namespace"), text(job, "metadata", "name")): _job_facts(job)
        for job in objects.of("Job", "batch")
    }
    ran = job_rows(holds, owners, facts, start.timestamp())
    queues = queue_names(objects)
    for row in ran:
        row["queue"] = queues.get(str(row["job"]))
    known = {str(row["job"]) for row in ran}
    return ran + [row for row in queued_rows(objects, claims) if row["job"] not in known]


def _job_facts(job: Object) -> JobFacts:
    def seconds(*path: str) -> float | None:
        seen = moment_at(job, *path)
        return None if seen is None else seen.timestamp()

    return JobFacts(
        created_s=seconds("metadata", "creationTimestamp"),
        started_s=seconds("status", "startTime"),
        completed_s=seconds("status", "completionTime"),
        failed_pods=number(job, "status", "failed") or 0.0,
    )


STANDING = ("pods", "scalers", "disruption_budgets", "queues", "images", "volumes")
"""Tables that only a snapshot has."""
_LIMITS = ("resource_quotas", "limit_ranges")
_FILLED = ("provider", "instance_type", "region")


def with_snapshot(collected: Collected, objects: Objects, *, source: str) -> Collected:
    """Add the tables of a snapshot, and fill what telemetry left unknown.

    Nodes that still stand get their type and place, holdings the team and kind of their owner, runs their queue; runs that
    wait now are added, and what pods hold that hold nothing by telemetry, and by parts of boards, of which telemetry knows no
    sizes. What else telemetry reported is never changed.
    Raises InputError where the snapshot holds no node.
    """
    read = _read(objects, collected.meta.start, collected.meta.end, source=source, catalog=None)
    snapshot, known_holds = read.collected, with_known(collected.tables, read.known)
    known = {node.name: node for node in kube_nodes(objects)}
    rows = collected.tables["nodes"].to_pylist(maps_as_pydicts="strict")
    filled = [_filled(row, known) for row in rows]
    allocations = _owned(known_holds["allocations"], snapshot.tables["allocations"])
    events = spot_event_rows(filled, allocations.to_pylist(), collected.meta.start, objects)
    changed = sum(before != after for before, after in zip(rows, filled, strict=True))
    meta = collected.meta
    return replace(
        collected,
        tables={
            **collected.tables,
            "nodes": table_from_rows("nodes", filled),
            "allocations": allocations,
            "gpu_usage": known_holds["gpu_usage"],
            "spot_events": table_from_rows("spot_events", events),
            "jobs": _queued(collected.tables.get("jobs"), snapshot.tables["jobs"], queue_names(objects)),
            **{name: snapshot.tables[name] for name in STANDING},
            **{name: _told(collected.tables.get(name), snapshot.tables[name]) for name in _LIMITS},
            "faults": _together(collected.tables.get("faults"), snapshot.tables["faults"]),
        },
        meta=meta.model_copy(
            update={
                "sources": (*meta.sources, *snapshot.meta.sources),
                "notes": (*meta.notes, *((f"{changed} node(s) completed from {source}",) if changed else ())),
                "counts": {**meta.counts, **{f"snapshot: {why}": n for why, n in snapshot.meta.counts.items()}},
            }
        ),
    )


def _told(read: pa.Table | None, told: pa.Table) -> pa.Table:
    """Return the limits of a snapshot, which knows more of them; those that telemetry read where the snapshot has none."""
    return told if read is None or told.num_rows else read


def _together(read: pa.Table | None, told: pa.Table) -> pa.Table:
    """Return the faults that telemetry read and those that a snapshot shows of other kinds, or of other nodes."""
    if read is None:
        return told
    seen = {(row["node"], row["fault"]) for row in read.select(["node", "fault"]).to_pylist()}
    added = [row for row in told.to_pylist() if (row["node"], row["fault"]) not in seen]
    return table_from_rows("faults", [*read.to_pylist(), *added])


def _owned(allocations: pa.Table, told: pa.Table) -> pa.Table:
    """Return holdings with the team and the kind of owner that a snapshot knows of their workload, where they had none."""
    names = ("team", "owner_kind")
    known: dict[object, dict[str, object]] = {}
    for row in told.select(["workload", *names]).to_pylist():
        mine = known.setdefault(row["workload"], {})
        mine.update({name: row[name] for name in names if row[name] and name not in mine})
    rows = allocations.to_pylist()
    return table_from_rows(
        "allocations",
        [row | {name: row[name] or known.get(row["workload"], {}).get(name) for name in names} for row in rows],
    )


def _queued(jobs: pa.Table | None, told: pa.Table, queues: Mapping[str, str]) -> pa.Table:
    """Return the runs with the queue that they name, and those that wait in one now."""
    rows = [] if jobs is None else [row | {"queue": row["queue"] or queues.get(row["job"])} for row in jobs.to_pylist()]
    seen = {row["job"] for row in rows}
    waiting = [row for row in told.to_pylist() if row["start"] is None and row["job"] not in seen]
    return table_from_rows("jobs", [*rows, *waiting])


def _filled(row: Mapping[str, object], known: Mapping[str, KubeNode]) -> dict[str, object]:
    """Return a node's row, with what was unknown taken from the snapshot; what telemetry knew stays."""
    node = known.get(str(row["node"]))
    if node is None:
        return dict(row)
    told = {"provider": node.provider, "instance_type": node.instance_type, "region": node.region}
    taken = {name: told[name] for name in _FILLED if row[name] == UNKNOWN and told[name] != UNKNOWN}
    if taken.get("instance_type"):
        taken["capacity_type"] = node.capacity_type
    labels, taints = row.get("labels"), row.get("taints")
    return {
        **row,
        **taken,
        "zone": row["zone"] or node.zone,
        "labels": {**node.labels, **(labels if isinstance(labels, dict) else {})},
        "taints": {**node.taints, **(taints if isinstance(taints, dict) else {})},
    }
