"""The rules that schemas state in CEL (`x-kubernetes-validations`), evaluated as a server does for a new object.

Rules over an object's former state (`oldSelf`) do not apply to a new one. Evaluated by cel-python (Apache-2.0), with
the string function `find` of Kubernetes' own library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from trimtab.check.faults import FieldFault, Severity, join
from trimtab.check.schemas import NEEDS
from trimtab.errors import UsageError
from trimtab.sources.kubernetes.objects import Object, at, listed, text

_RULES = "x-kubernetes-validations"


def cel_faults(schema: object, value: object, path: str = "", *, broken: Collection[str] = ()) -> Iterator[FieldFault]:
    """Yield the CEL rules of a schema that a value breaks, at any depth.

    `broken` are fields that break its types. A value that holds one is not judged, as a server does not (`hasBlockingErr` of
    apiextensions-apiserver): rules count on types, and evaluating one without them can take memory without end.
    """
    if not isinstance(schema, Mapping) or value is None:
        return
    if not any(_is_at_or_below(path, field) for field in broken):
        for rule in listed(schema, _RULES):
            if text(rule, "rule") and "oldSelf" not in text(rule, "rule"):
                yield from _broken(rule, value, path)
    if isinstance(value, Mapping):
        for key, child in value.items():
            below = at(schema, "properties", str(key)) or schema.get("additionalProperties")
            yield from cel_faults(below, child, join(path, str(key)), broken=broken)
    elif isinstance(value, list):
        for place, child in enumerate(value):
            yield from cel_faults(schema.get("items"), child, join(path, place), broken=broken)


def _is_at_or_below(path: str, field: str) -> bool:
    return not path or field == path or field.startswith((f"{path}.", f"{path}["))


def _broken(rule: Object, value: object, path: str) -> Iterator[FieldFault]:
    stated = text(rule, "rule")
    message = str(rule.get("message") or stated)
    kept = _kept(stated, json.dumps(value, default=str, skipkeys=True))
    if isinstance(kept, str):
        # the value is not of the type that the rule is for, which the schema says better
        what = f"cannot be judged by a rule of its schema ({kept})"
        yield FieldFault(field=path, value=value, what=what, cure=f"keep: {message}", severity=Severity.WARNING)
    elif not kept:
        yield FieldFault(field=path, value=value, what="breaks a rule of its schema", cure=f"keep: {message}")


@lru_cache(maxsize=65_536)
def _kept(rule: str, value: str) -> bool | str:
    """Tell whether a value, as JSON, keeps a rule, or why that cannot be said: pools of one plan repeat one another."""
    try:
        from celpy.adapter import json_to_cel
        from celpy.celparser import CELParseError
        from celpy.evaluation import CELEvalError
    except ImportError as error:
        raise UsageError(f"checking needs the package cel-python: {NEEDS}") from error
    try:
        return bool(_program(rule).evaluate({"self": json_to_cel(json.loads(value))}))
    except (CELEvalError, CELParseError, TypeError, ValueError) as error:
        return str(error).splitlines()[0] if str(error) else "no value"


@lru_cache(maxsize=4_096)
def syntax_fault(expression: str) -> str | None:
    """Say what is wrong with the syntax of a CEL expression; None where it parses. Names and types are not looked at."""
    try:
        from celpy import Environment
        from celpy.celparser import CELParseError
    except ImportError as error:
        raise UsageError(f"checking needs the package cel-python: {NEEDS}") from error
    try:
        Environment().compile(expression)
    except CELParseError as error:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        return f"is no CEL expression ({said})" if said else "is no CEL expression"
    return None


@cache
def _program(rule: str) -> Any:  # celpy is not typed
    import celpy

    environment = celpy.Environment()
    return environment.program(environment.compile(rule), functions={"find": _find})


def _find(text: object, pattern: object) -> Any:
    from celpy.celtypes import StringType

    found = re.search(str(pattern), str(text))
    return StringType(found.group(0) if found else "")
