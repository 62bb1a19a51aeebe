"""Bills as text: cells brought to values, and AWS Cost and Usage Report 2.0 (Data Exports) brought to FOCUS' columns.

Sources: AWS Data Exports, table dictionary of CUR 2.0; AWS' own mapping of its FOCUS 1.0 export (2024). Effective cost is the
amortised one: a covered line costs what the commitment charges it, an unused part is the commitment's own line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.tables.checks import ABSENT_TEXTS
from trimtab.units import as_utc

T = TypeVar("T")

_ABSENT = pa.array(["", *sorted(ABSENT_TEXTS)])
_INSTANCE_TYPES = re.compile(
    r"""(?<![\w.-])(
        (?:ml\.)?[a-z]{1,4}\d{1,2}[a-z0-9]*(?:-[a-z0-9]+)?\.(?:\d*x?large|medium|small|micro|nano|metal(?:-\w+)?)
        | Standard_[A-Z]+\d+[A-Za-z0-9_-]*
        | (?:a2|a3|a4|a4x|g2|g4)-(?:highgpu|megagpu|ultragpu|edgegpu|standard|maxgpu)-\d+g?
        | (?:VM|BM)\.GPU[\w.]*
    )(?![\w-])""",
    re.VERBOSE,
)


def texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as text, with NULL, N/A and the like made null."""
    plain = column.cast(pa.string()) if not pa.types.is_string(column.type) else column
    trimmed = pc.utf8_trim_whitespace(plain)
    return pc.if_else(pc.is_in(trimmed, value_set=_ABSENT), pa.scalar(None, pa.string()), trimmed)


def mapped(column: pa.ChunkedArray, read: Callable[[str], T], kind: pa.DataType) -> tuple[pa.ChunkedArray, list[int]]:
    """Read each distinct text once; return the values, and the rows whose text `read` refused with ValueError."""
    encoded = column.combine_chunks().dictionary_encode()
    values: list[T | None] = []
    refused: list[int] = []
    for number, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            values.append(read(text))
        except ValueError:
            values.append(None)
            refused.append(number)
    taken = pa.array(values, type=kind).take(encoded.indices)
    if not refused:
        return pa.chunked_array([taken]), []
    bad = pc.is_in(encoded.indices, value_set=pa.array(refused, type=encoded.indices.type))
    return pa.chunked_array([taken]), pc.indices_nonzero(bad).to_pylist()


def read_time(text: str) -> datetime:
    """Read a moment: ISO 8601, with or without zone (UTC then), or `YYYY-MM-DD HH:MM:SS`; raises ValueError."""
    return as_utc(datetime.fromisoformat(text.removesuffix(" UTC")))


def read_number(text: str) -> float:
    """Read a finite number; raises ValueError."""
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"{text!r} is not a finite number")
    return value


def read_labels(text: str) -> list[tuple[str, str]]:
    """Read tags from a JSON object; values that are no text keep their JSON. Raises ValueError."""
    try:
        raw: object = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(raw, dict):
        raise ValueError("tags are no JSON object")
    return [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in raw.items()]


def find_instance_type(text: str) -> str | None:
    """Return the first instance type that a text names, in AWS', Azure's, Google's or Oracle's spelling."""
    matched = _INSTANCE_TYPES.search(text)
    return matched[1] if matched else None


def instance_type_in_details(text: str) -> str | None:
    """Return the instance type in a SkuPriceDetails (or x_SkuDetails) object; None where it names none."""
    try:
        raw: object = json.loads(text)
    except (ValueError, RecursionError):
        return find_instance_type(text)
    if not isinstance(raw, dict):
        return None
    for key in ("InstanceType", "x_InstanceType", "ServiceType", "instanceType", "machineSpec", "VMSize"):
        if isinstance(raw.get(key), str) and raw[key]:
            return str(raw[key])
    return find_instance_type(text)


def first_known(columns: Sequence[pa.ChunkedArray], rows: int) -> pa.ChunkedArray:
    """Return in each row the first value that is not null."""
    if not columns:
        return pa.chunked_array([pa.nulls(rows, pa.string())])
    return pc.coalesce(*columns)


_RENAMED: Mapping[str, str] = {
    "line_item_usage_start_date": "ChargePeriodStart",
    "line_item_usage_end_date": "ChargePeriodEnd",
    "line_item_unblended_cost": "BilledCost",
    "line_item_currency_code": "BillingCurrency",
    "line_item_resource_id": "ResourceId",
    "line_item_line_item_description": "ChargeDescription",
    "line_item_usage_type": "SkuMeter",
    "line_item_product_code": "ServiceName",
    "line_item_usage_amount": "PricingQuantity",
    "pricing_unit": "PricingUnit",
    "pricing_public_on_demand_cost": "ListCost",
    "bill_payer_account_id": "BillingAccountId",
    "bill_billing_period_start_date": "BillingPeriodStart",
    "bill_invoice_id": "InvoiceId",
    "product_region_code": "RegionId",
    "product_sku": "SkuId",
    "product_instance_type": "x_InstanceType",
    "resource_tags": "Tags",
}
_CATEGORIES: Mapping[str, str] = {
    "Usage": "Usage",
    "DiscountedUsage": "Usage",
    "SavingsPlanCoveredUsage": "Usage",
    "Tax": "Tax",
    "Credit": "Credit",
    "Refund": "Credit",
    "Fee": "Purchase",
    "RIFee": "Purchase",
    "SavingsPlanRecurringFee": "Purchase",
    "SavingsPlanUpfrontFee": "Purchase",
    "SavingsPlanNegation": "Adjustment",
    "EdpDiscount": "Credit",
    "PrivateRateDiscount": "Credit",
    "BundledDiscount": "Credit",
}
_COVERED = {
    "DiscountedUsage": "reservation_effective_cost",
    "SavingsPlanCoveredUsage": "savings_plan_savings_plan_effective_cost",
}
_NOTHING = ("SavingsPlanNegation", "SavingsPlanUpfrontFee")
"""Line types whose amortised cost is 0: the negation undoes a covered line's list cost, the upfront fee is spread."""
_KIND = "line_item_line_item_type"


def is_cur(columns: Collection[str]) -> bool:
    """Return whether these are the columns of a CUR 2.0."""
    return _KIND in columns and "line_item_usage_start_date" in columns


def to_focus(table: pa.Table) -> pa.Table:
    """Return a batch with FOCUS' columns; cells stay text where they were text."""
    kinds = table.column(_KIND).cast(pa.string())
    named = {focus: table.column(name) for name, focus in _RENAMED.items() if name in table.column_names}
    named["ChargeCategory"] = _looked_up(kinds, _CATEGORIES, "Usage")
    named["EffectiveCost"] = _effective(table, kinds)
    named["PricingCategory"] = pc.if_else(_is_any(kinds, _COVERED), "Committed", "Standard")
    named["CommitmentDiscountStatus"] = pc.if_else(_is_any(kinds, _COVERED), "Used", pa.scalar(None, pa.string()))
    named["CommitmentDiscountId"] = _commitment_id(table)
    named["ProviderName"] = pa.chunked_array([pa.repeat("AWS", table.num_rows)])
    return pa.table(named)


def _effective(table: pa.Table, kinds: pa.ChunkedArray) -> pa.ChunkedArray:
    if "line_item_unblended_cost" not in table.column_names:
        return pa.chunked_array(
            [pa.nulls(table.num_rows, pa.string())]
        )  # who needs the billed cost says that it is missing
    billed = table.column("line_item_unblended_cost").cast(pa.string())
    cost = pc.if_else(_is_any(kinds, _NOTHING), "0", billed)
    for kind, name in _COVERED.items():
        if name in table.column_names:
            cost = pc.if_else(pc.equal(kinds, kind), table.column(name).cast(pa.string()), cost)
    # A recurring fee is amortised over the lines that it covers; what is left of it is its unused part.
    for kind, unused in (
        ("RIFee", "reservation_unused_amortized_upfront_fee_for_billing_period"),
        ("SavingsPlanRecurringFee", "savings_plan_total_commitment_to_date"),
    ):
        if unused in table.column_names:
            cost = pc.if_else(pc.equal(kinds, kind), _unused(table, kind), cost)
    return cost


def _unused(table: pa.Table, kind: str) -> pa.ChunkedArray:
    """Return the cost of the part of a commitment that nothing used."""
    if kind == "RIFee":
        names = (
            "reservation_unused_amortized_upfront_fee_for_billing_period",
            "reservation_unused_recurring_fee",
        )
        return pc.add(*(_number(table, name) for name in names)).cast(pa.string())
    total = _number(table, "savings_plan_total_commitment_to_date")
    return pc.subtract(total, _number(table, "savings_plan_used_commitment")).cast(pa.string())


def _number(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        return pa.chunked_array([pa.array([0.0] * table.num_rows)])
    column = table.column(name)
    if pa.types.is_string(column.type):
        return mapped(texts(column), read_number, pa.float64())[0].fill_null(0.0)
    return pc.fill_null(column.cast(pa.float64()), 0.0)


def _commitment_id(table: pa.Table) -> pa.ChunkedArray:
    names = ("savings_plan_savings_plan_a_r_n", "reservation_reservation_a_r_n")
    columns = [table.column(name).cast(pa.string()) for name in names if name in table.column_names]
    blank = [pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column) for column in columns]
    return pc.coalesce(*blank) if blank else pa.chunked_array([pa.nulls(table.num_rows, pa.string())])


def _is_any(kinds: pa.ChunkedArray, wanted: Collection[str]) -> pa.ChunkedArray:
    return pc.is_in(kinds, value_set=pa.array(sorted(wanted)))


def _looked_up(kinds: pa.ChunkedArray, table: Mapping[str, str], otherwise: str) -> pa.ChunkedArray:
    names = pa.array(list(table))
    values = pa.array(list(table.values()))
    return pc.fill_null(values.take(pc.index_in(kinds, value_set=names).combine_chunks()), otherwise)
