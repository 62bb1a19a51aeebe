"""Read what one rank wrote, verified to the last bit, as the nested state that was saved."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from trimtab_runtime.checkpoint import arrays
from trimtab_runtime.checkpoint.commit import Commit, read_manifest
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.layout import shard_names
from trimtab_runtime.checkpoint.records import LOCAL_KEY, PARTS_KEY, Manifest, Record
from trimtab_runtime.checkpoint.sealed import Json
from trimtab_runtime.checkpoint.shard_reader import Destination, read_shard
from trimtab_runtime.checkpoint.tree import decode, tensor_kinds
from trimtab_runtime.errors import CheckpointDamaged


class SavedState(NamedTuple):
    """What a checkpoint gives back, verified: values with tensors in place, for the job and for this rank alone."""

    parts: dict[str, object]
    local: dict[str, object]
    notes: tuple[str, ...] = ()


def read_records(files: FileOperations, folder: Path, manifest: Manifest, names: Collection[str]) -> dict[str, object]:
    """Return the named tensors of one rank's data file; raise `CheckpointDamaged` if any byte of their chunks differs."""
    with damage_if_malformed(str(folder)):
        kinds = tensor_kinds(manifest.values)
    tensors: dict[str, object] = {}
    destinations = []
    for record in manifest.records:
        if record.name in names:
            tensors[record.name], memory = arrays.empty(kinds.get(record.name, "tensor"), record)
            destinations.append(_destination(record, memory, folder))
    read_shard(files, folder / shard_names(manifest.rank)[0], manifest, destinations)
    return tensors


def with_tensors(values: Json, tensors: Mapping[str, object], where: str) -> dict[str, object]:
    """Return a part of the values with the tensors in place; raise `CheckpointDamaged` for one that no record holds."""

    def tensor(name: str) -> object:
        if name not in tensors:
            raise CheckpointDamaged(f"{where}: the manifest names the tensor {name!r} but no record holds it")
        return tensors[name]

    with damage_if_malformed(where):
        decoded = decode(values, tensor)
    if not isinstance(decoded, dict):
        raise CheckpointDamaged(f"{where}: the manifest holds {type(decoded).__name__} where a job's parts belong")
    return decoded


def part_of_values(manifest: Manifest, key: str, where: str) -> Json:
    """Return the values of the job's parts or of this rank; raise `CheckpointDamaged` if the manifest has none."""
    if key not in manifest.values:
        raise CheckpointDamaged(f"{where}: the manifest lacks the values of {key!r}")
    return manifest.values[key]


@contextmanager
def damage_if_malformed(where: str) -> Iterator[None]:
    """Turn what building values from a manifest may raise into `CheckpointDamaged`: its forms do not fit together."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise CheckpointDamaged(f"{where}: the manifest's values cannot be built: {error!r}") from error


def read_whole(files: FileOperations, folder: Path, marker: Commit) -> SavedState:
    """Read everything that a job of one rank wrote."""
    manifest = read_manifest(files, folder, 0, marker)
    tensors = read_records(files, folder, manifest, {record.name for record in manifest.records})
    return SavedState(
        parts=with_tensors(part_of_values(manifest, PARTS_KEY, str(folder)), tensors, str(folder)),
        local=with_tensors(part_of_values(manifest, LOCAL_KEY, str(folder)), tensors, str(folder)),
    )


def _destination(record: Record, memory: memoryview, folder: Path) -> Destination:
    if len(memory) != record.size_bytes:
        raise CheckpointDamaged(
            f"{folder}: the record {record.name!r} holds {record.size_bytes} bytes, its shape needs {len(memory)}"
        )
    return Destination(record.offset_bytes, memory)
