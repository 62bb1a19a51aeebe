"""Who caused the bill, as Ibis expressions: `billing.allocate` where the cells are too many for one machine.

The same rule as `arrays.apportion_groups` (largest remainder, ties to the first cell), so that the parts of every pool and hour
sum to its bill exactly on every engine. Node time in whole seconds adds up exactly in any order, so the parts are then equal to
the last micro-dollar on all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ibis.expr.types as ir

_GROUP = ("pool", "hour")


def allocation_expr(cells: ir.Table, billed: ir.Table) -> ir.Table:
    """Return the cells with their `micro_usd`, which sum exactly to the bill of their pool and hour.

    `cells` has `pool`, `hour`, `cell` (a number that orders a group's cells; ties go to the lowest), `node_seconds` (not
    negative) and whatever else says who held them; `billed` has `pool`, `hour` and `micro_usd`, a whole number. A group that
    was not held for any time is split evenly; one without any cell has no row: `unallocated_expr` finds its money.
    """
    import ibis

    group = ibis.window(group_by=list(_GROUP))
    joined = cells.inner_join(billed.select(*_GROUP, total="micro_usd"), list(_GROUP))
    joined = joined.select(*(joined[name] for name in cells.columns), joined["total"])
    weighed = joined.mutate(whole=joined["node_seconds"].sum().over(group), cells=joined.count().over(group))
    by_time = weighed["node_seconds"] / weighed["whole"].nullif(0)
    share = ibis.coalesce(by_time, 1.0 / weighed["cells"].cast("float64"))
    exact = weighed.mutate(exact=weighed["total"].cast("float64") * share)
    floored = exact.mutate(part=ibis.least(exact["exact"].floor().cast("int64"), exact["total"]))
    order = ibis.window(group_by=list(_GROUP), order_by=[floored["part"] - floored["exact"], floored["cell"]])
    ranked = floored.mutate(
        left=floored["total"] - floored["part"].sum().over(group), rank=ibis.row_number().over(order)
    )
    turns = (ranked["left"].cast("float64") / ranked["cells"].cast("float64")).floor().cast("int64")
    extra = (ranked["rank"] < ranked["left"] - turns * ranked["cells"]).cast("int64")
    return ranked.select(
        *(ranked[name] for name in cells.columns), micro_usd=(ranked["part"] + turns + extra).cast("int64")
    )


def unallocated_expr(cells: ir.Table, billed: ir.Table) -> ir.Table:
    """Return the rows of the bill that no cell carries: money that an allocation of these cells would lose."""
    held = cells.select(*_GROUP).distinct()
    return billed.anti_join(held, list(_GROUP)).filter(lambda rows: rows["micro_usd"] != 0)


def cost_by(allocated: ir.Table, *keys: str) -> ir.Table:
    """Return the micro-dollars by who held them."""
    return allocated.group_by(list(keys)).aggregate(micro_usd=allocated["micro_usd"].sum().cast("int64"))
