"""YAML files of a bundle: load them, and turn a model's validation errors into faults with near matches."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import get_args

import yaml
from pydantic import BaseModel, ValidationError
from yaml.constructor import ConstructorError

from trimtab.errors import BundleError, Fault, near_matches


def read_text(path: Path) -> str:
    """Return a file's text; raises BundleError where it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(
            [Fault(what="not a readable text file", where=str(path), value=str(error), cure="write it as UTF-8")]
        ) from error


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, where YAML would silently let the last one win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        """Return the mapping; raises ConstructorError at the second of two equal keys."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise ConstructorError(None, None, f"the key {key.value} stands twice", key.start_mark)
            seen.add(str(key.value))
        found: dict[Hashable, object] = super().construct_mapping(node, deep)
        return found


def load_mapping(text: str, where: str) -> dict[str, object]:
    """Load YAML text that must hold a mapping (or nothing); raises BundleError."""
    try:
        raw: object = yaml.load(text, _UniqueKeys)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise BundleError([Fault(what="not valid YAML", where=where, value=problem, cure="mend the syntax")]) from error
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
