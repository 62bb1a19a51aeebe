"""Put a tensor together from the shards of any number of ranks: DCP plans the overlaps, this module fetches the bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from trimtab_runtime.checkpoint import arrays
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.reading import read_records
from trimtab_runtime.checkpoint.records import Manifest, Record
from trimtab_runtime.errors import CheckpointMismatch

_Place = tuple[str, tuple[int, ...]]
"""A record's name and where in the whole tensor it begins."""


class _StorageIndex(Protocol):
    fqn: str
    offset: Sequence[int]


class _ReadItem(Protocol):
    """What is asked of an item of DCP's load plan."""

    storage_index: _StorageIndex
    storage_offsets: Sequence[int]
    lengths: Sequence[int]


def read_resharded(
    files: FileOperations,
    folder: Path,
    manifests: Sequence[Manifest],
    names: Collection[str],
    present: Mapping[str, object],
    *,
    is_first: bool,
) -> dict[str, object]:
    """Return the named tensors as this rank needs them: sharded like the job's own where it has a sharded one, else whole.

    The job's own tensors are not touched. Raise `CheckpointMismatch` if a tensor's whole shape differs from the job's.
    """
    where = _places(manifests, names)
    fresh = {name: _fresh(records[0][1], present.get(name)) for name, records in _by_name(where, names).items()}
    planner = import_module("torch.distributed.checkpoint.default_planner").DefaultLoadPlanner(
        flatten_state_dict=False, flatten_sharded_tensors=False
    )
    planner.set_up_planner(fresh, _metadata(where), is_first)
    try:
        items = planner.create_local_plan().items
    except (ValueError, RuntimeError) as error:
        raise CheckpointMismatch(f"{folder}: does not fit this job's model: {error}") from error
    sources = _read_sources(files, folder, manifests, where, items)
    for item in items:
        planned = cast(_ReadItem, item)
        source = _narrowed(sources[_place(planned.storage_index)], planned.storage_offsets, planned.lengths)
        target = planner.resolve_tensor(item).detach()
        target.copy_(source)
        planner.commit_tensor(item, target)
    return fresh


def _places(manifests: Sequence[Manifest], names: Collection[str]) -> dict[_Place, tuple[int, Record]]:
    return {
        (record.name, record.piece_offset): (manifest.rank, record)
        for manifest in manifests
        for record in manifest.records
        if record.name in names
    }


def _place(index: _StorageIndex) -> _Place:
    return index.fqn, tuple(int(offset) for offset in index.offset)


def _by_name(where: Mapping[_Place, tuple[int, Record]], names: Collection[str]) -> dict[str, list[tuple[int, Record]]]:
    grouped: dict[str, list[tuple[int, Record]]] = {}
    for (name, _), found in where.items():
        grouped.setdefault(name, []).append(found)
    return {name: grouped[name] for name in names if name in grouped}


def _fresh(record: Record, own: object | None) -> object:
    """Return new memory for a tensor: in shards like the job's own, else whole on the CPU."""
    torch = import_module("torch")
    if own is not None and arrays.is_sharded(own):
        sharded: object = torch.empty_like(own)
        return sharded
    whole: object = torch.empty(record.whole_shape, dtype=arrays.torch_constant(record.dtype))
    return whole


def _metadata(where: Mapping[_Place, tuple[int, Record]]) -> object:
    """Return DCP's own description of the stored tensors, rebuilt from the manifests."""
    dcp, torch = import_module("torch.distributed.checkpoint.metadata"), import_module("torch")
    described: dict[str, object] = {}
    chunks: dict[str, list[object]] = {}
    for (name, offset), (_, record) in where.items():
        chunks.setdefault(name, []).append(
            dcp.ChunkStorageMetadata(offsets=torch.Size(offset), sizes=torch.Size(record.shape))
        )
        described[name] = dcp.TensorStorageMetadata(
            properties=dcp.TensorProperties(dtype=arrays.torch_constant(record.dtype)),
            size=torch.Size(record.whole_shape),
            chunks=chunks[name],
        )
    metadata: object = dcp.Metadata(state_dict_metadata=described)
    return metadata


def _read_sources(
    files: FileOperations,
    folder: Path,
    manifests: Sequence[Manifest],
    where: Mapping[_Place, tuple[int, Record]],
    items: Sequence[object],
) -> dict[_Place, object]:
    """Read the records that the plan needs, one data file after another."""
    wanted: dict[int, set[str]] = {}
    for item in items:
        place = _place(cast(_ReadItem, item).storage_index)
        wanted.setdefault(where[place][0], set()).add(place[0])
    sources: dict[_Place, object] = {}
    for rank, names in sorted(wanted.items()):
        tensors = read_records(files, folder, manifests[rank], names)
        for record in manifests[rank].records:
            if record.name in names:
                sources[record.name, record.piece_offset] = tensors[record.name]
    return sources


def _narrowed(tensor: object, offsets: Sequence[int], lengths: Sequence[int]) -> object:
    planner_helpers = import_module("torch.distributed._shard._utils")
    part: object = planner_helpers.narrow_tensor_by_index(tensor, offsets, lengths)
    return part
