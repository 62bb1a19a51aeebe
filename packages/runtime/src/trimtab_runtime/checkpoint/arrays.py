"""Tensors and arrays, seen the same way: element type, shape, bytes, without importing what the job does not use.

torch and NumPy are looked up among the modules that are loaded already: a job that has a tensor has imported torch. The
element types have the same names in both.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from importlib import import_module
from math import prod
from types import ModuleType
from typing import Any, Literal, Protocol, cast

from trimtab_runtime.checkpoint.records import Extent, Record
from trimtab_runtime.errors import CheckpointDamaged, CheckpointError, CheckpointMismatch

Kind = Literal["tensor", "array"]


class TensorLike(Protocol):
    """What is asked of a torch tensor."""

    dtype: object
    shape: Sequence[int]
    layout: object
    is_quantized: bool
    is_nested: bool
    is_sparse: bool
    is_mkldnn: bool
    is_meta: bool
    is_cpu: bool
    is_cuda: bool
    requires_grad: bool
    itemsize: int
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


def loaded(name: str) -> ModuleType | None:
    """Return a module that this process has imported already, None for any other."""
    return sys.modules.get(name)


def is_tensor(value: object) -> bool:
    """Say whether this is a torch tensor, a DTensor included."""
    torch = loaded("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def tensor_type() -> type | None:
    """Return torch's tensor type, None in a job without torch."""
    torch = loaded("torch")
    return None if torch is None else cast(type, torch.Tensor)


def is_plain(tensor: TensorLike) -> bool:
    """Say in few steps, since there may be 100,000, whether a tensor (no subclass) is stored as it lies in memory."""
    return (
        (tensor.is_cpu or tensor.is_cuda)
        and not (
            tensor.is_sparse or tensor.is_mkldnn or tensor.is_quantized or tensor.is_nested or tensor.requires_grad
        )
        and str(tensor.layout) == "torch.strided"
        and tensor.is_contiguous()
        and (tensor.data_ptr() != 0 or tensor.numel() == 0)
    )


def is_array(value: object) -> bool:
    """Say whether this is a NumPy array."""
    numpy = loaded("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def kind_of(value: object) -> Kind | None:
    """Return which kind of array this is, None for anything else."""
    if is_tensor(value):
        return "tensor"
    return "array" if is_array(value) else None


def fault(value: object) -> str:
    """Say why an array cannot be stored; empty if it can.

    Types are told exactly: a subclass (a wrapper of other tensors, a fake one) may have no memory at its address.
    """
    if is_array(value):
        return _array_fault(value)
    torch, tensor = import_module("torch"), cast(TensorLike, value)
    if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter and not is_sharded(value):
        return f"a tensor of the subclass {type(value).__module__}.{type(value).__qualname__}; store the plain tensors in it"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}; convert it to a dense one"
    if tensor.is_quantized:
        return "a quantized tensor; store its integers, scale and zero point"
    if tensor.is_nested:
        return "a nested tensor; store its parts"
    if tensor.is_meta:
        return "a tensor on the meta device, which holds no values"
    if tensor.is_cpu and not is_sharded(value) and tensor.numel() and not tensor.data_ptr():
        return "a tensor whose memory has been given back"
    return ""


def _array_fault(value: object) -> str:
    numpy = import_module("numpy")
    if getattr(cast(ArrayLike, value).dtype, "hasobject", False):
        return "an array of Python objects"
    if type(value) not in (numpy.ndarray, numpy.recarray, numpy.ma.MaskedArray):
        return f"an array of the subclass {type(value).__module__}.{type(value).__qualname__}; store a plain array"
    return ""


def is_recarray(value: object) -> bool:
    """Say whether this is a NumPy record array."""
    return type(value) is import_module("numpy").recarray


def is_parameter(value: object) -> bool:
    """Say whether this tensor is a parameter of a module."""
    return type(value) is import_module("torch").nn.Parameter


def identity(value: object) -> tuple[object, ...]:
    """Return a key that is equal for two names of the very same memory (tied weights) and for nothing else."""
    if not is_tensor(value):
        return ("array", id(value))
    tensor = cast(TensorLike, value)
    if tensor.numel() == 0 or is_sharded(value):
        return ("tensor", id(value))
    return (tensor.is_cpu, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


def is_sharded(value: object) -> bool:
    """Say whether a tensor is one rank's part of a distributed one."""
    tensor_module = loaded("torch.distributed.tensor")
    return tensor_module is not None and isinstance(value, tensor_module.DTensor)


def is_on_cuda(value: object) -> bool:
    """Say whether a tensor lies in the memory of a CUDA device."""
    return is_tensor(value) and cast(TensorLike, value).is_cuda


def size_of(value: object) -> tuple[int, ...] | None:
    """Return the lengths in a torch.Size; None for anything else."""
    torch = loaded("torch")
    if torch is None or type(value) is not torch.Size:
        return None
    return tuple(int(length) for length in cast("tuple[int, ...]", value))


def torch_size(lengths_given: Sequence[object]) -> object:
    """Return a torch.Size of these lengths."""
    size: object = import_module("torch").Size(lengths(lengths_given))
    return size


def lengths(given: Sequence[object]) -> list[int]:
    """Return numbers of elements or axes; raise `CheckpointDamaged` for anything but whole numbers from 0 on."""
    checked = [length for length in given if type(length) is int and length >= 0]
    if len(checked) != len(given):
        raise CheckpointDamaged(f"the manifest holds the lengths {given!r}")
    return checked


def torch_constant_name(value: object) -> str | None:
    """Return the name of a torch element type or device, None for anything else."""
    torch = loaded("torch")
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
        try:
            return cast(object, torch.device(name.removeprefix("device:")))
        except RuntimeError as error:
            raise CheckpointMismatch(f"the checkpoint names the {name!r}, which this torch does not know") from error
    found = vars(torch).get(name.removeprefix("torch."))
    if not isinstance(found, torch.dtype):
        raise CheckpointMismatch(f"the checkpoint uses the element type {name!r}, which this torch does not know")
    return cast(object, found)


def extent(name: str, value: object) -> Extent:
    """Describe a whole tensor or array."""
    described = cast(TensorLike, value)
    shape = tuple(map(int, described.shape))
    dtype = str(described.dtype).removeprefix("torch.")
    return Extent(name, dtype, shape, prod(shape) * described.itemsize, shape, (0,) * len(shape))


def numpy_dtype(text: str) -> Any:
    """Return NumPy's element type of that name; raise `CheckpointMismatch` for one that this NumPy does not know.

    Never one of Python objects: bytes of a file would become addresses.
    """
    try:
        dtype = import_module("numpy").dtype(text)
    except (TypeError, ValueError, SyntaxError) as error:
        raise CheckpointMismatch(
            f"the checkpoint uses the element type {text!r}, which this NumPy does not know"
        ) from error
    if dtype.hasobject:
        raise CheckpointDamaged(f"the manifest holds the element type {text!r} of Python objects")
    return dtype


def needs_form(dtype: object) -> bool:
    """Say whether the name of a NumPy element type does not tell all of it, as with records."""
    try:
        return getattr(dtype, "names", None) is not None or numpy_dtype(str(dtype)) != dtype
    except CheckpointError:
        return True


def empty(kind: Kind, record: Record) -> tuple[object, memoryview]:
    """Allocate a tensor or array for a record and return it with its writable bytes.

    Raise `CheckpointDamaged` if its size is not that of its shape, and `OSError` if there is no memory for it.
    """
    dtype: Any = numpy_dtype(record.dtype) if kind == "array" else torch_constant(record.dtype)
    if prod(record.shape) * dtype.itemsize != record.size_bytes:
        raise CheckpointDamaged(
            f"the record {record.name!r} holds {record.size_bytes} bytes, "
            f"its shape needs {prod(record.shape) * dtype.itemsize}"
        )
    try:
        if kind == "array":
            array = import_module("numpy").empty(record.shape, dtype=dtype)
            return array, memoryview(array.reshape(-1).view("uint8")) if array.nbytes else memoryview(b"")
        tensor = import_module("torch").empty(record.shape, dtype=dtype)
    except (MemoryError, RuntimeError) as error:
        raise OSError(errno.ENOMEM, f"no memory for the {record.size_bytes} bytes of {record.name!r}") from error
    return tensor, bytes_of_tensor(tensor)


def bytes_of_tensor(tensor: object) -> memoryview:
    """Return the writable bytes of a contiguous CPU tensor; the tensor must outlive them."""
    source = cast(TensorLike, tensor)
    size_bytes = source.numel() * source.element_size()
    if size_bytes == 0:
        return memoryview(b"")
    import ctypes  # with the first tensor, not with the import of a checkpointer

    return memoryview((ctypes.c_char * size_bytes).from_address(source.data_ptr())).cast("B")
