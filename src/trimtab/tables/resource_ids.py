"""Names of machines in bills: clouds write the same node in several ways."""

from __future__ import annotations

import pyarrow as pa

PROVIDER_ID = "provider_id"
"""The label of a node that holds the provider's id of it."""


def last_part(resource: str) -> str:
    """Return the last part of a resource id: `arn:...:instance/i-0abc` and `aws:///zone/i-0abc` name the same node."""
    return resource.rstrip("/").rpartition("/")[2].rpartition(":")[2].casefold()


def nodes_by_resource(nodes: pa.Table) -> dict[str, str]:
    """Return node names by the last part of what a bill may call them: the provider's id, or the name itself."""
    found = {}
    for row in nodes.select(["node", "labels"]).to_pylist(maps_as_pydicts="lossy"):
        found[last_part(row["node"])] = row["node"]
        provider_id = (row["labels"] or {}).get(PROVIDER_ID)
        if provider_id:
            found[last_part(provider_id)] = row["node"]
    return found
