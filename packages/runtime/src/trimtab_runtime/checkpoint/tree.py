"""Nested Python state <-> JSON plus named tensors, without pickle: loading a checkpoint runs no code.

What `state_dict()` methods return is dictionaries, lists, tuples, numbers, text, bytes and tensors. JSON has no
tuples, bytes, sets, integer keys or infinities, so these are written as one-key objects whose key starts with `$`.
Anything else is refused with its path, all at once, because a value silently dropped is a resume that silently
differs.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from trimtab_runtime.checkpoint import arrays
from trimtab_runtime.checkpoint.sealed import Json
from trimtab_runtime.errors import CheckpointDamaged, UsageError

_SHOWN_FAULTS = 20


@dataclass(frozen=True, slots=True)
class Leaf:
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
            f"{len(encoder.refused)} value(s) of the state are neither tensors nor plain data:\n{shown}\n"
            "return plain data from state_dict(), or leave the object out of the checkpoint"
        )
    return body, tuple(encoder.leaves)


def decode(body: Json, leaf: Callable[[str], object]) -> object:
    """Return the state that `encode` was given, with `leaf(name)` in the place of each tensor."""
    if isinstance(body, list):
        return [decode(item, leaf) for item in body]
    if isinstance(body, dict):
        tag = next(iter(body)) if len(body) == 1 else ""
        if tag.startswith("$"):
            return _decode_tagged(tag, body[tag], leaf)
        return {key: decode(item, leaf) for key, item in body.items()}
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

    def encode(self, value: object, path: str) -> Json:
        if value is None or type(value) in (bool, int, str):
            return value  # type: ignore[return-value]  # narrowed by exact type, which mypy does not follow
        if isinstance(value, float) and type(value) is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if isinstance(value, Mapping):
            return self._mapping(value, path)
        if isinstance(value, list):
            return [self.encode(item, f"{path}/{index}") for index, item in enumerate(value)]
        if isinstance(value, tuple):
            return {"$tuple": [self.encode(item, f"{path}/{index}") for index, item in enumerate(value)]}
        return self._special(value, path)

    def _mapping(self, value: Mapping[object, object], path: str) -> Json:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {str(key): self.encode(item, f"{path}/{key}") for key, item in value.items()}
        return {
            "$map": [
                [self.encode(key, f"{path}/key"), self.encode(item, f"{path}/{key}")] for key, item in value.items()
            ]
        }

    def _special(self, value: object, path: str) -> Json:
        kind = arrays.kind_of(value)
        if kind is not None:
            return {f"${kind}": self._leaf(value, path)}
        if isinstance(value, bytes | bytearray):
            return {"$bytes": base64.b64encode(value).decode()}
        if isinstance(value, set | frozenset):
            return {"$set": [self.encode(item, path) for item in sorted(value, key=repr)]}
        if isinstance(value, complex):
            return {"$complex": [repr(value.real), repr(value.imag)]}
        plain = arrays.plain_value(value)
        if plain is not None:
            return self.encode(plain, path)
        torch_name = arrays.torch_constant_name(value)
        if torch_name is not None:
            return {"$torch": torch_name}
        self.refused.append(f"{path or '/'}: {type(value).__module__}.{type(value).__qualname__}")
        return None

    def _leaf(self, value: object, path: str) -> str:
        fault = arrays.fault(value)
        if fault:
            self.refused.append(f"{path or '/'}: {fault}")
            return path
        identity = arrays.identity(value)
        if identity in self._seen:
            return self._seen[identity]
        name, copy = path.removeprefix("/"), 1
        while name in self._taken:
            copy += 1
            name = f"{path.removeprefix('/')}#{copy}"
        self._taken.add(name)
        self._seen[identity] = name
        self.leaves.append(Leaf(name, value))
        return name


def _decode_tagged(tag: str, item: Json, leaf: Callable[[str], object]) -> object:
    match tag, item:
        case (("$tensor" | "$array"), str(name)):
            return leaf(name)
        case "$float", str(text):
            return float(text)
        case "$bytes", str(text):
            return base64.b64decode(text)
        case "$torch", str(name):
            return arrays.torch_constant(name)
        case "$tuple", list(items):
            return tuple(decode(entry, leaf) for entry in items)
        case "$set", list(items):
            return {decode(entry, leaf) for entry in items}
        case "$complex", [str(real), str(imaginary)]:
            return complex(float(real), float(imaginary))
        case "$map", list(pairs):
            return _decode_map(pairs, leaf)
        case _:
            raise CheckpointDamaged(f"the manifest holds an unknown form {tag!r}; it was written by a newer program")


def _decode_map(pairs: list[Json], leaf: Callable[[str], object]) -> dict[object, object]:
    decoded: dict[object, object] = {}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise CheckpointDamaged("the manifest holds a mapping whose entries are not pairs")
        decoded[decode(pair[0], leaf)] = decode(pair[1], leaf)
    return decoded
