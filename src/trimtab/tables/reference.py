"""The reference page of the tables, from the schemas: `python -m trimtab.tables.reference > docs/reference/tables.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from trimtab.tables.schemas import REQUIRED_TABLES, TABLES, Column

ROWS = {
    "devices": "A GPU or MIG instance.",
    "nodes": "A node's life: a node that went and came back has two rows.",
    "allocations": "Who held which GPU from when to when.",
    "gpu_usage": "A device, the workload that held it, and an hour.",
    "demand": "A service and an interval.",
    "jobs": "A run.",
    "costs": "A charge, in the columns of FOCUS 1.0-1.4.",
    "spot_events": "An interruption, or a change of availability.",
    "pods": "A pod, what it asks for, what it tolerates and how it fares.",
    "faults": "A stretch in which a node or a GPU was broken, cordoned or slowed down.",
    "scalers": "An autoscaler that is in place.",
    "disruption_budgets": "A pod disruption budget that is in place.",
    "queues": "A queue (and resource flavor) that rations GPUs.",
    "images": "An image that a GPU node holds.",
    "volumes": "A claim to a persistent volume.",
}
"""Table -> what one row is."""

_HEAD = """# Tables of a fleet bundle

<!-- Written from src/trimtab/tables/schemas.py by `python -m trimtab.tables.reference`; do not edit. -->

A fleet bundle is a folder: one Parquet file a table, `bundle.yaml` (the window `[start, end)`, the sources, notes, and how many
readings were clamped or dropped and why) and `workloads.yaml` (what only people know). `trimtab collect` writes one; everything
else reads it. Times are UTC, intervals are `[start, end)`, shares are 0..1, and a reading that was not made is null, never 0.

Histograms have 101 bins over 0..1: bin i counts the readings with floor(100 x value + 1/2) = i, so that histograms of parts add
up to the histogram of the whole.

Reading checks a bundle whole and names every fault at once. Tolerated, repaired in memory and counted: readings that are
NaN, infinite, negative, sentinels or beyond their bound (made null), duplicate rows, rows outside the window, intervals of
no length, unknown columns. Everything else that does not fit is refused.

Nothing is billed twice. Rows of one node, or holdings of one GPU by one pod, that overlap in time and agree become one; two
lives of one node name that differ and overlap by an hour at most are cut at the later start. Beyond that they are refused,
with their rows, and so are nodes that hold GPUs of the same ids at once (one machine under two names) and charges for one
instance that overlap over different periods (a bill's days beside its hours). A charge that two bill files both hold is taken
once. A GPU that several pods hold at once is shared between them.
"""


def tables_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *(line for name in TABLES for line in _section(name))]).rstrip() + "\n"


def _section(name: str) -> Iterator[str]:
    required = "must be there" if name in REQUIRED_TABLES else "may be absent"
    yield f"## `{name}`"
    yield ""
    yield f"One row: {ROWS[name][0].lower()}{ROWS[name][1:]} The table {required}."
    yield ""
    yield "| column | type | unit | meaning | origin |"
    yield "|---|---|---|---|---|"
    yield from (_row(column) for column in TABLES[name])
    yield ""


def _row(column: Column) -> str:
    kind = column.dtype.value + ("" if column.nullable else ", never null")
    cells = (f"`{column.name}`", kind, column.unit, column.meaning, column.origin)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(tables_page())
