"""Schemas of objects: the shipped ones (Kubernetes 1.34, KEDA, Karpenter, Kueue, prometheus-operator), or a cluster's own.

Strict, as a server is that validates fields: a field that no schema names is a fault. Sources, commits and licences are in
`data/schemas.csv`. CRDs of a cluster (`kubectl get crd -o yaml`) take the place of the shipped ones of their kinds.

The rules that schemas state in CEL (`x-kubernetes-validations`) are evaluated as a server does for a new object: rules over an
object's former state (`oldSelf`) do not apply. Evaluated by cel-python (Apache-2.0), with the string function `find` of
Kubernetes' own library.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trimtab.check.cluster import TEMPLATES
from trimtab.check.faults import FieldFault, Severity, join, nearest
from trimtab.errors import InputError, UsageError
from trimtab.sources.kubernetes.objects import Object, at, listed, text

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

NEEDS = "pip install 'trimtab[check]'"
_DATA = files("trimtab.check") / "data"
_OF_PATCHES = frozenset({"$patch", "$retainKeys"})
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_METADATA = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_POD_SPEC = "#/definitions/io.k8s.api.core.v1.PodSpec"
_PODS_ALONE = frozenset({"Notebook"})
"""Kinds whose spec holds the template of their pods and nothing else (Kubeflow v1, NotebookSpec)."""
_SERVED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Notebook": ("kubeflow.org/v1", "kubeflow.org/v1beta1", "kubeflow.org/v1alpha1"),
        "Rollout": ("argoproj.io/v1alpha1",),
        "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1",),
        "InferenceService": ("serving.kserve.io/v1beta1",),
        "LLMInferenceService": ("serving.kserve.io/v1alpha1", "serving.kserve.io/v1alpha2"),
        "RayService": ("ray.io/v1", "ray.io/v1alpha1"),
        "RayJob": ("ray.io/v1", "ray.io/v1alpha1"),
        "RayCluster": ("ray.io/v1", "ray.io/v1alpha1"),
        "PyTorchJob": ("kubeflow.org/v1",),
        "JobSet": ("jobset.x-k8s.io/v1alpha2",),
    }
)
"""Versions that the CRDs of kinds without a shipped schema serve: those of kubeflow/kubeflow and trainer, argo-rollouts,
kubernetes-sigs/lws and jobset, kserve/kserve, ray-project/kuberay."""
_BELOW = ("properties", "patternProperties", "definitions")


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a shipped table."""
    return list(csv.DictReader(io.StringIO((_DATA / name).read_text(encoding="utf-8"))))


@cache
def _shipped() -> Mapping[tuple[str, str], str]:
    return {(row["api_version"], row["kind"]): row["file"] for row in rows("schemas.csv")}


@cache
def _shipped_schema(file: str) -> Object:
    return _with_metadata(_loaded(file))


def _loaded(file: str) -> Object:
    loaded: Object = json.loads((_DATA / file).read_text(encoding="utf-8"))
    return loaded


@cache
def _definitions() -> Object:
    """Return Kubernetes' own definitions of metadata and its parts, as given in the schema of one of its kinds."""
    stated = at(_loaded(_shipped()["v1", "Namespace"]), "definitions")
    return stated if isinstance(stated, Mapping) else {}


def _with_metadata(schema: Object) -> Object:
    """Return a schema that holds metadata to Kubernetes' own: CRDs leave it open, and servers know every field of it.

    Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema/objectmeta/coerce.go (v1.34), which says unknown fields.
    """
    properties = at(schema, "properties")
    if at(properties, "metadata") not in (None, {"type": "object"}):
        return schema
    stated = {**(properties if isinstance(properties, Mapping) else {}), "metadata": {"$ref": _METADATA}}
    own = at(schema, "definitions")
    definitions = {**_definitions(), **(own if isinstance(own, Mapping) else {})}
    return {**schema, "properties": stated, "definitions": definitions}


@cache
def _without_schema(kind: str) -> Object:
    """Return the schema of an object of which nothing is known but its metadata, and of some kinds where its pods are."""
    if kind not in TEMPLATES:
        return _with_metadata({"type": "object"})
    closed = {"additionalProperties": False} if kind in _PODS_ALONE else {}
    below: Object = {"$ref": _POD_SPEC}
    for name in reversed((*TEMPLATES[kind], "spec")[1:]):
        below = {"type": "object", "properties": {name: below}, **closed}
    top = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "status": {}, "spec": below}
    pods = at(_loaded(_shipped()["v1", "Pod"]), "definitions")
    return _with_metadata({"type": "object", "properties": top, "additionalProperties": False, "definitions": pods})


@cache
def built_in_kinds() -> frozenset[tuple[str, str]]:
    """Return the API version and kind of everything that Kubernetes 1.34 itself serves."""
    return frozenset((row["api_version"], row["kind"]) for row in rows("built_in_kinds.csv"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Schemas:
    """Schemas by API version and kind."""

    own: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    """Of the cluster; they come before the shipped ones."""

    @classmethod
    def of_crds(cls, documents: Iterable[object]) -> Schemas:
        """Return the schemas that CustomResourceDefinitions among documents state, beside the shipped ones."""
        own: dict[tuple[str, str], Object] = {}
        for document in documents:
            for crd in [document, *listed(document, "items")]:
                group, kind = text(crd, "spec", "group"), text(crd, "spec", "names", "kind")
                for version in listed(crd, "spec", "versions"):
                    stated = at(version, "schema", "openAPIV3Schema")
                    if text(crd, "kind") in ("CustomResourceDefinition", "") and kind and isinstance(stated, Mapping):
                        own[f"{group}/{text(version, 'name')}", kind] = _with_metadata(_strict(stated, at_top=True))
        return cls(own=own)

    def of(self, api_version: str, kind: str) -> Object:
        """Return a kind's schema; where none is known, one of metadata and pods. Raises InputError for one that is none."""
        known = self.own.get((api_version, kind))
        if known is not None:
            _validator(id(known), _Held(known))
            return known
        file = _shipped().get((api_version, kind))
        return _without_schema(kind) if file is None else _shipped_schema(file)

    def known(self) -> frozenset[tuple[str, str]]:
        """Return every API version and kind that has a schema, or is Kubernetes' own."""
        served = {(version, kind) for kind, versions in _SERVED.items() for version in versions}
        return frozenset({*self.own, *_shipped(), *built_in_kinds(), *served})


def schema_faults(schema: Object, body: object, *, partial: bool = False) -> Iterator[FieldFault]:
    """Yield what a schema refuses; of a patch (`partial`) neither what it leaves out nor what it sets to null."""
    seen = set[tuple[str, str]]()
    for error in _validator(id(schema), _Held(schema)).iter_errors(body):
        for found in _found(error, partial):
            if (found.field, found.what) not in seen:
                seen.add((found.field, found.what))
                yield found


class _Held:
    """A schema as a key of a cache: the same object, not an equal one."""

    def __init__(self, schema: Object) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return id(self.schema)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.schema is self.schema


@cache
def _validator(_identity: int, held: _Held):  # type: ignore[no-untyped-def]  # jsonschema's class is made at run time
    try:
        from jsonschema import Draft7Validator, validators
        from jsonschema.exceptions import SchemaError
    except ImportError as error:
        raise UsageError(f"checking needs the package jsonschema: {NEEDS}") from error
    try:
        # formats are not looked at: a pattern is one of Go's
        Draft7Validator.check_schema(held.schema, format_checker=None)
    except SchemaError as error:
        place = "/".join(map(str, error.absolute_path))
        raise InputError(
            f"a schema of the cluster is none: {place}: {error.message[:200]}; write the CRDs again: kubectl get crd -o yaml"
        ) from error
    return validators.extend(Draft7Validator, {"pattern": _pattern_faults})(held.schema)


def _pattern_faults(_validator: object, pattern: str, value: object, _schema: object) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    compiled = _compiled(pattern)
    if isinstance(value, str) and compiled is not None and not compiled.search(value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


@cache
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern of Go's as Python's, None where Python has none like it: then a server judges it alone."""
    try:
        # flags may stand behind ^ in Go, in Python at the start only
        return re.compile(re.sub(r"^\^(\(\?[ims]+\))", r"\1^", pattern))
    except (re.error, OverflowError, RecursionError):
        return None


def _found(error: ValidationError, partial: bool) -> Iterator[FieldFault]:
    path = join("", *error.absolute_path)
    value, wanted, schema = error.instance, error.validator_value, error.schema
    if partial and (value is None or error.validator == "required"):
        return
    match error.validator:
        case "additionalProperties":
            yield from _unknown_fields(path, value, schema, partial)
        case "required":
            missing = next((name for name in wanted if name not in value), "") if isinstance(value, Mapping) else ""
            names = ", ".join(sorted(value)) if isinstance(value, Mapping) else ""
            cure = f"add {missing}" + (f" beside {names}" if names else "")
            yield FieldFault(field=path, value=None, what=f"lacks {missing}", cure=cure)
        case "enum" | "const":
            allowed = [str(word) for word in (wanted if isinstance(wanted, list) else [wanted]) if word is not None]
            near = nearest(str(value), allowed)
            cure = f"write {near}" if near else f"write one of {', '.join(allowed)}"
            yield FieldFault(field=path, value=value, what="is none of the values that are allowed", cure=cure)
        case "type":
            kinds = [wanted] if isinstance(wanted, str) else [kind for kind in wanted if kind != "null"]
            yield FieldFault(field=path, value=value, what=f"is no {' or '.join(kinds)}", cure=_typed(value, kinds))
        case "pattern":
            yield FieldFault(
                field=path, value=value, what="is not of the form that is asked for", cure=f"match {wanted}"
            )
        case "anyOf" | "oneOf":
            if partial and all(inner.validator == "required" for inner in error.context or ()):
                return
            forms = sorted({str(inner.validator_value) for inner in error.context or () if inner.validator == "type"})
            what = f"is neither {' nor '.join(forms)}" if forms else "fits none of the forms that are allowed"
            yield FieldFault(field=path, value=value, what=what, cure=f"see the schema: {_short(wanted)}")
        case _:
            yield FieldFault(
                field=path, value=value, what=f"breaks the schema's {error.validator}", cure=f"keep to {_short(wanted)}"
            )


def _unknown_fields(path: str, value: object, schema: object, partial: bool) -> Iterator[FieldFault]:
    known = at(schema, "properties")
    names = list(known) if isinstance(known, Mapping) else []
    for name, stated in value.items() if isinstance(value, Mapping) else ():
        if name in names or (partial and (name in _OF_PATCHES or str(name).startswith("$"))):
            continue
        near = nearest(str(name), names)
        cure = f"write {near}" if near else f"take it out; there are {', '.join(sorted(names)[:12])}"
        yield FieldFault(field=join(path, str(name)), value=stated, what="is no field of this object", cure=cure)


def _typed(value: object, kinds: list[str]) -> str:
    if kinds == ["string"] and not isinstance(value, Mapping | list):
        return f'put it in quotes: "{value}"'
    if set(kinds) <= {"integer", "number"} and isinstance(value, str):
        return "write a number without quotes"
    return f"write {'an' if kinds[0][0] in 'aio' else 'a'} {' or '.join(kinds)}"


def _short(wanted: object) -> str:
    said = json.dumps(wanted, default=str)
    return said if len(said) < 120 else f"{said[:117]}..."


def _strict(schema: Object, *, at_top: bool = False) -> Object:
    """Return a CRD's structural schema as a JSON schema in which unknown fields are refused."""
    made = {key: value for key, value in schema.items() if key not in ("description", "default", "example", "format")}
    for key in _BELOW:
        if isinstance(schema.get(key), Mapping):
            made[key] = {
                name: _strict(child) if isinstance(child, Mapping) else child
                for name, child in schema[key].items()  # type: ignore[attr-defined]
            }
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            made[key] = _strict(schema[key])  # type: ignore[arg-type]
    if schema.get(_INT_OR_STRING):
        made["type"] = ["integer", "string"]
    if schema.get("nullable") and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    embedded = schema.get("x-kubernetes-embedded-resource")
    if isinstance(schema.get("properties"), Mapping) and not schema.get(_PRESERVE) and not embedded:
        made.setdefault("additionalProperties", False)
        if at_top:
            meta = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
            made["properties"] = {**meta, **made["properties"]}  # type: ignore[dict-item]
    return made


def kind_faults(api_version: str, kind: str, schemas: Schemas) -> Iterator[FieldFault]:
    """Yield what is wrong with an object's API version and kind; only a warning where it may be of a CRD unknown here."""
    known = schemas.known()
    if (api_version, kind) in known:
        return
    versions = sorted(version for version, name in known if name == kind)
    group = api_version.rpartition("/")[0]
    groups = {version.rpartition("/")[0] for version, _ in known}
    near_kind = nearest(kind, {name for version, name in known if version.rpartition("/")[0] == group}, least_frac=0.8)
    any_kind = nearest(kind, {name for _, name in known}, least_frac=0.85)
    near_group = nearest(group, groups, least_frac=0.8) if group else None
    if versions and (group in groups or near_group or group in {version.rpartition("/")[0] for version in versions}):
        yield FieldFault(
            field="apiVersion",
            value=api_version,
            what=f"is no API version of {kind}",
            cure=f"write {' or '.join(versions)}",
        )
    elif near_kind or (any_kind and (not group or group in groups)):
        yield FieldFault(
            field="kind", value=kind, what=f"is no kind of {api_version}", cure=f"write {near_kind or any_kind}"
        )
    elif not group or "." not in group or (near_group and near_group != group):
        cure = f"write {near_group}/..." if near_group else "see kubectl api-resources"
        yield FieldFault(
            field="apiVersion", value=f"{api_version} {kind}", what="is of no API that is known", cure=cure
        )
    else:
        yield FieldFault(
            field="kind",
            value=f"{api_version} {kind}",
            what="has no schema here: its fields were not checked",
            cure="give --context, or --schemas with its CustomResourceDefinition",
            severity=Severity.WARNING,
        )


_RULES = "x-kubernetes-validations"


def cel_faults(schema: object, value: object, path: str = "", *, broken: Collection[str] = ()) -> Iterator[FieldFault]:
    """Yield the CEL rules of a schema that a value breaks, at any depth.

    `broken` are fields that break its types. A value that holds one is not judged, as a server does not (`hasBlockingErr` of
    apiextensions-apiserver): rules depend on types, and evaluating one without them can take memory without end.
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
    """Return whether a value, as JSON, keeps a rule, or why that cannot be said: pools of one plan repeat one another."""
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
