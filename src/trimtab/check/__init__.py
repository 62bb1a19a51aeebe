"""Check a folder of manifests before anything is applied, and compare it with the objects of a cluster.

Checked as a whole: every file, object, patch, query and reference, with every fault at once. And what applying it would change:
its objects beside those of a cluster or of another folder, field by field. What a server fills in (status, uid, defaults that
the folder leaves out) is no difference: of an object that both have, the fields that the folder states are compared, as
`kubectl apply` would set them; numbers by value where both are quantities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from trimtab.catalog.registry import Catalog
from trimtab.check.cluster import Cluster, Key, key_of, read_cluster
from trimtab.check.documents import Folder, read_folder
from trimtab.check.faults import FieldFault, ObjectFault, Severity, join, placed, shown
from trimtab.check.kustomizations import Patch, build_faults, kustomization_faults, patches_of
from trimtab.check.objects import object_faults
from trimtab.check.queries import query_faults
from trimtab.check.references import World, reference_faults
from trimtab.check.scheduling import scheduling_faults
from trimtab.check.schemas import Schemas, cel_faults, kind_faults, schema_faults
from trimtab.errors import InputError
from trimtab.sources.kubernetes.objects import Object, quantity, text

__all__ = [
    "CheckResult",
    "Cluster",
    "Difference",
    "ObjectFault",
    "Schemas",
    "Severity",
    "check_folder",
    "differences",
    "read_cluster",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a check found."""

    objects: int
    patches: int
    faults: tuple[ObjectFault, ...]

    @property
    def errors(self) -> tuple[ObjectFault, ...]:
        """Return the faults for which the folder must not be applied as it is."""
        return tuple(found for found in self.faults if found.severity is Severity.ERROR)


def check_folder(
    folder: Path,
    catalog: Catalog,
    *,
    cluster: Cluster | None = None,
    schemas: Schemas | None = None,
    build: bool = True,
) -> CheckResult:
    """Check every manifest below a folder; `build`: also by kustomize or kubectl, where one is installed.

    Raises InputError where there is nothing to check, UsageError where a package that it needs is not installed.
    """
    read, known = read_folder(folder), schemas or Schemas()
    kinds = frozenset(kind for _, kind in known.known())
    world = World(folder=read, patches=patches_of(read), cluster=cluster, catalog=catalog, kinds=kinds)
    faults = [*read.faults, *_objects(read, known, catalog), *_patches(world.patches, known, catalog)]
    faults += [*kustomization_faults(read), *reference_faults(world), *scheduling_faults(world), *query_faults(world)]
    if build:
        faults += build_faults(read)
    order = dict.fromkeys(sorted(faults, key=lambda found: (found.severity.value, found.file, found.field)))
    return CheckResult(objects=len(read.documents), patches=len(world.patches), faults=tuple(order))


def _objects(folder: Folder, schemas: Schemas, catalog: Catalog) -> Iterator[ObjectFault]:
    for document in folder.documents:
        if not document.is_of_kustomize:
            for found in _object(document.body, schemas, catalog):
                yield placed(document.file, document.called or "an object without a name", found)


def _object(body: Object, schemas: Schemas, catalog: Catalog, *, partial: bool = False) -> Iterator[FieldFault]:
    version, kind = text(body, "apiVersion"), text(body, "kind")
    if not version or not kind:
        lacking = "apiVersion" if not version else "kind"
        yield FieldFault(field=lacking, value=body.get(lacking), what="is not stated", cure=f"state {lacking}")
        return
    yield from kind_faults(version, kind, schemas)
    schema = schemas.of(version, kind)
    mistyped = list(schema_faults(schema, body, partial=partial))
    yield from mistyped
    if not partial:
        yield from cel_faults(schema, body, broken={fault.field for fault in mistyped})
    try:
        yield from object_faults(kind, body, catalog, partial=partial)
    except InputError as error:
        yield FieldFault(field="", value=str(error), what="cannot be read", cure="correct the schema")


def _patches(patches: list[Patch], schemas: Schemas, catalog: Catalog) -> Iterator[ObjectFault]:
    for patch in patches:
        if patch.body is not None:
            for found in _object(patch.body, schemas, catalog, partial=True):
                field = f"{patch.path}:{found.field}" if found.field else patch.path
                moved = FieldFault(
                    field=field, value=found.value, what=found.what, cure=found.cure, severity=found.severity
                )
                yield placed(patch.document.file, patch.document.called, moved)


_KEYS = ("name", "key", "type", "record", "alert", "topologyKey", "containerPort", "mountPath")
"""Fields by which items of a list are known, the surest first; else they are compared place by place."""
_OF_SERVER = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "ownerReferences"}
)
_MANAGER = "app.kubernetes.io/managed-by"
_OURS = "trimtab"


class ObjectChange(Enum):
    """What would become of an object."""

    NEW = "new"
    SAME = "same"
    CHANGED = "changed"
    ONLY_THERE = "only there"
    """It carries trimtab's label and is not in the folder: applying does not take it away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """One field: empty where it is not stated."""

    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What applying would do to one object."""

    object: str
    file: str
    change: ObjectChange
    fields: tuple[FieldChange, ...] = ()


def differences(folder: Folder, cluster: Cluster) -> list[Difference]:
    """Return what applying a folder would change, and objects that trimtab manages there and the folder lacks."""
    mine: dict[Key, tuple[str, Object]] = {
        key_of(document.body): (document.file, document.body) for document in folder.objects if document.kind
    }
    found = []
    for key, (file, body) in mine.items():
        there = cluster.objects.get(key)
        if there is None:
            found.append(Difference(object=_called(key), file=file, change=ObjectChange.NEW))
            continue
        fields = tuple(_changed(there, body, ""))
        found.append(
            Difference(
                object=_called(key),
                file=file,
                change=ObjectChange.CHANGED if fields else ObjectChange.SAME,
                fields=fields,
            )
        )
    for key, there in cluster.objects.items():
        if key not in mine and _is_ours(there):
            found.append(Difference(object=_called(key), file="", change=ObjectChange.ONLY_THERE))
    return sorted(found, key=lambda difference: (list(ObjectChange).index(difference.change), difference.object))


def _called(key: Key) -> str:
    return f"{key[1]} {'/'.join(part for part in key[2:] if part)}"


def _is_ours(body: Object) -> bool:
    metadata = body.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    return isinstance(labels, Mapping) and labels.get(_MANAGER) == _OURS


def _changed(before: object, after: object, path: str) -> Iterator[FieldChange]:
    if isinstance(after, Mapping):
        there = before if isinstance(before, Mapping) else {}
        for name, value in after.items():
            if not (path == "metadata" and name in _OF_SERVER) and not (not path and name == "status"):
                yield from _changed(there.get(name), value, join(path, str(name)))
    elif isinstance(after, list) and isinstance(before, list):
        yield from _items(before, after, path)
    elif not _equal(before, after):
        yield FieldChange(field=path, before=shown(before), after=shown(after))


def _items(before: list[object], after: list[object], path: str) -> Iterator[FieldChange]:
    by = next((name for name in _KEYS if _keyed(before, name) and _keyed(after, name)), None)
    if by is None:
        for place in range(max(len(before), len(after))):
            first = before[place] if place < len(before) else None
            second = after[place] if place < len(after) else None
            if second is None and first is not None:
                yield FieldChange(field=join(path, place), before=shown(first), after="")
            else:
                yield from _changed(first, second, join(path, place))
        return
    old = {item[by]: item for item in before if isinstance(item, Mapping)}
    new = {item[by]: item for item in after if isinstance(item, Mapping)}
    for key, item in new.items():
        yield from _changed(old.get(key), item, f"{path}[{by}={key}]")
    for key in old.keys() - new.keys():
        yield FieldChange(field=f"{path}[{by}={key}]", before=shown(old[key]), after="")


def _keyed(items: list[object], name: str) -> bool:
    keys = [item.get(name) if isinstance(item, Mapping) else None for item in items]
    return bool(items) and None not in keys and len(set(map(str, keys))) == len(keys)


def _equal(before: object, after: object) -> bool:
    if before == after and type(before) is type(after):
        return True
    first, second = quantity(before), quantity(after)
    return first is not None and first == second and not isinstance(before, bool) and not isinstance(after, bool)
