"""What bills say the fleet's nodes cost, to hold against what the price book says."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.fleet.model import Window

BILL_COLUMNS = (
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "EffectiveCost",
    "BilledCost",
    "BillingCurrency",
    "instance_type",
)
DOLLAR = "USD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """Cost rows of some instance types that lie in a window, in dollars."""

    usd: float
    rows: int
    foreign_rows: int
    """Rows in another currency: left out, never converted."""


def billed(costs: pa.Table, window: Window, instance_types: Collection[str]) -> Billed:
    """Add up the effective cost (the billed one where there is none) of rows of these types within a window.

    `costs` has BILL_COLUMNS. A row that reaches out of the window counts by the share of its charge period that lies in it.
    """
    of_types = costs.filter(pc.is_in(costs["instance_type"], value_set=pa.array(sorted(instance_types), pa.string())))
    start, end = (_microseconds(of_types, name) for name in ("ChargePeriodStart", "ChargePeriodEnd"))
    first, last = (
        np.datetime64(moment.replace(tzinfo=None), "us").astype(np.int64) for moment in (window.start, window.end)
    )
    inside = np.clip(np.minimum(end, last) - np.maximum(start, first), 0, None)
    share = inside / np.maximum(end - start, 1)
    dollars = pc.equal(pc.fill_null(of_types["BillingCurrency"], DOLLAR), DOLLAR).to_numpy(zero_copy_only=False)
    cost = pc.coalesce(of_types["EffectiveCost"], of_types["BilledCost"]).to_numpy(zero_copy_only=False)
    counted = (inside > 0) & dollars
    return Billed(
        usd=float((cost * share)[counted].sum()),
        rows=int(counted.sum()),
        foreign_rows=int(((inside > 0) & ~dollars).sum()),
    )


def _microseconds(table: pa.Table, column: str) -> npt.NDArray[np.int64]:
    moments = table[column].cast(pa.timestamp("us", tz="UTC"))
    values: npt.NDArray[np.int64] = moments.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values
