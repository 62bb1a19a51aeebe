"""80 % intervals: quantiles of ln(predicted / measured) over groups that were held back, by kind of question.

A question's class is what it asks (`static`, `ttft`, ...), how well its neighbours were measured (support) and which boards.
Where a class has too few held-out rows its parent's quantiles stand in (`data/*.json`, key `intervals`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from trimtab.catalog import Gpu
from trimtab.physics.terms import Floats
from trimtab.provenance import Basis, Estimate

COVERED_FRAC = 0.80
LEAST_ROWS = 60
LEAST_GROUPS = 3
SLACK = 1.1
"""Widening of the held-out quantiles: they come from few groups, and held back once more they cover 74 % without it."""


class BoardClass(Enum):
    """Boards whose errors are alike."""

    RECENT = "recent"
    OLDER = "older"
    OTHER_VENDOR = "other-vendor"


def board_class(gpu: Gpu) -> BoardClass:
    """Return a board's class: NVIDIA's data-centre parts with HBM since the A100, its other boards, other vendors."""
    if gpu.vendor != "NVIDIA":
        return BoardClass.OTHER_VENDOR
    recent = gpu.memory_type.startswith("HBM") and (gpu.compute_capability or 0) >= 8
    return BoardClass.RECENT if recent and gpu.name != "A30" else BoardClass.OLDER


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Quantiles of ln(predicted / measured): 10 %, the centre, 90 %; and the rows behind them."""

    low: float
    centre: float
    high: float
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Spreads by class, from the finest to the coarsest key."""

    spreads: Mapping[str, Spread]

    def spread(self, keys: Sequence[str]) -> Spread:
        """Return the first class that was measured; the last key must be."""
        return next(self.spreads[key] for key in keys if key in self.spreads)

    def estimate(self, predicted: float, keys: Sequence[str], *, because: str = "") -> Estimate:
        """Return the prediction, centred, with its 80 % interval."""
        spread = self.spread(keys)
        # errors are ln(predicted / measured), so a centre above 0 is over-prediction and is taken off
        value = predicted * math.exp(-spread.centre)
        return Estimate(
            value=value,
            # the ends swap: the highest error belongs to the lowest measurement. A shifted centre may lie outside of
            # the quantiles; the interval holds the value all the same.
            low=min(value, predicted * math.exp(-spread.high)),
            high=max(value, predicted * math.exp(-spread.low)),
            basis=Basis.MODELLED,
            because=because,
        )


def class_keys(asked: str, support: int, boards: BoardClass) -> tuple[str, ...]:
    """Return a question's classes from the finest to the coarsest."""
    return (f"{asked}/{support}/{boards.value}", f"{asked}/{boards.value}", f"{asked}/{support}", asked, "all")


def least_relative_error(errors: Floats) -> float:
    """Return the shift of ln(predicted) that minimises the mean of |predicted / measured - 1| on held-out rows."""
    # steps of 0.01, far below the errors themselves
    shifts = np.linspace(-0.2, 0.8, 101)
    costs = [float(np.mean(np.abs(np.exp(errors - shift) - 1))) for shift in shifts]
    return float(shifts[int(np.argmin(costs))])


def fit_intervals(
    rows: Iterable[tuple[tuple[str, ...], str, float]], *, centred: frozenset[str] = frozenset()
) -> Intervals:
    """Take the quantiles of held-out errors by class.

    `rows` are (class keys, group, ln(predicted / measured)). Classes named in `centred` are shifted to the least mean relative
    error, which lies below the median where errors are wide and skewed.
    """
    by_class: dict[str, list[tuple[str, float]]] = {}
    for keys, group, error in rows:
        # a row counts in its own class and in every coarser one, so that a parent is never emptier than its children
        for key in keys:
            by_class.setdefault(key, []).append((group, error))
    spreads = {key: _spread(key, found, centred) for key, found in by_class.items() if _suffices(key, found)}
    return Intervals(spreads=spreads)


def _suffices(key: str, found: Sequence[tuple[str, float]]) -> bool:
    enough = len(found) >= LEAST_ROWS and len({group for group, _ in found}) >= LEAST_GROUPS
    # a class without a slash is what a question falls back on: it stays, however few its rows
    return enough or "/" not in key


def _spread(key: str, found: Sequence[tuple[str, float]], centred: frozenset[str]) -> Spread:
    errors = np.array([error for _, error in found])
    tail = (1 - COVERED_FRAC) / 2
    low, middle, high = np.quantile(errors, [tail, 0.5, 1 - tail])
    asked = key.split("/")[0]
    centre = least_relative_error(errors) if asked in centred else 0.5 * float(middle)
    return Spread(low=SLACK * float(low), centre=centre, high=SLACK * float(high), rows=len(errors))


def intervals_from(content: object) -> Intervals:
    """Read spreads from the parsed JSON of a coefficient file."""
    if not isinstance(content, dict):
        raise TypeError("intervals must be a mapping of classes")
    return Intervals(
        spreads={
            str(key): Spread(low=item["low"], centre=item["centre"], high=item["high"], rows=item["rows"])
            for key, item in content.items()
        }
    )


def intervals_to_json(intervals: Intervals, *, digits: int = 4) -> dict[str, object]:
    """Return what `intervals_from` reads back."""
    return {
        key: {
            "low": round(spread.low, digits),
            "centre": round(spread.centre, digits),
            "high": round(spread.high, digits),
            "rows": spread.rows,
        }
        for key, spread in sorted(intervals.spreads.items())
    }
