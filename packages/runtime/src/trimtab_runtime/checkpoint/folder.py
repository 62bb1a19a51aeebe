"""A checkpoint folder taken into use: proof that it can hold checkpoints, one writer, and what kills left cleared away.

The writer's lock dies with its process, however the process dies. It belongs to this module's descriptor (an
open-file-description lock, Linux 3.15 and newer): a record lock of the whole process would be dropped as soon as any code
in it closed the same file, a copy of the folder for instance. What belongs to a descriptor is inherited by forked
data-loader workers, and a worker that outlives a killed trainer would keep its successor out: every forked child closes
its copy. Where the system has no such locks, record locks are used.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from pathlib import Path

from trimtab_runtime.checkpoint import store
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.layout import LOCK_NAME
from trimtab_runtime.errors import CheckpointLocked, CheckpointNotSaved

_RETRY_S = 0.1
_SET_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""struct flock: the type, from where, start, length (0: to the end), and a process that must be 0."""
_held_here: set[tuple[int, Path]] = set()
"""Process and folder: a forked child holds nothing of its parent's."""
_here: set[int] = set()
"""The descriptors of this process that hold a lock or wait for one."""


class FolderLock:
    """Holds a folder for this process until released."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._descriptor: int | None = None

    def acquire(self, wait_s: float) -> None:
        """Take the lock, waiting for a predecessor that is about to end; raise `CheckpointLocked` naming the holder."""
        if (os.getpid(), self._folder) in _held_here:
            raise CheckpointLocked(
                f"{self._folder}: another checkpointer of this process writes here; give each its own folder"
            )
        path = self._folder / LOCK_NAME
        # A link is not followed: the file that it leads to would be emptied.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        _here.add(descriptor)
        deadline_s = time.monotonic() + wait_s
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline_s:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                _close(descriptor)
                raise CheckpointLocked(
                    f"{self._folder}: another job writes here ({holder or 'holder unknown'}); "
                    "stop it, or give this job its own folder"
                )
            time.sleep(_RETRY_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        self._descriptor = descriptor
        _held_here.add((os.getpid(), self._folder))

    def release(self) -> None:
        """Give the folder free; releasing twice is fine."""
        if self._descriptor is not None:
            _close(self._descriptor)
            self._descriptor = None
            _held_here.discard((os.getpid(), self._folder))


def _try_lock(descriptor: int) -> bool:
    try:
        if _SET_LOCK is not None:
            fcntl.fcntl(descriptor, _SET_LOCK, _WHOLE_FILE)
            return True
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        if error.errno != errno.EINVAL:  # a system without such locks
            raise
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _close(descriptor: int) -> None:
    _here.discard(descriptor)
    os.close(descriptor)


def _close_in_child() -> None:
    """Close the copies that a fork has made; the lock goes on at the parent's descriptor."""
    for descriptor in tuple(_here):
        _close(descriptor)


os.register_at_fork(after_in_child=_close_in_child)


def open_folder(files: FileOperations, root: Path, lock: FolderLock, lock_wait_s: float) -> int:
    """Make the folder ready and return the number of the next save.

    Raise `CheckpointNotSaved` if nothing can be written there: better before the first step than at the first save.
    """
    try:
        files.make_folder(root)
        lock.acquire(lock_wait_s)
        return _cleared(files, root, lock)
    except OSError as error:
        raise CheckpointNotSaved(
            f"{root}: cannot hold checkpoints ({error.strerror or error}); "
            "choose a writable folder on a file system with room"
        ) from error


def _cleared(files: FileOperations, root: Path, lock: FolderLock) -> int:
    try:
        number = store.next_save_number(files, root)
        store.sweep(files, root)
        return number
    except BaseException:
        lock.release()
        raise
