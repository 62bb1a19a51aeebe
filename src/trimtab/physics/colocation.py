"""Programs on one GPU without hardware isolation: what they leave of it to each other, in time slices and under MPS.

**Time slices.** CUDA gives every process that has work pending an equal share of the time, so that a request runs at
1 / (1 + m) of its speed while m others are at work. Of each other program no more is known than that it is at work for at most
`busy_frac` of an hour when it has the GPU to itself. Sharing stretches that: at most `busy_frac / left`, where
`left = max(1 / (1 + others), 1 - others * busy_frac)` is the time that a work-conserving scheduler leaves to one program
whatever the others ask for. The others are taken to be at work independently of one another.

**MPS.** Each of n programs has 1 / n of the processors for itself (`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`, which the device plugin
sets to 100 / n) and of the memory (`CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`); bandwidth and L2 are shared. The others are taken to
draw their share of the bandwidth all the time.
"""

from __future__ import annotations

from dataclasses import replace
from math import comb

from trimtab.catalog import Gpu

MPS_CAPABILITY = 7.0
"""The least compute capability whose MPS clients have address spaces and processor shares of their own: Volta."""
AS_MET = 1.0
"""A request meets another program in the share of the time in which that one is at work."""
MET_BOTH_WAYS = 2.0
"""The careful figure: it also slows down for the whole of its time where the other one joins it later."""


def left_frac(others: int, busy_frac: float) -> float:
    """Return the share of a GPU's time that others leave to one more program, each at work alone for at most `busy_frac`."""
    # a fair scheduler leaves 1 / (1 + others); one that conserves work leaves at least what the others cannot use
    return max(1 / (1 + others), 1 - others * busy_frac)


def met_frac(others: int, busy_frac: float, ways: float = AS_MET) -> tuple[float, ...]:
    """Return the shares of requests that meet 0, 1, ... `others` programs at work; they sum to 1.

    A request that meets m of them takes 1 + m times as long.
    """
    # sharing stretches the others' busy time by 1 / left, up to all of it
    met = min(1.0, ways * busy_frac / left_frac(others, busy_frac))
    # binomial: the others are at work independently of one another
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
    """Return `held` of `slices` time slices as a board: its part of the memory, and the whole GPU while nobody else works."""
    return replace(gpu, memory_gib=gpu.memory_gib * held / slices)
