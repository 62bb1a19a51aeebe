"""The files of a folder as documents: what does not parse is a fault of its own, and so is a key that stands twice.

YAML lets the last of two equal keys win without a word, and a Kubernetes server refuses both or drops one; here it is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import yaml

from trimtab.check.faults import FieldFault, ObjectFault, placed
from trimtab.errors import InputError
from trimtab.inputs.documents import load_json, yaml_documents
from trimtab.inputs.files import read_text
from trimtab.sources.kubernetes.manifests import NOT_APPLIED, OF_CHARTS, is_manifest
from trimtab.sources.kubernetes.objects import Object, text

KUSTOMIZE_GROUP = "kustomize.config.k8s.io"
KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a file."""

    file: str
    """Relative to the folder, with `/`."""
    body: Object

    @property
    def kind(self) -> str:
        """Return its kind; empty where it states none."""
        return text(self.body, "kind")

    @property
    def name(self) -> str:
        """Return its own name."""
        return text(self.body, "metadata", "name")

    @property
    def namespace(self) -> str:
        """Return the namespace that it states."""
        return text(self.body, "metadata", "namespace")

    @property
    def group(self) -> str:
        """Return the API group; empty for the core."""
        return text(self.body, "apiVersion").rpartition("/")[0]

    @property
    def called(self) -> str:
        """Return kind, namespace and name as one text."""
        return f"{self.kind} {'/'.join(part for part in (self.namespace, self.name) if part)}".strip()

    @property
    def is_of_kustomize(self) -> bool:
        """Return whether kustomize reads it and no server."""
        return self.kind in ("Kustomization", "Component") and not self.group.endswith("toolkit.fluxcd.io")

    @property
    def is_applied(self) -> bool:
        """Return whether it goes to a server with the rest, and not only to go back."""
        return not self.is_of_kustomize and not set(PurePosixPath(self.file).parts[:-1]) & NOT_APPLIED


@dataclass(slots=True, kw_only=True)
class Folder:
    """What a folder holds: documents with an object in them, values of charts, other JSON, and files by path."""

    root: Path
    documents: list[Document] = field(default_factory=list)
    values: list[Document] = field(default_factory=list)
    """Files of Helm values: not objects."""
    dashboards: list[Document] = field(default_factory=list)
    """JSON files without a kind."""
    faults: list[ObjectFault] = field(default_factory=list)

    @property
    def objects(self) -> list[Document]:
        """Return what a server would get."""
        return [document for document in self.documents if document.is_applied]


def strict_yaml(content: str) -> list[object]:
    """Return the documents of a YAML text; raises yaml.YAMLError where it is none, says a key twice or stands for too much."""
    return [document for document in yaml_documents(content) if document is not None]


def read_folder(folder: Path) -> Folder:
    """Read every manifest below a folder; raises InputError where there is none."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no folder; give the one that `trimtab emit` wrote, or one of manifests")
    files = sorted(path for path in folder.rglob("*") if is_manifest(path, folder, rollback=True))
    if not files:
        raise InputError(f"{folder}: no .yaml or .json files there; give the folder of manifests to check")
    found = Folder(root=folder)
    for path in files:
        file = path.relative_to(folder).as_posix()
        for body in _bodies(path, file, found):
            _take(found, path, file, body)
    return found


def _bodies(path: Path, file: str, found: Folder) -> list[object]:
    try:
        content = read_text(path)
        return [load_json(content, file)] if path.suffix == ".json" else strict_yaml(content)
    except (InputError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else getattr(error.__cause__, "lineno", None)
        said = str(getattr(error, "problem", None) or str(error).splitlines()[0])
        cure = "a chart has to be rendered first: helm template" if "{{" in said else "write it again as YAML or JSON"
        what = "does not parse" if line is None else f"does not parse at line {line}"
        found.faults.append(placed(file, "", FieldFault(field="", value=said, what=what, cure=cure)))
        return []


def _take(found: Folder, path: Path, file: str, body: object) -> None:
    if not isinstance(body, Mapping):
        what, cure = "is not an object", "an object has apiVersion, kind and metadata"
        found.faults.append(placed(file, "", FieldFault(field="", value=body, what=what, cure=cure)))
        return
    for item in _flat(body):
        document = Document(file=file, body=item)
        if path.stem.endswith(OF_CHARTS):
            found.values.append(document)
        elif path.suffix == ".json" and "kind" not in item:
            found.dashboards.append(document)
        elif path.name in KUSTOMIZATIONS and "kind" not in item and "apiVersion" not in item:
            # kustomize takes a file of this name without either
            kind = {"apiVersion": f"{KUSTOMIZE_GROUP}/v1beta1", "kind": "Kustomization"}
            found.documents.append(Document(file=file, body={**kind, **item}))
        else:
            found.documents.append(document)


def _flat(body: Object) -> Iterator[Object]:
    items = body.get("items")
    if text(body, "kind").endswith("List") and isinstance(items, list):
        yield from (item for item in items if isinstance(item, Mapping))
    else:
        yield body
