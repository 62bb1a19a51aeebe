"""Copy a job's state into host memory, so that training goes on while the copy is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trimtab_runtime.checkpoint import arrays
from trimtab_runtime.checkpoint.host_buffer import HostBuffer
from trimtab_runtime.checkpoint.host_copy import CopyJob, in_chunks
from trimtab_runtime.checkpoint.host_views import HostViews
from trimtab_runtime.checkpoint.pinning import PinnedMemory, cuda_runtime
from trimtab_runtime.checkpoint.records import Extent, Manifest, Record, lay_out
from trimtab_runtime.checkpoint.sealed import JsonObject
from trimtab_runtime.checkpoint.shard_writer import CHUNK_BYTES, COPY_BYTES


class Piece(NamedTuple):
    """A tensor of this rank, or this rank's part of one, and how it is recorded."""

    extent: Extent
    value: object


class Snapshot(NamedTuple):
    """State at one step boundary, frozen in host memory; valid until the next one is taken."""

    manifest: Manifest
    data: memoryview
    copies: Sequence[Sequence[CopyJob]] = ()
    """By `COPY_BYTES`, the copies that are still to be made: a caller waiting for the save must not change the state
    meanwhile."""


class SnapshotTaker:
    """Takes snapshots into one buffer; the layout is worked out again only when the shapes have changed."""

    def __init__(self, *, rank: int, world_size: int) -> None:
        self._rank = rank
        self._world_size = world_size
        self._buffer = HostBuffer()
        self._pinned = PinnedMemory()
        self._extents: tuple[Extent, ...] | None = None
        self._records: tuple[Record, ...] = ()
        self._data = memoryview(b"")
        self._views: HostViews | None = None

    def prepare(self, pieces: Sequence[Piece]) -> None:
        """Allocate the memory for pieces of these shapes ahead of the first save."""
        extents = tuple(piece.extent for piece in pieces)
        if extents != self._extents:
            self._records, size_bytes = lay_out(extents)
            self._reserve(size_bytes, pinned=any(arrays.is_on_cuda(piece.value) for piece in pieces))
            self._views = HostViews(self._data, self._records, [piece.value for piece in pieces])
            self._extents = extents

    def _reserve(self, size_bytes: int, *, pinned: bool) -> None:
        runtime = cuda_runtime() if pinned else None
        self._views, self._data = None, memoryview(b"")
        self._pinned.release(runtime)
        self._data = self._buffer.reserve(size_bytes)
        if pinned:
            self._pinned.pin(self._data, runtime)

    def take(self, step: int, pieces: Sequence[Piece], values: JsonObject, *, whole: bool = True) -> Snapshot:
        """Copy the pieces and return the snapshot; the previous one must have been written.

        Unless `whole`, what lies in host memory is copied while it is written, chunk after chunk.
        """
        self.prepare(pieces)
        copies: Sequence[Sequence[CopyJob]] = ()
        if self._views is not None and whole:
            self._views.fill([piece.value for piece in pieces])
        elif self._views is not None:
            jobs = self._views.begin([piece.value for piece in pieces])
            copies = in_chunks(jobs, self._views.address, len(self._data), COPY_BYTES)
        manifest = Manifest(
            step=step,
            rank=self._rank,
            world_size=self._world_size,
            size_bytes=len(self._data),
            chunk_bytes=CHUNK_BYTES,
            chunk_crc32=(),
            records=self._records,
            values=values,
        )
        return Snapshot(manifest=manifest, data=self._data, copies=copies)
