"""A folder of checkpoints mirrored to a bucket: fetched from at the start, sent to after every commit."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trimtab_runtime.checkpoint import store
from trimtab_runtime.checkpoint.download import fetch_newest
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.layout import CheckpointName
from trimtab_runtime.checkpoint.remote import open_remote
from trimtab_runtime.checkpoint.upload import Uploader
from trimtab_runtime.errors import CheckpointError, CheckpointNotSaved

logger = logging.getLogger(__name__)


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
