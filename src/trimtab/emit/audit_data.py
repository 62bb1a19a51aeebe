"""Reads and writes the audit's document as JSON and YAML, and gives its published schema."""

from __future__ import annotations

import json
from importlib.resources import files

import yaml
from pydantic import ValidationError

from trimtab.emit.document import SCHEMA_VERSION, AuditDocument
from trimtab.errors import InputError


def render_json(document: AuditDocument, *, indent: int | None = 2) -> str:
    """Return the document as JSON text, on one line if no indent is given."""
    end = "" if indent is None else "\n"
    return json.dumps(document.model_dump(mode="json"), indent=indent, ensure_ascii=False, allow_nan=False) + end


def parse_document(text: str | bytes, *, where: str) -> AuditDocument:
    """Read a document from JSON. Raises InputError if it does not belong to this version."""
    try:
        return AuditDocument.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the text"
        raise InputError(
            f"{where} is not an audit of this version of trimtab ({error.error_count()} errors, the first at {place}: "
            f"{first['msg']}); run `trimtab audit` again"
        ) from error


def published_schema() -> str:
    """Return the JSON Schema of the document, as published."""
    return (files("trimtab.emit") / "schemas" / f"audit-{SCHEMA_VERSION}.json").read_text(encoding="utf-8")


def schema_text() -> str:
    """Generate the JSON Schema from the document's types. `published_schema` must equal it."""
    schema = AuditDocument.model_json_schema(mode="serialization")
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


_WIDTH = 120


def render_yaml(document: AuditDocument) -> str:
    """Return the document as YAML text."""
    return yaml.safe_dump(document.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=_WIDTH)
