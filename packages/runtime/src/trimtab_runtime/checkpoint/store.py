"""The folder of checkpoints: which there are, which is set aside, which may go.

Nothing here ever needs a person: leftovers of kills are swept at the next start, a checkpoint that does not verify is
set aside and the one before it is used, and the newest good one is never removed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from trimtab_runtime.checkpoint.files import FileOperations, flush_folder, remove_tree
from trimtab_runtime.checkpoint.layout import (
    DAMAGED_PREFIX,
    LEFTOVER_PREFIXES,
    TRASH_PREFIX,
    CheckpointName,
    any_save_number,
    parse_name,
)

logger = logging.getLogger(__name__)


def committed(files: FileOperations, root: Path) -> list[CheckpointName]:
    """Return the committed checkpoints, the one saved last first."""
    try:
        names = files.names(root)
    except FileNotFoundError:
        return []
    return sorted((name for name in map(parse_name, names) if name is not None), reverse=True)


def next_save_number(files: FileOperations, root: Path) -> int:
    """Return a number above that of every save that left a trace here."""
    return max((any_save_number(name) for name in files.names(root)), default=0) + 1


def sweep(files: FileOperations, root: Path) -> None:
    """Remove what kills left behind: saves that never committed, removals that never finished. Needs the folder's lock."""
    for name in files.names(root):
        if name.startswith(LEFTOVER_PREFIXES):
            _remove_quietly(files, root / name)


def set_aside(files: FileOperations, root: Path, name: CheckpointName, reason: str) -> None:
    """Rename a checkpoint that does not verify, so that no later start tries it again."""
    logger.warning("checkpoint %s is damaged and set aside: %s", name.folder, reason)
    with suppress(OSError):  # a read-only folder: the checkpoint stays, and every start skips it again
        files.rename(root / name.folder, root / (DAMAGED_PREFIX + name.folder))
        flush_folder(files, root)


def prune(files: FileOperations, root: Path, keep: int, protected: Collection[CheckpointName] = ()) -> None:
    """Remove all but the newest `keep` checkpoints, the protected ones, and any set aside before the newest.

    At least one is always kept. Call it only once the newest is durable. A checkpoint is renamed before its files go,
    so that a kill in between leaves no half checkpoint under a good name.
    """
    names = committed(files, root)
    for name in names[max(1, keep) :]:
        if name not in protected:
            _retire(files, root, name.folder)
    if names:
        newest = names[0].save_number
        for folder in files.names(root):
            if folder.startswith(DAMAGED_PREFIX) and any_save_number(folder) < newest:
                _remove_quietly(files, root / folder)


def _retire(files: FileOperations, root: Path, folder: str) -> None:
    trash = root / (TRASH_PREFIX + folder)
    try:
        files.rename(root / folder, trash)
    except OSError as error:
        logger.warning("cannot remove the old checkpoint %s: %s", folder, error)
        return
    _remove_quietly(files, trash)


def _remove_quietly(files: FileOperations, folder: Path) -> None:
    """Remove a folder; what cannot be removed now is swept at the next start."""
    try:
        remove_tree(files, folder)
    except OSError as error:
        logger.warning("cannot remove %s yet: %s", folder, error)
