"""Page-locked host memory, which a GPU copies into at the speed of its bus and without the processor.

A copy into ordinary memory goes through a small staging buffer of the driver, several times slower. torch's own
checkpoint staging registers its buffers in the same way (torch/distributed/_state_dict_utils.py,
`_create_cpu_state_dict`).
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Protocol, cast

logger = logging.getLogger(__name__)

_PORTABLE = 1
"""cudaHostRegisterPortable: page-locked for every device of the process."""
_SUCCESS = 0


class CudaRuntime(Protocol):
    """What is asked of the CUDA runtime."""

    def cudaHostRegister(self, address: int, size_bytes: int, flags: int) -> int: ...
    def cudaHostUnregister(self, address: int) -> int: ...


def cuda_runtime() -> CudaRuntime | None:
    """Return the CUDA runtime that torch has loaded; None on a machine without."""
    torch = import_module("torch")
    return cast(CudaRuntime, torch.cuda.cudart()) if torch.cuda.is_available() else None


class PinnedMemory:
    """Keeps at most one range of host memory page-locked."""

    def __init__(self) -> None:
        self._address: int | None = None

    def pin(self, memory: memoryview, runtime: CudaRuntime | None) -> bool:
        """Page-lock a range in the place of the one before; return False, and say so, where the driver declines."""
        self.release(runtime)
        if runtime is None or not memory:
            return False
        import ctypes  # with the first copy, not with the import of a checkpointer

        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        result = int(runtime.cudaHostRegister(address, len(memory), _PORTABLE))
        if result != _SUCCESS:
            logger.warning("the driver does not lock %d bytes (CUDA error %d); saves stall longer", len(memory), result)
            return False
        self._address = address
        return True

    def release(self, runtime: CudaRuntime | None) -> None:
        """Unlock the range, before its memory goes."""
        if self._address is not None and runtime is not None:
            runtime.cudaHostUnregister(self._address)
        self._address = None
