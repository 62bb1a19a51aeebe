"""The places of records in a host buffer, and the copies that bring the values of a step there."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import cast

from trimtab_runtime.checkpoint import arrays
from trimtab_runtime.checkpoint.host_copy import CopyJob, copy_all
from trimtab_runtime.checkpoint.records import Record


class HostViews:
    """The places of records in a host buffer, ready to be copied into."""

    def __init__(self, memory: memoryview, records: Sequence[Record], values: Sequence[object]) -> None:
        import ctypes  # with the first copy, not with the import of a checkpointer

        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) if memory else 0
        self._records = tuple(records)
        self._views = [_view(memory, record, value) for record, value in zip(records, values, strict=True)]

    def fill(self, values: Sequence[object]) -> None:
        """Copy the values into the buffer and return when they are there, whatever device they come from."""
        copy_all(self.begin(values))

    def begin(self, values: Sequence[object]) -> list[CopyJob]:
        """Copy the values that lie elsewhere or in another order, and return the plain copies that are left to make."""
        base, jobs = self.address, list[CopyJob]()
        pairs: list[tuple[object, object]] = []
        for record, view, value in zip(self._records, self._views, values, strict=True):
            if view is None:
                continue
            address = _host_address(value)
            if address is None:
                pairs.append((view, value))
            else:
                jobs.append(CopyJob(base + record.offset_bytes, address, record.size_bytes))
        _copy_elementwise([pair for pair in pairs if arrays.is_array(pair[0])])
        _copy_tensors([pair for pair in pairs if arrays.is_tensor(pair[0])])
        return jobs


def _host_address(value: object) -> int | None:
    """Return where a value's bytes lie in host memory in the order in which they are stored; None if nowhere."""
    if not arrays.is_tensor(value):
        array = cast(arrays.ArrayLike, value)
        return array.ctypes.data if array.flags.c_contiguous else None
    tensor = cast(arrays.TensorLike, value)
    plain = tensor.is_cpu and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    return tensor.data_ptr() if plain else None


def _copy_elementwise(pairs: Sequence[tuple[object, object]]) -> None:
    for view, array in pairs:
        import_module("numpy").copyto(view, array)


def _copy_tensors(pairs: Sequence[tuple[object, object]]) -> None:
    if not pairs:
        return
    torch = import_module("torch")
    sources = [_detached(value) for _, value in pairs]
    with torch.no_grad():
        torch._foreach_copy_([view for view, _ in pairs], sources, non_blocking=True)
    synchronize({str(cast(arrays.TensorLike, source).device) for source in sources})


def _detached(value: object) -> object:
    detached: object = value.detach()  # type: ignore[attr-defined]  # a torch tensor, whose type mypy is not given
    return detached


def synchronize(devices: set[str]) -> None:
    """Wait until copies from these devices ("cuda:1", "mps", ...) have arrived in host memory."""
    torch = import_module("torch")
    for device in sorted(devices - {"cpu"}):
        kind = device.partition(":")[0]
        if kind == "mps":
            torch.mps.synchronize()
        else:
            getattr(torch, kind).synchronize(device)


def _view(memory: memoryview, record: Record, value: object) -> object | None:
    if record.size_bytes == 0:
        return None
    part = memory[record.offset_bytes : record.offset_bytes + record.size_bytes]
    if arrays.is_array(value):
        array: object = import_module("numpy").frombuffer(part, dtype=record.dtype).reshape(record.shape)
        return array
    torch = import_module("torch")
    view: object = (
        torch.frombuffer(part, dtype=torch.uint8).view(arrays.torch_constant(record.dtype)).reshape(record.shape)
    )
    return view
