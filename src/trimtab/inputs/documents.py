"""Reads JSON and YAML written by others: plain values only, limited depth, unique keys.

A few hundred bytes of aliases to aliases (or of merge keys) stand for billions of values. So the text's events are counted
first, and then what its aliases expand to, before a single value is made.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from pathlib import Path

import yaml
from yaml.constructor import ConstructorError

from trimtab.errors import InputError
from trimtab.inputs.files import read_text
from trimtab.units import BYTES_PER_MIB

MOST_DEPTH = 100
"""Lists and objects within one another; what follows a document may walk it by recursion."""


def load_json(text: str | bytes, where: str) -> object:
    """Return the value of a JSON text. Raises InputError if it is none or is nested deeper than `MOST_DEPTH`."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}); is it cut short? write it again") from error
    check_depth(found, where)
    return found


def read_json(path: Path) -> object:
    """Return the value of a JSON file. Raises InputError."""
    return load_json(read_text(path), str(path))


def read_json_object(path: Path) -> dict[str, object]:
    """Return the object that a JSON file holds. Raises InputError."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise InputError(f"{path} holds no JSON object")
    return found


def check_depth(value: object, where: str) -> None:
    """Raise InputError where lists and objects are nested deeper than `MOST_DEPTH`."""
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, Mapping) else outer if isinstance(outer, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise InputError(f"{where}: JSON nested deeper than {MOST_DEPTH}; write it again")


MOST_YAML_MIB = 16
MOST_NODES = 1_000_000
"""Keys, values and lists of a text, aliases expanded. A deployment of Kubernetes has about 200."""
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's parser where PyYAML was built with it: the same values, ten times as fast."""


class _UniqueKeys(_Loader):  # type: ignore[misc, valid-type]  # one of two classes, known when PyYAML is
    """Refuses a key that stands twice in one mapping, where YAML would silently let the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        """Return the mapping. Raises ConstructorError at the second of two equal keys."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise ConstructorError(None, None, f"the key {key.value} stands twice", key.start_mark)
                seen.add(key.value)
        found: dict[Hashable, object] = super().construct_mapping(node, deep)
        return found


def load_yaml(text: str, where: str) -> object:
    """Return the one document of a YAML text, None if it is empty. Raises InputError."""
    found = load_yaml_documents(text, where)
    if len(found) > 1:
        raise InputError(f"{where}: not valid YAML here: {len(found)} documents where one belongs; remove the others")
    return found[0] if found else None


def load_yaml_documents(text: str, where: str) -> list[object]:
    """Return the documents of a YAML text. Raises InputError if it is no YAML or stands for too much."""
    if len(text) > MOST_YAML_MIB * BYTES_PER_MIB:
        raise InputError(f"{where}: more than {MOST_YAML_MIB} MiB of YAML; split it, or write it as JSON")
    try:
        return yaml_documents(text)
    except yaml.YAMLError as error:
        raise InputError(f"{where}: not valid YAML ({' '.join(str(error).split())}); correct the syntax") from error


def yaml_documents(text: str) -> list[object]:
    """Return the documents of a YAML text; raises yaml.YAMLError, which may know the place, and no other error."""
    if len(text) > MOST_YAML_MIB * BYTES_PER_MIB:
        raise yaml.YAMLError(f"more than {MOST_YAML_MIB} MiB")
    try:
        _check_events(text)
        return _documents(text)
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        # PyYAML lets through what datetime, int, float and dict say of cells that only look like theirs: 2026-13-01.
        raise yaml.YAMLError(str(error) or type(error).__name__) from error


def _check_events(text: str) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, _Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_DEPTH:
            raise yaml.YAMLError(f"nested deeper than {MOST_DEPTH}")
        if number > MOST_NODES:
            raise yaml.YAMLError(f"more than {MOST_NODES:,} values")


def _documents(text: str) -> list[object]:
    loader = _UniqueKeys(text)
    found: list[object] = []
    left = MOST_NODES
    try:
        while loader.check_node():
            node = loader.get_node()
            left -= _expanded(node, {}, left)
            found.append(loader.construct_document(node))
        return found
    finally:
        loader.dispose()


def _expanded(node: yaml.Node, sizes: dict[int, int | None], most: int) -> int:
    """Return how many values a node stands for, aliases expanded; `sizes` holds those of nodes seen, None while open."""
    known = sizes.get(id(node), 0)
    if known is None:
        raise yaml.YAMLError("a value that contains itself")
    if known:
        return known
    sizes[id(node)] = None
    size = 1
    children = (
        (child for pair in node.value for child in pair)
        if isinstance(node, yaml.MappingNode)
        else node.value
        if isinstance(node, yaml.SequenceNode)
        else ()
    )
    for child in children:
        size += _expanded(child, sizes, most)
        if size > most:
            raise yaml.YAMLError(f"its aliases stand for more than {MOST_NODES:,} values; write them out")
    sizes[id(node)] = size
    return size
