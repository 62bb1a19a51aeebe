"""A collected fleet and a snapshot of its cluster, put together: readings from one, what stands there from the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from trimtab.sources.clusters import Collected
from trimtab.sources.kube_nodes import UNKNOWN, KubeNode
from trimtab.sources.kube_objects import Objects
from trimtab.sources.kube_queues import queue_names
from trimtab.sources.kube_snapshot import collect_snapshot, kube_nodes
from trimtab.sources.spot_events import spot_event_rows
from trimtab.tables.arrow import table_from_rows

STANDING = ("pods", "scalers", "queues", "images", "volumes")
"""Tables that only a snapshot has."""
_FILLED = ("provider", "instance_type", "region")


def with_snapshot(collected: Collected, objects: Objects, *, source: str) -> Collected:
    """Add the tables of a snapshot, and fill what telemetry left unknown.

    Nodes that still stand get their type and place, holdings the team and kind of their owner, runs their queue; runs that
    wait now are added. What telemetry told is never changed. Raises InputError where the snapshot holds no node.
    """
    snapshot = collect_snapshot(objects, collected.meta.start, collected.meta.end, source=source)
    known = {node.name: node for node in kube_nodes(objects)}
    rows = collected.tables["nodes"].to_pylist(maps_as_pydicts="strict")
    filled = [_filled(row, known) for row in rows]
    allocations = _owned(collected.tables["allocations"], snapshot.tables["allocations"])
    events = spot_event_rows(filled, allocations.to_pylist(), collected.meta.start, objects)
    changed = sum(before != after for before, after in zip(rows, filled, strict=True))
    meta = collected.meta
    return replace(
        collected,
        tables={
            **collected.tables,
            "nodes": table_from_rows("nodes", filled),
            "allocations": allocations,
            "spot_events": table_from_rows("spot_events", events),
            "jobs": _queued(collected.tables.get("jobs"), snapshot.tables["jobs"], queue_names(objects)),
            **{name: snapshot.tables[name] for name in STANDING},
        },
        meta=meta.model_copy(
            update={
                "sources": (*meta.sources, *snapshot.meta.sources),
                "notes": (*meta.notes, *((f"{changed} node(s) completed from {source}",) if changed else ())),
                "counts": {**meta.counts, **{f"snapshot: {why}": n for why, n in snapshot.meta.counts.items()}},
            }
        ),
    )


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
