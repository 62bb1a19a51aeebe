"""What is wrong with an object of a folder: file, object, field, the value seen, and the cure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

_SHOWN = 80


class Severity(Enum):
    """How much a fault matters."""

    ERROR = "error"
    """A server refuses it, or it does nothing of what it says."""
    WARNING = "warning"
    """It could not be judged with what is known here, or is accepted and unusual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFault:
    """What is wrong with a field of one object, whose place is not said yet."""

    field: str
    """Path from the top of the object, such as `spec.triggers[0].metadata.query`; empty: the object as a whole."""
    value: object
    what: str
    cure: str
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFault:
    """What is wrong in a folder, and where."""

    file: str
    object: str
    """Kind, namespace and name; empty where the file holds no object that can be read."""
    field: str
    value: str
    what: str
    cure: str
    severity: Severity

    def __str__(self) -> str:
        place = " ".join(part for part in (self.file, self.object, self.field) if part)
        seen = f" (saw {self.value})" if self.value else ""
        return f"{self.severity.value}: {place}: {self.what}{seen}; {self.cure}"


def placed(file: str, name: str, found: FieldFault) -> ObjectFault:
    """Return a field's fault with the file and the object in which it is."""
    return ObjectFault(
        file=file,
        object=name,
        field=found.field,
        value=shown(found.value),
        what=found.what,
        cure=found.cure,
        severity=found.severity,
    )


def shown(value: object) -> str:
    """Return a value as one short line; empty for None."""
    text = "" if value is None else value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def nearest(name: str, known: Iterable[str], *, least_frac: float = 0.75) -> str | None:
    """Return the known name that is most like one which is not known; None where none is like it.

    >>> nearest("maxReplica", ["minReplicas", "maxReplicas"]), nearest("x", ["minReplicas"])
    ('maxReplicas', None)
    """
    found = get_close_matches(name, sorted(set(known)), n=1, cutoff=least_frac)
    return found[0] if found else None


def one_slip(word: str, meant: str) -> bool:
    """Return whether a word is another with one letter more, less or changed, or with two neighbours swapped.

    >>> one_slip("namespce", "namespace"), one_slip("pdo", "pod"), one_slip("node", "pod")
    (True, True, False)
    """
    if len(word) == len(meant):
        unlike = [place for place in range(len(word)) if word[place] != meant[place]]
        first, last = (unlike[0], unlike[-1]) if unlike else (0, 0)
        swapped = last == first + 1 and word[first : last + 1] == meant[first : last + 1][::-1]
        return len(unlike) == 1 or swapped
    short, long = sorted((word, meant), key=len)
    return len(long) == len(short) + 1 and any(long[:at] + long[at + 1 :] == short for at in range(len(long)))


def join(path: str, *keys: str | int) -> str:
    """Return a path with more keys behind it.

    >>> join("spec", "triggers", 0, "nvidia.com/gpu")
    "spec.triggers[0]['nvidia.com/gpu']"
    """
    for key in keys:
        if isinstance(key, int):
            path += f"[{key}]"
        elif "." in key or "/" in key:
            path += f"[{key!r}]"
        else:
            path += f".{key}" if path else key
    return path
