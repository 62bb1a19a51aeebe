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
from trimtab.ledger.billing import Bill
from trimtab.ledger.commitments import CommitmentOffer
from trimtab.tables.arrow import arrow_schema
from trimtab.units import S_PER_HR, usd

Row = dict[str, object]


def focus_rows(bill: Bill, start: datetime) -> pa.Table:
    """Return a bill whose first hour begins at `start` as a table with the columns of `costs` (FOCUS 1.0 names)."""
    rows = [*_metered(bill, start), *_committed(bill, start)]
    schema = arrow_schema("costs")
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)


def _metered(bill: Bill, start: datetime) -> Iterator[Row]:
    for row, pool in enumerate(bill.pools):
        seconds = bill.node_seconds[row] - bill.covered_seconds[:, row].sum(axis=0)
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
    paid, used, unused = bill.committed, bill.used_commitment(), bill.unused_commitment()
    to_nodes = sum(not commitment.offer.is_spend for commitment in bill.commitments)  # these apply first
    for index, commitment in enumerate(bill.commitments):
        discount = _discount(commitment.offer, index - to_nodes if commitment.offer.is_spend else index)
        for hour in range(paid.shape[1]):
            place = {**_bought_for(commitment.offer, start, hour), **discount}
            yield _fee(place, int(paid[index, hour]))
            yield from _amortized(place, "Unused", int(unused[index, hour]))
            for row, pool in enumerate(bill.pools):
                yield from _amortized({**_where(pool, start, hour), **discount}, "Used", int(used[index, row, hour]))


def _bought_for(offer: CommitmentOffer, start: datetime, hour: int) -> Row:
    """Return what a commitment is to: nodes of a pool, or a provider's nodes at large."""
    if offer.is_spend:
        return {**_when(start, hour), "ProviderName": offer.provider}
    return _where(offer.pool, start, hour)


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


def _discount(offer: CommitmentOffer, index: int) -> Row:
    what = (offer.option.value,) if offer.is_spend else (offer.option.value, offer.pool.instance_type)
    return {
        "CommitmentDiscountId": "-".join((*what, str(index))),
        "CommitmentDiscountType": offer.option.value,
    }
