"""What a job is: its parts, saved whole or in shards as the number of its processes decides, and its random generators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

from trimtab_runtime.checkpoint import arrays, components, random_state
from trimtab_runtime.checkpoint.commit import Commit
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.ranks import Ranks, TorchRanks
from trimtab_runtime.checkpoint.reading import SavedState, read_whole
from trimtab_runtime.checkpoint.records import LOCAL_KEY, PARTS_KEY, Extent
from trimtab_runtime.checkpoint.sealed import JsonObject
from trimtab_runtime.checkpoint.snapshot import Piece
from trimtab_runtime.checkpoint.tree import Leaf, encode
from trimtab_runtime.errors import CheckpointMismatch


class WholeState:
    """Captures and restores the parts of a single-process job."""

    def __init__(self, parts: Mapping[str, object]) -> None:
        components.require_components(parts)
        self._parts = parts
        self._known: dict[str, tuple[object, object, Extent]] = {}

    def capture(self, local: Mapping[str, object]) -> tuple[Sequence[Piece], JsonObject]:
        """Return what is to be written: tensors by reference, other values as JSON."""
        body, leaves = encode({PARTS_KEY: components.capture(self._parts), LOCAL_KEY: dict(local)})
        return [Piece(self._extent(leaf), leaf.value) for leaf in leaves], cast(JsonObject, body)

    def _extent(self, leaf: Leaf) -> Extent:
        """Return a tensor's extent, as it was at the save before if type and shape are the same: they hardly ever change."""
        value = cast(arrays.TensorLike, leaf.value)
        known = self._known.get(leaf.name)
        if known is not None and known[0] is value.dtype and known[1] == value.shape:
            return known[2]
        made = arrays.extent(leaf.name, value)
        self._known[leaf.name] = (value.dtype, value.shape, made)
        return made

    def read(self, files: FileOperations, folder: Path, marker: Commit) -> SavedState:
        """Read and verify a checkpoint without touching the job."""
        if marker.world_size != 1:
            raise CheckpointMismatch(
                f"{folder}: written by {marker.world_size} ranks; to resume on one, initialise torch.distributed "
                "(torchrun --nproc-per-node 1), so that the shards are put together"
            )
        return read_whole(files, folder, marker)

    def apply(self, saved: SavedState) -> list[str]:
        """Give the verified state to the parts and return notes on what differs."""
        return components.apply(self._parts, saved.parts)


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
