"""What a bill knows of nodes that Kubernetes does not tell: their instance type, whether they are spot, their region.

kube-state-metrics exports no node labels unless asked to; the provider's id of a node is the bill's resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.catalog import CapacityType
from trimtab.sources.kubernetes.nodes import UNKNOWN
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.resource_ids import PROVIDER_ID, last_part


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
    node = _first_known((provider_id, row["node"]), billed)
    if node is None:
        return row
    capacity = CapacityType.SPOT.value if node.spot else row["capacity_type"]
    region = node.region or row["region"]
    return {**row, "instance_type": node.instance_type, "region": region, "capacity_type": capacity}


def _first_known(names: Iterable[object], billed: Mapping[str, BilledNode]) -> BilledNode | None:
    return next(
        (billed[last_part(name)] for name in names if isinstance(name, str) and last_part(name) in billed), None
    )
