"""Nested Python state <-> JSON plus named tensors, without pickle: loading a checkpoint runs no code.

What `state_dict()` methods return is dictionaries, lists, tuples, numbers, text, bytes and tensors. JSON has few of
these, so the others are written as one-key objects whose key starts with `$`. Everything comes back as the very type
that it was. What cannot is refused with its path, all at once, because a value silently changed is a resume that
silently differs.
"""

from __future__ import annotations

import base64
import math
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum
from typing import NamedTuple, cast

from trimtab_runtime.checkpoint import array_forms, arrays, named_types
from trimtab_runtime.checkpoint.sealed import Json
from trimtab_runtime.errors import CheckpointDamaged, UsageError

MOST_DEPTH = 100
"""Containers within containers: far more than any state has, and what Python's own recursion bears twice over."""
_MOST_LEVELS = 5 * MOST_DEPTH
"""Of JSON: one container of the state takes at most five (an OrderedDict: its tag, both parts, the pairs, a pair)."""
_SHOWN_FAULTS = 20
_MOST_DECIMAL_BITS = 2000
"""Longer whole numbers are written in base 16: Python may refuse more than 640 decimal digits (`int_max_str_digits`)."""
_FACTORIES = {made.__name__: made for made in (int, float, complex, bool, str, bytes, list, dict, set, tuple)}
"""What a defaultdict may make: built-in types, which are known by name on every machine."""


class Leaf(NamedTuple):
    """A tensor or array inside the state, under the path by which it was found."""

    name: str
    value: object


def encode(state: object) -> tuple[Json, tuple[Leaf, ...]]:
    """Return the JSON form of nested state and its tensors; raise `UsageError` naming what cannot be stored."""
    encoder = _Encoder()
    body = encoder.encode(state, "")
    if encoder.refused:
        shown = "\n".join(f"  - {line}" for line in encoder.refused[:_SHOWN_FAULTS])
        raise UsageError(
            f"{len(encoder.refused)} value(s) of the state would not come back as they are:\n{shown}\n"
            "return plain data from state_dict(), or leave the object out of the checkpoint"
        )
    return body, tuple(encoder.leaves)


def decode(body: Json, leaf: Callable[[str], object]) -> object:
    """Return the state that `encode` was given, with `leaf(name)` in the place of each tensor.

    Raises CheckpointDamaged for a form that `encode` never writes.
    """
    if _is_deeper(body, _MOST_LEVELS):
        raise CheckpointDamaged(f"the manifest holds a form that is nested deeper than {MOST_DEPTH} containers")
    return _decode(body, leaf)


def _is_deeper(body: Json, most: int) -> bool:
    """Return whether a form has more levels; asked of files of others, it does not rest on the interpreter's own limit."""
    within = [body]
    for _ in range(most):
        within = [
            item
            for form in within
            for item in (form if isinstance(form, list) else form.values() if isinstance(form, dict) else ())
            if isinstance(item, list | dict)
        ]
        if not within:
            return False
    return True


def _decode(body: Json, leaf: Callable[[str], object]) -> object:
    if isinstance(body, list):
        return [_decode(item, leaf) for item in body]
    if isinstance(body, dict):
        tag = next(iter(body)) if len(body) == 1 else ""
        if tag.startswith("$"):
            return _decode_tagged(tag, body[tag], leaf)
        return {key: _decode(item, leaf) for key, item in body.items()}
    return body


def tensor_kinds(body: Json) -> dict[str, arrays.Kind]:
    """Return for each tensor that a JSON form refers to whether it is a torch tensor or a NumPy array."""
    return dict(_kinds(body))


def _kinds(body: Json) -> Iterator[tuple[str, arrays.Kind]]:
    match body:
        case list(items):
            for item in items:
                yield from _kinds(item)
        case {"$tensor": str(name)}:
            yield name, "tensor"
        case {"$array": str(name)}:
            yield name, "array"
        case dict(entries):
            for item in entries.values():
                yield from _kinds(item)


class _Encoder:
    """Walks the state once, collecting tensors and refusals; tied tensors are stored once."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.refused: list[str] = []
        self._taken: set[str] = set()
        self._seen: dict[tuple[object, ...], str] = {}
        self._alive: list[object] = []
        """Keeps alive what `_seen` identifies by address, so that the address is not reused meanwhile."""
        self._tensor = arrays.tensor_type()
        self._within: set[int] = set()
        """The containers that the walk is inside of, by identity."""

    def encode(self, value: object, path: str) -> Json:
        kind = type(value)
        if kind is self._tensor and arrays.is_plain(cast(arrays.TensorLike, value)):
            return {"$tensor": self._leaf(value, value, path)}
        if kind is str or kind is bool or value is None:
            return cast("str | bool | None", value)
        if kind is int:
            return _int_form(cast(int, value))
        if kind is float:
            return _float_form(cast(float, value))
        container = _CONTAINERS.get(kind)
        if container is not None or named_types.is_namedtuple(value):
            return self._contained(container or _Encoder._namedtuple, value, path)
        return self._special(value, path)

    def _contained(self, form: Callable[[_Encoder, object, str], Json], value: object, path: str) -> Json:
        """Encode a container, unless it contains itself or lies too deep."""
        if id(value) in self._within:
            return self._refuse(path, "contains itself")
        if len(self._within) >= MOST_DEPTH:
            return self._refuse(path, f"nested deeper than {MOST_DEPTH} containers")
        self._within.add(id(value))
        try:
            return form(self, value, path)
        finally:
            self._within.discard(id(value))

    def _refuse(self, path: str, reason: str) -> Json:
        self.refused.append(f"{path or '/'}: {reason}")
        return None

    def _items(self, value: object, path: str) -> list[Json]:
        return [self.encode(item, f"{path}/{index}") for index, item in enumerate(cast("Iterable[object]", value))]

    def _tuple(self, value: object, path: str) -> Json:
        return {"$tuple": self._items(value, path)}

    def _namedtuple(self, value: object, path: str) -> Json:
        name = named_types.name_of(type(value))
        if name is None:
            return self._refuse(path, f"a named tuple that cannot be found by its name: {_type_name(value)}")
        return {"$namedtuple": [name, self._items(value, path)]}

    def _dict(self, value: object, path: str) -> Json:
        mapping = cast("dict[object, object]", value)
        if all(type(key) is str and not key.startswith("$") for key in mapping):
            return {cast(str, key): self.encode(item, f"{path}/{key}") for key, item in mapping.items()}
        return {"$map": self._pairs(mapping, path)}

    def _pairs(self, mapping: dict[object, object], path: str) -> list[Json]:
        return [[self.encode(key, f"{path}/key"), self.encode(item, f"{path}/{key}")] for key, item in mapping.items()]

    def _ordered(self, value: object, path: str) -> Json:
        """Encode an OrderedDict with its attributes: a module's `state_dict` keeps its versions in one."""
        pairs = self._pairs(cast("dict[object, object]", value), path)
        return {"$ordered": [pairs, self._dict(vars(value), f"{path}.__dict__")]}

    def _default(self, value: object, path: str) -> Json:
        made = cast("defaultdict[object, object]", value).default_factory
        if made is not None and _FACTORIES.get(getattr(made, "__name__", "")) is not made:
            return self._refuse(path, f"a defaultdict whose values are made by {made!r}")
        name = None if made is None else cast(type, made).__name__
        return {"$default": [name, self._pairs(cast("dict[object, object]", value), path)]}

    def _counter(self, value: object, path: str) -> Json:
        return {"$counter": self._pairs(cast("dict[object, object]", value), path)}

    def _set(self, value: object, path: str) -> Json:
        tag = "$frozenset" if type(value) is frozenset else "$set"
        return {tag: [self.encode(item, path) for item in sorted(cast("Iterable[object]", value), key=repr)]}

    def _special(self, value: object, path: str) -> Json:
        kind = arrays.kind_of(value)
        if kind is not None:
            return self._array(value, kind, path)
        if type(value) is bytes or type(value) is bytearray:
            return {f"${type(value).__name__}": base64.b64encode(value).decode()}
        if type(value) is complex:
            return {"$complex": [_float_form(value.real), _float_form(value.imag)]}
        if isinstance(value, Enum):
            return self._enum(value, path)
        if array_forms.is_scalar(value):
            form = array_forms.scalar_form(value)
            return form if form is not None else self._refuse(path, f"a NumPy scalar of objects: {_type_name(value)}")
        size = arrays.size_of(value)
        if size is not None:
            return {"$size": list(size)}
        torch_name = arrays.torch_constant_name(value)
        if torch_name is not None:
            return {"$torch": torch_name}
        return self._refuse(path, _type_name(value))

    def _enum(self, value: Enum, path: str) -> Json:
        name = named_types.name_of(type(value))
        member = named_types.member_form(value)
        if name is None or member is None:
            return self._refuse(path, f"an enum member that cannot be found by its name: {_type_name(value)}")
        return {"$enum": [name, member]}

    def _array(self, value: object, kind: arrays.Kind, path: str) -> Json:
        fault = arrays.fault(value)
        if fault:
            return self._refuse(path, fault)
        if kind == "array" and array_forms.is_masked(value):
            return self._masked(value, path)
        stored, wrap = array_forms.stored_as(value, kind)
        return wrap({f"${kind}": self._leaf(value, stored, path)})

    def _masked(self, value: object, path: str) -> Json:
        data, mask, fill_value, is_hard = array_forms.masked_parts(value)
        return {
            "$masked": [
                self._array(data, "array", path),
                None if mask is None else self._array(mask, "array", f"{path}.mask"),
                None if fill_value is None else self._array(fill_value, "array", f"{path}.fill_value"),
                is_hard,
            ]
        }

    def _leaf(self, value: object, stored: object, path: str) -> str:
        identity = arrays.identity(value)
        known = self._seen.get(identity)
        if known is not None:
            return known
        name, copy = path.removeprefix("/"), 1
        while name in self._taken:
            copy += 1
            name = f"{path.removeprefix('/')}#{copy}"
        self._taken.add(name)
        self._seen[identity] = name
        self._alive.append(value)
        self.leaves.append(Leaf(name, stored))
        return name


_CONTAINERS: dict[type, Callable[[_Encoder, object, str], Json]] = {
    dict: _Encoder._dict,
    list: _Encoder._items,
    tuple: _Encoder._tuple,
    OrderedDict: _Encoder._ordered,
    defaultdict: _Encoder._default,
    Counter: _Encoder._counter,
    set: _Encoder._set,
    frozenset: _Encoder._set,
}
"""By exact type: a subclass may hold more than its items, and would come back as something else."""


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _int_form(value: int) -> Json:
    return value if value.bit_length() <= _MOST_DECIMAL_BITS else {"$int": hex(value)}


def _float_form(value: float) -> Json:
    if math.isfinite(value):
        return value
    return {"$float": struct.pack(">d", value).hex() if math.isnan(value) else repr(value)}


def _float(text: str) -> float:
    """Read what `_float_form` wrote: a NaN by its bits, sign and payload included, others as text."""
    if len(text) == 2 * struct.calcsize(">d"):
        number: float = struct.unpack(">d", bytes.fromhex(text))[0]
        return number
    return float(text)


def _decode_tagged(tag: str, item: Json, leaf: Callable[[str], object]) -> object:
    match tag, item:
        case (("$tensor" | "$array"), str(name)):
            return leaf(name)
        case "$tuple", list(items):
            return tuple(_decode(entry, leaf) for entry in items)
        case "$map", list(pairs):
            return dict(_decoded_pairs(pairs, leaf))
        case "$ordered", [list(pairs), attributes]:
            ordered = OrderedDict(_decoded_pairs(pairs, leaf))
            vars(ordered).update(cast("dict[str, object]", _decode(attributes, leaf)))
            return ordered
        case "$default", [(str() | None) as made, list(pairs)]:
            return defaultdict(None if made is None else _FACTORIES[made], _decoded_pairs(pairs, leaf))
        case "$counter", list(pairs):
            return Counter(cast("dict[object, int]", dict(_decoded_pairs(pairs, leaf))))
        case "$set", list(items):
            return {_decode(entry, leaf) for entry in items}
        case "$frozenset", list(items):
            return frozenset(_decode(entry, leaf) for entry in items)
        case "$namedtuple", [str(name), list(items)]:
            return named_types.namedtuple(name, [_decode(entry, leaf) for entry in items])
        case "$masked", [data, mask, fill_value, bool(is_hard)]:
            return array_forms.masked(
                _decode(data, leaf), _decode(mask, leaf), _decode(fill_value, leaf), is_hard=is_hard
            )
        case _:
            return _decode_value(tag, item, leaf)


def _decode_value(tag: str, item: Json, leaf: Callable[[str], object]) -> object:
    match tag, item:
        case "$int", str(text):
            return int(text, 16)
        case "$float", str(text):
            return _float(text)
        case "$complex", [real, imaginary]:
            return complex(_part(real), _part(imaginary))
        case "$bytes", str(text):
            return base64.b64decode(text, validate=True)
        case "$bytearray", str(text):
            return bytearray(base64.b64decode(text, validate=True))
        case "$enum", [str(name), (str() | int()) as member]:
            return named_types.member(name, member)
        case "$torch", str(name):
            return arrays.torch_constant(name)
        case "$size", list(lengths):
            return arrays.torch_size(lengths)
        case "$scalar", [form, str(text)]:
            return array_forms.scalar(form, base64.b64decode(text, validate=True))
        case (("$permuted" | "$typed" | "$recarray" | "$parameter" | "$grad"), [detail, inner]):
            return array_forms.unwrapped(tag, detail, _decode(inner, leaf))
        case _:
            raise CheckpointDamaged(f"the manifest holds an unknown form {tag!r}")


def _part(form: Json) -> float:
    """Read one part of a complex number: a number, its form, or its text as format version 1 wrote it."""
    number = float(form) if isinstance(form, str) else _decode(form, lambda name: name)
    if not isinstance(number, float):
        raise CheckpointDamaged(f"the manifest holds a complex number with the part {form!r}")
    return number


def _decoded_pairs(pairs: list[Json], leaf: Callable[[str], object]) -> list[tuple[Hashable, object]]:
    decoded: list[tuple[Hashable, object]] = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise CheckpointDamaged("the manifest holds a mapping whose entries are not pairs")
        decoded.append((_decode(pair[0], leaf), _decode(pair[1], leaf)))
    return decoded
