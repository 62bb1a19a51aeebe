"""Run any program on interruptible capacity: pass it the notice, give it the time that is left, exit so that it is run again.

The program gets a signal, and the name of a file in `TRIMTAB_NOTICE_FILE` that appears with the seconds left in it,
which the checkpointer of this package watches. It has ended when all that it started has: a shell in front dies of the
signal at once, while the trainer behind it still saves. What is not finished by the deadline is killed, because the
machine would do so moments later without an exit code. Other signals (Ctrl-C, a closed terminal) are passed on.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from trimtab_runtime.errors import InputError
from trimtab_runtime.notice.aws import LEAD_S as LONGEST_LEAD_S
from trimtab_runtime.notice.detect import FILE_VARIABLE, GRACE_VARIABLE
from trimtab_runtime.notice.notice import Notice, NoticeBoard
from trimtab_runtime.policies.checkpointing import REQUEUE_EXIT_CODE

logger = logging.getLogger(__name__)

POLL_S = 0.05
SIGNAL_CODE_BASE = 128
PASSED_ON = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that mean the program and not the machine. SIGTERM is a notice."""
PASSED_ON_GRACE_S = 30.0
"""How long what a dead leader has started may live on after a signal that was passed on: Kubernetes' default grace."""
_ENOUGH = 3
"""So many times Ctrl-C, and the program is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRunSettings:
    """How a program is notified, how long it may take, and when it is started again.

    `grace_s` shortens the time that the notice leaves; `reserve_s` of it are kept back for the exit itself.
    `restarts` counts crashes only: after an interruption the scheduler starts the program elsewhere.
    """

    signal_number: int | None = signal.SIGTERM
    grace_s: float | None = None
    reserve_s: float = 2.0
    exit_code: int = REQUEUE_EXIT_CODE
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
    with _signals_passed_on() as passing:
        while True:
            code, interrupted = _run_once(command, board, settings, passing)
            requeue = interrupted or code == settings.exit_code
            if requeue or code == 0 or restarts >= settings.restarts or passing.seen:
                return SpotRunResult(
                    exit_code=_exit_code(code, interrupted, settings), interrupted=requeue, restarts=restarts
                )
            restarts += 1
            logger.warning("exit code %d; restart %d of %d in %g s", code, restarts, settings.restarts, delay_s)
            if _noticed_within(board, delay_s, passing):
                return SpotRunResult(exit_code=settings.exit_code, interrupted=True, restarts=restarts - 1)
            if passing.seen:
                return SpotRunResult(
                    exit_code=_exit_code(code, False, settings), interrupted=False, restarts=restarts - 1
                )
            delay_s *= 2


class _Passing:
    """Passes signals on to the program that runs, and remembers them."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.seen: list[int] = []

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Pass one on; called by the interpreter between two steps of the main thread."""
        self.seen.append(number)
        if self.child is not None:
            _signal_group(self.child, signal.SIGKILL if self.seen.count(signal.SIGINT) >= _ENOUGH else number)


@contextmanager
def _signals_passed_on() -> Iterator[_Passing]:
    """Take the signals over; off the main thread, where Python forbids it, they stay as they are."""
    passing = _Passing()
    if threading.current_thread() is not threading.main_thread():
        yield passing
        return
    before = {number: signal.signal(number, passing.handle) for number in PASSED_ON}
    try:
        yield passing
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_code(code: int, interrupted: bool, settings: SpotRunSettings) -> int:
    """Return the requeue code after an interruption: a zero then more likely means "stopped" than "finished"."""
    if interrupted and not (code == 0 and settings.trust_zero):
        return settings.exit_code
    return code if code >= 0 else SIGNAL_CODE_BASE - code


def _noticed_within(board: NoticeBoard, seconds: float, passing: _Passing) -> bool:
    end_s = time.monotonic() + seconds
    while board.interruption is None and not passing.seen and time.monotonic() < end_s:
        time.sleep(POLL_S)
    return board.interruption is not None


def _run_once(
    command: Sequence[str], board: NoticeBoard, settings: SpotRunSettings, passing: _Passing
) -> tuple[int, bool]:
    with tempfile.TemporaryDirectory(prefix="trimtab-notice-") as folder:
        notice_file = Path(folder) / "notice"
        child = passing.child = _started(command, notice_file)
        try:
            for number in passing.seen:  # those that came before there was a program
                _signal_group(child, number)
            _await(child, board, passing)
            notice = board.interruption
            if notice is None:
                return child.wait(), False
            return _wind_down(child, notice, notice_file, settings), True
        finally:
            passing.child = None
            _signal_group(child, signal.SIGKILL)


def _await(child: subprocess.Popen[bytes], board: NoticeBoard, passing: _Passing) -> None:
    """Wait until the program ends or there is a notice; after a signal that was passed on, for all that it started too."""
    while child.poll() is None and board.interruption is None:
        with suppress(subprocess.TimeoutExpired):
            child.wait(POLL_S)
    end_s = time.monotonic() + PASSED_ON_GRACE_S
    while passing.seen and board.interruption is None and _is_at_work(child) and time.monotonic() < end_s:
        time.sleep(POLL_S)


def _started(command: Sequence[str], notice_file: Path) -> subprocess.Popen[bytes]:
    # The file tells the true deadline; the signal that comes with it must not make a checkpointer believe in an earlier one.
    environment = {**os.environ, FILE_VARIABLE: str(notice_file), GRACE_VARIABLE: str(LONGEST_LEAD_S)}
    try:
        return subprocess.Popen(list(command), env=environment, start_new_session=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{command[0]}: cannot be started: {reason}; check its name, PATH and permissions") from error


def _wind_down(child: subprocess.Popen[bytes], notice: Notice, notice_file: Path, settings: SpotRunSettings) -> int:
    """Tell the program, wait until it and all that it started end or their time is over, and return its exit code."""
    left_s = notice.deadline_s - time.monotonic() - settings.reserve_s
    left_s = max(0.0, left_s if settings.grace_s is None else min(left_s, settings.grace_s))
    logger.warning("%s: interruption (%s); the program has %.1f s", notice.source, notice.detail, left_s)
    _announce(notice_file, left_s)
    if settings.signal_number is not None:
        _signal_group(child, settings.signal_number)
    end_s = time.monotonic() + left_s
    while (at_work := _is_at_work(child)) and time.monotonic() < end_s:
        time.sleep(POLL_S)
    if at_work:
        logger.error("the program did not end in time and is killed")
        _signal_group(child, signal.SIGKILL)
    return child.wait()


def _is_at_work(child: subprocess.Popen[bytes]) -> bool:
    """Say whether the program or anything in its group runs; zombies do not count."""
    if child.poll() is None:
        return True
    try:
        os.killpg(child.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    statuses = list(_group_states(child.pid))
    return not statuses or any(state not in "ZX" for state in statuses)


def _group_states(group: int) -> Iterator[str]:
    """Yield the state letter of every process of a group (proc(5), `stat`); nothing if there is no /proc."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in parentheses, may hold anything; after it come state, parent and group.
            state, _, process_group, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
            if int(process_group) == group:
                yield state


def _announce(notice_file: Path, left_s: float) -> None:
    """Write the file atomically, so that it is never read half written."""
    part = notice_file.with_suffix(".part")
    part.write_text(f"{left_s:.3f}\n")
    part.replace(notice_file)


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    """Signal the program and whatever it has started: a shell in between would not pass it on."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
