"""A bucket of checkpoints at any fsspec address: parts named by their content, and one marker per checkpoint, written last.

    parts/<sha256>-<bytes>           32 MiB of some file of some checkpoint
    step-000000001200.00000007.json  which parts make up which file; while it is absent, the checkpoint does not exist

Naming parts by content makes an upload resumable (a part that exists is not sent again), incremental (a part that
did not change since an earlier checkpoint is not sent again) and verifiable on the way back. One job writes to an
address at a time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from trimtab_runtime.checkpoint.layout import CheckpointName, is_file_name, parse_name
from trimtab_runtime.checkpoint.records import FORMAT, FORMAT_VERSION, require_our_format
from trimtab_runtime.checkpoint.sealed import Json, JsonObject, seal, unseal
from trimtab_runtime.errors import CheckpointDamaged, UsageError
from trimtab_runtime.units import BYTES_PER_MIB

PART_BYTES = 32 * BYTES_PER_MIB
MARKER_SUFFIX = ".json"
_PARTS_FOLDER = "parts"
_PROBE_NAME = "trimtab-was-here"
_PART_NAME = re.compile(r"[0-9a-f]{64}-([0-9]{1,20})")


class _FileSystem(Protocol):
    """What is asked of an fsspec file system."""

    def pipe_file(self, path: str, value: bytes) -> object: ...
    def cat_file(self, path: str) -> bytes: ...
    def ls(self, path: str, *, detail: bool) -> Sequence[Mapping[str, object]]: ...
    def rm_file(self, path: str) -> object: ...
    def makedirs(self, path: str, *, exist_ok: bool) -> object: ...
    def invalidate_cache(self) -> object: ...


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a checkpoint, as the parts it is made of, in order."""

    name: str
    parts: tuple[str, ...]


class RemoteFolder:
    """Reads and writes parts and markers. Errors of the file system behind pass through as they are."""

    def __init__(self, file_system: _FileSystem, root: str) -> None:
        self._file_system = file_system
        self._root = root.rstrip("/")

    def prove_writable(self) -> None:
        """Write a small object, so that a wrong address or a lack of permission shows before the first step."""
        self._file_system.makedirs(f"{self._root}/{_PARTS_FOLDER}", exist_ok=True)
        self._file_system.pipe_file(f"{self._root}/{_PROBE_NAME}", b"")

    def checkpoints(self) -> list[CheckpointName]:
        """Return the checkpoints whose marker is there, the one saved last first."""
        names = (name.removesuffix(MARKER_SUFFIX) for name in self._names(self._root) if name.endswith(MARKER_SUFFIX))
        return sorted((name for name in map(parse_name, names) if name is not None), reverse=True)

    def parts(self) -> set[str]:
        """Return the parts that are there in full; one cut short by a kill does not count."""
        return {name for name, size in self._names(f"{self._root}/{_PARTS_FOLDER}").items() if _is_whole(name, size)}

    def _names(self, folder: str) -> dict[str, int]:
        self._file_system.invalidate_cache()
        try:
            entries = self._file_system.ls(folder, detail=True)
        except FileNotFoundError:
            return {}
        return {str(entry["name"]).rpartition("/")[2]: cast(int, entry["size"] or 0) for entry in entries}

    def write_part(self, name: str, content: bytes) -> None:
        """Store a part under the name of its content."""
        self._file_system.pipe_file(f"{self._root}/{_PARTS_FOLDER}/{name}", content)

    def read_part(self, name: str) -> bytes:
        """Return a part; raise `CheckpointDamaged` if its content is not what its name says."""
        try:
            content = self._file_system.cat_file(f"{self._root}/{_PARTS_FOLDER}/{name}")
        except FileNotFoundError as error:
            raise CheckpointDamaged(f"{self._root}: the part {name} is missing") from error
        if part_name(content) != name:
            raise CheckpointDamaged(f"{self._root}: the part {name} holds other bytes than were sent")
        return content

    def remove_part(self, name: str) -> None:
        """Remove a part."""
        self._file_system.rm_file(f"{self._root}/{_PARTS_FOLDER}/{name}")

    def write_marker(self, name: CheckpointName, files: Sequence[RemoteFile]) -> None:
        """Commit a checkpoint all of whose parts are there."""
        listed: list[Json] = [{"name": file.name, "parts": list(file.parts)} for file in files]
        body: JsonObject = {"format": FORMAT, "version": FORMAT_VERSION, "files": listed}
        self._file_system.pipe_file(self._marker(name), seal(body))

    def read_marker(self, name: CheckpointName) -> list[RemoteFile]:
        """Return which parts make up a checkpoint; raise `CheckpointDamaged` if the marker does not verify."""
        where = self._marker(name)
        body = unseal(self._file_system.cat_file(where), where)
        require_our_format(body, where)
        files = body.get("files")
        if not isinstance(files, list):
            raise CheckpointDamaged(f"{where}: lacks the list of files")
        return [_remote_file(entry, where) for entry in files]

    def remove_marker(self, name: CheckpointName) -> None:
        """Withdraw a checkpoint; its parts are removed once no other checkpoint needs them."""
        self._file_system.rm_file(self._marker(name))

    def _marker(self, name: CheckpointName) -> str:
        return f"{self._root}/{name.folder}{MARKER_SUFFIX}"


def part_name(content: bytes | memoryview) -> str:
    """Return the name of a part: the digest of its content, and its size."""
    return f"{hashlib.sha256(content).hexdigest()}-{len(content)}"


def _is_part_name(part: Json) -> bool:
    return isinstance(part, str) and _PART_NAME.fullmatch(part) is not None


def _is_whole(name: str, size_bytes: int) -> bool:
    match = _PART_NAME.fullmatch(name)
    return match is not None and int(match[1]) == size_bytes


def _remote_file(entry: Json, where: str) -> RemoteFile:
    match entry:
        case {"name": str(name), "parts": list(parts)} if is_file_name(name) and all(map(_is_part_name, parts)):
            return RemoteFile(name, tuple(str(part) for part in parts))
        case _:
            raise CheckpointDamaged(f"{where}: lists a file without its name or parts (saw {entry!r})")


def open_remote(url: str) -> RemoteFolder:
    """Return the folder at any fsspec address (s3://, gs://, az://, file://, memory://, ...)."""
    try:
        core = import_module("fsspec.core")
    except ImportError as error:
        raise UsageError(
            f"{url}: uploads need fsspec; pip install 'trimtab[upload]' and the file system's own package"
        ) from error
    try:
        file_system, root = core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{url}: fsspec cannot open this address: {error}") from error
    return RemoteFolder(file_system, root)
