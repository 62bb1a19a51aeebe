"""Marks on fields that tell pydantic how to write and read values that it could not distinguish by itself.

Of a union of classes, the name of the class stands beside the fields, under `type`. Named tuples are written by their fields'
names: by itself pydantic writes a list, in which a field that is added later would move the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import GetCoreSchemaHandler, PlainSerializer, SerializerFunctionWrapHandler
from pydantic_core import CoreSchema, core_schema

TYPE = "type"


# `Any`, as pydantic has it: the type that is marked.
class ByClass:
    """Marks a union of dataclasses."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the union (pydantic calls this)."""
        return core_schema.tagged_union_schema(
            {
                kind.__name__: core_schema.no_info_before_validator_function(
                    _without_class, handler.generate_schema(kind)
                )
                for kind in get_args(source)
            },
            discriminator=_class_of,
            serialization=core_schema.wrap_serializer_function_ser_schema(_with_class),
        )


def _class_of(value: object) -> str | None:
    if isinstance(value, Mapping):
        name = value.get(TYPE)
        return name if isinstance(name, str) else None
    return type(value).__name__


def _without_class(value: object) -> object:
    return {key: part for key, part in value.items() if key != TYPE} if isinstance(value, Mapping) else value


def _with_class(value: object, write: SerializerFunctionWrapHandler) -> dict[str, object]:
    return {TYPE: type(value).__name__, **write(value)}


def _by_name(value: Any) -> dict[str, object]:
    return {key: _by_name(part) if hasattr(part, "_fields") else part for key, part in value._asdict().items()}


BY_NAME = PlainSerializer(_by_name)
"""Marks a named tuple, or a union of named tuples with different fields."""
