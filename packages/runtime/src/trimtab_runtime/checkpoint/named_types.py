"""Named tuples and enum members by the name of their class, looked up among the modules that the job has loaded.

Nothing is imported and no constructor runs when a checkpoint is read: a name that this program does not know is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum, Flag
from typing import cast

from trimtab_runtime.errors import CheckpointMismatch


def is_namedtuple(value: object) -> bool:
    """Say whether a value is what `namedtuple` or `typing.NamedTuple` made: a tuple with names for its items, no more."""
    kind = type(value)
    return isinstance(value, tuple) and hasattr(kind, "_fields") and not getattr(value, "__dict__", None)


def name_of(kind: type) -> str | None:
    """Return `module:class` for a class that can be found again by it; None for one made inside a function."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    return name if _found(name) is kind else None


def _found(name: str) -> object:
    """Return what a name stands for in the loaded modules, without running any lookup of their own; None if nothing."""
    module, _, path = name.partition(":")
    found: object = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found


def _class(name: str, base: type) -> type:
    found = _found(name)
    if not isinstance(found, type) or not issubclass(found, base):
        raise CheckpointMismatch(
            f"the checkpoint holds a {name.replace(':', '.')}, which this program does not have; "
            "import its module before resuming, or resume from another checkpoint"
        )
    return found


def namedtuple(name: str, items: Sequence[object]) -> object:
    """Return a named tuple; raise `CheckpointMismatch` if the class is not here or has other fields now."""
    kind = _class(name, tuple)
    fields = getattr(kind, "_fields", None)
    if not isinstance(fields, tuple) or len(fields) != len(items):
        raise CheckpointMismatch(
            f"the checkpoint holds a {name.replace(':', '.')} of {len(items)} fields, here: {fields}"
        )
    return tuple.__new__(cast("type[tuple[object, ...]]", kind), items)


def member_form(value: Enum) -> str | int | None:
    """Return the name of an enum member, or the number of a combination of flags; None if neither finds it again."""
    if type(value).__members__.get(value.name or "") is value:
        return value.name
    return value.value if isinstance(value, Flag) and type(value.value) is int else None


def member(name: str, form: str | int) -> object:
    """Return an enum member; raise `CheckpointMismatch` if the class or the member is not here."""
    kind = cast("type[Enum]", _class(name, Enum))
    try:
        found: Enum = kind.__members__[form] if isinstance(form, str) else kind(form)
    except (KeyError, ValueError) as error:
        raise CheckpointMismatch(
            f"the checkpoint holds {form!r} of {name.replace(':', '.')}, which it lacks"
        ) from error
    return found
