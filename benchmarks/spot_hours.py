"""What waiting for cheap hours of spot would save: `python -m benchmarks.spot_hours --data price_changes.parquet`.

Rows are changes of a spot price (region, zone, instance_type, product, spot_usd_per_h, utc). Of each series of three weeks or
more the three hours of the day that were cheapest in its first two thirds are held against the mean of the rest, and the three
cheapest of the whole in hindsight against the mean of the whole.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from trimtab.ledger.arrays import FloatArray, IntArray
from trimtab.units import HR_PER_DAY, HR_PER_WEEK, S_PER_HR

LEAST_HR = 3 * HR_PER_WEEK
CHEAPEST = 3
PRODUCT = "Linux/UNIX"


def hourly_prices(path: Path) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield hours since 1970 `(n_hours,)` and the price in force at their starts, of each series that is long enough."""
    changes: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for row in pq.read_table(path).to_pylist():
        if row["product"] == PRODUCT:
            key = (row["region"], row["zone"], row["instance_type"])
            changes[key].append((row["utc"].timestamp(), row["spot_usd_per_h"]))
    for _, series in sorted(changes.items()):
        at_s, price = np.array(sorted(series)).T
        hours = np.arange(np.ceil(at_s[0] / S_PER_HR), np.floor(at_s[-1] / S_PER_HR)).astype(np.int64)
        if len(hours) >= LEAST_HR:
            yield hours, price[np.searchsorted(at_s, hours * S_PER_HR, side="right") - 1]


def saved_frac(hours: IntArray, price: FloatArray, seen: slice, judged: slice) -> float:
    """Return how far the hours of the day that were cheapest in one part lie below the mean of another part."""
    of_day = hours % HR_PER_DAY
    means = [price[seen][of_day[seen] == hour].mean() for hour in range(HR_PER_DAY)]
    chosen = np.isin(of_day[judged], np.argsort(means)[:CHEAPEST])
    return float(1 - price[judged][chosen].mean() / price[judged].mean())


def main() -> None:
    """Run the benchmark; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="changes of spot prices, Parquet")
    options = parser.parse_args()
    learnt, hindsight = [], []
    for hours, price in hourly_prices(options.data):
        cut = len(hours) * 2 // 3
        learnt.append(saved_frac(hours, price, slice(cut), slice(cut, None)))
        hindsight.append(saved_frac(hours, price, slice(None), slice(None)))
    figures = {
        f"{name}_{which}_frac": round(float(value), 5)
        for name, saved in (("learnt", learnt), ("hindsight", hindsight))
        for which, value in (("least", min(saved)), ("median", np.median(saved)), ("most", max(saved)))
    }
    print(json.dumps({"benchmark": "spot_hours", "data": str(options.data), "series": len(learnt), **figures}))


if __name__ == "__main__":
    main()
