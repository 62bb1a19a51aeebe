"""YAML files of a bundle: load them, and turn a model's validation errors into faults with near matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ValidationError

from trimtab.errors import BundleError, Fault, InputError, near_matches
from trimtab.inputs import files
from trimtab.inputs.documents import load_yaml


def read_text(path: Path) -> str:
    """Return a file's text. Raises BundleError if it cannot be read or is not UTF-8."""
    try:
        return files.read_text(path)
    except InputError as error:
        raise BundleError(
            [Fault(what="not a readable text file", where=str(path), value=str(error), cure="write it as UTF-8")]
        ) from error


def load_mapping(text: str, where: str) -> dict[str, object]:
    """Load YAML text that must hold a mapping (or nothing). Raises BundleError."""
    try:
        raw = load_yaml(text, where)
    except InputError as error:
        problem = str(error).removeprefix(f"{where}: ")
        raise BundleError([Fault(what=problem, where=where)]) from error
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise BundleError([Fault(what="must hold a mapping", where=where, value=type(raw).__name__)])
    return {str(key): value for key, value in raw.items()}


def validation_faults(error: ValidationError, model: type[BaseModel], where: str) -> list[Fault]:
    """Return one fault for each thing the model refused, placed by its path in the file."""
    faults = []
    for item in error.errors(include_url=False):
        path = [str(step) for step in item["loc"]]
        place = f"{where}: {'.'.join(path)}" if path else where
        if item["type"] == "extra_forbidden":
            faults.append(Fault(what="unknown key", where=place, value=path[-1], cure=_near(model, path)))
        else:
            message = item["msg"].removeprefix("Value error, ")
            faults.append(Fault(what=message, where=place, value=str(item["input"])[:80]))
    return faults


def _near(model: type[BaseModel], path: Sequence[str]) -> str:
    known = list(_model_at(model, path[:-1]).model_fields)
    near = near_matches(path[-1], known)
    return f"did you mean {', '.join(near)}?" if near else f"known keys: {', '.join(known)}"


def _model_at(model: type[BaseModel], path: Sequence[str]) -> type[BaseModel]:
    """Follow a path of keys and indices to the model that refused it."""
    for step in path:
        field = model.model_fields.get(step)
        inner = _inner_model(field.annotation) if field is not None else None
        model = inner or model
    return model


def _inner_model(annotation: object) -> type[BaseModel] | None:
    """Return the first model inside an annotation such as `Mapping[str, Spec]` or `tuple[Target, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and not isinstance(annotation, Mapping):
        return annotation
    for inner in get_args(annotation):
        found = _inner_model(inner)
        if found is not None:
            return found
    return None
