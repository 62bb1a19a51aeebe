"""Typed values as plain JSON values, and back without loss: frozen dataclasses, named tuples, enums, unions, tuples, dates.

A dataclass or named tuple becomes an object with its class under `type`; enums become their names. The way back is led by the
declared types, so that a field added to a class needs nothing here. Non-finite floats are refused: JSON has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from types import UnionType
from typing import TypeVar, Union, cast, get_args, get_origin, get_type_hints

from trimtab.errors import InputError

Plain = str | int | float | bool | None | Sequence["Plain"] | Mapping[str, "Plain"]
T = TypeVar("T")
TYPE = "type"
FORMER_NAMES = {"Course": "Schedule", "Step": "ScheduledAction", "Sway": "EffortSensitivity"}
"""Classes as plans of version 0.1.0 name them -> what they are called now."""
_SHOWN_CHARS = 120


def to_plain(value: object) -> Plain:
    """Return a value as JSON knows it; raises TypeError for what has no plain form, ValueError for NaN and infinity."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} has no JSON form")
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if _is_record(type(value)):
        return {TYPE: type(value).__name__, **{name: to_plain(getattr(value, name)) for name in _hints(type(value))}}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no plain form")


def from_plain(kind: type[T], plain: Plain, *, where: str = "value") -> T:
    """Read a value of a declared type back; raises InputError, with the place, where the plain form does not fit it."""
    return cast("T", _read(kind, plain, where))


def _read(kind: object, plain: Plain, where: str) -> object:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _read_union(get_args(kind), plain, where)
    if origin is tuple:
        return _read_tuple(get_args(kind), plain, where)
    if origin is not None and issubclass(origin, Mapping):
        return _read_mapping(get_args(kind)[1], plain, where)
    if isinstance(kind, type):
        return _read_class(kind, plain, where)
    raise TypeError(f"{where}: no way to read {kind}")


def _read_class(kind: type, plain: Plain, where: str) -> object:
    if issubclass(kind, Enum):
        if not isinstance(plain, str) or plain not in kind.__members__:
            raise _misfit(where, f"one of {', '.join(kind.__members__)}", plain)
        return kind[plain]
    if _is_record(kind):
        return _read_record(kind, plain, where)
    if issubclass(kind, datetime | date):
        return _read_time(kind, plain, where)
    if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    if kind in (str, int, float, bool, type(None)) and type(plain) is kind:
        return plain
    raise _misfit(where, kind.__name__, plain)


def _read_time(kind: type[datetime] | type[date], plain: Plain, where: str) -> object:
    try:
        return kind.fromisoformat(str(plain))
    except ValueError as error:
        raise _misfit(where, "an ISO date or time", plain) from error


def _read_record(kind: type, plain: Plain, where: str) -> object:
    if not isinstance(plain, Mapping) or _class_name(plain) != kind.__name__:
        raise _misfit(where, f"a {kind.__name__}", plain)
    hints = _hints(kind)
    unknown = plain.keys() - hints.keys() - {TYPE}
    if unknown:
        raise InputError(f"{where}: {kind.__name__} has no {', '.join(sorted(unknown))}")
    values = {name: _read(hints[name], plain[name], f"{where}.{name}") for name in hints if name in plain}
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: not a whole {kind.__name__}: {error}") from error


def _read_union(kinds: tuple[object, ...], plain: Plain, where: str) -> object:
    if isinstance(plain, Mapping) and TYPE in plain:
        for kind in kinds:
            if isinstance(kind, type) and kind.__name__ == _class_name(plain):
                return _read(kind, plain, where)
        names = ", ".join(kind.__name__ for kind in kinds if isinstance(kind, type))
        raise _misfit(where, f"one of {names}", plain[TYPE])
    for kind in kinds:
        if (plain is None) == (kind is type(None)):
            return _read(kind, plain, where)
    raise _misfit(where, " | ".join(map(str, kinds)), plain)


def _read_tuple(kinds: tuple[object, ...], plain: Plain, where: str) -> object:
    if not isinstance(plain, list | tuple):
        raise _misfit(where, "a list", plain)
    each = [kinds[0]] * len(plain) if len(kinds) == 2 and kinds[1] is Ellipsis else list(kinds)
    if len(each) != len(plain):
        raise _misfit(where, f"{len(each)} items", plain)
    return tuple(_read(kind, item, f"{where}[{at}]") for at, (kind, item) in enumerate(zip(each, plain, strict=True)))


def _read_mapping(kind: object, plain: Plain, where: str) -> object:
    if not isinstance(plain, Mapping):
        raise _misfit(where, "an object", plain)
    return {str(key): _read(kind, item, f"{where}.{key}") for key, item in plain.items()}


def _is_record(kind: type) -> bool:
    return is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _hints(kind: type) -> dict[str, object]:
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else list(getattr(kind, "_fields", ()))
    return {name: hints[name] for name in names}


def _class_name(plain: Mapping[str, Plain]) -> Plain:
    name = plain.get(TYPE)
    return FORMER_NAMES.get(name, name) if isinstance(name, str) else name


def _misfit(where: str, wanted: str, seen: object) -> InputError:
    text = repr(seen)
    text = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
    return InputError(f"{where}: expected {wanted}, saw {text}")
