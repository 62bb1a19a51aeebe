"""Observe the GPUs while a program runs, while a process lives, or for a time."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType

from trimtab_runtime.errors import InputError, UsageError
from trimtab_runtime.profile.host import process_tree
from trimtab_runtime.profile.observation import INTERVAL_S, Profile

POLL_S = 0.1
SIGNAL_CODE_BASE = 128


def observe_program(
    program: Sequence[str],
    pid: int | None,
    *,
    limit_s: float | None = None,
    interval_s: float = INTERVAL_S,
    tokens: float | None = None,
    view: Callable[[Profile], AbstractContextManager[None]] | None = None,
) -> tuple[dict[str, object], int]:
    """Start and observe `program`, or else the process `pid`, or else all GPUs; return the profile and the exit code.

    `view` shows what is seen while the observation runs; `tokens` is the work done, as the profile's rate. Raises
    `InputError` if there is no such process, or nothing to observe and no program either, and `UsageError` for a program
    that cannot be started.
    """
    child = _started(program) if program else None
    if pid is not None and not process_tree(pid):
        raise InputError(f"there is no process {pid} here (in a container only its own processes are seen)")
    with _signals_passed_on(child):
        seen = Profile(interval_s=interval_s, pid=pid if child is None else child.pid).start()
        if child is None and seen.problem is not None:
            seen.stop()
            raise InputError(seen.problem)
        try:
            with view(seen) if view is not None else nullcontext():
                code = _wait(child, pid, limit_s)
        except KeyboardInterrupt:
            code = _interrupted(child)
        finally:
            seen.stop()
    document = seen.document()
    if tokens is not None:
        _add_tokens(document, tokens)
    return document, code


@contextmanager
def _signals_passed_on(child: subprocess.Popen[bytes] | None) -> Iterator[None]:
    """Pass SIGTERM and SIGHUP on to the program, whose end is then waited for; without a program they end the watch."""

    def handle(number: int, frame: FrameType | None) -> None:
        if child is None:
            raise KeyboardInterrupt
        child.send_signal(number)

    if threading.current_thread() is not threading.main_thread():  # Python allows no signal handlers there
        yield
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _add_tokens(document: dict[str, object], tokens: float) -> None:
    wall_s = document["wall_s"]
    if isinstance(wall_s, float) and wall_s > 0:
        document["tok_s"] = tokens / wall_s


def _started(program: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(list(program))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{program[0]}: cannot be started: {reason}; check its name, PATH and permissions") from error


def _wait(child: subprocess.Popen[bytes] | None, pid: int | None, limit_s: float | None) -> int:
    """Wait for the program, the process or the time."""
    if child is not None:
        code = _ended(child)
        return code if code >= 0 else SIGNAL_CODE_BASE - code
    end_s = None if limit_s is None else time.monotonic() + limit_s
    while (pid is None or _alive(pid)) and (end_s is None or time.monotonic() < end_s):
        time.sleep(POLL_S)
    return 0


def _ended(child: subprocess.Popen[bytes]) -> int:
    """Return a program's code once it has ended, waiting in turns.

    Python handles a signal between two steps of its own: one that comes just before a wait without limit is handled after it.
    """
    while True:
        with suppress(subprocess.TimeoutExpired):
            return child.wait(POLL_S)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _interrupted(child: subprocess.Popen[bytes] | None) -> int:
    """Let the program, which got the same Ctrl-C, end by itself; a second Ctrl-C ends it."""
    if child is None:
        return 0
    with suppress(KeyboardInterrupt):
        return SIGNAL_CODE_BASE + signal.SIGINT if _ended(child) < 0 else child.returncode
    child.kill()
    child.wait()
    return SIGNAL_CODE_BASE + signal.SIGINT
