"""Tensors and arrays, seen the same way: element type, shape, bytes, without importing what the job does not use.

torch and NumPy are looked up among the modules that are loaded already: a job that has a tensor has imported torch. The
element types have the same names in both.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Literal, Protocol, cast

from trimtab_runtime.checkpoint.records import Extent, Record
from trimtab_runtime.errors import CheckpointMismatch

Kind = Literal["tensor", "array"]


class TensorLike(Protocol):
    """What is asked of a torch tensor."""

    dtype: object
    shape: Sequence[int]
    layout: object
    is_quantized: bool
    device: object

    def numel(self) -> int: ...
    def element_size(self) -> int: ...
    def data_ptr(self) -> int: ...
    def stride(self) -> Sequence[int]: ...
    def is_contiguous(self) -> bool: ...
    def is_conj(self) -> bool: ...
    def is_neg(self) -> bool: ...


class _Address(Protocol):
    data: int


class _Flags(Protocol):
    c_contiguous: bool


class ArrayLike(Protocol):
    """What is asked of a NumPy array."""

    dtype: object
    shape: Sequence[int]
    nbytes: int
    ctypes: _Address
    flags: _Flags


def _loaded(name: str) -> ModuleType | None:
    return sys.modules.get(name)


def is_tensor(value: object) -> bool:
    """Say whether this is a torch tensor, a DTensor included."""
    torch = _loaded("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: object) -> bool:
    """Say whether this is a NumPy array."""
    numpy = _loaded("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def kind_of(value: object) -> Kind | None:
    """Return which kind of array this is, None for anything else."""
    if is_tensor(value):
        return "tensor"
    return "array" if is_array(value) else None


def fault(value: object) -> str:
    """Say why an array cannot be stored; empty if it can."""
    if is_array(value):
        return "an array of Python objects" if getattr(cast(ArrayLike, value).dtype, "hasobject", False) else ""
    torch, tensor = import_module("torch"), cast(TensorLike, value)
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}; convert it to a dense one"
    if tensor.is_quantized:
        return "a quantized tensor; store its integers, scale and zero point"
    if str(tensor.device) == "meta":
        return "a tensor on the meta device, which holds no values"
    return ""


def identity(value: object) -> tuple[object, ...]:
    """Return a key that is equal for two names of the very same memory (tied weights) and for nothing else."""
    if is_array(value):
        array = cast(ArrayLike, value)
        return ("array", id(value), str(array.dtype), tuple(array.shape))
    tensor = cast(TensorLike, value)
    if is_sharded(value) or tensor.numel() == 0:
        return ("tensor", id(value))
    return (
        "tensor",
        str(tensor.device),
        tensor.data_ptr(),
        str(tensor.dtype),
        tuple(tensor.shape),
        tuple(tensor.stride()),
    )


def is_sharded(value: object) -> bool:
    """Say whether a tensor is one rank's part of a distributed one."""
    tensor_module = _loaded("torch.distributed.tensor")
    return tensor_module is not None and isinstance(value, tensor_module.DTensor)


def is_on_cuda(value: object) -> bool:
    """Say whether a tensor lies in the memory of a CUDA device."""
    return is_tensor(value) and str(cast(TensorLike, value).device).startswith("cuda")


def plain_value(value: object) -> object | None:
    """Return the Python number in a NumPy scalar, the list in a deque-like sequence; None if it is neither."""
    numpy = _loaded("numpy")
    if numpy is not None and isinstance(value, numpy.generic) and not isinstance(value, numpy.void):
        plain: object = value.item()
        return plain
    if isinstance(value, bool | int | float | str):  # subclasses of the plain types, such as IntEnum members
        return _plain_base(value)
    return None


def _plain_base(value: bool | int | float | str) -> object:
    for base in (int, float, str):
        if isinstance(value, base):
            return base(value)
    return bool(value)


def torch_constant_name(value: object) -> str | None:
    """Return the name of a torch element type or device, None for anything else."""
    torch = _loaded("torch")
    if torch is None:
        return None
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, torch.device):
        return f"device:{value}"
    return None


def torch_constant(name: str) -> object:
    """Return the torch element type or device of that name."""
    torch = import_module("torch")
    if name.startswith("device:"):
        device: object = torch.device(name.removeprefix("device:"))
        return device
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise CheckpointMismatch(f"the checkpoint uses the element type {name!r}, which this torch does not know")
    return cast(object, found)


def extent(name: str, value: object) -> Extent:
    """Describe a whole tensor or array."""
    shape = tuple(int(length) for length in cast(TensorLike, value).shape)
    if is_array(value):
        array = cast(ArrayLike, value)
        dtype, size_bytes = str(array.dtype), array.nbytes
    else:
        tensor = cast(TensorLike, value)
        dtype = str(tensor.dtype).removeprefix("torch.")
        size_bytes = tensor.numel() * tensor.element_size()
    return Extent(
        name=name, dtype=dtype, shape=shape, size_bytes=size_bytes, whole_shape=shape, piece_offset=(0,) * len(shape)
    )


def empty(kind: Kind, record: Record) -> tuple[object, memoryview]:
    """Allocate a tensor or array for a record and return it with its writable bytes."""
    if kind == "array":
        numpy = import_module("numpy")
        array = numpy.empty(record.shape, dtype=record.dtype)
        return array, memoryview(array.reshape(-1).view("uint8")) if array.nbytes else memoryview(b"")
    torch = import_module("torch")
    tensor = torch.empty(record.shape, dtype=torch_constant(record.dtype))
    return tensor, bytes_of_tensor(tensor)


def bytes_of_tensor(tensor: object) -> memoryview:
    """Return the writable bytes of a contiguous CPU tensor; the tensor must outlive them."""
    source = cast(TensorLike, tensor)
    size_bytes = source.numel() * source.element_size()
    if size_bytes == 0:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size_bytes).from_address(source.data_ptr())).cast("B")
