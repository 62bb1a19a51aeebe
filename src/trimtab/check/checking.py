"""The check of a folder as a whole: every file, object, patch, query and reference, with every fault at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trimtab.catalog.registry import Catalog
from trimtab.check.cluster import Cluster
from trimtab.check.documents import Document, Folder, read_folder
from trimtab.check.faults import FieldFault, ObjectFault, Severity, placed
from trimtab.check.kustomizations import Patch, build_faults, kustomization_faults, patches_of
from trimtab.check.objects import object_faults
from trimtab.check.queries import query_faults
from trimtab.check.references import World, reference_faults
from trimtab.check.scheduling import scheduling_faults
from trimtab.check.schemas import Schemas, cel_faults, kind_faults, schema_faults
from trimtab.errors import InputError
from trimtab.sources.kubernetes.objects import Object, text


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
                yield placed(document.file, _called(document), found)


def _called(document: Document) -> str:
    return document.called or "an object without a name"


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
        yield FieldFault(field="", value=str(error), what="cannot be read", cure="mend what its schema says")


def _patches(patches: list[Patch], schemas: Schemas, catalog: Catalog) -> Iterator[ObjectFault]:
    for patch in patches:
        if patch.body is not None:
            for found in _object(patch.body, schemas, catalog, partial=True):
                field = f"{patch.path}:{found.field}" if found.field else patch.path
                moved = FieldFault(
                    field=field, value=found.value, what=found.what, cure=found.cure, severity=found.severity
                )
                yield placed(patch.document.file, patch.document.called, moved)
