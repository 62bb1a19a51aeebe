"""Work side by side on one GPU: requests in a batch by its measured times, programs without hardware isolation.

**Time slices.** CUDA gives every process that has work pending an equal share of the time, so that a request runs at
1 / (1 + m) of its speed while m others are busy. Of each other program no more is known than that it is busy for at most
`busy_frac` of an hour when it has the GPU to itself. Sharing stretches that: at most `busy_frac / left`, where
`left = max(1 / (1 + others), 1 - others * busy_frac)` is the time that a work-conserving scheduler leaves to one program
whatever the others ask for. The others are assumed to be busy independently of one another.

**MPS.** Each of n programs has 1 / n of the processors for itself (`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`, which the device plugin
sets to 100 / n) and of the memory (`CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`); bandwidth and L2 are shared. The others are taken to
draw their share of the bandwidth all the time.

**Two programs in time slices, as measured.** How fast whole work goes on (a run, a batch), rather than one request, depends on
how busy both keep the GPU alone: `speed_beside`, fitted on measured pairs. Targets of requests are not checked with it, because
the share of a request's time that is spent in kernels is not known.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from math import comb, exp, inf, log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.catalog import Gpu
from trimtab.errors import InputError

Fracs = npt.NDArray[np.float64] | np.float64


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


MPS_CAPABILITY = 7.0
"""The least compute capability whose MPS clients have address spaces and processor shares of their own: Volta."""
AS_MET = 1.0
"""A request meets another program in the share of the time in which that one is busy."""
MET_BOTH_WAYS = 2.0
"""The careful figure: it also slows down for the whole of its time where the other one joins it later."""


def left_frac(others: int, busy_frac: float) -> float:
    """Return the share of a GPU's time that others leave to one more program, each busy alone for at most `busy_frac`."""
    # a fair scheduler leaves 1 / (1 + others); one that conserves work leaves at least what the others cannot use
    return max(1 / (1 + others), 1 - others * busy_frac)


def met_frac(others: int, busy_frac: float, ways: float = AS_MET) -> tuple[float, ...]:
    """Return the shares of requests that meet 0, 1, ... `others` busy programs; they sum to 1.

    A request that meets m of them takes 1 + m times as long.
    """
    # sharing stretches the others' busy time by 1 / left, up to all of it
    met = min(1.0, ways * busy_frac / left_frac(others, busy_frac))
    # binomial: the others are busy independently of one another
    return tuple(comb(others, m) * met**m * (1 - met) ** (others - m) for m in range(others + 1))


def mps_share(gpu: Gpu, clients: int) -> Gpu:
    """Return a share of a GPU under MPS as a board: 1 / `clients` of memory, processors and bandwidth."""
    return replace(
        gpu,
        name=f"{gpu.name} 1/{clients}",
        memory_gib=gpu.memory_gib / clients,
        # bandwidth is not partitioned under MPS: the others are taken to draw their part all the time
        mem_bw_gb_s=gpu.mem_bw_gb_s / clients,
        rates_tflops={precision: rate / clients for precision, rate in gpu.rates_tflops.items()},
        # whole multiprocessors: a client cannot have a part of one
        sm_count=None if gpu.sm_count is None else max(1, gpu.sm_count // clients),
        nvlink_gb_s=0.0,
    )


def time_slice(gpu: Gpu, slices: int, held: int = 1) -> Gpu:
    """Return `held` of `slices` time slices as a board: its part of the memory, and the whole GPU while the others are idle."""
    return replace(gpu, memory_gib=gpu.memory_gib * held / slices)


FAIR_SHARE_FRAC = 0.5
"""Two programs that both always have work pending get equal slices."""


class PairLaw(NamedTuple):
    """The speed 1 / (1 + weight * own ** own_power * other ** other_power) of work beside another program, 1 = alone.

    Time slices set two bounds, whatever was fitted: a program gets its fair share, and only the time that the other one leaves.
    """

    weight: float
    own_power: float
    other_power: float

    def speed(self, own_frac: Fracs, other_frac: Fracs) -> Fracs:
        """Return the speed by the shares of the time in which both keep the GPU busy alone; arrays of one shape."""
        # a program takes its share of the time alone, times its speed; the other one has the rest, and half of all at least
        left = np.maximum(FAIR_SHARE_FRAC, 1 - other_frac * self._fair(other_frac, own_frac))
        return np.minimum(self._fair(own_frac, other_frac), left / np.maximum(own_frac, left))

    def _fair(self, own_frac: Fracs, other_frac: Fracs) -> Fracs:
        fitted = 1 / (1 + self.weight * own_frac**self.own_power * other_frac**self.other_power)
        return np.maximum(FAIR_SHARE_FRAC, fitted)


class SharedSpeed(NamedTuple):
    """Speed of work beside one other program, 1 = alone: expected, the 80 % interval, and what one in a hundred falls below."""

    expected: float
    low: float
    high: float
    careful: float


# Fitted on Lucid's 1,016 pairs of training jobs on an RTX 3090 (S-Lab-System-Group/Lucid, simulation/data/colocate_info.csv) by
# `python -m benchmarks.interference`, which also scores the same fit on models that were held out.
EXPECTED_SPEED = PairLaw(3.555, 1.491, 2.030)
CAREFUL_SPEED = PairLaw(1.639, 0.195, 0.862)
SPREAD_FLOOR = 0.1
"""Loss that the width of the interval counts beside the expected one: work that loses nothing varies too."""
LOW_SPREAD, HIGH_SPREAD = -0.721, 0.725
"""10 and 90 % of the measured errors of ln(speed), over the expected loss plus the floor."""
SAFE_LOSS_FRAC, CAREFUL_LOSS_FRAC = 0.10, 0.25


def speed_beside(own_frac: float, other_frac: float) -> SharedSpeed:
    """Return how fast work goes on beside one other program in time slices; shares are those of the time busy alone, 0..1."""
    own, other = np.float64(own_frac), np.float64(other_frac)
    expected = float(EXPECTED_SPEED.speed(own, other))
    width = SPREAD_FLOOR + 1 - expected
    return SharedSpeed(
        expected=expected,
        low=exp(log(expected) + LOW_SPREAD * width),
        high=exp(log(expected) + HIGH_SPREAD * width),
        careful=min(expected, float(CAREFUL_SPEED.speed(own, other))),
    )


def is_safe_pair(one_frac: float, other_frac: float) -> bool:
    """Return whether both of two programs are expected to lose 10 % at most and, one in a hundred aside, 25 %."""
    both = (speed_beside(one_frac, other_frac), speed_beside(other_frac, one_frac))
    return all(speed.expected >= 1 - SAFE_LOSS_FRAC and speed.careful >= 1 - CAREFUL_LOSS_FRAC for speed in both)
