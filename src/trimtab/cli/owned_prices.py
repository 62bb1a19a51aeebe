"""What a person must still say of owned hardware: the price file to fill in, for nodes that no price list has."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.catalog import CapacityType
from trimtab.sources.collected import Collected


def missing_prices(collected: Collected) -> Iterator[str]:
    """Return the lines of a price file for a fleet's owned nodes, to be filled in; none where it owns none."""
    rows = collected.tables["nodes"].select(["instance_type", "gpu", "gpu_count", "capacity_type"]).to_pylist()
    owned = {row["instance_type"]: row for row in rows if row["capacity_type"] == CapacityType.OWNED.value}
    if not owned:
        return
    yield "  owned nodes have no price until you say what they cost: fill in owned.yaml, then trimtab audit --prices owned.yaml"
    yield "    owned:"
    for name, row in sorted(owned.items()):
        yield f"      - instance_type: {name}"
        yield f"        gpu: {row['gpu'] or '...'}"
        yield f"        gpu_count: {row['gpu_count']}"
        yield "        capital_usd: ...          # price of a node with its share of racks and network"
        yield "        years: ...                # life over which it is written off"
        yield "        power_w: ...              # average draw at the plug"
        yield "        pue: ...                  # power of the site over power of the machines"
        yield "        electricity_usd_kwh: ..."
