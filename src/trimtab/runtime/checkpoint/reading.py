"""Read what one rank wrote, verified to the last bit, as the nested state that was saved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trimtab.errors import CheckpointDamaged
from trimtab.runtime.checkpoint import arrays
from trimtab.runtime.checkpoint.commit import Commit, read_manifest
from trimtab.runtime.checkpoint.files import FileOperations
from trimtab.runtime.checkpoint.layout import shard_names
from trimtab.runtime.checkpoint.records import Manifest, Record
from trimtab.runtime.checkpoint.shard_reader import Destination, read_shard
from trimtab.runtime.checkpoint.tree import decode, tensor_kinds


@dataclass(frozen=True, slots=True)
class Shard:
    """One rank's manifest and the tensors of its data file, by record name."""

    manifest: Manifest
    tensors: dict[str, object]

    def values(self, key: str) -> object:
        """Return one part of the state with its tensors in place."""
        return decode(self.manifest.values[key], self.tensor)

    def tensor(self, name: str) -> object:
        """Return a tensor by its record name."""
        try:
            return self.tensors[name]
        except KeyError:
            raise CheckpointDamaged(
                f"rank {self.manifest.rank}'s manifest names the tensor {name!r} but no record holds it"
            ) from None


def read_rank(files: FileOperations, folder: Path, rank: int, marker: Commit) -> Shard:
    """Read one rank's shard of a committed checkpoint; raise `CheckpointDamaged` if any byte differs."""
    manifest = read_manifest(files, folder, rank, marker)
    kinds = tensor_kinds(manifest.values)
    tensors: dict[str, object] = {}
    destinations = []
    for record in manifest.records:
        tensors[record.name], memory = arrays.empty(kinds.get(record.name, "tensor"), record)
        destinations.append(_destination(record, memory, folder))
    read_shard(files, folder / shard_names(rank)[0], manifest, destinations)
    return Shard(manifest, tensors)


def _destination(record: Record, memory: memoryview, folder: Path) -> Destination:
    if len(memory) != record.size_bytes:
        raise CheckpointDamaged(
            f"{folder}: the record {record.name!r} holds {record.size_bytes} bytes, its shape needs {len(memory)}"
        )
    return Destination(record.offset_bytes, memory)
