"""The file operations that a save consists of, behind one seam, so that a test can fail any one of them.

Only what matters to durability passes through here: a save, a commit and a clean-up are sequences of these calls, and
the tests fail, shorten or interrupt each call in turn.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from trimtab_runtime.errors import CheckpointDamaged

NEW_FILE_MODE = 0o644


class FileOperations:
    """The operating system's calls, unchanged. Subclass to inject faults."""

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents; an existing one is fine."""
        path.mkdir(parents=True, exist_ok=True)

    def create(self, path: Path, *, direct: bool) -> int:
        """Create or empty a file for writing and return its descriptor; `direct` bypasses the page cache."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        if direct:
            flags |= getattr(os, "O_DIRECT", 0)
        return os.open(path, flags, NEW_FILE_MODE)

    def write_at(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Write at an offset and return how many bytes went out, which may be fewer than given."""
        return os.pwrite(descriptor, data, offset)

    def flush(self, descriptor: int) -> None:
        """Force a file's data, or a folder's names, onto the device."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        os.close(descriptor)

    def open_for_reading(self, path: Path) -> int:
        """Open a file or a folder for reading and return its descriptor; a pipe is not waited at."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def read_at(self, descriptor: int, into: Sequence[memoryview], offset: int) -> int:
        """Fill buffers from an offset and return how many bytes came, which may be fewer than fit."""
        return os.preadv(descriptor, into, offset)

    def size_bytes(self, descriptor: int) -> int:
        """Return the size of an open file; raise `CheckpointDamaged` for what is none: a folder, a pipe, a device."""
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise CheckpointDamaged("something else lies in the place of a file")
        return found.st_size

    def rename(self, source: Path, target: Path) -> None:
        """Move a file or folder within one file system, atomically."""
        source.rename(target)

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted."""
        return sorted(os.listdir(folder))

    def remove_file(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        path.rmdir()


def flush_folder(files: FileOperations, folder: Path) -> None:
    """Force a folder's names onto the device, without which a rename may not survive a power cut."""
    descriptor = files.open_for_reading(folder)
    try:
        files.flush(descriptor)
    finally:
        files.close(descriptor)


def write_all(files: FileOperations, descriptor: int, data: memoryview, offset: int) -> None:
    """Write every byte, however short the single writes are."""
    done = 0
    while done < len(data):
        written = files.write_at(descriptor, data[done:], offset + done)
        if written <= 0:
            raise OSError(f"a write of {len(data) - done} bytes at {offset + done} wrote nothing")
        done += written


def write_durably(files: FileOperations, path: Path, content: bytes) -> None:
    """Write a small file and force it onto the device. The name becomes durable with its folder's flush."""
    descriptor = files.create(path, direct=False)
    try:
        write_all(files, descriptor, memoryview(content), 0)
        files.flush(descriptor)
    finally:
        files.close(descriptor)


def remove_tree(files: FileOperations, folder: Path) -> None:
    """Remove a flat folder and what is in it; of a link only the link, never what it leads to."""
    if folder.is_symlink():
        files.remove_file(folder)
        return
    for name in files.names(folder):
        files.remove_file(folder / name)
    files.remove_folder(folder)
