"""One writer per checkpoint folder: a record lock that dies with its process, however the process dies.

A record lock (`lockf`) is held by the process alone. A `flock` would be inherited by forked data-loader workers, and
a worker that outlives a killed trainer would keep its successor out.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from trimtab_runtime.checkpoint.layout import LOCK_NAME
from trimtab_runtime.errors import CheckpointLocked

_RETRY_S = 0.1
_held_here: set[tuple[int, Path]] = set()
"""Process and folder: a forked child holds nothing of its parent's."""


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
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline_s = time.monotonic() + wait_s
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline_s:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                os.close(descriptor)
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
            os.close(self._descriptor)
            self._descriptor = None
            _held_here.discard((os.getpid(), self._folder))


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
