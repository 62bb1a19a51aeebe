"""A collected fleet and a snapshot of its cluster, put together: readings from one, what stands there from the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from trimtab.sources.kube_nodes import UNKNOWN, KubeNode
from trimtab.sources.kube_objects import Objects
from trimtab.sources.kube_snapshot import collect_snapshot, kube_nodes
from trimtab.sources.prometheus import Collected
from trimtab.tables.arrow import table_from_rows

STANDING = ("pods", "scalers", "queues", "images", "volumes")
"""Tables that only a snapshot has."""
_FILLED = ("provider", "instance_type", "region")


def with_snapshot(collected: Collected, objects: Objects, *, source: str) -> Collected:
    """Add the tables of a snapshot, and fill what telemetry left unknown about nodes that still stand.

    Raises InputError where the snapshot holds no node.
    """
    snapshot = collect_snapshot(objects, collected.meta.start, collected.meta.end, source=source)
    known = {node.name: node for node in kube_nodes(objects)}
    rows = collected.tables["nodes"].to_pylist(maps_as_pydicts="strict")
    filled = [_filled(row, known) for row in rows]
    changed = sum(before != after for before, after in zip(rows, filled, strict=True))
    meta = collected.meta
    return replace(
        collected,
        tables={**collected.tables, "nodes": _nodes(filled), **{name: snapshot.tables[name] for name in STANDING}},
        meta=meta.model_copy(
            update={
                "sources": (*meta.sources, *snapshot.meta.sources),
                "notes": (*meta.notes, *((f"{changed} node(s) completed from {source}",) if changed else ())),
                "counts": {**meta.counts, **{f"snapshot: {why}": n for why, n in snapshot.meta.counts.items()}},
            }
        ),
    )


def _nodes(rows: list[dict[str, object]]) -> pa.Table:
    return table_from_rows("nodes", rows)


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
