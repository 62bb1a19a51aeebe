"""What bills say the fleet's nodes cost, to hold against what the price book says."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.catalog.providers import provider_of_bill
from trimtab.fleet.model import FloatArray, Window

BILL_COLUMNS = (
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "EffectiveCost",
    "BilledCost",
    "BillingCurrency",
    "instance_type",
)
SPEND_COLUMNS = (*BILL_COLUMNS, "CommitmentDiscountId", "CommitmentDiscountType", "ProviderName")
DOLLAR = "USD"
_SPEND = "saving|spend"

BoolArray = npt.NDArray[np.bool_]


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
    cost, counted, foreign = _within(of_types, window)
    return Billed(usd=float(cost[counted].sum()), rows=int(counted.sum()), foreign_rows=int(foreign.sum()))


def billed_spend(costs: pa.Table, window: Window) -> dict[str, float]:
    """Return what commitments to spend (savings plans and the like) cost an hour of a window, by provider, dollars.

    `costs` has SPEND_COLUMNS. A commitment is one to spend where its type or its id says so: FOCUS' column for it
    (CommitmentDiscountCategory) came with 1.1, and cost and usage reports have none.
    """
    said = [pc.fill_null(costs[name], "") for name in ("CommitmentDiscountType", "CommitmentDiscountId")]
    mine = costs.filter(pc.or_(*(pc.match_substring_regex(column, _SPEND, ignore_case=True) for column in said)))
    cost, counted, _ = _within(mine, window)
    names = pc.fill_null(mine["ProviderName"], "").to_pylist()
    found: dict[str, float] = {}
    for name, dollars in zip(np.array(names, dtype=np.str_)[counted].tolist(), cost[counted].tolist(), strict=True):
        provider = provider_of_bill(name)
        found[provider] = found.get(provider, 0.0) + dollars / window.hours
    return found


def _within(rows: pa.Table, window: Window) -> tuple[FloatArray, BoolArray, BoolArray]:
    """Return what of each row's cost lies in a window, which rows count (in it, in dollars), and which are foreign."""
    start, end = (_microseconds(rows, name) for name in ("ChargePeriodStart", "ChargePeriodEnd"))
    first, last = (
        np.datetime64(moment.replace(tzinfo=None), "us").astype(np.int64) for moment in (window.start, window.end)
    )
    inside = np.clip(np.minimum(end, last) - np.maximum(start, first), 0, None)
    share = inside / np.maximum(end - start, 1)
    dollars = pc.equal(pc.fill_null(rows["BillingCurrency"], DOLLAR), DOLLAR).to_numpy(zero_copy_only=False)
    cost = pc.coalesce(rows["EffectiveCost"], rows["BilledCost"]).to_numpy(zero_copy_only=False)
    return cost * share, (inside > 0) & dollars, (inside > 0) & ~dollars


def _microseconds(table: pa.Table, column: str) -> npt.NDArray[np.int64]:
    moments = table[column].cast(pa.timestamp("us", tz="UTC"))
    values: npt.NDArray[np.int64] = moments.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values
