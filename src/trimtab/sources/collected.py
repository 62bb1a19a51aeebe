"""What a collect yields: the tables of a bundle, of several clusters in one, with bills laid over them.

Kubernetes allows no `@` in names, so `prod/chat@east` is unambiguous, and its namespace is still `prod`. GPU UUIDs are unique
in the world; a device that is named after its host is told apart as its host is.

Where kube-state-metrics exports no node labels, a bill tells types: the provider's id of a node is the bill's resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.catalog import CapacityType
from trimtab.catalog.providers import PROVIDER_ID, last_part
from trimtab.errors import UsageError
from trimtab.sources.bills.focus import read_bills
from trimtab.sources.kubernetes.nodes import UNKNOWN
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import Bundle, BundleMeta
from trimtab.tables.workloads import in_cluster

_WORKLOADS = ("allocations", "gpu_usage", "demand", "jobs", "pods", "volumes", "disruption_budgets")
_TARGETS = ("scalers",)
_QUOTAS = ("resource_quotas", "limit_ranges")
_QUEUES = ("queues",)
"""Their names are those of the cluster itself: several may have a queue of one name."""
_NODES = ("nodes", "devices", "allocations", "jobs", "pods", "images", "faults")
_DEVICES = ("devices", "allocations", "gpu_usage", "faults")
_JOINED = ","
"""What the nodes of a job that ran on several are joined with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The tables and meta of a bundle, ready to be written."""

    tables: Mapping[str, pa.Table]
    meta: BundleMeta


def merge_clusters(parts: Mapping[str, Collected]) -> Collected:
    """Return one bundle's tables of several clusters by name; one cluster alone stays as it is.

    Raises UsageError if there is none, or their windows differ.
    """
    if not parts:
        raise UsageError("no cluster was found: is the cluster label spelt as the server spells it?")
    if len(parts) == 1:
        return next(iter(parts.values()))
    named = {name: _named(collected.tables, name) for name, collected in parts.items()}
    tables = {
        table: pa.concat_tables([part[table] for part in named.values() if table in part])
        for table in dict.fromkeys(table for part in named.values() for table in part)
    }
    return Collected(tables=tables, meta=_meta({name: collected.meta for name, collected in parts.items()}))


def _named(tables: Mapping[str, pa.Table], cluster: str) -> dict[str, pa.Table]:
    """Return the tables with the cluster behind every name that another cluster may have too."""
    changed = dict(tables)
    columns = (
        ("workload", _WORKLOADS, in_cluster),
        ("target", _TARGETS, in_cluster),
        ("namespace", _QUOTAS, in_cluster),
        ("name", _QUEUES, in_cluster),
        ("parent", _QUEUES, in_cluster),
        ("node", _NODES, _in_cluster_each),
        ("device", _DEVICES, _in_cluster_host),
    )
    for column, names, rename in columns:
        for name in names:
            if name in changed:
                changed[name] = _renamed(changed[name], column, partial(rename, cluster=cluster))
    if "jobs" in changed:
        changed["jobs"] = _renamed(changed["jobs"], "job", partial(in_cluster, cluster=cluster))
    return changed


def _renamed(table: pa.Table, column: str, rename: Callable[[str], str]) -> pa.Table:
    """Rename a column's values; each distinct one once."""
    encoded = table.column(column).combine_chunks().dictionary_encode()
    renamed = pa.array([None if text is None else rename(text) for text in encoded.dictionary.to_pylist()], pa.string())
    at = table.schema.get_field_index(column)
    return table.set_column(at, table.schema.field(column), renamed.take(encoded.indices))


def _in_cluster_each(nodes: str, cluster: str) -> str:
    return _JOINED.join(in_cluster(node, cluster) for node in nodes.split(_JOINED))


def _in_cluster_host(device: str, cluster: str) -> str:
    return device if device.startswith(("GPU-", "MIG-")) else in_cluster(device, cluster)


def _meta(metas: Mapping[str, BundleMeta]) -> BundleMeta:
    windows = {(meta.start, meta.end) for meta in metas.values()}
    if len(windows) > 1:
        raise UsageError("the clusters were collected over different windows; give --from and --to as dates")
    counts: dict[str, int] = {}
    for meta in metas.values():
        for reason, number in meta.counts.items():
            counts[reason] = counts.get(reason, 0) + number
    first = next(iter(metas.values()))
    return first.model_copy(
        update={
            "sources": tuple(f"{name}: {source}" for name, meta in metas.items() for source in meta.sources),
            "notes": tuple(dict.fromkeys(f"{name}: {note}" for name, meta in metas.items() for note in meta.notes)),
            "counts": counts,
        }
    )


def with_bills(collected: Collected, paths: Sequence[Path]) -> Collected:
    """Add the `costs` table of some bills, what their reader says and counted, and what they know of nodes.

    Raises BillError.
    """
    if not paths:
        return collected
    nodes, costs, meta = _billed(collected.tables["nodes"], collected.meta, paths)
    return replace(collected, tables={**collected.tables, "nodes": nodes, "costs": costs}, meta=meta)


def bundle_with_bills(bundle: Bundle, paths: Sequence[Path]) -> Bundle:
    """Return a bundle with bills laid over it, in memory; see `with_bills`."""
    if not paths:
        return bundle
    nodes, costs, meta = _billed(bundle.table("nodes"), bundle.meta, paths)
    return replace(bundle, tables={**bundle.tables, "nodes": nodes, "costs": costs}, meta=meta)


def _billed(nodes: pa.Table, meta: BundleMeta, paths: Sequence[Path]) -> tuple[pa.Table, pa.Table, BundleMeta]:
    bills = read_bills(paths)
    typed, filled = with_billed_types(nodes, bills.table)
    said = (f"instance types of {filled} node(s) taken from the bill",) if filled else ()
    return (
        typed,
        bills.table,
        meta.model_copy(
            update={
                "sources": (*meta.sources, *(path.name for path in paths)),
                "notes": (*meta.notes, *bills.notes, *said),
                "counts": {**meta.counts, **bills.counts},
            }
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledNode:
    """A resource of the bill that is an instance."""

    instance_type: str
    region: str | None
    spot: bool


def billed_nodes(costs: pa.Table) -> dict[str, BilledNode]:
    """Return the instances of a bill by the last part of their resource id (`i-0abc`, an instance's name)."""
    wanted = costs.select(["ResourceId", "instance_type", "RegionId", "PricingCategory", "ChargeCategory"])
    used = wanted.filter(
        pc.and_(
            pc.and_(wanted["ResourceId"].is_valid(), wanted["instance_type"].is_valid()),
            pc.equal(wanted["ChargeCategory"], "Usage"),
        )
    )
    found: dict[str, BilledNode] = {}
    for row in used.group_by(used.column_names).aggregate([]).to_pylist():
        found[last_part(row["ResourceId"])] = BilledNode(
            instance_type=row["instance_type"], region=row["RegionId"], spot=row["PricingCategory"] == "Dynamic"
        )
    return found


def with_billed_types(nodes: pa.Table, costs: pa.Table) -> tuple[pa.Table, int]:
    """Return the nodes with unknown types filled in from a bill, and how many rows were filled."""
    billed = billed_nodes(costs)
    rows = nodes.to_pylist(maps_as_pydicts="strict")
    filled = [_filled(row, billed) for row in rows]
    number = sum(new is not old for new, old in zip(filled, rows, strict=True))
    return (table_from_rows("nodes", filled), number) if number else (nodes, 0)


def _filled(row: Mapping[str, object], billed: Mapping[str, BilledNode]) -> Mapping[str, object]:
    labels = row["labels"]
    provider_id = labels.get(PROVIDER_ID) if isinstance(labels, Mapping) else None
    if row["instance_type"] != UNKNOWN:
        return row
    node = _first_billed((provider_id, row["node"]), billed)
    if node is None:
        return row
    capacity = CapacityType.SPOT.value if node.spot else row["capacity_type"]
    region = node.region or row["region"]
    return {**row, "instance_type": node.instance_type, "region": region, "capacity_type": capacity}


def _first_billed(names: Iterable[object], billed: Mapping[str, BilledNode]) -> BilledNode | None:
    return next(
        (billed[last_part(name)] for name in names if isinstance(name, str) and last_part(name) in billed), None
    )
