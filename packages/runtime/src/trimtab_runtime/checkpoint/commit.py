"""Make a save durable and visible in one atomic step: flush every file, flush the folder, rename it, flush its parent.

Before the rename the folder is not read, so a kill only leaves a leftover that the next start removes. After
the parent is flushed the checkpoint survives a power cut. With several ranks the shared folder is the meeting point:
each rank's manifest appears by rename once its bytes are durable, and rank 0 commits when all are there; no
collective runs in the background.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trimtab_runtime.checkpoint.files import FileOperations, flush_folder, write_durably
from trimtab_runtime.checkpoint.host_copy import CopyJob
from trimtab_runtime.checkpoint.layout import COMMIT_NAME, CheckpointName, parse_name, shard_names
from trimtab_runtime.checkpoint.records import FORMAT, FORMAT_VERSION, Manifest, manifest_from_json, require_our_format
from trimtab_runtime.checkpoint.sealed import Json, JsonObject, seal, unseal
from trimtab_runtime.checkpoint.shard_writer import write_shard
from trimtab_runtime.errors import CheckpointDamaged, CheckpointNotSaved

_POLL_S = 0.01
MOST_TEXT_BYTES = 1 << 30
"""A manifest of ten million tensors is of this size; a longer one is not read."""
_PART_SUFFIX = ".part"
_FAILED_SUFFIX = ".failed"


class FileEntry(NamedTuple):
    """One file of a committed checkpoint; manifests also by their checksum, data files by those in the manifest."""

    name: str
    size_bytes: int
    crc32: int | None


class Commit(NamedTuple):
    """What a commit marker says."""

    step: int
    save_number: int
    world_size: int
    files: tuple[FileEntry, ...]

    @property
    def size_bytes(self) -> int:
        """The checkpoint's size without the marker."""
        return sum(entry.size_bytes for entry in self.files)


def write_rank(
    files: FileOperations,
    saving: Path,
    manifest: Manifest,
    data: memoryview,
    copies: Sequence[Sequence[CopyJob]] = (),
) -> None:
    """Write one rank's data and manifest durably; the manifest's appearance tells rank 0 that this rank is done."""
    data_name, manifest_name = shard_names(manifest.rank)
    files.make_folder(saving)
    checksums = write_shard(files, saving / data_name, data, copies)
    body = manifest.as_json() | {"chunk_crc32": list(checksums)}
    part = saving / (manifest_name + _PART_SUFFIX)
    write_durably(files, part, seal(body))
    files.rename(part, saving / manifest_name)


def announce_failure(files: FileOperations, saving: Path, rank: int) -> None:
    """Tell rank 0 not to wait for this rank; on a full or vanished disk even this may fail, and rank 0 times out."""
    with suppress(OSError):
        write_durably(files, saving / (shard_names(rank)[1] + _FAILED_SUFFIX), b"")


def commit(files: FileOperations, root: Path, name: CheckpointName, saving: Path, world_size: int) -> Path:
    """Commit a save that every rank has written and return the folder of the checkpoint."""
    write_durably(files, saving / COMMIT_NAME, seal(_commit_body(files, saving, name, world_size)))
    flush_folder(files, saving)
    target = root / name.folder
    files.rename(saving, target)
    flush_folder(files, root)
    return target


def _commit_body(files: FileOperations, saving: Path, name: CheckpointName, world_size: int) -> JsonObject:
    entries: list[Json] = []
    for rank in range(world_size):
        data_name, manifest_name = shard_names(rank)
        content = read_file(files, saving / manifest_name)
        body = unseal(content, str(saving / manifest_name))
        entries.append({"name": data_name, "size_bytes": body["size_bytes"], "crc32": None})
        entries.append({"name": manifest_name, "size_bytes": len(content), "crc32": zlib.crc32(content)})
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "step": name.step,
        "save_number": name.save_number,
        "world_size": world_size,
        "files": entries,
    }


def await_ranks(saving: Path, world_size: int, timeout_s: float) -> None:
    """Wait until every rank's manifest is there; raise `CheckpointNotSaved` naming the ranks that failed or are missing."""
    waiting = set(range(world_size))
    for _ in _polls(timeout_s):
        waiting = {rank for rank in waiting if not (saving / shard_names(rank)[1]).exists()}
        failed = {rank for rank in waiting if (saving / (shard_names(rank)[1] + _FAILED_SUFFIX)).exists()}
        if failed:
            raise CheckpointNotSaved(f"{saving}: rank(s) {sorted(failed)} could not write; see their logs")
        if not waiting:
            return
    raise CheckpointNotSaved(
        f"{saving}: rank(s) {sorted(waiting)} did not appear within {timeout_s:g} s; "
        "do all ranks write to one shared folder, and do all save at the same step?"
    )


def await_commit(root: Path, name: CheckpointName, saving: Path, timeout_s: float) -> Path:
    """Wait on another rank for rank 0's commit; raise `CheckpointNotSaved` if rank 0 gave the save up."""
    target = root / name.folder
    for _ in _polls(timeout_s):
        if target.exists():
            return target
        if not saving.exists() and not target.exists():
            break
    raise CheckpointNotSaved(f"{target}: rank 0 did not commit the save; see its log")


def _polls(timeout_s: float) -> Iterator[None]:
    deadline_s = time.monotonic() + timeout_s
    yield
    while time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
        yield


def read_file(files: FileOperations, path: Path) -> bytes:
    """Return a small file's content; raise `CheckpointDamaged` if it is missing."""
    try:
        descriptor = files.open_for_reading(path)
    except FileNotFoundError as error:
        raise CheckpointDamaged(f"{path}: the file is missing") from error
    try:
        size_bytes = files.size_bytes(descriptor)
        if size_bytes > MOST_TEXT_BYTES:
            raise CheckpointDamaged(f"{path}: {size_bytes} bytes are more than a manifest may have")
        content = bytearray(size_bytes)
        done = 0
        while done < len(content):
            came = files.read_at(descriptor, [memoryview(content)[done:]], done)
            if came <= 0:
                raise CheckpointDamaged(f"{path}: ends at byte {done}, before its size")
            done += came
        return bytes(content)
    finally:
        files.close(descriptor)


def read_commit(files: FileOperations, folder: Path) -> Commit:
    """Read and verify a checkpoint's commit marker."""
    where = str(folder / COMMIT_NAME)
    body = unseal(read_file(files, folder / COMMIT_NAME), where)
    require_our_format(body, where)
    match body:
        case {"step": int(step), "save_number": int(number), "world_size": int(world_size), "files": list(entries)}:
            marker = Commit(
                step=step, save_number=number, world_size=world_size, files=tuple(map(_file_entry, entries))
            )
        case _:
            raise CheckpointDamaged(f"{where}: lacks the step, the world size or the list of files")
    if not _lists_its_ranks(marker):
        raise CheckpointDamaged(f"{where}: lists other files than those of {marker.world_size} rank(s)")
    if parse_name(folder.name) not in (None, CheckpointName(save_number=marker.save_number, step=marker.step)):
        raise CheckpointDamaged(f"{where}: is the marker of step {marker.step}, save {marker.save_number}")
    return marker


def _lists_its_ranks(marker: Commit) -> bool:
    """Say whether a marker names the files of its ranks and no others: no name can then lead out of the folder."""
    listed = [entry.name for entry in marker.files]
    if not 0 < marker.world_size == len(listed) // 2:
        return False
    return listed == [name for rank in range(marker.world_size) for name in shard_names(rank)]


def _file_entry(entry: Json) -> FileEntry:
    match entry:
        case {"name": str(name), "size_bytes": int(size_bytes), "crc32": (int() | None) as crc32} if size_bytes >= 0:
            return FileEntry(name=name, size_bytes=size_bytes, crc32=crc32)
        case _:
            raise CheckpointDamaged(f"a commit marker lists a file without its name or size (saw {entry!r})")


def read_manifest(files: FileOperations, folder: Path, rank: int, marker: Commit) -> Manifest:
    """Read and verify one rank's manifest against its own seal and the commit marker."""
    path = folder / shard_names(rank)[1]
    content = read_file(files, path)
    expected = {entry.name: entry.crc32 for entry in marker.files}
    if expected.get(path.name) != zlib.crc32(content):
        raise CheckpointDamaged(f"{path}: is not the manifest that was committed")
    manifest = manifest_from_json(unseal(content, str(path)), str(path))
    if (manifest.step, manifest.rank, manifest.world_size) != (marker.step, rank, marker.world_size):
        raise CheckpointDamaged(f"{path}: is the manifest of another step or rank")
    return manifest
