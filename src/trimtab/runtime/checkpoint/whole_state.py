"""The state of a job of one process: every tensor is written whole, by the one rank there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from trimtab.runtime.checkpoint import arrays, components
from trimtab.runtime.checkpoint.commit import Commit
from trimtab.runtime.checkpoint.files import FileOperations
from trimtab.runtime.checkpoint.reading import Shard, read_rank
from trimtab.runtime.checkpoint.sealed import JsonObject
from trimtab.runtime.checkpoint.snapshot import Piece
from trimtab.runtime.checkpoint.tree import encode

GLOBAL_KEY = "state"
LOCAL_KEY = "rank_state"


class WholeState:
    """Captures and restores the parts of a single-process job."""

    def __init__(self, state: Mapping[str, object]) -> None:
        components.require_components(state)
        self._state = state

    def capture(self, local: Mapping[str, object]) -> tuple[Sequence[Piece], JsonObject]:
        """Return what is to be written: tensors by reference, other values as JSON."""
        body, leaves = encode({GLOBAL_KEY: components.capture(self._state), LOCAL_KEY: dict(local)})
        pieces = [Piece(arrays.extent(leaf.name, leaf.value), leaf.value) for leaf in leaves]
        return pieces, cast(JsonObject, body)

    def read(self, files: FileOperations, folder: Path, marker: Commit) -> Shard:
        """Read and verify a checkpoint without touching the job."""
        return read_rank(files, folder, 0, marker)

    def apply(self, shard: Shard) -> tuple[dict[str, object], list[str]]:
        """Give the verified state to the parts; return what belongs to this rank alone, and notes."""
        notes = components.apply(self._state, cast("Mapping[str, object]", shard.values(GLOBAL_KEY)))
        return cast("dict[str, object]", shard.values(LOCAL_KEY)), notes
