"""What `collect` puts together from several sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trimtab.sources.focus import read_bills
from trimtab.sources.prometheus import Collected


def with_bills(collected: Collected, paths: Sequence[Path]) -> Collected:
    """Add the `costs` table of some bills, what their reader says, and what it counted; raises BillError."""
    if not paths:
        return collected
    bills = read_bills(paths)
    meta = collected.meta.model_copy(
        update={
            "sources": (*collected.meta.sources, *(path.name for path in paths)),
            "notes": (*collected.meta.notes, *bills.notes),
            "counts": {**collected.meta.counts, **bills.counts},
        }
    )
    return replace(collected, tables={**collected.tables, "costs": bills.table}, meta=meta)
