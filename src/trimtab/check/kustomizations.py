"""Kustomizations of a folder: do their parts exist, is every object in one of them, and what do their patches say.

Read here without kustomize; where `kustomize` or `kubectl` is installed every root is built too.
Source of the fields: kubernetes-sigs/kustomize api/types/kustomization.go and api/types/patch.go (v5.5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import yaml

from trimtab.check.documents import KUSTOMIZATIONS, KUSTOMIZE_GROUP, Document, Folder, strict_yaml
from trimtab.check.faults import FieldFault, ObjectFault, Severity, join, nearest, placed
from trimtab.errors import InputError
from trimtab.sources.kubernetes.manifests import built_by_kustomize
from trimtab.sources.kubernetes.objects import Object, at, listed, text

_VERSIONS = {"Kustomization": f"{KUSTOMIZE_GROUP}/v1beta1", "Component": f"{KUSTOMIZE_GROUP}/v1alpha1"}
_FIELDS = frozenset(
    [
        "apiVersion",
        "kind",
        "metadata",
        "resources",
        "components",
        "bases",
        "crds",
        "patches",
        "patchesStrategicMerge",
        "patchesJson6902",
        "images",
        "replicas",
        "configMapGenerator",
        "secretGenerator",
        "generatorOptions",
        "generators",
        "transformers",
        "validators",
        "replacements",
        "configurations",
        "openapi",
        "helmCharts",
        "helmGlobals",
        "namespace",
        "namePrefix",
        "nameSuffix",
        "commonLabels",
        "commonAnnotations",
        "labels",
        "vars",
        "buildMetadata",
        "sortOptions",
        "inventory",
    ]
)
_PATCH_FIELDS = frozenset({"path", "patch", "target", "options"})
_TARGET_FIELDS = frozenset({"group", "version", "kind", "name", "namespace", "labelSelector", "annotationSelector"})
_GENERATOR_FIELDS = frozenset(
    {"name", "namespace", "files", "literals", "envs", "env", "options", "behavior", "type", "create", "immutable"}
)
_OPERATIONS = frozenset({"add", "remove", "replace", "move", "copy", "test"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A patch of a kustomization: where it stands, which objects it is for, and the object that it lays on them."""

    document: Document
    path: str
    kind: str
    name: str
    """A regular expression for the whole name (kustomize anchors it)."""
    body: Object | None
    """None where it is a list of operations."""
    operations: tuple[Object, ...] = ()
    """Of a JSON patch."""

    @property
    def is_applied(self) -> bool:
        """Return whether it goes to a server with the rest, and not only to go back."""
        return "rollback" not in PurePosixPath(self.document.file).parts[:-1]

    def fits(self, kind: str, name: str) -> bool:
        """Return whether it is for an object."""
        return self.is_of(kind) and self.names(name)

    def is_of(self, kind: str) -> bool:
        """Return whether it is for objects of a kind, which kustomize takes as a pattern too."""
        return _matches(self.kind, kind)

    def names(self, name: str) -> bool:
        """Return whether it is for objects of a name."""
        return _matches(self.name, name)


def _matches(pattern: str, word: str) -> bool:
    try:
        return re.fullmatch(pattern, word) is not None
    except re.error:
        return False


def kustomization_faults(folder: Folder) -> Iterator[ObjectFault]:
    """Yield what is wrong with the kustomizations of a folder, and the objects beside one that are in none."""
    listed_files = set[str]()
    for document in folder.documents:
        if document.is_of_kustomize:
            for found in _one(document, folder, listed_files):
                yield placed(document.file, document.called, found)
    yield from _left_out(folder, listed_files)


def patches_of(folder: Folder) -> list[Patch]:
    """Return the patches of every kustomization that parse."""
    found = []
    for document in folder.documents:
        if document.is_of_kustomize:
            for place, patch in enumerate(listed(document.body, "patches")):
                read = _read(document, patch, join("patches", place))
                if read is not None:
                    found.append(read)
    return found


def _read(document: Document, patch: Object, path: str) -> Patch | None:
    try:
        bodies = strict_yaml(text(patch, "patch"))
    except yaml.YAMLError:
        return None
    body = bodies[0] if len(bodies) == 1 else None
    target = at(patch, "target")
    said = body if isinstance(body, Mapping) else {}
    kind = text(target, "kind") or text(said, "kind")
    name = text(target, "name") or re.escape(text(said, "metadata", "name"))
    is_object = isinstance(body, Mapping)
    return Patch(
        document=document,
        path=join(path, "patch"),
        kind=kind,
        name=name,
        body=said if is_object else None,
        operations=tuple(step for step in body if isinstance(step, Mapping)) if isinstance(body, list) else (),
    )


def _one(document: Document, folder: Folder, found: set[str]) -> Iterator[FieldFault]:
    body, here = document.body, PurePosixPath(document.file).parent
    wanted = _VERSIONS[document.kind]
    if text(body, "apiVersion") != wanted:
        yield FieldFault(
            field="apiVersion",
            value=at(body, "apiVersion"),
            what=f"is not that of a {document.kind}",
            cure=f"write {wanted}",
        )
    yield from _known_fields(body, _FIELDS, "")
    for name in ("resources", "components"):
        parts = at(body, name)
        seen = set[str]()
        for place, part in enumerate(parts if isinstance(parts, list) else []):
            path = join(name, place)
            if str(part) in seen:
                yield FieldFault(field=path, value=part, what="stands twice: kustomize refuses it", cure="list it once")
            seen.add(str(part))
            yield from _part(str(part), path, here, folder, found, components=name == "components")
    for name in ("configMapGenerator", "secretGenerator"):
        for place, generator in enumerate(listed(body, name)):
            yield from _known_fields(generator, _GENERATOR_FIELDS, join(name, place))
            files = at(generator, "files")
            for number_, file in enumerate(files if isinstance(files, list) else []):
                wanted_file = _normal(here / str(file).partition("=")[2] if "=" in str(file) else here / str(file))
                found.add(wanted_file)
                if not _is_file(folder.root / wanted_file):
                    yield _missing(join(name, place, "files", number_), file, wanted_file, folder)
    yield from _texts(body, "commonAnnotations")
    yield from _texts(body, "commonLabels")
    for place, patch in enumerate(listed(body, "patches")):
        yield from _patch(patch, join("patches", place), here, folder)


def _known_fields(body: Object, known: frozenset[str], path: str) -> Iterator[FieldFault]:
    for name in body:
        if name not in known:
            near = nearest(str(name), known)
            cure = f"write {near}" if near else f"take it out; there are {', '.join(sorted(known))}"
            yield FieldFault(
                field=join(path, str(name)), value=body[name], what="is no field that kustomize has", cure=cure
            )


def _texts(body: Object, name: str) -> Iterator[FieldFault]:
    stated = at(body, name)
    for key, value in stated.items() if isinstance(stated, Mapping) else ():
        if not isinstance(value, str):
            yield FieldFault(
                field=join(name, str(key)), value=value, what="is no text", cure=f'put it in quotes: "{value}"'
            )


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts = parts[:-1] if parts else [".."]
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _part(
    part: str, path: str, here: PurePosixPath, folder: Folder, found: set[str], *, components: bool
) -> Iterator[FieldFault]:
    if "://" in part or part.startswith(("git@", "github.com/")):
        return
    wanted = _normal(here / part)
    place = folder.root / wanted
    if _is_folder(place):
        if not any((place / name).is_file() for name in KUSTOMIZATIONS):
            yield FieldFault(field=path, value=part, what="is a folder without a kustomization", cure="list its files")
        found.add(wanted)
        return
    found.add(wanted)
    if not _is_file(place):
        yield _missing(path, part, wanted, folder)
    elif components:
        yield FieldFault(field=path, value=part, what="is a file, and components are folders", cure="name its folder")


def _is_file(place: Path) -> bool:
    """Return whether a file is there; a name that the system refuses to look up, one too long for it, is none."""
    try:
        return place.is_file()
    except OSError:
        return False


def _is_folder(place: Path) -> bool:
    """Return whether a folder is there, as `_is_file` does."""
    try:
        return place.is_dir()
    except OSError:
        return False


def _missing(path: str, value: object, wanted: str, folder: Folder) -> FieldFault:
    here = PurePosixPath(wanted).parent
    there = [
        file.relative_to(folder.root / here).as_posix()
        for file in sorted((folder.root / here).rglob("*"))
        if file.is_file()
    ]
    near = nearest(PurePosixPath(wanted).name, there, least_frac=0.6)
    cure = f"write {PurePosixPath(str(value)).parent / near}" if near else "add the file, or take the line out"
    return FieldFault(field=path, value=value, what="is not there: kustomize cannot build this", cure=cure)


def _patch(patch: Object, path: str, here: PurePosixPath, folder: Folder) -> Iterator[FieldFault]:
    yield from _known_fields(patch, _PATCH_FIELDS, path)
    target = at(patch, "target")
    if isinstance(target, Mapping):
        yield from _known_fields(target, _TARGET_FIELDS, join(path, "target"))
        for name in ("name", "kind", "namespace"):
            value = at(target, name)
            try:
                re.compile(str(value))
            except re.error as error:
                cure = "correct it, or escape what is meant literally"
                yield FieldFault(
                    field=join(path, "target", name), value=value, what=f"is no pattern: {error}", cure=cure
                )
    file = text(patch, "path")
    if file and not _is_file(folder.root / _normal(here / file)):
        yield _missing(join(path, "path"), file, _normal(here / file), folder)
    inline = at(patch, "patch")
    if inline is None:
        if not file:
            yield FieldFault(field=path, value=None, what="states neither patch nor path", cure="state one of them")
        return
    try:
        bodies = strict_yaml(str(inline))
    except yaml.YAMLError as error:
        said = str(getattr(error, "problem", error))
        yield FieldFault(field=join(path, "patch"), value=said, what="does not parse", cure="correct its YAML")
        return
    if len(bodies) != 1 or not isinstance(bodies[0], Mapping | list):
        yield FieldFault(
            field=join(path, "patch"),
            value=inline,
            what="is no one patch",
            cure="write an object or a list of operations",
        )
        return
    yield from _of_its_kind(bodies[0], target, join(path, "patch"))


def _of_its_kind(body: object, target: object, path: str) -> Iterator[FieldFault]:
    """Yield what is wrong with a patch against what it is for."""
    if isinstance(body, list):
        if target is None:
            yield FieldFault(field=path, value=None, what="is of operations and has no target", cure="state target")
        for place, operation in enumerate(body):
            name = text(operation, "op")
            if name not in _OPERATIONS:
                near = nearest(name, _OPERATIONS)
                yield FieldFault(
                    field=join(path, place, "op"),
                    value=name,
                    what="is no operation",
                    cure=f"write {near or 'add, remove or replace'}",
                )
            if not text(operation, "path").startswith("/"):
                yield FieldFault(
                    field=join(path, place, "path"),
                    value=at(operation, "path"),
                    what="is no path",
                    cure="begin it with /",
                )
            if name in ("add", "replace", "test") and isinstance(operation, Mapping) and "value" not in operation:
                yield FieldFault(field=join(path, place), value=None, what="lacks value", cure="state value")
        return
    kind, wanted = text(body, "kind"), text(target, "kind")
    if not kind or not text(body, "apiVersion"):
        yield FieldFault(field=path, value=None, what="lacks apiVersion or kind", cure="state both")
    if kind and wanted and kind != wanted:
        yield _unlike(kind, wanted, join(path, "kind"), "is not the kind of its target")
    name, pattern = text(body, "metadata", "name"), text(target, "name")
    if not name and not pattern:
        yield FieldFault(
            field=join(path, "metadata", "name"), value=None, what="names no object", cure="state metadata.name"
        )
    elif name and pattern:
        try:
            fits = re.fullmatch(pattern, name) is not None
        except re.error:
            return
        if not fits:
            yield _unlike(name, pattern, join(path, "metadata", "name"), "is not among its targets")


def _unlike(value: str, wanted: str, path: str, what: str) -> FieldFault:
    """Return the fault of a patch that says another thing than its target, which kustomize goes by: sure where it is a slip."""
    severity = Severity.ERROR if nearest(value, [wanted], least_frac=0.6) else Severity.WARNING
    return FieldFault(
        field=path, value=value, what=f"{what}, {wanted}", cure="write the same in both", severity=severity
    )


def _left_out(folder: Folder, found: set[str]) -> Iterator[ObjectFault]:
    """Yield the objects below a root's folder that are in no kustomization, so that they are never applied."""
    roots = {
        PurePosixPath(document.file).parent
        for document in folder.documents
        if document.kind == "Kustomization" and at(document.body, "resources") is not None
    }
    for document in folder.objects:
        path = PurePosixPath(document.file)
        near = next((root for root in path.parents if root in roots), None)
        if near is not None and document.file not in found and not any(str(parent) in found for parent in path.parents):
            what = f"is in no kustomization, and {near}/ has one: it is never applied"
            cure = f"list {path.relative_to(near)} under its resources"
            yield placed(document.file, document.called, FieldFault(field="", value=None, what=what, cure=cure))


def build_faults(folder: Folder) -> Iterator[ObjectFault]:
    """Yield the roots that kustomize cannot build; a warning where nothing here can build any."""
    for document in folder.documents:
        if document.kind != "Kustomization" or not document.is_of_kustomize:
            continue
        try:
            built = built_by_kustomize(folder.root / PurePosixPath(document.file).parent)
        except InputError as error:
            said = str(error).strip().splitlines()[-1]
            yield placed(
                document.file,
                document.called,
                FieldFault(field="", value=said, what="does not build", cure="see what kustomize says"),
            )
            continue
        if built is None and at(document.body, "resources") is not None:
            cure = "install kubectl or kustomize; its parts were checked without"
            found = FieldFault(field="", value=None, what="was not built", cure=cure, severity=Severity.WARNING)
            yield placed(document.file, document.called, found)
