"""Read one rank's bytes and compare every chunk with its checksum before anyone uses a byte of it.

Chunks are read by a few threads straight into the memory of the tensors they belong to, and checked while they are
warm.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.records import Manifest
from trimtab_runtime.errors import CheckpointDamaged

READER_THREADS = 2
_MOST_BUFFERS = 512
"""Buffers in one read call; Linux allows 1,024 (IOV_MAX)."""


class Destination(NamedTuple):
    """Memory that the bytes of a file from `offset_bytes` on belong to."""

    offset_bytes: int
    memory: memoryview


def read_shard(files: FileOperations, path: Path, manifest: Manifest, into: Sequence[Destination]) -> None:
    """Fill the destinations (sorted, disjoint) from a data file; raise `CheckpointDamaged` unless every chunk verifies."""
    plans = split_into_chunks(into, manifest.size_bytes, manifest.chunk_bytes)
    wanted = [index for index, parts in enumerate(plans) if any(not isinstance(part, int) for part in parts)]
    _read_chunks(files, path, manifest, plans, wanted)


def verify_shard(files: FileOperations, path: Path, manifest: Manifest) -> None:
    """Compare every chunk of a data file with its checksum and keep nothing; raise `CheckpointDamaged` if one differs."""
    plans = split_into_chunks((), manifest.size_bytes, manifest.chunk_bytes)
    _read_chunks(files, path, manifest, plans, range(len(plans)))


def _read_chunks(
    files: FileOperations,
    path: Path,
    manifest: Manifest,
    plans: Sequence[Sequence[memoryview | int]],
    wanted: Sequence[int],
) -> None:
    """Read the wanted chunks into what their plans name, and check them."""
    try:
        descriptor = files.open_for_reading(path)
    except FileNotFoundError as error:
        raise CheckpointDamaged(f"{path}: the data file is missing") from error

    def check(index: int) -> None:
        start = index * manifest.chunk_bytes
        buffers = [memoryview(bytearray(part)) if isinstance(part, int) else part for part in plans[index]]
        if _fill(files, descriptor, buffers, start, path) != manifest.chunk_crc32[index]:
            end = start + sum(map(len, buffers))
            raise CheckpointDamaged(f"{path}: the checksum of bytes {start} to {end} does not match")

    try:
        found = files.size_bytes(descriptor)
        if found != manifest.size_bytes:
            raise CheckpointDamaged(f"{path}: {manifest.size_bytes} bytes were written, {found} are there")
        with ThreadPoolExecutor(max_workers=READER_THREADS, thread_name_prefix="trimtab-read") as executor:
            for _ in executor.map(check, wanted):
                continue
    finally:
        files.close(descriptor)


def split_into_chunks(into: Sequence[Destination], size_bytes: int, chunk_bytes: int) -> list[list[memoryview | int]]:
    """Return for each chunk what takes its bytes, in order: memory, or the length of an unrequested gap."""
    chunks: list[list[memoryview | int]] = [[] for _ in range(-(-size_bytes // chunk_bytes))]
    position = 0
    for destination in [*into, Destination(size_bytes, memoryview(b""))]:
        _place_gap(chunks, position, destination.offset_bytes, chunk_bytes)
        _place(chunks, destination, chunk_bytes)
        position = destination.offset_bytes + len(destination.memory)
    return chunks


def _place_gap(chunks: list[list[memoryview | int]], start: int, end: int, chunk_bytes: int) -> None:
    while start < end:
        index, within = divmod(start, chunk_bytes)
        length = min(end - start, chunk_bytes - within)
        chunks[index].append(length)
        start += length


def _place(chunks: list[list[memoryview | int]], destination: Destination, chunk_bytes: int) -> None:
    done = 0
    while done < len(destination.memory):
        index, within = divmod(destination.offset_bytes + done, chunk_bytes)
        part = destination.memory[done : done + chunk_bytes - within]
        chunks[index].append(part)
        done += len(part)


def _fill(files: FileOperations, descriptor: int, buffers: list[memoryview], offset: int, path: Path) -> int:
    """Read into the buffers in order, however short the single reads are, and return the CRC-32 of what came."""
    checksum = 0
    for first in range(0, len(buffers), _MOST_BUFFERS):
        group = buffers[first : first + _MOST_BUFFERS]
        _fill_group(files, descriptor, group, offset, path)
        for buffer in group:
            checksum = zlib.crc32(buffer, checksum)
            offset += len(buffer)
    return checksum


def _fill_group(files: FileOperations, descriptor: int, group: list[memoryview], offset: int, path: Path) -> None:
    pending = group
    while pending:
        came = files.read_at(descriptor, pending, offset)
        if came <= 0:
            raise CheckpointDamaged(f"{path}: ends at byte {offset}, before its recorded size")
        offset += came
        pending = _after(pending, came)


def _after(buffers: list[memoryview], count: int) -> list[memoryview]:
    """Return what is left to fill of the buffers once `count` bytes have come."""
    for index, buffer in enumerate(buffers):
        if count < len(buffer):
            return [buffer[count:], *buffers[index + 1 :]]
        count -= len(buffer)
    return []
