"""The error tree: every failure that trimtab reports on purpose.

    TrimtabError
    ├── InputError            something a person or a file gave us is wrong (exit 1)
    │   ├── UnknownName       a name that no table knows; carries the near matches
    │   ├── MissingPrice      no rate for that offering, region, date or buying option
    │   ├── PriceFileError    all the faults of a file of own prices at once
    │   ├── SettingsError     all the faults of the settings at once
    │   ├── BundleError       all the faults of a fleet bundle at once
    │   └── BillError         a bill that cannot be read or does not reconcile
    ├── UsageError            options that contradict one another (exit 2)
    ├── SourceError           a server or file system that did not answer as it should (exit 1)
    │   └── CredentialsError  it answered: not allowed (exit 3)
    ├── Unpredictable         physics abstains: the question lies outside what was measured; says why (exit 1)
    ├── ConservationError     a figure does not add up: a fault of trimtab, stopped before it is shown (exit 1)
    ├── PlanError             no plan satisfies the rules; names the rules in conflict (exit 1)
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

A message says what was wrong, where, the value seen and what to do next; `Fault` holds these four apart. What the
runtimes raise is defined where they are, in `trimtab_runtime.errors`, and imported here by name: one `except` catches both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_runtime.errors import (
    BatcherClosed as BatcherClosed,
    BatchError as BatchError,
    CheckpointDamaged as CheckpointDamaged,
    CheckpointError as CheckpointError,
    CheckpointLocked as CheckpointLocked,
    CheckpointMismatch as CheckpointMismatch,
    CheckpointNotSaved as CheckpointNotSaved,
    DeadlineExceeded as DeadlineExceeded,
    InputError as InputError,
    ItemTooLarge as ItemTooLarge,
    ProfileError as ProfileError,
    QueueFull as QueueFull,
    TrimtabError as TrimtabError,
    UnknownName as UnknownName,
    UsageError as UsageError,
    WorkerLost as WorkerLost,
    WrongResults as WrongResults,
    near_matches as near_matches,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing wrong in the input: what, where (file and row, query, workload), the value seen, and the cure."""

    what: str
    where: str
    value: str = ""
    cure: str = ""

    def __str__(self) -> str:
        seen = f" (saw {self.value!r})" if self.value else ""
        cure = f"; {self.cure}" if self.cure else ""
        return f"{self.where}: {self.what}{seen}{cure}"


def fault_count(faults: Sequence[Fault]) -> str:
    """Return how many faults there are, in words: `1 fault`, `3 faults`."""
    return f"{len(faults)} fault{'' if len(faults) == 1 else 's'}"


class MissingPrice(InputError):
    """No rate for an offering, region, date or buying option; prices are never guessed."""


class PriceFileError(InputError):
    """All the faults of a file of own prices, reported at once."""

    def __init__(self, name: str, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(
            f"{fault_count(self.faults)} in {name}:\n" + "\n".join(f"  - {fault}" for fault in self.faults)
        )


class SettingsError(InputError):
    """All the faults of the settings, from whichever place, reported at once."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(f"{fault_count(self.faults)} in the settings:\n" + "\n".join(f"  - {f}" for f in self.faults))


class BundleError(InputError):
    """All the faults of a fleet bundle, reported at once."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        shown = "\n".join(f"  - {fault}" for fault in self.faults[:50])
        more = f"\n  ... and {len(self.faults) - 50} more" if len(self.faults) > 50 else ""
        super().__init__(f"{fault_count(self.faults)} in the fleet bundle:\n{shown}{more}")


class BillError(InputError):
    """A bill that cannot be read or does not reconcile."""


class SourceError(TrimtabError):
    """A server or a file system that did not answer as it should."""


class CredentialsError(SourceError):
    """The source answered: not allowed."""

    exit_code = 3


class Unpredictable(TrimtabError):
    """No prediction is possible: the question is outside the range of the measurements. The message says why."""


class ConservationError(TrimtabError):
    """A figure that would not add up: nodes billed and not planned, or a plan below what is possible. A fault of trimtab."""


class PlanError(TrimtabError):
    """No plan satisfies the rules; the message names those in conflict."""
