"""A folder of checkpoints mirrored to a bucket: the newest that verifies is fetched at the start, and each commit is sent."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from trimtab_runtime.checkpoint import store
from trimtab_runtime.checkpoint.files import FileOperations, flush_folder, remove_tree, write_all
from trimtab_runtime.checkpoint.layout import CheckpointName
from trimtab_runtime.checkpoint.remote import RemoteFile, RemoteFolder, open_remote
from trimtab_runtime.checkpoint.upload import Uploader
from trimtab_runtime.errors import CheckpointDamaged, CheckpointError, CheckpointNotSaved

logger = logging.getLogger(__name__)

DOWNLOAD_THREADS = 4
_LAUNCH = "download"


class Mirror:
    """The bucket side of a checkpoint folder."""

    def __init__(self, files: FileOperations, root: Path, url: str, keep: int) -> None:
        self._files = files
        self._root = root
        self._url = url
        self._remote = open_remote(url)
        self._uploader = Uploader(files, root, self._remote, keep)

    @property
    def last_seconds(self) -> float:
        """What the newest upload took."""
        return self._uploader.last_seconds

    @property
    def failed_uploads(self) -> int:
        """How many uploads in a row have failed."""
        return self._uploader.failed_uploads

    def fetch(self) -> int:
        """Bring the newest uploaded checkpoint here if it is newer than what is; return the highest save number there.

        Raise `CheckpointError` if the bucket cannot be used and there is no checkpoint here either: to start from
        zero in silence would throw away the training so far.
        """
        with ThreadPoolExecutor(max_workers=1) as executor:  # whatever a file system raises arrives as a value
            outcome = executor.submit(self._fetch)
            error = outcome.exception()
        if error is None:
            return outcome.result()
        if isinstance(error, CheckpointError):
            raise error
        if not store.committed(self._files, self._root):
            raise CheckpointNotSaved(
                f"{self._url}: the bucket cannot be used ({error}), and {self._root} holds no checkpoint to go on from; "
                "check address and permissions, or start without upload_to"
            ) from error
        logger.warning("%s cannot be used (%s); going on from the checkpoint on this machine", self._url, error)
        return 0

    def _fetch(self) -> int:
        self._remote.prove_writable()
        fetch_newest(self._files, self._root, self._remote)
        return max((name.save_number for name in self._remote.checkpoints()), default=0)

    def offer(self, name: CheckpointName) -> None:
        """Put a committed checkpoint in line for upload."""
        self._uploader.offer(name)

    def needed(self) -> set[CheckpointName]:
        """Return the checkpoints whose files must stay until they are sent."""
        return self._uploader.needed()

    def close(self, timeout_s: float | None) -> bool:
        """Wait for uploads in line, then stop; return False if the time ran out first."""
        done = self._uploader.flush(timeout_s)
        self._uploader.stop()
        return done


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
