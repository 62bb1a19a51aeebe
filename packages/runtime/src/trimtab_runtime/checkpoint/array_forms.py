"""What of an array or tensor is more than its elements: order in memory, records, masks, gradients; and NumPy's scalars.

A form is written around the name of the stored bytes and taken off again when they are read.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from trimtab_runtime.checkpoint import arrays
from trimtab_runtime.checkpoint.sealed import Json
from trimtab_runtime.errors import CheckpointDamaged

Wrap = Callable[[Json], Json]


class _DType(Protocol):
    """What is asked of a NumPy element type."""

    kind: str
    names: tuple[str, ...] | None
    fields: dict[str, tuple[Any, ...]]
    itemsize: int
    isalignedstruct: bool
    subdtype: tuple[_DType, tuple[int, ...]] | None
    hasobject: bool
    type: type

    @property
    def str(self) -> str: ...


def is_scalar(value: object) -> bool:
    """Say whether this is a NumPy scalar."""
    numpy = arrays.loaded("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def scalar_form(value: object) -> Json | None:
    """Return a NumPy scalar by its element type and bytes; None for one that holds Python objects."""
    dtype = cast("_DType", value.dtype)  # type: ignore[attr-defined]  # a NumPy scalar, whose type mypy is not given
    if dtype.hasobject or type(value) not in (dtype.type, import_module("numpy").record):
        return None
    content: bytes = value.tobytes()  # type: ignore[attr-defined]
    return {"$scalar": [dtype_form(dtype), base64.b64encode(content).decode()]}


def scalar(form: Json, content: bytes) -> object:
    """Return the NumPy scalar of an element type with these bytes."""
    numpy = import_module("numpy")
    dtype = cast("_DType", dtype_of(form))
    made: object
    if dtype.kind == "U":  # text and bytes by themselves: an array drops zeros at their end
        made = numpy.str_(content.decode("utf-32-le", "surrogatepass"))
    elif dtype.kind == "S":
        made = numpy.bytes_(content)
    elif len(content) != dtype.itemsize:
        raise CheckpointDamaged(f"the manifest holds a scalar of {form!r} in {len(content)} bytes")
    else:
        made = numpy.frombuffer(bytearray(content), dtype)[0] if content else numpy.zeros((), dtype)[()]
    return made


def dtype_form(dtype: _DType) -> Json:
    """Return an element type as text, records with the names, places and types of their fields."""
    if dtype.subdtype is not None:
        return {"of": dtype_form(dtype.subdtype[0]), "shape": list(dtype.subdtype[1])}
    if dtype.names is None:
        return str(dtype) if dtype.kind == "V" and dtype.type.__name__ != "void" else dtype.str
    return {
        "fields": [[name, dtype_form(kind), offset, *title] for name, (kind, offset, *title) in _fields(dtype)],
        "itemsize": dtype.itemsize,
        "aligned": dtype.isalignedstruct,
        "record": dtype.type.__name__ == "record",
    }


def dtype_of(form: Json) -> object:
    """Return the element type that `dtype_form` described; raise `CheckpointDamaged` for one that holds objects."""
    numpy = import_module("numpy")
    match form:
        case str(text):
            made = arrays.numpy_dtype(text)
        case {"of": base, "shape": list(lengths)}:
            made = numpy.dtype((dtype_of(base), tuple(arrays.lengths(lengths))))
        case {"fields": list(fields), "itemsize": int(itemsize), "aligned": bool(aligned), "record": bool(record)}:
            names, kinds, offsets, titles = map(list, zip(*map(_field, fields), strict=True)) if fields else ([],) * 4
            layout = {"names": names, "formats": kinds, "offsets": offsets, "titles": titles, "itemsize": itemsize}
            made = numpy.dtype(layout, align=aligned)
            made = numpy.dtype((numpy.record, made)) if record else made
        case _:
            raise CheckpointDamaged(f"the manifest holds an element type of unknown form {form!r}")
    if made.hasobject:
        raise CheckpointDamaged(f"the manifest holds an element type of Python objects, {form!r}")
    return cast(object, made)


def _fields(dtype: _DType) -> list[tuple[str, tuple[Any, ...]]]:
    return [(name, dtype.fields[name]) for name in dtype.names or ()]


def _field(entry: Json) -> tuple[str, object, int, str | None]:
    match entry:
        case [str(name), form, int(offset)]:
            return name, dtype_of(form), offset, None
        case [str(name), form, int(offset), str(title)]:
            return name, dtype_of(form), offset, title
        case _:
            raise CheckpointDamaged(f"the manifest holds an element type with the field {entry!r}")


def stored_as(value: object, kind: arrays.Kind) -> tuple[object, Wrap]:
    """Return the array whose bytes are stored for a value, and what writes around its name how to get back to the value."""
    if kind == "tensor":
        return _stored_tensor(value)
    source = cast(arrays.ArrayLike, value)
    dtype = cast("_DType", source.dtype)
    is_records = arrays.is_recarray(value)
    plain: object = value.view(import_module("numpy").ndarray) if is_records else value  # type: ignore[attr-defined]
    order = memory_order(source.shape, value.strides, dtype.itemsize) if not source.flags.c_contiguous else None  # type: ignore[attr-defined]
    if order is not None:
        plain = plain.transpose(order)  # type: ignore[attr-defined]
    typed = None
    if arrays.needs_form(dtype):
        typed = [dtype_form(dtype), [int(length) for length in cast(arrays.ArrayLike, plain).shape]]
        plain = _bytes_of(plain)

    def wrap(form: Json) -> Json:
        if typed is not None:
            form = {"$typed": [cast(Json, typed), form]}
        if order is not None:
            form = {"$permuted": [cast(Json, list(order)), form]}
        return {"$recarray": [None, form]} if is_records else form

    return plain, wrap


def _stored_tensor(value: object) -> tuple[object, Wrap]:
    tensor = cast(arrays.TensorLike, value)
    is_parameter = arrays.is_parameter(value)
    requires_grad = tensor.requires_grad and not arrays.is_sharded(value)
    order = None
    if not tensor.is_contiguous() and not arrays.is_sharded(value):
        order = memory_order(tensor.shape, tensor.stride(), 1)
    if order is None and not requires_grad and not is_parameter:
        return value, _as_it_is
    stored: object = value.detach().permute(order) if order is not None else value  # type: ignore[attr-defined]

    def wrap(form: Json) -> Json:
        if order is not None:
            form = {"$permuted": [cast(Json, list(order)), form]}
        if is_parameter:
            return {"$parameter": [requires_grad, form]}
        return {"$grad": [requires_grad, form]} if requires_grad else form

    return stored, wrap


def _as_it_is(form: Json) -> Json:
    return form


def memory_order(shape: Sequence[int], strides: Sequence[int], step: int) -> tuple[int, ...] | None:
    """Return the order of axes in which elements follow one another in memory (channels last, Fortran); None if in none.

    `step` is what strides are counted in: 1 for elements, else the bytes of one.
    """
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
    expected = step
    for axis in reversed(order):
        if shape[axis] != 1 and strides[axis] != expected:
            return None
        expected *= shape[axis]
    return tuple(order) if order != sorted(order) and 0 not in shape else None


def unwrapped(tag: str, detail: Json, inner: object) -> object:
    """Take one form off: return the value that `stored_as` was given."""
    match tag, detail:
        case "$permuted", list(order):
            back = sorted(range(len(order)), key=arrays.lengths(order).__getitem__)
            made: object = inner.permute(back) if arrays.is_tensor(inner) else inner.transpose(back)  # type: ignore[attr-defined]
        case "$typed", [form, list(shape)]:
            made = _typed(inner, dtype_of(form), tuple(arrays.lengths(shape)))
        case "$recarray", None:
            made = inner.view(import_module("numpy").recarray)  # type: ignore[attr-defined]
        case "$parameter", bool(requires_grad):
            made = import_module("torch").nn.Parameter(inner, requires_grad)
        case "$grad", bool(requires_grad):
            made = inner.requires_grad_(requires_grad)  # type: ignore[attr-defined]
        case _:
            raise CheckpointDamaged(f"the manifest holds a {tag} with {detail!r}")
    return made


def _bytes_of(array: object) -> object:
    """Return an array's elements as bytes, of the very memory where it is contiguous."""
    numpy = import_module("numpy")
    flat = numpy.ascontiguousarray(array).reshape(-1)
    if flat.nbytes == 0:
        return numpy.empty(0, numpy.uint8)
    return cast(object, flat.view(numpy.uint8))


def _typed(content: object, dtype: object, shape: tuple[int, ...]) -> object:
    numpy = import_module("numpy")
    made = numpy.empty(shape, dtype)
    flat = cast(arrays.ArrayLike, content)
    if str(flat.dtype) != "uint8" or flat.nbytes != made.nbytes:
        raise CheckpointDamaged(f"the manifest holds {flat.nbytes} bytes for an array of {made.nbytes}")
    if made.nbytes:
        made.reshape(-1).view(numpy.uint8)[:] = content
    return cast(object, made)


def is_masked(value: object) -> bool:
    """Say whether this is a masked array."""
    numpy = arrays.loaded("numpy")
    return numpy is not None and isinstance(value, numpy.ma.MaskedArray)


def masked_parts(value: object) -> tuple[object, object | None, object | None, bool]:
    """Return data, mask, fill value and whether the mask is hard; None for a mask or a fill value that was never set."""
    numpy = import_module("numpy")
    mask = numpy.ma.getmask(value)
    fill_value = value._fill_value  # type: ignore[attr-defined]  # the public one sets it
    return (
        value.data,  # type: ignore[attr-defined]
        None if mask is numpy.ma.nomask else mask,
        None if fill_value is None else numpy.asarray(fill_value),
        bool(value.hardmask),  # type: ignore[attr-defined]
    )


def masked(data: object, mask: object, fill_value: object, *, is_hard: bool) -> object:
    """Return a masked array of these parts."""
    numpy = import_module("numpy")
    made = numpy.ma.MaskedArray(data, numpy.ma.nomask if mask is None else mask, copy=False, hard_mask=is_hard)
    if fill_value is not None:
        made.fill_value = cast(object, fill_value[()])  # type: ignore[index]
    return cast(object, made)
