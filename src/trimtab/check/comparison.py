"""What applying a folder would change: its objects beside those of a cluster or of another folder, field by field.

What a server fills in (status, uid, defaults that the folder leaves out) is no difference: of an object that both have, the
fields that the folder states are compared, as `kubectl apply` would set them; numbers by value where both are quantities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from trimtab.check.cluster import Cluster, Key, key_of
from trimtab.check.documents import Folder
from trimtab.check.faults import join, shown
from trimtab.sources.kubernetes.objects import Object, quantity

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


def differences(folder: Folder, cluster: Cluster, *, everything: bool = False) -> list[Difference]:
    """Return what applying a folder would change; `everything`: objects that are only there count whoever manages them."""
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
        if key not in mine and (everything or _is_ours(there)):
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
