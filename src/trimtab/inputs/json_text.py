"""JSON that others wrote, no deeper than any honest document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from trimtab.errors import InputError
from trimtab.inputs.files import read_text

MOST_DEPTH = 100
"""Lists and objects within one another; what follows a document may walk it by recursion."""


def load_json(text: str | bytes, where: str) -> object:
    """Return the value of a JSON text; raises InputError where it is none or is nested deeper than `MOST_DEPTH`."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}); is it cut short? write it again") from error
    check_depth(found, where)
    return found


def read_json(path: Path) -> object:
    """Return the value of a JSON file; raises InputError."""
    return load_json(read_text(path), str(path))


def read_json_object(path: Path) -> dict[str, object]:
    """Return the object that a JSON file holds; raises InputError."""
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
