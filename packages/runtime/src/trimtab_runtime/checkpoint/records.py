"""Where each tensor lies in a rank's data file, and the manifest that says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trimtab_runtime.checkpoint.sealed import Json, JsonObject
from trimtab_runtime.errors import CheckpointDamaged, CheckpointMismatch

FORMAT = "trimtab-checkpoint"
FORMAT_VERSION = 2
"""2: values keep their exact types (NumPy scalars, named tuples, enums, ordered dictionaries, order in memory, ...)."""
PARTS_KEY = "parts"
LOCAL_KEY = "rank"
"""Keys of a manifest's values: the job's parts, and what belongs to this rank alone, such as its random generators."""
ALIGNMENT_BYTES = 64
"""Records start at multiples of a cache line, which also aligns every element type."""
BLOCK_BYTES = 4096
"""Data files are whole blocks, as direct writes demand; the padding is zeros and counts in the checksum."""

MOST_CHUNK_BYTES = 1 << 30
"""A chunk is read into memory whole. Written are 16 MiB."""


class Record(NamedTuple):
    """One tensor's bytes: C-contiguous, little-endian, at `offset_bytes` of the data file.

    A piece of a sharded tensor also says where in the whole it belongs.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int
    size_bytes: int
    whole_shape: tuple[int, ...]
    piece_offset: tuple[int, ...]

    def as_json(self) -> JsonObject:
        """Return the record as the manifest holds it."""
        body: JsonObject = {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "offset_bytes": self.offset_bytes,
            "size_bytes": self.size_bytes,
        }
        if self.whole_shape != self.shape:
            body["whole_shape"] = list(self.whole_shape)
            body["piece_offset"] = list(self.piece_offset)
        return body


class Extent(NamedTuple):
    """What is about to be laid out: a name, an element type, a shape, a size and its place in the whole.

    A named tuple, since a job may have 100,000 and all are compared with those of the save before.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    whole_shape: tuple[int, ...]
    piece_offset: tuple[int, ...]


def lay_out(extents: Sequence[Extent]) -> tuple[tuple[Record, ...], int]:
    """Place extents one after another and return the records with the size of the file, in whole blocks."""
    records = []
    offset = 0
    for extent in extents:
        records.append(
            Record(
                name=extent.name,
                dtype=extent.dtype,
                shape=extent.shape,
                offset_bytes=offset,
                size_bytes=extent.size_bytes,
                whole_shape=extent.whole_shape,
                piece_offset=extent.piece_offset,
            )
        )
        offset = _round_up(offset + extent.size_bytes, ALIGNMENT_BYTES)
    return tuple(records), _round_up(offset, BLOCK_BYTES)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


class Manifest(NamedTuple):
    """What one rank wrote: its records, its other values, and a checksum for every chunk of the data file."""

    step: int
    rank: int
    world_size: int
    size_bytes: int
    chunk_bytes: int
    chunk_crc32: tuple[int, ...]
    records: tuple[Record, ...]
    values: JsonObject

    def as_json(self) -> JsonObject:
        """Return the manifest as it is written."""
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "step": self.step,
            "rank": self.rank,
            "world_size": self.world_size,
            "size_bytes": self.size_bytes,
            "chunk_bytes": self.chunk_bytes,
            "chunk_crc32": list(self.chunk_crc32),
            "records": [record.as_json() for record in self.records],
            "values": self.values,
        }


def require_our_format(body: Mapping[str, Json], where: str) -> None:
    """Raise `CheckpointMismatch` for a file of another program or of a newer version of this one."""
    found, version = body.get("format"), body.get("version")
    if found != FORMAT:
        raise CheckpointMismatch(f"{where}: not a checkpoint of this format (saw {found!r}); point to another folder")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise CheckpointMismatch(
            f"{where}: written in format version {version}, this program reads up to {FORMAT_VERSION}; "
            "upgrade trimtab, or resume from an older checkpoint"
        )


def manifest_from_json(body: JsonObject, where: str) -> Manifest:
    """Read a manifest whose seal has been checked; raise `CheckpointDamaged` unless it describes a file of this layout."""
    require_our_format(body, where)
    try:
        manifest = Manifest(
            step=_whole(body["step"]),
            rank=_whole(body["rank"]),
            world_size=_whole(body["world_size"]),
            size_bytes=_whole(body["size_bytes"]),
            chunk_bytes=_whole(body["chunk_bytes"]),
            chunk_crc32=_wholes(body["chunk_crc32"]),
            records=tuple(_record(entry) for entry in _items(body["records"])),
            values=_object(body["values"]),
        )
    except KeyError as error:
        raise CheckpointDamaged(f"{where}: the manifest lacks {error}") from error
    fault = _layout_fault(manifest)
    if fault:
        raise CheckpointDamaged(f"{where}: {fault}")
    return manifest


def _layout_fault(manifest: Manifest) -> str:
    """Say what speaks against the places that a manifest gives; empty if nothing does.

    Records fill the file but for their alignment, so no bytes are read that no tensor needs.
    """
    if not BLOCK_BYTES <= manifest.chunk_bytes <= MOST_CHUNK_BYTES:
        return f"chunks of {manifest.chunk_bytes} bytes"
    if len(manifest.chunk_crc32) != -(-manifest.size_bytes // manifest.chunk_bytes):
        return f"{len(manifest.chunk_crc32)} checksums for {manifest.size_bytes} bytes"
    end, seen = 0, set()
    for record in manifest.records:
        if not end <= record.offset_bytes < end + ALIGNMENT_BYTES or (record.name, record.piece_offset) in seen:
            return f"the record {record.name!r} lies upon another one, or behind a gap"
        if not _is_piece(record):
            return f"the record {record.name!r} is no piece of its whole"
        end = record.offset_bytes + record.size_bytes
        seen.add((record.name, record.piece_offset))
    if not end <= manifest.size_bytes < end + ALIGNMENT_BYTES + BLOCK_BYTES:
        return f"records of {end} bytes in a file of {manifest.size_bytes}"
    return ""


def _is_piece(record: Record) -> bool:
    if not len(record.shape) == len(record.whole_shape) == len(record.piece_offset):
        return False
    places = zip(record.shape, record.whole_shape, record.piece_offset, strict=True)
    return all(offset + length <= whole for length, whole, offset in places)


def _record(entry: Json) -> Record:
    body = _object(entry)
    shape = _wholes(body["shape"])
    return Record(
        name=str(body["name"]),
        dtype=str(body["dtype"]),
        shape=shape,
        offset_bytes=_whole(body["offset_bytes"]),
        size_bytes=_whole(body["size_bytes"]),
        whole_shape=_wholes(body["whole_shape"]) if "whole_shape" in body else shape,
        piece_offset=_wholes(body["piece_offset"]) if "piece_offset" in body else (0,) * len(shape),
    )


def _whole(value: Json) -> int:
    if type(value) is not int or value < 0:
        raise CheckpointDamaged(f"a whole number from 0 on was expected in a checkpoint's manifest (saw {value!r})")
    return value


def _items(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise CheckpointDamaged(f"a list was expected in a checkpoint's manifest (saw {type(value).__name__})")
    return value


def _wholes(value: Json) -> tuple[int, ...]:
    return tuple(_whole(item) for item in _items(value))


def _object(value: Json) -> JsonObject:
    if not isinstance(value, dict):
        raise CheckpointDamaged(f"an object was expected in a checkpoint's manifest (saw {type(value).__name__})")
    return value
