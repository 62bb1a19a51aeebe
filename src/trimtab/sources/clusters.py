"""Several clusters in one bundle: their nodes and workloads keep apart by `@cluster` behind the name.

Kubernetes allows no `@` in names, so `prod/chat@east` is unambiguous, and its namespace is still `prod`. GPU UUIDs are unique
in the world; a device that is named after its host is told apart as its host is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from trimtab.errors import UsageError
from trimtab.tables.bundle import BundleMeta

_WORKLOADS = ("allocations", "gpu_usage", "demand", "jobs", "pods", "volumes")
_TARGETS = ("scalers",)
_NODES = ("nodes", "devices", "allocations", "jobs", "pods", "images")
_DEVICES = ("devices", "allocations", "gpu_usage")
_JOINED = ","
"""What the nodes of a job that ran on several are joined with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The tables and meta of a bundle, ready to be written."""

    tables: Mapping[str, pa.Table]
    meta: BundleMeta


def merge_clusters(parts: Mapping[str, Collected]) -> Collected:
    """Return one bundle's tables of several clusters by name; one cluster alone stays as it is.

    Raises UsageError where there is none, or their windows differ.
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
        ("workload", _WORKLOADS, _behind),
        ("target", _TARGETS, _behind),
        ("node", _NODES, _behind_each),
        ("device", _DEVICES, _behind_host),
    )
    for column, names, rename in columns:
        for name in names:
            if name in changed:
                changed[name] = _renamed(changed[name], column, partial(rename, cluster=cluster))
    if "jobs" in changed:
        changed["jobs"] = _renamed(changed["jobs"], "job", partial(_behind, cluster=cluster))
    return changed


def _renamed(table: pa.Table, column: str, rename: Callable[[str], str]) -> pa.Table:
    """Rename a column's values; each distinct one once."""
    encoded = table.column(column).combine_chunks().dictionary_encode()
    renamed = pa.array([None if one is None else rename(one) for one in encoded.dictionary.to_pylist()], pa.string())
    at = table.schema.get_field_index(column)
    return table.set_column(at, table.schema.field(column), renamed.take(encoded.indices))


def _behind(name: str, cluster: str) -> str:
    return f"{name}@{cluster}"


def _behind_each(nodes: str, cluster: str) -> str:
    return _JOINED.join(_behind(node, cluster) for node in nodes.split(_JOINED))


def _behind_host(device: str, cluster: str) -> str:
    return device if device.startswith(("GPU-", "MIG-")) else _behind(device, cluster)


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
