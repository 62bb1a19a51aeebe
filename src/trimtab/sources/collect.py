"""What `collect` puts together from several sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trimtab.sources.bill_nodes import with_billed_types
from trimtab.sources.focus import read_bills
from trimtab.sources.prometheus import Collected


def with_bills(collected: Collected, paths: Sequence[Path]) -> Collected:
    """Add the `costs` table of some bills, what their reader says and counted, and what they know of nodes.

    Raises BillError.
    """
    if not paths:
        return collected
    bills = read_bills(paths)
    nodes, filled = with_billed_types(collected.tables["nodes"], bills.table)
    said = (f"instance types of {filled} node(s) taken from the bill",) if filled else ()
    meta = collected.meta.model_copy(
        update={
            "sources": (*collected.meta.sources, *(path.name for path in paths)),
            "notes": (*collected.meta.notes, *bills.notes, *said),
            "counts": {**collected.meta.counts, **bills.counts},
        }
    )
    return replace(collected, tables={**collected.tables, "nodes": nodes, "costs": bills.table}, meta=meta)
