"""Take a checkpoint folder into use: prove that it can hold checkpoints, lock it, clear what kills left."""

from __future__ import annotations

from pathlib import Path

from trimtab_runtime.checkpoint import store
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.folder_lock import FolderLock
from trimtab_runtime.errors import CheckpointNotSaved


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
