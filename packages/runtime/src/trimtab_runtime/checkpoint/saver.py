"""Carry one snapshot to a durable commit, in the caller's thread or in the background, and clean up when it fails."""

from __future__ import annotations

import errno
import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from trimtab_runtime.checkpoint import commit as protocol, store
from trimtab_runtime.checkpoint.files import FileOperations, remove_tree
from trimtab_runtime.checkpoint.layout import CheckpointName
from trimtab_runtime.checkpoint.snapshot import Snapshot
from trimtab_runtime.errors import CheckpointError, CheckpointNotSaved

logger = logging.getLogger(__name__)


class SaveSettings(NamedTuple):
    """What does not change from one save to the next."""

    root: Path
    rank: int
    world_size: int
    launch: str
    keep: int
    rank_timeout_s: float


class Uploads(Protocol):
    """What is asked of the bucket side of the folder, which is imported only where there is one."""

    @property
    def last_seconds(self) -> float: ...
    def close(self, timeout_s: float | None) -> bool: ...
    def offer(self, name: CheckpointName) -> None: ...
    def needed(self) -> set[CheckpointName]: ...


class PendingSave:
    """A save under way. `wait` returns once it is durable and raises if it failed."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.seconds: float | None = None
        self._done = threading.Event()
        self._error: CheckpointError | None = None

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._done.is_set()

    @property
    def error(self) -> CheckpointError | None:
        """Why it failed; None while it runs and after success."""
        return self._error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; return False if the time ran out first; raise what made it fail."""
        if not self._done.wait(timeout_s):
            return False
        if self._error is not None:
            raise self._error
        return True

    def finish(self, seconds: float, error: CheckpointError | None = None) -> None:
        """Record the end; called once by the thread that runs the save."""
        self.seconds, self._error = seconds, error
        self._done.set()


class Saver:
    """Runs saves one after another; never two at a time, since they share the snapshot's memory.

    Older checkpoints are removed after a save has been reported durable, in the background: freeing a gigabyte of
    files takes as long as writing a fifth of one.
    """

    def __init__(self, files: FileOperations, settings: SaveSettings, *, mirror: Uploads | None = None) -> None:
        self._files = files
        self._settings = settings
        self._mirror = mirror
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trimtab-save")
        self._tidying: Future[None] | None = None

    def save(self, snapshot: Snapshot, name: CheckpointName, pending: PendingSave, *, wait: bool) -> None:
        """Write and commit a snapshot, here or in the background; the interpreter waits for either before it exits."""
        self.settle()
        if wait:
            self.run(snapshot, name, pending)
        else:
            self._executor.submit(self.run, snapshot, name, pending)
        self._tidying = self._executor.submit(self._tidy, pending)

    def settle(self) -> None:
        """Wait until nothing is under way."""
        if self._tidying is not None:
            tidying, self._tidying = self._tidying, None
            tidying.result()

    def _tidy(self, pending: PendingSave) -> None:
        if pending.error is None and self._settings.rank == 0:
            self._prune()

    def run(self, snapshot: Snapshot, name: CheckpointName, pending: PendingSave) -> None:
        """Write and commit a snapshot; the outcome is in `pending`, whatever happens."""
        began_s = time.perf_counter()
        try:
            self._save(snapshot, name)
        except CheckpointError as error:
            pending.finish(time.perf_counter() - began_s, error)
        except OSError as error:
            pending.finish(time.perf_counter() - began_s, not_saved(self._settings.root, name, error))
        else:
            pending.finish(time.perf_counter() - began_s)
        finally:
            if (
                not pending.done
            ):  # what is not ours to catch, such as MemoryError: a waiting caller must not wait forever
                reason = CheckpointNotSaved(
                    f"{self._settings.root}: step {name.step} was not saved; the save broke off"
                )
                pending.finish(time.perf_counter() - began_s, reason)

    def _save(self, snapshot: Snapshot, name: CheckpointName) -> None:
        saving = self._settings.root / name.saving_folder(self._settings.launch)
        try:
            self._write(snapshot, name, saving)
        except (OSError, CheckpointError):
            self._give_up(saving)
            raise
        if self._settings.rank == 0 and self._mirror is not None:
            self._mirror.offer(name)

    def _protected(self) -> set[CheckpointName]:
        return self._mirror.needed() if self._mirror is not None else set()

    def _prune(self) -> None:
        try:
            store.prune(self._files, self._settings.root, self._settings.keep, self._protected())
        except OSError as error:  # the save itself is durable
            logger.warning("%s: older checkpoints could not be removed: %s", self._settings.root, error)

    def _write(self, snapshot: Snapshot, name: CheckpointName, saving: Path) -> None:
        settings = self._settings
        try:
            protocol.write_rank(self._files, saving, snapshot.manifest, snapshot.data, snapshot.copies)
        except OSError as error:
            if error.errno != errno.ENOSPC or settings.rank != 0:
                raise
            self._make_room(saving)
            protocol.write_rank(self._files, saving, snapshot.manifest, snapshot.data, snapshot.copies)
        if settings.rank == 0:
            protocol.await_ranks(saving, settings.world_size, settings.rank_timeout_s)
            protocol.commit(self._files, settings.root, name, saving, settings.world_size)
        else:
            protocol.await_commit(settings.root, name, saving, settings.rank_timeout_s)

    def _make_room(self, saving: Path) -> None:
        """On a full disk give up every checkpoint but the newest, once, before failing."""
        logger.warning("%s: the disk is full; older checkpoints are removed to make room", self._settings.root)
        with suppress(OSError):
            if self._settings.world_size == 1:
                remove_tree(self._files, saving)
        store.prune(self._files, self._settings.root, 1, self._protected())

    def _give_up(self, saving: Path) -> None:
        if self._settings.rank != 0:
            protocol.announce_failure(self._files, saving, self._settings.rank)
            return
        with suppress(OSError):
            remove_tree(self._files, saving)


def not_saved(root: Path, name: CheckpointName, error: OSError) -> CheckpointNotSaved:
    """Return an error with the operating system's reason and the fix."""
    cures = {
        errno.ENOSPC: "free space or keep fewer checkpoints",
        errno.EDQUOT: "raise the quota or keep fewer checkpoints",
        errno.EROFS: "the file system is read-only; mount it writable",
        errno.EACCES: "let this user write there",
        errno.EIO: "the disk or its connection fails; move to another",
    }
    cure = cures.get(error.errno or 0, "check the folder")
    return CheckpointNotSaved(
        f"{root}: step {name.step} was not saved ({error.strerror or error}); {cure}. Earlier checkpoints are untouched"
    )
