"""The checkpointer that a training loop embeds: resume, one call per step, save, stop in time.

with Checkpointer("checkpoints", {"model": model, "optimizer": optimizer, "loader": loader}) as checkpointer:
    checkpointer.resume()
    for step in range(checkpointer.next_step, total_steps):
        train_one_step()
        if checkpointer.step_done(step):
            break
sys.exit(checkpointer.exit_code)
"""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self

from trimtab_runtime.checkpoint import job_state
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.finding import Resumed, find_newest, require_step
from trimtab_runtime.checkpoint.folder import FolderLock, open_folder
from trimtab_runtime.checkpoint.layout import CheckpointName
from trimtab_runtime.checkpoint.ranks import Ranks, current_ranks
from trimtab_runtime.checkpoint.saver import PendingSave, Saver, SaveSettings, Uploads
from trimtab_runtime.checkpoint.settings import CheckpointSettings
from trimtab_runtime.checkpoint.snapshot import SnapshotTaker
from trimtab_runtime.checkpoint.timing import Timing
from trimtab_runtime.errors import CheckpointError, CheckpointMismatch, CheckpointNotSaved
from trimtab_runtime.notice.detect import automatic_watcher
from trimtab_runtime.notice.notice import NoticeBoard
from trimtab_runtime.policies.checkpointing import NOTHING_ANSWERED, CheckpointState, Observation, StepDecision, decide

logger = logging.getLogger(__name__)


class Checkpointer:
    """Keeps a job's state so that it resumes bit for bit on another machine.

    `state` maps names to parts with `state_dict` and `load_state_dict`; random generators are kept without being
    named. The folder must be shared by all ranks, and no other job may write there.
    """

    def __init__(
        self,
        folder: str | Path,
        state: Mapping[str, object],
        settings: CheckpointSettings | None = None,
        *,
        board: NoticeBoard | None = None,
        ranks: Ranks | None = None,
        files: FileOperations | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or CheckpointSettings()
        self.board = board or NoticeBoard()
        self._watcher = automatic_watcher(self.board) if board is None else None
        self.next_step = 0
        self.interrupted = False
        self.failed_saves = 0
        self._saved_step: int | None = None
        """The step of the newest save that is durable or under way, or of the checkpoint resumed from."""
        self._stepped = False
        self._clock = clock
        self._files = files or FileOperations()
        self._ranks = ranks or current_ranks()
        self._root = Path(folder).resolve()
        self._rule = self.settings.rule()
        self._timing = Timing()
        self._copy_s = 0.0
        """How long the newest save held the training up before anything was written."""
        self._job = job_state.job_state(state, self._ranks)
        self._taker = SnapshotTaker(rank=self._ranks.rank, world_size=self._ranks.world_size)
        self._pending: PendingSave | None = None
        self._mirror: Uploads | None = None
        self._lock = FolderLock(self._root)
        self._open()
        self._policy = CheckpointState(self._clock(), NOTHING_ANSWERED)
        self._boundary_s = self._clock()
        if self._watcher is not None:
            self._watcher.start()

    def _open(self) -> None:
        """Take the folder on rank 0, and let every rank know this launch's name and the next save's number."""
        mine: list[str] = []
        if self._ranks.rank == 0:
            mine = [os.urandom(4).hex(), str(self._first_save_number())]
        launch, number_text = self._ranks.from_first(mine)
        self._save_number = int(number_text)
        settings = SaveSettings(
            root=self._root,
            rank=self._ranks.rank,
            world_size=self._ranks.world_size,
            launch=launch,
            keep=self.settings.keep,
            rank_timeout_s=self.settings.rank_timeout_s,
        )
        self._saver = Saver(self._files, settings, mirror=self._mirror)

    def _first_save_number(self) -> int:
        """Take the folder, fetch what a bucket has that is newer, and return the number of the next save."""
        number = open_folder(self._files, self._root, self._lock, self.settings.lock_wait_s)
        if self.settings.upload_to is None:
            return number
        from trimtab_runtime.checkpoint.mirror import Mirror  # only who uploads waits for it

        try:
            mirror = self._mirror = Mirror(self._files, self._root, self.settings.upload_to, self.settings.upload_keep)
            return max(number, mirror.fetch() + 1)
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Save the last step if the loop ended by itself, and close; after an exception only close."""
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    @property
    def exit_code(self) -> int:
        """What the process should exit with: the requeue code after an interruption, else 0."""
        return self.settings.exit_code if self.interrupted else 0

    def resume(self, step: int | None = None) -> Resumed | None:
        """Restore the newest checkpoint that verifies (or that of a step) and say what happened; None if there is none.

        Call it once, after every part has been made and before the first step. Nothing of the job is changed before
        every byte has been verified on every rank.
        """
        self.settle()
        found, skipped = find_newest(self._files, self._root, self._ranks, self._job.read, step=step)
        require_step(found, skipped, step, self._root)
        if found is None:
            return None
        notes = self._job.apply(found.saved)
        self.next_step = found.name.step + 1
        self._saved_step = found.name.step
        self._policy = CheckpointState(self._clock(), NOTHING_ANSWERED)
        self._boundary_s = self._clock()
        logger.info("resumed after step %d from %s", found.name.step, found.name.folder)
        return Resumed(step=found.name.step, folder=found.name.folder, skipped=skipped, notes=tuple(notes))

    def step_done(self, step: int) -> bool:
        """Say that a step is complete; save if it is time to; return True if the job should stop now.

        Every rank calls this at every step. It costs one look at a flag, and with several ranks one small all-reduce.
        """
        now_s = self._clock()
        self._timing.add_step(now_s - self._boundary_s)
        self._collect()
        decision = self._agree(step, now_s)
        self.next_step = step + 1
        self._stepped = True
        match decision:
            case StepDecision.SAVE:
                self._save_or_log(step, wait=not self.settings.asynchronous)
            case StepDecision.SAVE_AND_STOP:
                self._save_or_log(step, wait=True)
            case StepDecision.STOP:
                logger.warning("the notice leaves no time to save step %d; the checkpoint before it stands", step)
            case StepDecision.TRAIN:
                pass
        self._boundary_s = self._clock()
        self.interrupted = self.interrupted or decision in (StepDecision.SAVE_AND_STOP, StepDecision.STOP)
        return self.interrupted

    def _agree(self, step: int, now_s: float) -> StepDecision:
        """Return the gravest decision that any rank came to; raise `CheckpointMismatch` if they are at different steps."""
        state, decision = decide(self._rule, self._policy, self._observe(now_s))
        gravest, highest, lowest = self._ranks.highest([decision.value, step, -step])
        if highest != -lowest:
            raise CheckpointMismatch(
                f"ranks are at different steps ({-lowest:.0f} to {highest:.0f}); they cannot save together"
            )
        agreed = StepDecision(int(gravest))
        self._policy = state if agreed in (decision, StepDecision.TRAIN) else CheckpointState(now_s, state.answered)
        return agreed

    def _observe(self, now_s: float) -> Observation:
        notice = self.board.interruption
        if self._mirror is not None:
            self._timing.upload_s = self._mirror.last_seconds
        return Observation(
            now_s=now_s,
            age_s=machine_age_s(),
            step_s=self._timing.step_s,
            stall_s=self._timing.stall_s if self.settings.asynchronous else self._timing.save_s,
            save_s=self._timing.save_s,
            saving=self._pending is not None,
            risk_raised=self.board.rebalance is not None,
            notice_left_s=inf if notice is None else notice.deadline_s - now_s,
        )

    def save(self, step: int, *, wait: bool = True) -> PendingSave:
        """Save the state after a step, whatever the interval; every rank must call it at the same step.

        With `wait` it returns when the checkpoint is durable and raises `CheckpointNotSaved` if it could not be made
        so. Without, it returns once the state is copied; training may go on while it is written.
        """
        self.settle()
        began_s = self._clock()
        with _no_garbage_collection():
            pieces, values = self._job.capture()
            allocating_s = self._clock()
            self._taker.prepare(pieces)  # slow the first time only, so it does not predict later saves
            began_s += self._clock() - allocating_s
            snapshot = self._taker.take(step, pieces, values, whole=not wait)
        self._timing.assume_size(len(snapshot.data))
        name = CheckpointName(save_number=self._save_number, step=step)
        self._save_number += 1
        pending = self._pending = PendingSave(step)
        self._saved_step = step
        self._copy_s = self._clock() - began_s
        if not wait:  # one that is waited for copies while it writes: it does not predict the others
            self._timing.add_stall(self._copy_s)
        self._saver.save(snapshot, name, pending, wait=wait)
        if wait:
            self._collect()
            pending.wait()
        return pending

    def _save_or_log(self, step: int, *, wait: bool) -> None:
        try:
            self.save(step, wait=wait)
        except CheckpointNotSaved as error:  # the last good checkpoint stands, and training may go on
            logger.debug("step %d was not saved: %s", step, error)

    def settle(self) -> None:
        """Wait until no save and no removal of older ones is under way."""
        if self._pending is not None:
            with suppress(CheckpointError):  # reported by `_collect`
                self._pending.wait()
            self._collect()
        self._saver.settle()

    def _collect(self) -> None:
        """Take note of a save that has ended in the background."""
        pending = self._pending
        if pending is None or not pending.done:
            return
        self._pending = None
        if pending.error is None:
            self.failed_saves = 0
            self._timing.add_save(self._copy_s + (pending.seconds or 0.0))
            return
        self.failed_saves += 1
        self._saved_step = None
        logger.error("save number %d in a row failed: %s", self.failed_saves, pending.error)

    def finish(self) -> None:
        """Save the last completed step unless it is saved: a finished run that is started again has nothing left to do.

        The end of the `with` block calls it, unless an exception or an interruption ended the loop; every rank must come
        there. Leave the loop right after `step_done`, before the next step changes anything.
        """
        self.settle()
        last_step = self.next_step - 1
        missing = self._stepped and not self.interrupted and self._saved_step != last_step
        if self._ranks.highest([float(missing)])[0]:  # a save may have failed on one rank alone
            self._save_or_log(last_step, wait=True)

    def close(self) -> None:
        """Wait for the save and the upload under way (after a notice until its deadline), and give the folder free."""
        if self._watcher is not None:
            self._watcher.stop()
        self.settle()
        if self._mirror is not None:
            notice = self.board.interruption
            left_s = None if notice is None else max(0.0, notice.deadline_s - self._clock())
            if not self._mirror.close(left_s):
                logger.warning("the upload under way did not end before the deadline; the one before it stands")
        self._lock.release()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Hold cyclic garbage collection off: describing 100,000 tensors would set it off over and over, for half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def machine_age_s() -> float:
    """Return how long this machine has been up, in a container too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
