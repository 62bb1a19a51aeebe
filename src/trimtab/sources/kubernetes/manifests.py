"""Manifests as people keep them: folders of YAML, kustomizations, and shell scripts that make node groups.

In a script, `aws eks create-nodegroup`, `gcloud container node-pools create` and `az aks nodepool add` (their reference
pages) become a Nodegroup (AWS Controllers for Kubernetes), a ContainerNodePool (Config Connector) and a
ManagedClustersAgentPool (Azure Service Operator). Nothing is run: a value that a variable gives stays as it is written.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trimtab.errors import InputError
from trimtab.sources.kubernetes.objects import Object, documents_of, yaml_documents

_KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
_SCRIPT = ".sh"
_EMITTED = "APPLY.md"
"""By which a folder of `trimtab emit` is known: a plan may ask for nothing but what pages say, and then has no objects."""
NOT_APPLIED = frozenset({"rollback"})
"""Folders of what was there before, which `trimtab emit` writes: they are not applied with a change."""
OF_CHARTS = "values"
"""How files of Helm values end: they are no objects."""
_BUILDERS = (("kustomize", "build"), ("kubectl", "kustomize"))
_LIMIT_S = 120
_TEMPLATED = "{{"


def read_manifests(folder: Path) -> Iterator[tuple[str, object]]:
    """Yield every document of a folder with the name of its file; raises InputError where no object is, or one is not YAML.

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
        else sorted(
            path for path in folder.rglob("*") if is_manifest(path, folder) and not path.stem.endswith(OF_CHARTS)
        )
    )
    is_emitted = (folder / _EMITTED).is_file()
    if not files and not is_emitted:
        raise InputError(
            f"{folder}: no .yaml or .json files there; give the folder of manifests that a change would apply"
        )
    are_objects = False
    for file in files:
        where = file.name if folder.is_file() else str(file.relative_to(folder))
        for document in _manifest_documents(file):
            are_objects |= file.name in _KUSTOMIZATIONS or (isinstance(document, Mapping) and "kind" in document)
            yield where, document
    for script in sorted(folder.rglob(f"*{_SCRIPT}")) if folder.is_dir() else ():
        if _is_read(script, folder, rollback=False):
            for group in node_groups_of(script.read_text(encoding="utf-8", errors="replace")):
                are_objects = True
                yield str(script.relative_to(folder)), group
    if not are_objects and not is_emitted:
        raise InputError(f"{folder}: no Kubernetes objects there; give the manifests that a change would apply")


def _manifest_documents(file: Path) -> list[object]:
    try:
        return list(documents_of(file))
    except InputError as error:
        if _TEMPLATED in file.read_text(encoding="utf-8", errors="replace"):
            raise InputError(f"{file}: a template; render the chart first: helm template . > rendered.yaml") from error
        raise


def is_manifest(path: Path, folder: Path, *, rollback: bool = False) -> bool:
    """Return whether a path below a folder is a file that may hold objects; what is there to go back only with `rollback`."""
    return path.suffix in _MANIFEST_SUFFIXES and _is_read(path, folder, rollback=rollback)


def _is_read(path: Path, folder: Path, *, rollback: bool) -> bool:
    folders = path.relative_to(folder).parts[:-1]
    hidden = any(part.startswith(".") for part in folders) or path.name.startswith(".")
    passed_over = not rollback and any(part in NOT_APPLIED for part in folders)
    return path.is_file() and not hidden and not passed_over


def built_by_kustomize(folder: Path) -> str | None:
    """Return what kustomize makes of a folder; None where it is no kustomization of resources, or nothing here can build it."""
    file = next((folder / name for name in _KUSTOMIZATIONS if (folder / name).is_file()), None)
    if file is None or not any(
        "resources" in document for document in documents_of(file) if isinstance(document, dict)
    ):
        return None
    builder = next((command for command in _BUILDERS if shutil.which(command[0])), None)
    if builder is None:
        return None
    done = subprocess.run([*builder, str(folder)], capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    if done.returncode:
        raise InputError(f"{folder}: {builder[0]} cannot build it: {done.stderr.strip()}")
    return done.stdout


_EKS = ("aws", "eks", "create-nodegroup")
_GKE = ("gcloud", "container", "node-pools", "create")
_AKS = ("az", "aks", "nodepool", "add")
_EFFECTS: Mapping[str, str] = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}
"""How EKS spells a taint's effect (API, Taint)."""
_Options = Mapping[str, tuple[str, ...]]


def node_groups_of(script: str) -> Iterator[Object]:
    """Yield an object for each command of a script that makes a node group."""
    for line in script.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue  # a quote that goes on in the next line: no command that is known here has one
        for command, read in ((_EKS, _eks), (_GKE, _gke), (_AKS, _aks)):
            if tuple(words[: len(command)]) == command:
                yield read(words[len(command) :])


def _options(words: Sequence[str]) -> _Options:
    """Return the values of each option; a flag has none. What stands before the first option is under ""."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, given, value = word.partition("=")
            found[name] = [value] if given else []
        else:
            found[name].append(word)
    return {key: tuple(values) for key, values in found.items()}


def _first(options: _Options, *names: str) -> str:
    return next((options[name][0] for name in names if options.get(name)), "")


def _pairs(text: str) -> dict[str, str]:
    """Return `a=b,c=d` as a mapping."""
    return {key: value for key, given, value in (item.partition("=") for item in text.split(",")) if given}


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _taint(text: str) -> Object:
    """Return a taint that is written `key=value:Effect`."""
    said, _, effect = text.rpartition(":")
    key, _, value = said.partition("=")
    return {"key": key, "value": value, "effect": effect}


def _eks(words: Sequence[str]) -> Object:
    options = _options(words)
    sizes = _pairs(_first(options, "--scaling-config"))
    taints = [_pairs(text) for text in options.get("--taints", ())]
    return {
        "apiVersion": "eks.services.k8s.aws/v1alpha1",
        "kind": "Nodegroup",
        "metadata": {"name": _first(options, "--nodegroup-name")},
        "spec": {
            "name": _first(options, "--nodegroup-name"),
            "instanceTypes": [name for text in options.get("--instance-types", ()) for name in text.split(",")],
            "capacityType": _first(options, "--capacity-type") or "ON_DEMAND",
            "scalingConfig": {key: _count(value) for key, value in sizes.items()},
            "labels": _pairs(_first(options, "--labels")),
            "taints": [{**taint, "effect": _EFFECTS.get(taint.get("effect", ""), "")} for taint in taints],
        },
    }


def _gke(words: Sequence[str]) -> Object:
    options = _options(words)
    scaled = "--enable-autoscaling" in options
    return {
        "apiVersion": "container.cnrm.cloud.google.com/v1beta1",
        "kind": "ContainerNodePool",
        "metadata": {"name": _first(options, "")},
        "spec": {
            "initialNodeCount": _count(_first(options, "--num-nodes")),
            "autoscaling": {
                "totalMinNodeCount": _count(_first(options, "--total-min-nodes")),
                "totalMaxNodeCount": _count(_first(options, "--total-max-nodes")),
                "minNodeCount": _count(_first(options, "--min-nodes")),
                "maxNodeCount": _count(_first(options, "--max-nodes")),
            }
            if scaled
            else None,
            "nodeConfig": {
                "machineType": _first(options, "--machine-type", "-m"),
                "spot": "--spot" in options or "--preemptible" in options,
                "guestAccelerator": [_accelerator(_pairs(text)) for text in options.get("--accelerator", ())],
                "labels": _pairs(_first(options, "--node-labels")),
                "taint": [_taint(text) for text in _first(options, "--node-taints").split(",") if text],
            },
        },
    }


def _accelerator(said: Mapping[str, str]) -> Object:
    """Return GPUs of a node pool of GKE as Config Connector spells them."""
    strategy, clients = said.get("gpu-sharing-strategy", ""), said.get("max-shared-clients-per-gpu", "")
    shared = {"gpuSharingStrategy": strategy.upper().replace("-", "_"), "maxSharedClientsPerGpu": _count(clients)}
    return {
        "type": said.get("type", ""),
        "count": _count(said.get("count", "")),
        "gpuPartitionSize": said.get("gpu-partition-size", ""),
        "gpuSharingConfig": shared if strategy else None,
    }


def _aks(words: Sequence[str]) -> Object:
    options = _options(words)
    return {
        "apiVersion": "containerservice.azure.com/v1api20240901",
        "kind": "ManagedClustersAgentPool",
        "metadata": {"name": _first(options, "--name", "--nodepool-name")},
        "spec": {
            "vmSize": _first(options, "--node-vm-size"),
            "count": _count(_first(options, "--node-count")),
            "enableAutoScaling": "--enable-cluster-autoscaler" in options,
            "minCount": _count(_first(options, "--min-count")),
            "maxCount": _count(_first(options, "--max-count")),
            "scaleSetPriority": _first(options, "--priority") or "Regular",
            "nodeLabels": {key: value for text in options.get("--labels", ()) for key, value in _pairs(text).items()},
            "nodeTaints": [item for text in options.get("--node-taints", ()) for item in text.split(",")],
        },
    }
