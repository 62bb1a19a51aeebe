"""What `collect` puts together from several sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from trimtab.sources.bill_nodes import with_billed_types
from trimtab.sources.clusters import Collected
from trimtab.sources.focus import read_bills
from trimtab.tables.bundle import Bundle, BundleMeta


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
