"""Host memory that is allocated once and reused by every save, page-aligned as direct writes demand.

The training loop waits only for the copy into this memory. Fresh pages would make that copy about ten times slower
(measured: 0.31 s against 0.03 s for 1 GB), so they are touched when the buffer is made, not when it is used.
"""

from __future__ import annotations

import mmap

from trimtab_runtime.units import BYTES_PER_MIB

_GROWTH_STEP_BYTES = 2 * BYTES_PER_MIB


class HostBuffer:
    """One anonymous mapping that grows and never shrinks."""

    def __init__(self) -> None:
        self._map: mmap.mmap | None = None
        self._view = memoryview(b"")

    @property
    def capacity_bytes(self) -> int:
        """How much fits without another allocation."""
        return len(self._view)

    def reserve(self, size_bytes: int) -> memoryview:
        """Return writable memory of exactly this size; views handed out before stay valid but may be of older memory."""
        if size_bytes > self.capacity_bytes:
            self._allocate(size_bytes)
        return self._view[:size_bytes]

    def _allocate(self, size_bytes: int) -> None:
        rounded = -(-size_bytes // _GROWTH_STEP_BYTES) * _GROWTH_STEP_BYTES
        fresh = mmap.mmap(-1, rounded)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            _advise(fresh, mmap.MADV_HUGEPAGE)
        for page in range(0, rounded, mmap.PAGESIZE):
            fresh[page] = 0
        self._map, self._view = fresh, memoryview(fresh)


def _advise(memory: mmap.mmap, advice: int) -> None:
    try:
        memory.madvise(advice)
    except OSError:  # a kernel without huge pages: ordinary pages do as well
        return
