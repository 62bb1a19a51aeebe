"""The part of the error tree that the runtimes raise; `trimtab.errors` draws the whole tree and adds the rest to the same root.

    TrimtabError
    ├── InputError            something a person or a file gave us is wrong (exit 1)
    │   └── UnknownName       a name that no table knows; carries the near matches
    ├── UsageError            options that contradict one another (exit 2)
    ├── BatchError            the dynamic batcher did not answer a request (exit 1)
    │   ├── QueueFull         the bounded queue is full and the batcher refuses rather than waits
    │   ├── DeadlineExceeded  the answer would have come too late; also a TimeoutError
    │   ├── BatcherClosed     it is draining, closed, or its object is gone
    │   ├── ItemTooLarge      the item alone exceeds the largest total size of a batch
    │   ├── WrongResults      the batch function did not return one result per item
    │   └── WorkerLost        the worker process or the batch function's thread ended instead of answering
    ├── ProfileError          a GPU could not be profiled: no driver, no device, a call refused (exit 1)
    └── CheckpointError       a training checkpoint could not be saved, found or read (exit 1)
        ├── CheckpointDamaged    bytes differ from what was written, or are missing
        ├── CheckpointMismatch   intact, but of another program, format version, model or world size
        ├── CheckpointLocked     another job writes to the same folder
        └── CheckpointNotSaved   a save failed; the last good checkpoint is untouched

A message says what was wrong, where, the value seen and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable


class TrimtabError(Exception):
    """Root of every error that trimtab raises on purpose."""

    exit_code = 1


class InputError(TrimtabError):
    """What a person or a file gave us is wrong."""


_FEW_NAMES = 12


class UnknownName(InputError):
    """A name that no table knows, with the near matches; where none is near, with all names if they are few."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, where: str = "") -> None:
        self.kind = kind
        self.name = name
        names = list(known)
        self.near = tuple(near_matches(name, names))
        place = f"{where}: " if where else ""
        hint = f"; did you mean {', '.join(self.near)}?" if self.near else ""
        if not hint and 0 < len(names) <= _FEW_NAMES:
            hint = f"; known: {', '.join(names)}"
        super().__init__(f"{place}unknown {kind} {name!r}{hint}")


class UsageError(TrimtabError):
    """Options that contradict one another."""

    exit_code = 2


class BatchError(TrimtabError):
    """The dynamic batcher did not answer a request."""


class QueueFull(BatchError):
    """The bounded queue is full and the batcher refuses rather than waits."""


class DeadlineExceeded(BatchError, TimeoutError):
    """The answer would have come after the request's deadline, so the request was not run."""


class BatcherClosed(BatchError):
    """The batcher is draining or closed, or the object whose method it batches is gone."""


class ItemTooLarge(BatchError):
    """The item alone exceeds the largest total size of a batch."""


class WrongResults(BatchError):
    """The batch function did not return one result per item."""


class WorkerLost(BatchError):
    """The worker process died, or the batch function ended its thread, instead of answering."""


class ProfileError(TrimtabError):
    """A GPU could not be profiled: there is no driver or no device, or the driver refused a call."""


class CheckpointError(TrimtabError):
    """A training checkpoint could not be saved, found or read."""


class CheckpointDamaged(CheckpointError):
    """Bytes of a checkpoint differ from what was written, or are missing."""


class CheckpointMismatch(CheckpointError):
    """An intact checkpoint of another program, format version, model or world size."""


class CheckpointLocked(CheckpointError):
    """Another job writes to the same checkpoint folder."""


class CheckpointNotSaved(CheckpointError):
    """A save failed; the last good checkpoint is untouched."""


def near_matches(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """Return the known names most like `name`, whatever its case: first those that it begins, then those it resembles."""
    from difflib import get_close_matches  # only who misspelt a name waits for it

    by_fold = {item.casefold(): item for item in known}
    fold = name.casefold()
    begun = sorted(item for item in by_fold if fold and item.startswith(fold))
    close = [item for item in get_close_matches(fold, by_fold, n=most, cutoff=0.5) if item not in begun]
    return [by_fold[item] for item in (begun + close)[:most]]
