"""A bill as FOCUS cost rows: metered use, covered use, commitment fees and what they left unused.

As FOCUS has it: a commitment's fee is a Purchase with billed cost and no effective cost; the use that it covers and what it
leaves unused carry the effective cost. Both columns therefore sum to the bill.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pyarrow as pa

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.ledger.bill import Bill, Commitment
from trimtab.ledger.spend import SpendPlan
from trimtab.tables.arrow import arrow_schema
from trimtab.units import S_PER_HR, usd

Row = dict[str, object]


def focus_rows(bill: Bill, start: datetime) -> pa.Table:
    """Return a bill whose first hour begins at `start` as a table with the columns of `costs` (FOCUS 1.0 names)."""
    rows = [*_metered(bill, start), *_committed(bill, start), *_spent(bill, start)]
    schema = arrow_schema("costs")
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)


def _metered(bill: Bill, start: datetime) -> Iterator[Row]:
    for row, pool in enumerate(bill.pools):
        mine = [index for index, one in enumerate(bill.commitments) if one.pool == pool]
        seconds = (
            bill.node_seconds[row] - bill.covered_seconds[mine].sum(axis=0) - bill.plan_seconds[:, row].sum(axis=0)
        )
        for hour in seconds.nonzero()[0].tolist():
            cost = usd(int(bill.metered[row, hour]))
            yield {
                **_where(pool, start, hour),
                "ChargeCategory": "Usage",
                "PricingCategory": "Dynamic" if pool.capacity_type is CapacityType.SPOT else "Standard",
                "BilledCost": cost,
                "EffectiveCost": cost,
                "ListCost": cost,
                "ContractedCost": cost,
                "PricingQuantity": float(seconds[hour]) / S_PER_HR,
            }


def _committed(bill: Bill, start: datetime) -> Iterator[Row]:
    used, unused = bill.used_commitment(), bill.unused_commitment()
    for index, commitment in enumerate(bill.commitments):
        for hour in range(bill.committed.shape[1]):
            place = {**_where(commitment.pool, start, hour), **_discount(commitment, index)}
            yield _fee(place, int(bill.committed[index, hour]))
            yield from _amortized(place, "Used", int(used[index, hour]))
            yield from _amortized(place, "Unused", int(unused[index, hour]))


def _spent(bill: Bill, start: datetime) -> Iterator[Row]:
    paid, used, unused = bill.spend, bill.used_spend(), bill.unused_spend()
    for index, plan in enumerate(bill.spend_plans):
        discount = _plan(plan, index)
        for hour in range(paid.shape[1]):
            place = {**_when(start, hour), "ProviderName": plan.provider, **discount}
            yield _fee(place, int(paid[index, hour]))
            yield from _amortized(place, "Unused", int(unused[index, hour]))
            for row, pool in enumerate(bill.pools):
                yield from _amortized({**_where(pool, start, hour), **discount}, "Used", int(used[index, row, hour]))


def _fee(place: Row, micro_usd: int) -> Row:
    return {**place, "ChargeCategory": "Purchase", "BilledCost": usd(micro_usd), "EffectiveCost": 0.0}


def _amortized(place: Row, status: str, micro_usd: int) -> Iterator[Row]:
    if micro_usd:
        yield {
            **place,
            "ChargeCategory": "Usage",
            "PricingCategory": "Committed",
            "CommitmentDiscountStatus": status,
            "BilledCost": 0.0,
            "EffectiveCost": usd(micro_usd),
        }


def _when(start: datetime, hour: int) -> Row:
    begin = start + timedelta(hours=hour)
    return {"ChargePeriodStart": begin, "ChargePeriodEnd": begin + timedelta(hours=1), "BillingCurrency": "USD"}


def _where(pool: Pool, start: datetime, hour: int) -> Row:
    return {
        **_when(start, hour),
        "ProviderName": pool.provider,
        "RegionId": pool.region,
        "ResourceType": "Instance",
        "SkuMeter": pool.instance_type,
        "PricingUnit": "Hours",
        "instance_type": pool.instance_type,
    }


def _discount(commitment: Commitment, index: int) -> Row:
    return {
        "CommitmentDiscountId": f"{commitment.option.value}-{commitment.pool.instance_type}-{index}",
        "CommitmentDiscountType": commitment.option.value,
    }


def _plan(plan: SpendPlan, index: int) -> Row:
    return {
        "CommitmentDiscountId": f"{plan.option.value}-{index}",
        "CommitmentDiscountType": plan.option.value,
    }
