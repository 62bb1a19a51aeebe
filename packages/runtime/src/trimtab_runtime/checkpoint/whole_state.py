"""The state of a job of one process: every tensor is written whole, by the one rank there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from trimtab_runtime.checkpoint import arrays, components
from trimtab_runtime.checkpoint.commit import Commit
from trimtab_runtime.checkpoint.files import FileOperations
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
