"""Mistakes as people make them in manifests: a mutator that knows YAML, names of fields, PromQL's spelling and no check.

Nothing of `trimtab.check` is imported here. A class of mistakes is a function that takes a folder's files and a random
generator and makes one mistake in a copy, or gives None where the folder has no place for it. What a mutation leaves equal is
told apart by `meaning`: parsed, without comments and order, quantities by value.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

Files = dict[str, str]
Path = tuple[str | int, ...]
FREE = frozenset({
    "labels", "annotations", "nodeSelector", "data", "matchLabels", "limits", "requests", "metadata/", "commonAnnotations",
    "capacity", "patch",
})  # fmt: skip
"""Maps whose keys a writer chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A folder with one mistake in it."""

    said: str
    files: Files


class Place:
    """One object of a file (or inside a patch), and a way to write the file with the object changed."""

    def __init__(self, files: Files, file: str, index: int, patch: int | None) -> None:
        self.files, self.file, self.index, self.patch = files, file, index, patch

    @property
    def documents(self) -> list[Any]:
        return list(loaded(self.files[self.file]))

    @property
    def body(self) -> Any:
        body = self.documents[self.index]
        return body if self.patch is None else next(iter(loaded(body["patches"][self.patch]["patch"])))

    def written(self, body: Any, said: str) -> Mistake:
        """Return the folder in which this object is another."""
        documents = self.documents
        if self.patch is None:
            documents[self.index] = body
        else:
            documents[self.index]["patches"][self.patch]["patch"] = yaml.safe_dump(body, sort_keys=False)
        text = yaml.safe_dump_all(documents, sort_keys=False)
        return Mistake(said=f"{self.file}: {said}", files={**self.files, self.file: text})


_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@lru_cache(maxsize=512)
def _parsed(text: str) -> list[Any]:
    return list(yaml.load_all(text, Loader=_LOADER))


def loaded(text: str) -> list[Any]:
    """Return the documents of a text, for the caller to change."""
    return copy.deepcopy(_parsed(text))


def places(files: Files, *kinds: str, patches: bool = False) -> list[Place]:
    """Return every object of a folder that is applied (of some kinds), and with `patches` what patches lay on others."""
    found = []
    for file in sorted(files):
        if not file.endswith(".yaml") or file.startswith(("rollback/", "helm/")):
            continue
        for index, body in enumerate(loaded(files[file])):
            kind = body.get("kind", "")
            if kind not in ("Component", "Kustomization") and (not kinds or kind in kinds):
                found.append(Place(files, file, index, None))
            for number, patch in enumerate(body.get("patches", ()) if patches and kind == "Component" else ()):
                inner = next(iter(loaded(patch["patch"])))
                if isinstance(inner, dict) and (not kinds or inner.get("kind") in kinds):
                    found.append(Place(files, file, index, number))
    return found


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every value below a value with its path."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield (*path, key), child
            yield from walk(child, (*path, key))
    elif isinstance(value, list):
        for place, child in enumerate(value):
            yield (*path, place), child
            yield from walk(child, (*path, place))


def put(body: Any, path: Path, value: Any) -> Any:
    """Return a copy with another value at a path."""
    made = copy.deepcopy(body)
    part = made
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return made


def dropped(body: Any, path: Path) -> Any:
    """Return a copy without what is at a path."""
    made = copy.deepcopy(body)
    part = made
    for key in path[:-1]:
        part = part[key]
    del part[path[-1]]
    return made


def renamed(body: Any, path: Path, key: str) -> Any:
    """Return a copy in which a key is called otherwise."""
    made = copy.deepcopy(body)
    part = made
    for each in path[:-1]:
        part = part[each]
    part[key] = part.pop(path[-1])
    return made


def misspelt(word: str, rng: random.Random) -> str:
    """Return a word with two letters swapped, one left out, one twice, or one replaced: never the word itself."""
    letters = [place for place, letter in enumerate(word) if letter.isalpha()]
    while True:
        place = rng.choice(letters)
        turn = rng.randrange(4)
        if turn == 0 and place + 1 < len(word) and word[place + 1].isalpha():
            made = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
        elif turn == 1:
            made = word[:place] + word[place + 1 :]
        elif turn == 2:
            made = word[:place] + word[place] + word[place:]
        else:
            made = word[:place] + rng.choice("abcdefghijklmnopqrstuvwxyz") + word[place + 1 :]
        if made and made != word:
            return made


def fields(
    files: Files, wanted: Callable[[Path, Any], bool], *kinds: str, patches: bool = True
) -> list[tuple[Place, Path, Any]]:
    """Return every field of a folder's objects that is wanted, with its object and value."""
    return [
        (place, path, value)
        for place in places(files, *kinds, patches=patches)
        for path, value in walk(place.body)
        if wanted(path, value)
    ]


def changed(
    files: Files,
    rng: random.Random,
    wanted: Callable[[Path, Any], bool],
    make: Callable[[Any, random.Random], Any],
    *kinds: str,
    patches: bool = True,
) -> Mistake | None:
    """Return a folder in which one wanted field has another value."""
    found = fields(files, wanted, *kinds, patches=patches)
    if not found:
        return None
    place, path, value = rng.choice(found)
    after = make(value, rng)
    return place.written(put(place.body, path, after), f"{'.'.join(map(str, path))}: {value!r} -> {after!r}")


def key_is(*names: str) -> Callable[[Path, Any], bool]:
    """Return a test for fields of some names that hold no map or list."""
    return lambda path, value: path[-1] in names and not isinstance(value, dict | list) and value is not None


def below(*ends: tuple[str, ...]) -> Callable[[Path, Any], bool]:
    """Return a test for fields whose path of names ends so."""

    def wanted(path: Path, value: Any) -> bool:
        names = tuple(str(key) for key in path if isinstance(key, str))
        return any(names[-len(end) :] == end for end in ends) and value is not None

    return wanted


def in_free_map(path: Path) -> bool:
    """Tell whether a field's name is the writer's own."""
    return any(key in FREE for key in path[:-1]) or (len(path) > 1 and path[-2] == "metadata" and "triggers" in path)


# --- meaning ---------------------------------------------------------------------------------------------------------------

_AMOUNT = re.compile(r"([0-9.]+)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_UNITS = {
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}


def meaning(files: Files) -> object:
    """Return what a folder's files say: parsed, without comments and order, amounts of resources by value."""
    said: list[object] = []
    for file in sorted(files):
        if file.endswith(".yaml"):
            try:
                said += [_normal(body, ()) for body in loaded(files[file])]
            except yaml.YAMLError:
                return object()
    return sorted(map(repr, said))


def _normal(value: Any, path: Path) -> object:
    if isinstance(value, dict):
        return tuple(sorted((str(key), _normal(child, (*path, key))) for key, child in value.items()))
    if isinstance(value, list):
        return tuple(sorted((_normal(child, path) for child in value), key=repr))
    if path and path[-1] == "patch" and isinstance(value, str):
        return _normal(yaml.safe_load(value), ())
    if len(path) > 1 and path[-2] in ("limits", "requests", "capacity"):
        found = _AMOUNT.fullmatch(str(value))
        if found:
            return float(found[1]) * _UNITS.get(found[2] or "", 1.0)
    return repr(value)
