"""Manifests as they lie in a folder: YAML or JSON, or what kustomize builds of one that is a kustomization."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from trimtab.errors import InputError
from trimtab.sources.kube_objects import documents_of, yaml_documents
from trimtab.sources.node_group_scripts import node_groups_of

_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_FILES = (".yaml", ".yml", ".json")
_SCRIPT = ".sh"
_EMITTED = "APPLY.md"
"""By which a folder of `trimtab emit` is known: a plan may ask for nothing but what pages say, and then has no objects."""
NOT_APPLIED = frozenset({"rollback"})
"""Folders of what was there before, which `trimtab emit` writes: nobody applies them with a change."""
OF_CHARTS = "values"
"""How files of Helm values end: they are no objects."""
_BUILDERS = (("kustomize", "build"), ("kubectl", "kustomize"))
_LIMIT_S = 120
_TEMPLATED = "{{"


def read_manifests(folder: Path) -> Iterator[tuple[str, object]]:
    """Yield every document of a folder with the name of its file; raises InputError where there is none, or one is not YAML.

    A folder with a kustomization of resources is built where `kustomize` or `kubectl` is installed; else its files are read one
    by one, and patches for what they set, and after them its shell scripts, for commands that make node groups; Helm values and
    folders named `rollback` are passed over. Charts have to be rendered first (`helm template`).
    """
    built = built_by_kustomize(folder)
    if built is not None:
        yield from ((f"{folder.name} (built)", document) for document in yaml_documents(folder, built))
        return
    files = (
        [folder]
        if folder.is_file()
        else sorted(one for one in folder.rglob("*") if is_manifest(one, folder) and not one.stem.endswith(OF_CHARTS))
    )
    if not files and not (folder / _EMITTED).is_file():
        raise InputError(
            f"{folder}: no .yaml or .json files there; give the folder of manifests that a change would apply"
        )
    for file in files:
        where = file.name if folder.is_file() else str(file.relative_to(folder))
        yield from ((where, document) for document in _documents(file))
    for script in sorted(folder.rglob(f"*{_SCRIPT}")) if folder.is_dir() else ():
        if _is_read(script, folder, rollback=False):
            said = script.read_text(encoding="utf-8", errors="replace")
            yield from ((str(script.relative_to(folder)), group) for group in node_groups_of(said))


def _documents(file: Path) -> list[object]:
    try:
        return list(documents_of(file))
    except InputError as error:
        if _TEMPLATED in file.read_text(encoding="utf-8", errors="replace"):
            raise InputError(f"{file}: a template; render the chart first: helm template . > rendered.yaml") from error
        raise


def is_manifest(path: Path, folder: Path, *, rollback: bool = False) -> bool:
    """Tell whether a path below a folder is a file that may hold objects; what is there to go back only with `rollback`."""
    return path.suffix in _FILES and _is_read(path, folder, rollback=rollback)


def _is_read(path: Path, folder: Path, *, rollback: bool) -> bool:
    folders = path.relative_to(folder).parts[:-1]
    hidden = any(part.startswith(".") for part in folders) or path.name.startswith(".")
    passed_over = not rollback and any(part in NOT_APPLIED for part in folders)
    return path.is_file() and not hidden and not passed_over


def built_by_kustomize(folder: Path) -> str | None:
    """Return what kustomize makes of a folder; None where it is no kustomization of resources, or nothing here can build it."""
    file = next((folder / name for name in _KUSTOMIZATIONS if (folder / name).is_file()), None)
    if file is None or not any("resources" in one for one in documents_of(file) if isinstance(one, dict)):
        return None
    builder = next((one for one in _BUILDERS if shutil.which(one[0])), None)
    if builder is None:
        return None
    done = subprocess.run([*builder, str(folder)], capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode:
        raise InputError(f"{folder}: {builder[0]} cannot build it: {done.stderr.strip()}")
    return done.stdout
