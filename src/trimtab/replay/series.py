"""Array types and the counting of seconds into clock hours that all replays share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trimtab.replay.compiled import inlined
from trimtab.units import S_PER_HR

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
CountArray = NDArray[np.int32]
Flags = NDArray[np.bool_]


@inlined
def add_interval(by_hour: IntArray, start_s: int, end_s: int, amount: int) -> None:
    """Add `amount` for each second of `[start_s, end_s)` to its hour; what lies beyond the last hour is left out."""
    last = min(end_s, len(by_hour) * S_PER_HR)
    now = max(start_s, 0)
    while now < last:
        hour = now // S_PER_HR
        until = min(last, (hour + 1) * S_PER_HR)
        by_hour[hour] += amount * (until - now)
        now = until
