"""Copy many pieces of host memory by a few threads of its own.

torch copies with the job's OpenMP threads, which spin at a barrier: on processors that also feed a GPU (or are
shared) one late thread holds up the copy. Measured on two busy cores: 0.9 to 1.3 s/GB by torch with two threads, 0.13
to 0.20 s/GB by plain copies, which wait for no one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

from trimtab_runtime.units import BYTES_PER_KIB, BYTES_PER_MIB

MOST_THREADS = 4
"""Two to four cores saturate the memory of most machines."""
SHARE_BYTES = 4 * BYTES_PER_MIB
"""Less than that is not worth another thread."""
PIECE_BYTES = 64 * BYTES_PER_MIB
"""A long copy bypasses the processor's caches, which takes a third less time (glibc, `x86_non_temporal_threshold`)."""


SMALL_BYTES = 32 * BYTES_PER_KIB
"""Copied without giving up the interpreter in between: getting it back takes longer than the copy."""


class CopyJob(NamedTuple):
    """Addresses of memory that must stay allocated until the copy has been made."""

    target: int
    source: int
    size_bytes: int


def copy_all(jobs: Sequence[CopyJob]) -> None:
    """Make all the copies and return when they are made."""
    copy_small = _small_copies()
    for job in jobs:
        if job.size_bytes < SMALL_BYTES:
            copy_small(job.target, job.source, job.size_bytes)
    jobs = [job for job in jobs if job.size_bytes >= SMALL_BYTES]
    total = sum(job.size_bytes for job in jobs)
    threads = min(MOST_THREADS, len(os.sched_getaffinity(0)), -(-total // SHARE_BYTES))
    if threads <= 1:
        copy_here(jobs)
        return
    left = iter(list(_pieces(jobs)))  # each thread takes the next piece: none waits for one that is held up
    with ThreadPoolExecutor(max_workers=threads - 1, thread_name_prefix="trimtab-copy") as executor:
        others = [executor.submit(copy_here, left) for _ in range(threads - 1)]
        copy_here(left)
        for other in others:
            other.result()


def in_chunks(jobs: Sequence[CopyJob], start: int, size_bytes: int, chunk_bytes: int) -> list[list[CopyJob]]:
    """Return for each chunk of the memory from `start` on the copies that fill it, those across its bounds cut there."""
    chunks: list[list[CopyJob]] = [[] for _ in range(-(-size_bytes // chunk_bytes))]
    for job in jobs:
        done = 0
        while done < job.size_bytes:
            index, within = divmod(job.target + done - start, chunk_bytes)
            length = min(job.size_bytes - done, chunk_bytes - within)
            chunks[index].append(CopyJob(job.target + done, job.source + done, length))
            done += length
    return chunks


def copy_here(jobs: Iterable[CopyJob]) -> None:
    """Make the copies in this thread, one after another; the interpreter is free meanwhile."""
    import ctypes  # with the first copy, not with the import of a checkpointer

    for job in jobs:
        ctypes.memmove(job.target, job.source, job.size_bytes)


@cache
def _small_copies() -> Callable[[int, int, int], object]:
    """Return `memmove` as a function that keeps the interpreter."""
    import ctypes

    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return kind(ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0)


def _pieces(jobs: Sequence[CopyJob]) -> Iterator[CopyJob]:
    """Yield the jobs cut into pieces, so that one large tensor is shared out too."""
    for job in jobs:
        for offset in range(0, job.size_bytes, PIECE_BYTES):
            size_bytes = min(PIECE_BYTES, job.size_bytes - offset)
            yield CopyJob(job.target + offset, job.source + offset, size_bytes)
