"""Month close: what each month's charges are made of, and whether they are the invoice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.diagnose.bill_split import Charges
from trimtab.fleet.model import IntArray
from trimtab.units import NANO_PER_MICRO, round_parts

CATEGORIES = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
"""Charge categories of FOCUS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """One billing month, in micro-dollars."""

    month: str
    """`2026-09`."""
    rows: int
    by_category: Mapping[str, int]
    """What the invoice asks, by category; a charge of none counts as usage."""
    corrections: int
    """The part of it that corrects charges of invoices already issued."""
    amortised: int
    """What the month's use costs with commitments amortised: what is allocated."""
    unused_commitment: int
    invoice: int | None
    """What the invoice says, where it was given."""

    @property
    def billed(self) -> int:
        """Return what the charges ask for."""
        return sum(self.by_category.values())

    @property
    def difference(self) -> int | None:
        """Return what the charges ask for beyond the invoice; None without one."""
        return None if self.invoice is None else self.billed - self.invoice


def months(billed: Charges, amortised: Charges, invoices: Mapping[str, int]) -> tuple[Month, ...]:
    """Return the months of a bill, first to last; `invoices` maps a month to its invoice's amount in micro-dollars.

    An invoice of a month that holds no charge is a month of its own, with nothing billed.
    """
    rows = billed.rows
    period = pc.coalesce(rows["BillingPeriodStart"], rows["ChargePeriodStart"])
    name = np.array(pc.strftime(period, format="%Y-%m").to_pylist(), dtype=np.str_)
    category = np.array(pc.fill_null(rows["ChargeCategory"], "Usage").to_pylist(), dtype=np.str_)
    correction = _is(rows["ChargeClass"], "Correction")
    unused = _is(rows["CommitmentDiscountStatus"], "Unused")
    found = []
    for month in sorted({*name.tolist(), *invoices}):
        mine = name == month
        kinds = [*CATEGORIES, *sorted(set(category[mine].tolist()) - set(CATEGORIES))]
        sums = round_parts([_sum(billed.nano_usd, mine & (category == kind)) for kind in kinds], NANO_PER_MICRO)
        others = [
            _sum(billed.nano_usd, mine & correction),
            _sum(amortised.nano_usd, mine),
            _sum(amortised.nano_usd, mine & unused),
        ]
        corrections, spread, wasted = (round_parts([nano_usd], NANO_PER_MICRO)[0] for nano_usd in others)
        found.append(
            Month(
                month=month,
                rows=int(mine.sum()),
                by_category=dict(zip(kinds, sums, strict=True)),
                corrections=corrections,
                amortised=spread,
                unused_commitment=wasted,
                invoice=invoices.get(month),
            )
        )
    return tuple(found)


def _is(column: pa.ChunkedArray, value: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(pc.equal(pc.fill_null(column, ""), value).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _sum(nano_usd: IntArray, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    return int(nano_usd[rows].sum())
