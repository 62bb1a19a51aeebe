"""Read every bill of a folder: nothing is lost, every way of splitting it sums to the whole, reading again gives the same.

    python -m benchmarks.bills [--data FOLDER]

The oracle adds up the text of each CSV's BilledCost with exact decimals; splits are compared in whole micro-dollars.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from decimal import Decimal, InvalidOperation
from pathlib import Path

import pyarrow as pa

from trimtab.errors import BillError
from trimtab.sources.bills.focus import read_bills
from trimtab.units import micro_usd, usd

DATA = Path("../shared/data/focus")
SPLITS = ("ChargeCategory", "ServiceName", "RegionId", "instance_type", "PricingCategory", "CommitmentDiscountStatus")


def main() -> None:
    """Read, compare, print a line a bill and the largest error as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    folder = parser.parse_args().data
    bills = rows = 0
    largest_usd = 0.0
    refused = []
    for path in sorted(one for one in folder.rglob("*") if one.suffix == ".csv"):
        try:
            table = read_bills([path]).table
        except BillError as error:
            refused.append(str(error))
            continue
        error_usd = max(abs(_oracle_usd(path) - _total_usd(table)), _split_error_usd(table))
        same = read_bills([path]).table.equals(table)
        print(f"{path.name}: {table.num_rows} rows, error {error_usd:.6f} USD, read again the same: {same}", flush=True)
        largest_usd = max(largest_usd, error_usd if same else float("inf"))
        bills, rows = bills + 1, rows + table.num_rows
    answer = {"benchmark": "bills", "data": str(folder), "bills": bills, "rows": rows, "max_error_usd": largest_usd}
    print(json.dumps({**answer, "refused": refused}))


def _oracle_usd(path: Path) -> float:
    """Add up the billed cost of a CSV as its text states it."""
    total = Decimal(0)
    with path.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            try:
                total += Decimal(row.get("BilledCost") or row.get("line_item_unblended_cost") or "0")
            except InvalidOperation:
                continue
    return float(total)


def _total_usd(table: pa.Table) -> float:
    return float(sum(Decimal(repr(cost)) for cost in table["BilledCost"].to_pylist()))


def _split_error_usd(table: pa.Table) -> float:
    """Return the largest difference between the whole and the sum of any split's parts."""
    costs = [micro_usd(repr(cost)) for cost in table["BilledCost"].to_pylist()]
    worst = 0
    for split in SPLITS:
        parts: dict[object, int] = defaultdict(int)
        for key, cost in zip(table[split].to_pylist(), costs, strict=True):
            parts[key] += cost
        worst = max(worst, abs(sum(parts.values()) - sum(costs)))
    return usd(worst)


if __name__ == "__main__":
    main()
