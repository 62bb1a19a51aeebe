"""Send committed checkpoints to a bucket in the background: only what is not there yet, marker last, newest first in line."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trimtab_runtime.checkpoint.commit import read_commit
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.layout import COMMIT_NAME, CheckpointName
from trimtab_runtime.checkpoint.remote import PART_BYTES, RemoteFile, RemoteFolder, part_name

logger = logging.getLogger(__name__)

UPLOAD_THREADS = 4
ATTEMPTS = 4
_FIRST_RETRY_S = 1.0


def upload(files: FileOperations, folder: Path, name: CheckpointName, remote: RemoteFolder) -> int:
    """Send one checkpoint and return how many bytes had to be sent."""
    there = remote.parts()
    file_names = [entry.name for entry in read_commit(files, folder).files] + [COMMIT_NAME]
    with ThreadPoolExecutor(max_workers=UPLOAD_THREADS, thread_name_prefix="trimtab-upload") as executor:
        sent = [_send_file(files, folder / file_name, remote, there, executor) for file_name in file_names]
        remote.write_marker(name, [file for file, _ in sent])
    return sum(count for _, count in sent)


def _send_file(
    files: FileOperations, path: Path, remote: RemoteFolder, there: set[str], executor: ThreadPoolExecutor
) -> tuple[RemoteFile, int]:
    def send(content: bytes) -> tuple[str, int]:
        name = part_name(content)
        if name in there:
            return name, 0
        there.add(name)  # should sending fail, the whole attempt does, and the next one lists again
        remote.write_part(name, content)
        return name, len(content)

    done = list(_bounded_map(executor, send, _parts(files, path)))
    return RemoteFile(path.name, tuple(name for name, _ in done)), sum(count for _, count in done)


def _bounded_map(
    executor: ThreadPoolExecutor, send: Callable[[bytes], tuple[str, int]], parts: Iterator[bytes]
) -> Iterator[tuple[str, int]]:
    """Map in order with a few parts in memory at a time."""
    under_way = []
    for part in parts:
        under_way.append(executor.submit(send, part))
        if len(under_way) >= 2 * UPLOAD_THREADS:
            yield under_way.pop(0).result()
    for future in under_way:
        yield future.result()


def _parts(files: FileOperations, path: Path) -> Iterator[bytes]:
    descriptor = files.open_for_reading(path)
    try:
        left, offset = files.size_bytes(descriptor), 0
        while left > 0:
            buffer = bytearray(min(PART_BYTES, left))
            came = files.read_at(descriptor, [memoryview(buffer)], offset)
            if came <= 0:
                raise OSError(f"{path} became shorter while it was read")
            yield bytes(memoryview(buffer)[:came])
            left, offset = left - came, offset + came
    finally:
        files.close(descriptor)


def prune_remote(remote: RemoteFolder, keep: int) -> None:
    """Withdraw all but the newest checkpoints, then remove the parts that none of the rest needs. At least one is kept."""
    names = remote.checkpoints()
    for name in names[max(1, keep) :]:
        remote.remove_marker(name)
    needed = {part for name in names[: max(1, keep)] for file in remote.read_marker(name) for part in file.parts}
    if names:
        for part in sorted(remote.parts() - needed):
            remote.remove_part(part)


class Uploader:
    """Sends the newest committed checkpoint; one that is overtaken while it waits in line is skipped."""

    def __init__(self, files: FileOperations, root: Path, remote: RemoteFolder, keep: int) -> None:
        self.failed_uploads = 0
        self.last_seconds = 0.0
        self._files = files
        self._root = root
        self._remote = remote
        self._keep = keep
        self._changed = threading.Condition()
        self._waiting: CheckpointName | None = None
        self._sending: CheckpointName | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    def offer(self, name: CheckpointName) -> None:
        """Put a committed checkpoint in line."""
        with self._changed:
            self._waiting = name
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="trimtab-uploader", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def needed(self) -> set[CheckpointName]:
        """Return the checkpoints whose files must stay until they are sent."""
        with self._changed:
            return {name for name in (self._waiting, self._sending) if name is not None}

    def flush(self, timeout_s: float | None) -> bool:
        """Wait until nothing is in line; return False if the time ran out first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting is None and self._sending is None, timeout_s)

    def stop(self) -> None:
        """Send nothing more after what is under way."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None or self._stopping)
                if self._stopping:
                    return
                self._sending, self._waiting = self._waiting, None
            if self._sending is not None:
                self._send(self._sending)
            with self._changed:
                self._sending = None
                self._changed.notify_all()

    def _send(self, name: CheckpointName) -> None:
        """Send with retries, unless a newer one comes into line meanwhile.

        What a file system raises is its own affair, so outcomes are read from futures, not caught by class.
        """
        retry_s = _FIRST_RETRY_S
        for attempt in range(ATTEMPTS):
            began_s = time.monotonic()
            with ThreadPoolExecutor(max_workers=1) as executor:
                outcome = executor.submit(upload, self._files, self._root / name.folder, name, self._remote)
                error = outcome.exception()
            if error is None:
                self.last_seconds = time.monotonic() - began_s
                self.failed_uploads = 0
                self._prune()
                return
            logger.warning("upload of %s failed (attempt %d of %d): %s", name.folder, attempt + 1, ATTEMPTS, error)
            with self._changed:
                if self._changed.wait_for(lambda: self._stopping or self._waiting is not None, retry_s):
                    return
            retry_s *= 2
        self.failed_uploads += 1
        logger.error("upload number %d in a row failed: %s is on this machine only", self.failed_uploads, name.folder)

    def _prune(self) -> None:
        with ThreadPoolExecutor(max_workers=1) as executor:
            error = executor.submit(prune_remote, self._remote, self._keep).exception()
        if error is not None:
            logger.warning("older uploads could not be removed: %s", error)
