"""What is saved beside the parts that a job names, and how the job's size decides the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

from trimtab_runtime.checkpoint import random_state
from trimtab_runtime.checkpoint.commit import Commit
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.ranks import Ranks, TorchRanks
from trimtab_runtime.checkpoint.reading import SavedState
from trimtab_runtime.checkpoint.sealed import JsonObject
from trimtab_runtime.checkpoint.snapshot import Piece
from trimtab_runtime.checkpoint.whole_state import WholeState
from trimtab_runtime.errors import CheckpointMismatch


class _Parts(Protocol):
    """Captures, reads and applies the parts: whole tensors or shards."""

    def capture(self, local: Mapping[str, object]) -> tuple[Sequence[Piece], JsonObject]: ...
    def read(self, files: FileOperations, folder: Path, marker: Commit) -> SavedState: ...
    def apply(self, saved: SavedState) -> list[str]: ...


class JobState:
    """The parts of a job and the random generators of this rank."""

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts

    def capture(self) -> tuple[Sequence[Piece], JsonObject]:
        """Return tensors by reference and other values as JSON."""
        return self._parts.capture({"random": random_state.capture()})

    def read(self, files: FileOperations, folder: Path, marker: Commit) -> SavedState:
        """Read and verify a checkpoint without touching the job."""
        return self._parts.read(files, folder, marker)

    def apply(self, saved: SavedState) -> list[str]:
        """Give the job its state back and return notes on what differs. Random generators come last: loading may draw."""
        notes = [*self._parts.apply(saved), *saved.notes]
        if "random" in saved.local:
            notes += _restored_random(cast("Mapping[str, object]", saved.local["random"]))
        return notes


def _restored_random(states: Mapping[str, object]) -> list[str]:
    try:
        return random_state.restore(states)
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointMismatch(f"the random generators do not accept the checkpoint's state: {error!r}") from error


def job_state(parts: Mapping[str, object], ranks: Ranks) -> JobState:
    """Return the way to keep this job's state: in shards if the job has set up torch.distributed, whole if not."""
    if isinstance(ranks, TorchRanks):
        from trimtab_runtime.checkpoint.sharded_state import ShardedState  # jobs of one rank need none of it

        return JobState(ShardedState(parts, ranks))
    return JobState(WholeState(parts))
