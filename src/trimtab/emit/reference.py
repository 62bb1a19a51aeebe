"""The reference page of the audit's JSON, from its types: `python -m trimtab.emit.reference > docs/reference/audit.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trimtab.emit.document import AuditDocument

_HEAD = """# The audit as JSON

<!-- Written from src/trimtab/emit/document/ by `python -m trimtab.emit.reference`; do not edit. -->

`trimtab audit -o json` (and `-o yaml`, with the same keys) writes one document. Its JSON Schema is published as
`src/trimtab/emit/schemas/audit-1.json`; `schema_version` stands first, and within a version no key is renamed or removed.

Money is in dollars, rounded to the cent once: the rows of `waste` and of each spend table sum to `bill_usd_mo`, and the
actions' `saving_usd_mo` sum to `joint_saving_usd_mo`, to the cent. Months have 730 hours. A suffix states the unit; `_frac` is
a share in 0..1 (an attained one may lie a little above 1). What was not measured is null, never 0.
"""


def audit_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *(line for part in _parts(AuditDocument) for line in _section(part))]).rstrip() + "\n"


def _parts(root: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the models in reading order, each once."""
    found = [root]
    for part in found:
        found += [child for field in part.model_fields.values() if (child := _model_in(field)) and child not in found]
    return found


def _model_in(field: FieldInfo) -> type[BaseModel] | None:
    kinds = [field.annotation, *get_args(field.annotation)]
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _section(part: type[BaseModel]) -> Iterator[str]:
    yield f"## {_title(part)}"
    yield ""
    yield (part.__doc__ or "").strip()
    yield ""
    yield "| key | type | meaning |"
    yield "|---|---|---|"
    for name, field in part.model_fields.items():
        yield f"| `{name}` | {_type(field.annotation)} | {field.description} |"
    yield ""


def _title(part: type[BaseModel]) -> str:
    name = part.__name__.removesuffix("Part")
    return "The document" if part is AuditDocument else f"`{name}`"


def _type(kind: object) -> str:
    """Name a type in terms of JSON."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _title(kind)
    plain = {int: "integer", float: "number", str: "string", bool: "true or false", type(None): "null"}
    if isinstance(kind, type) and kind in plain:
        return plain[kind]
    arguments = [argument for argument in get_args(kind) if argument is not ...]
    if get_origin(kind) is tuple:
        return f"list of {_type(arguments[0])}"
    if get_origin(kind) is dict:
        return "object"
    if arguments and all(isinstance(argument, int) for argument in arguments):
        return " or ".join(str(argument) for argument in arguments)
    if arguments:
        return " or ".join(_type(argument) for argument in arguments)
    return "string"


if __name__ == "__main__":
    sys.stdout.write(audit_page())
