"""Kubernetes objects as they come: from `kubectl get -o json` dumps, manifests or an API server, sorted by kind; quantities.

An object is kept as plain mappings; the functions here read a path of keys and never fail on a shape that is not as expected,
because a custom resource of another version must not stop a collect. What is not read is counted with its reason.

Quantities (`250m`, `64Gi`, `1e3`):
kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity (the suffixes and their meaning).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from trimtab.errors import InputError
from trimtab.inputs.documents import check_depth, load_yaml_documents
from trimtab.inputs.files import read_text
from trimtab.units import as_utc

Object = Mapping[str, object]

_KUEUE = {"kueue.x-k8s.io": ("v1beta2", "v1beta1")}
_DRA = {"resource.k8s.io": ("v1", "v1beta2", "v1beta1")}
"""Dynamic resource allocation of Kubernetes 1.34, 1.33 and 1.32."""
KINDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Node": {"": ("v1",)},
    "Pod": {"": ("v1",)},
    "Namespace": {"": ("v1",)},
    "Event": {"": ("v1",)},
    "PersistentVolumeClaim": {"": ("v1",)},
    "ResourceQuota": {"": ("v1",)},
    "LimitRange": {"": ("v1",)},
    "ReplicaSet": {"apps": ("v1",)},
    "Deployment": {"apps": ("v1",)},
    "StatefulSet": {"apps": ("v1",)},
    "DaemonSet": {"apps": ("v1",)},
    "Job": {"batch": ("v1",), "batch.volcano.sh": ("v1alpha1",)},
    "CronJob": {"batch": ("v1",)},
    "PodDisruptionBudget": {"policy": ("v1",)},
    "HorizontalPodAutoscaler": {"autoscaling": ("v2",)},
    "ScaledObject": {"keda.sh": ("v1alpha1",)},
    "NodePool": {"karpenter.sh": ("v1", "v1beta1")},
    "RayCluster": {"ray.io": ("v1",)},
    "ClusterQueue": _KUEUE,
    "LocalQueue": _KUEUE,
    "ResourceFlavor": _KUEUE,
    "Workload": _KUEUE,
    "Queue": {"scheduling.volcano.sh": ("v1beta1",)},
    "PodGroup": {"scheduling.volcano.sh": ("v1beta1",)},
    "ResourceClaim": _DRA,
    "ResourceClaimTemplate": _DRA,
    "ResourceSlice": _DRA,
    "DeviceClass": _DRA,
}
"""Kinds that are read, by API group with the versions that are known, the newest first; owners of any other kind are known by
their name. Objects of other versions are read as far as they look alike, and counted."""

MANAGER_CONFIG = "controller_manager_config.yaml"
"""Key by which a ConfigMap holds a controller's configuration. No other ConfigMap is kept; a live cluster is asked for none."""

_FILES = (".json", ".yaml", ".yml")


@dataclass(slots=True, kw_only=True)
class Objects:
    """Objects by kind, how many were read, and what was left out by reason."""

    by_kind: dict[str, dict[tuple[str, str, str], Object]] = field(default_factory=dict)
    """Kind -> (API group, namespace, name) -> object; of two with one name the later stands."""
    read: int = 0
    counts: dict[str, int] = field(default_factory=dict)

    def of(self, kind: str, group: str | None = None) -> Iterator[Object]:
        """Return the objects of a kind (of one API group), ordered by namespace and name."""
        for key, found in sorted(self.by_kind.get(kind, {}).items(), key=lambda item: item[0]):
            if group is None or key[0] == group:
                yield found

    def count(self, reason: str, number: int = 1) -> None:
        """Add to a reason."""
        if number:
            self.counts[reason] = self.counts.get(reason, 0) + number

    def take(self, document: object, kind: str = "") -> None:
        """Take an object, or the items of a list; `kind` is that of an item which does not say it."""
        if not isinstance(document, Mapping):
            self.read += 1
            self.count("items that are no objects")
            return
        own = text(document, "kind")
        items = document.get("items")
        if isinstance(items, Sequence) and not isinstance(items, str) and (own.endswith("List") or not own):
            for item in items:
                self.take(item, own.removesuffix("List"))
            return
        self._take_one(document, own or kind)

    def _take_one(self, item: Object, kind: str) -> None:
        self.read += 1
        group, _, version = text(item, "apiVersion").rpartition("/")
        namespace, name = text(item, "metadata", "namespace"), text(item, "metadata", "name")
        if not kind or not name:
            self.count("objects without a kind or a name")
        elif kind == "ConfigMap" and text(item, "data", MANAGER_CONFIG):
            self.by_kind.setdefault(kind, {})[group, namespace, name] = item
        elif kind not in KINDS or (group and group not in KINDS[kind]):
            self.count(f"{kind} objects, which are not read")
        else:
            mine = self.by_kind.setdefault(kind, {})
            group = group or next(iter(KINDS[kind]))
            if version and version not in KINDS[kind][group]:
                self.count(f"{kind} objects of {group}/{version}, a version unknown to trimtab: fields may be missed")
            key = (group, namespace, name)
            if key in mine:
                self.count(f"{kind} objects that came twice")
            mine[key] = item

    @property
    def kept(self) -> int:
        """Return how many objects are held."""
        return sum(len(objects) for objects in self.by_kind.values())


def at(value: object, *path: str) -> object:
    """Return what stands under a path of keys, or None."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def text(value: object, *path: str) -> str:
    """Return the text under a path of keys; empty where there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def texts(value: object, *path: str) -> list[str]:
    """Return the texts of the list under a path of keys that are not empty; none where there is no list."""
    found = at(value, *path)
    return [item for item in found if isinstance(item, str) and item] if isinstance(found, list) else []


def namespace_and_name(value: object) -> tuple[str, str]:
    """Return the namespace and the name of an object."""
    return text(value, "metadata", "namespace"), text(value, "metadata", "name")


def number(value: object, *path: str) -> float | None:
    """Return the number under a path of keys, or None."""
    found = at(value, *path)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def mapping(source: object, *path: str) -> dict[str, str]:
    """Return the texts of the mapping under a path of keys; other values are left out."""
    found = at(source, *path)
    if not isinstance(found, Mapping):
        return {}
    return {key: value for key, value in found.items() if isinstance(key, str) and isinstance(value, str)}


def listed(value: object, *path: str) -> list[Object]:
    """Return the objects of the list under a path of keys."""
    found = at(value, *path)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def selects(selector: object, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector takes an object with such labels: an empty one takes all, one that is not there none.

    Source: kubernetes.io/docs/concepts/overview/working-with-objects/labels, "Resources that support set-based requirements".
    """
    if not isinstance(selector, Mapping):
        return False
    wanted = mapping(selector, "matchLabels").items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _meets(need, labels.get(text(need, "key"))) for need in listed(selector, "matchExpressions")
    )


def _meets(need: Object, value: str | None) -> bool:
    named = at(need, "values")
    values = [str(each) for each in named] if isinstance(named, list) else []
    match text(need, "operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:  # an API server refuses others
            return False


def moment_at(value: object, *path: str) -> datetime | None:
    """Return the moment under a path of keys, in UTC; None where there is none that is understood."""
    found = at(value, *path)
    if isinstance(found, datetime):
        return as_utc(found)
    try:
        parsed = datetime.fromisoformat(found) if isinstance(found, str) else None
    except ValueError:
        return None
    return parsed.astimezone(UTC) if parsed is not None and parsed.tzinfo is not None else None


def condition(source: object, kind: str, status: str = "True") -> Object | None:
    """Return an object's condition of a type that has a status, or None."""
    found = (item for item in listed(source, "status", "conditions") if item.get("type") == kind)
    return next((item for item in found if item.get("status") == status), None)


def read_dumps(paths: Iterable[Path]) -> Objects:
    """Read `kubectl get -o json` (or yaml) dumps: files, or folders of them.

    A file may hold one object, a list, or one JSON object after another. Raises InputError where a path holds nothing to read
    or a file is cut short.
    """
    objects = Objects()
    for path in paths:
        for file in _files(path):
            for document in documents_of(file):
                objects.take(document)
    return objects


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in _FILES and file.is_file())
    if not found:
        raise InputError(
            f"{path}: no .json or .yaml files there; write some with: kubectl get nodes,pods -A -o json > dump.json"
        )
    return found


def documents_of(path: Path) -> Iterator[object]:
    """Yield the documents of a JSON or YAML file; raises InputError where it is empty, or cut short."""
    content = read_text(path)
    if not content.strip():
        raise InputError(f"{path}: the file is empty; did kubectl fail? write it again with: kubectl get ... -o json")
    if path.suffix in (".yaml", ".yml"):
        yield from yaml_documents(path, content)
    else:
        yield from json_documents(content, str(path))


def yaml_documents(path: Path, content: str) -> Iterator[object]:
    """Yield the documents of a YAML text that are not empty; raises InputError naming the path."""
    yield from (document for document in load_yaml_documents(content, str(path)) if document is not None)


def json_documents(content: str, where: str) -> Iterator[object]:
    """Return the JSON values that stand one after another in a text; raises InputError naming the line that is none."""
    decoder = json.JSONDecoder()
    position = 0
    while position < len(content):
        if content[position].isspace():
            position += 1
            continue
        try:
            document, position = decoder.raw_decode(content, position)
        except (ValueError, RecursionError) as error:
            line = content.count("\n", 0, getattr(error, "pos", position)) + 1
            cut = content[position : position + 40].splitlines()[0] if content[position:] else ""
            raise InputError(
                f"{where} line {line}: not JSON ({error}), near {cut!r}; the file is cut short or is a table: "
                "write it again with -o json"
            ) from error
        check_depth(document, where)
        yield document


_QUANTITY = re.compile(r"^\s*(?P<number>[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?)(?P<suffix>[A-Za-z]{0,2})\s*$")
_SUFFIXES = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 10.0**9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


def quantity(value: object) -> float | None:
    """Return a quantity as a number in its base unit (cores, bytes, pieces); None where it is none.

    >>> quantity("250m"), quantity("1Ki"), quantity(8), quantity("lots")
    (0.25, 1024.0, 8.0, None)
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    matched = _QUANTITY.match(str(value))
    if matched is None or matched["suffix"] not in _SUFFIXES:
        return None
    number = float(matched["number"]) * _SUFFIXES[matched["suffix"]]
    return number if math.isfinite(number) and number >= 0 else None
