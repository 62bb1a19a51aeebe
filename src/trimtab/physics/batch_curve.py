"""How long a batch of requests takes by its size, on one GPU and carried over to another."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import inf

from trimtab.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCurve:
    """How long a batch of each size takes: measured points, linear between and beyond them."""

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or len(self.sizes) != len(self.seconds):
            raise InputError(
                f"a batch-time curve needs at least two sizes with one time each (saw {len(self.sizes)} sizes)"
            )
        if any(late <= early for early, late in zip(self.sizes, self.sizes[1:], strict=False)) or self.sizes[0] < 1:
            raise InputError(f"a batch-time curve needs rising sizes from 1 (saw {self.sizes})")
        if not all(0 < second < inf for second in self.seconds):
            raise InputError(f"a batch-time curve needs times above 0 (saw {self.seconds})")

    def run_s(self, size: int) -> float:
        """Return the time of a batch; beyond the largest size measured, on the line through the last two points."""
        # clipped so that sizes outside of what was measured use the nearest pair of points
        place = min(max(bisect_right(self.sizes, size), 1), len(self.sizes) - 1)
        low, high = self.sizes[place - 1], self.sizes[place]
        share = (size - low) / (high - low)
        # no batch is faster than the smallest one measured, wherever the line through the first points leads
        return max(self.seconds[0], self.seconds[place - 1] + share * (self.seconds[place] - self.seconds[place - 1]))

    def carried(self, speed: float, work_speed: float) -> BatchCurve:
        """Return the curve on a GPU of these speeds relative to this one.

        A batch of one runs at the workload's own speed there; what each further request adds is work that fills the GPU.
        """
        # what a batch pays once, launches and weights, scales as the request alone does; only the rest is work that
        # fills the GPU
        alone_s = self.seconds[0]
        seconds = tuple(alone_s / speed + (second_s - alone_s) / work_speed for second_s in self.seconds)
        return BatchCurve(sizes=self.sizes, seconds=seconds)

    def most_req_s(self, max_batch: int) -> float:
        """Return the requests a second that full batches of a size serve."""
        return max_batch / self.run_s(max_batch)
