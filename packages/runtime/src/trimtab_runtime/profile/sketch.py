"""A time-weighted distribution in bounded memory: exact up to 2,048 different values, then in steps of a power of two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

MOST_BINS = 2048


class Sketch:
    """Whole numbers (readings in their smallest unit) weighted by the seconds for which they held.

    Minimum, maximum and mean are exact. A quantile is exact while at most 2,048 different values were seen; after that it is
    off by at most 1/1,024 of the range. Two sketches add up. `shift` begins with coarser steps, of 2**shift.
    """

    __slots__ = ("bins", "high", "low", "moment", "seconds", "shift")

    def __init__(self, shift: int = 0) -> None:
        self.bins: defaultdict[int, float] = defaultdict(float)
        self.shift = shift
        self.seconds = 0.0
        self.moment = 0.0
        self.low: int | None = None
        self.high: int | None = None

    def add(self, values: Sequence[int], seconds: Sequence[float], held_s: float, moment: float) -> None:
        """Add readings with the time for which each held, the sum of these times, and that of value x time."""
        self._widen(min(values), max(values))
        self.seconds += held_s
        self.moment += moment
        bins, shift = self.bins, self.shift
        if shift:
            values = [value >> shift for value in values]
        for value, held_s in zip(values, seconds, strict=True):
            bins[value] += held_s
        if len(self.bins) > MOST_BINS:
            self._coarsen(self._shift_that_fits())

    def merge(self, other: Sketch) -> None:
        """Add another sketch to this one."""
        if other.low is None or other.high is None:
            return
        self._widen(other.low, other.high)
        self.seconds += other.seconds
        self.moment += other.moment
        if other.shift > self.shift:
            self._coarsen(other.shift)
        down = self.shift - other.shift
        for value, held_s in other.bins.items():
            self.bins[value >> down] += held_s
        if len(self.bins) > MOST_BINS:
            self._coarsen(self._shift_that_fits())

    @property
    def mean(self) -> float | None:
        """Return the time-weighted mean; None if nothing was read."""
        return self.moment / self.seconds if self.seconds > 0 else None

    def quantile(self, share: float) -> float | None:
        """Return the least value that held, with all below it, for this share of the time; None if nothing was read."""
        if self.low is None or self.high is None:
            return None
        needed, passed = share * self.seconds * (1 - 1e-12), 0.0
        for value in sorted(self.bins):
            passed += self.bins[value]
            if passed >= needed:
                return self._inside(value)
        return float(self.high)

    def _inside(self, step: int) -> float:
        middle = (step << self.shift) + ((1 << self.shift) - 1) / 2
        return min(max(middle, float(self.low or 0)), float(self.high or 0))

    def _widen(self, low: int, high: int) -> None:
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    def _shift_that_fits(self) -> int:
        """Return the step at which the whole range fits into half of the bins: one pass, and room for a wider range."""
        shift, span = self.shift + 1, (self.high or 0) - (self.low or 0)
        while span >> shift > MOST_BINS // 2:
            shift += 1
        return shift

    def _coarsen(self, shift: int) -> None:
        down = shift - self.shift
        coarse: defaultdict[int, float] = defaultdict(float)
        for value, held_s in self.bins.items():
            coarse[value >> down] += held_s
        self.bins, self.shift = coarse, shift
