"""Fetch the newest uploaded checkpoint that verifies onto a fresh machine, and commit it there like a local save."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from trimtab_runtime.checkpoint import store
from trimtab_runtime.checkpoint.files import FileOperations, flush_folder, remove_tree, write_all
from trimtab_runtime.checkpoint.layout import CheckpointName
from trimtab_runtime.checkpoint.remote import RemoteFile, RemoteFolder
from trimtab_runtime.errors import CheckpointDamaged

logger = logging.getLogger(__name__)

DOWNLOAD_THREADS = 4
_LAUNCH = "download"


def fetch_newest(files: FileOperations, root: Path, remote: RemoteFolder) -> CheckpointName | None:
    """Bring the newest uploaded checkpoint here if it is newer than all that are; return its name, None if nothing was brought.

    One that does not verify is passed over. Errors of the file system behind the address pass through.
    """
    local = store.committed(files, root)
    for name in remote.checkpoints():
        if local and name <= local[0]:
            return None
        try:
            _bring(files, root, remote, name)
        except CheckpointDamaged as error:
            logger.warning("the uploaded checkpoint %s is damaged and passed over: %s", name.folder, error)
            continue
        logger.info("fetched %s", name.folder)
        return name
    return None


def _bring(files: FileOperations, root: Path, remote: RemoteFolder, name: CheckpointName) -> None:
    saving = root / name.saving_folder(_LAUNCH)
    try:
        files.make_folder(saving)
        for file in remote.read_marker(name):
            _bring_file(files, saving / file.name, remote, file)
        flush_folder(files, saving)
        files.rename(saving, root / name.folder)
        flush_folder(files, root)
    except BaseException:
        with suppress(OSError):
            remove_tree(files, saving)
        raise


def _bring_file(files: FileOperations, path: Path, remote: RemoteFolder, file: RemoteFile) -> None:
    descriptor = files.create(path, direct=False)
    try:
        offset = 0
        with ThreadPoolExecutor(max_workers=DOWNLOAD_THREADS, thread_name_prefix="trimtab-download") as executor:
            for first in range(0, len(file.parts), 2 * DOWNLOAD_THREADS):
                for content in executor.map(remote.read_part, file.parts[first : first + 2 * DOWNLOAD_THREADS]):
                    write_all(files, descriptor, memoryview(content), offset)
                    offset += len(content)
        files.flush(descriptor)
    finally:
        files.close(descriptor)
