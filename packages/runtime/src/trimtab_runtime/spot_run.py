"""Run any program on interruptible capacity: pass it the notice, give it the time that is left, exit so that it is run again.

The program gets a signal, and the name of a file in `TRIMTAB_NOTICE_FILE` that appears with the seconds left in it,
which the checkpointer of this package watches. What it does not finish by the deadline is killed, because the machine
would do so moments later without an exit code.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trimtab_runtime.errors import InputError
from trimtab_runtime.notice.aws import LEAD_S as LONGEST_LEAD_S
from trimtab_runtime.notice.detect import FILE_VARIABLE, GRACE_VARIABLE
from trimtab_runtime.notice.notice import Notice, NoticeBoard

logger = logging.getLogger(__name__)

POLL_S = 0.05
SIGNAL_CODE_BASE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRunSettings:
    """How a program is told, how long it may take, and when it is started again.

    `grace_s` shortens the time that the notice leaves; `reserve_s` of it are kept back for the exit itself.
    `restarts` counts crashes only: after an interruption the scheduler starts the program elsewhere.
    """

    signal_number: int | None = signal.SIGTERM
    grace_s: float | None = None
    reserve_s: float = 2.0
    exit_code: int = 75
    trust_zero: bool = False
    restarts: int = 0
    restart_delay_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRunResult:
    """How it ended."""

    exit_code: int
    interrupted: bool
    restarts: int


def spot_run(command: Sequence[str], board: NoticeBoard, settings: SpotRunSettings) -> SpotRunResult:
    """Run a program until it is done, interrupted, or has crashed once more than it may be restarted."""
    restarts, delay_s = 0, settings.restart_delay_s
    while True:
        code, interrupted = _run_once(command, board, settings)
        requeue = interrupted or code == settings.exit_code
        if requeue or code == 0 or restarts >= settings.restarts:
            return SpotRunResult(
                exit_code=_exit_code(code, interrupted, settings), interrupted=requeue, restarts=restarts
            )
        restarts += 1
        logger.warning("exit code %d; restart %d of %d in %g s", code, restarts, settings.restarts, delay_s)
        if _noticed_within(board, delay_s):
            return SpotRunResult(exit_code=settings.exit_code, interrupted=True, restarts=restarts - 1)
        delay_s *= 2


def _exit_code(code: int, interrupted: bool, settings: SpotRunSettings) -> int:
    """Return the requeue code after an interruption: a zero then more likely means "stopped" than "finished"."""
    if interrupted and not (code == 0 and settings.trust_zero):
        return settings.exit_code
    return code if code >= 0 else SIGNAL_CODE_BASE - code


def _noticed_within(board: NoticeBoard, seconds: float) -> bool:
    end_s = time.monotonic() + seconds
    while board.interruption is None and time.monotonic() < end_s:
        time.sleep(POLL_S)
    return board.interruption is not None


def _run_once(command: Sequence[str], board: NoticeBoard, settings: SpotRunSettings) -> tuple[int, bool]:
    with tempfile.TemporaryDirectory(prefix="trimtab-notice-") as folder:
        notice_file = Path(folder) / "notice"
        child = _started(command, notice_file)
        try:
            while child.poll() is None and board.interruption is None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(POLL_S)
            notice = board.interruption
            if notice is None or child.poll() is not None:
                return child.wait(), notice is not None
            return _wind_down(child, notice, notice_file, settings), True
        finally:
            _signal_group(child, signal.SIGKILL)


def _started(command: Sequence[str], notice_file: Path) -> subprocess.Popen[bytes]:
    # The file tells the true deadline; the signal that comes with it must not make a checkpointer believe in an earlier one.
    environment = {**os.environ, FILE_VARIABLE: str(notice_file), GRACE_VARIABLE: str(LONGEST_LEAD_S)}
    try:
        return subprocess.Popen(list(command), env=environment, start_new_session=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{command[0]}: cannot be started: {reason}; check its name, PATH and permissions") from error


def _wind_down(child: subprocess.Popen[bytes], notice: Notice, notice_file: Path, settings: SpotRunSettings) -> int:
    """Tell the program, wait until it ends or its time is over, and return its exit code."""
    left_s = notice.deadline_s - time.monotonic() - settings.reserve_s
    left_s = max(0.0, left_s if settings.grace_s is None else min(left_s, settings.grace_s))
    logger.warning("%s: interruption (%s); the program has %.1f s", notice.source, notice.detail, left_s)
    _announce(notice_file, left_s)
    if settings.signal_number is not None:
        _signal_group(child, settings.signal_number)
    try:
        return child.wait(left_s)
    except subprocess.TimeoutExpired:
        logger.error("the program did not end in time and is killed")
        _signal_group(child, signal.SIGKILL)
        return child.wait()


def _announce(notice_file: Path, left_s: float) -> None:
    """Let the file appear whole, so that nobody reads it half written."""
    part = notice_file.with_suffix(".part")
    part.write_text(f"{left_s:.3f}\n")
    part.replace(notice_file)


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    """Signal the program and whatever it has started: a shell in between would not pass it on."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
