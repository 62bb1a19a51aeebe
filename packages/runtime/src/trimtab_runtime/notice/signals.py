"""Signals of Kubernetes (SIGTERM) and Slurm (USR1 by `--signal=USR1@T`) as notices. The handler is one write, nothing else.

A handler that saves can run inside `backward()`, inside an optimizer step, or inside another save; it can deadlock on
any lock that the interrupted code holds. This one leaves everything to the next step boundary. A handler that was
there before is called afterwards.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType

from trimtab_runtime.notice.notice import NoticeBoard, interruption

logger = logging.getLogger(__name__)

KUBERNETES_GRACE_S = 30.0
"""Kubernetes' default terminationGracePeriodSeconds, counted from SIGTERM."""

_Handler = Callable[[int, FrameType | None], object] | int | None


class SignalNotices:
    """Turns signals into notices from `install` until `restore`."""

    def __init__(self, board: NoticeBoard, lead_s: Mapping[int, float] | None = None) -> None:
        self._board = board
        self._lead_s: dict[int, float] = dict(lead_s or {signal.SIGTERM: KUBERNETES_GRACE_S})
        self._before: dict[int, _Handler] = {}

    def install(self) -> None:
        """Install the handlers; off the main thread, where Python forbids it, say so and rely on the other sources."""
        if threading.current_thread() is not threading.main_thread():
            logger.warning(
                "signals are not watched: handlers can be installed in the main thread only; start the watcher there"
            )
            return
        for number in self._lead_s:
            self._before[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Put the handlers back that were there before."""
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                signal.signal(number, handler)
            self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._board.signalled = interruption("signal", self._lead_s[number], time.monotonic(), str(number))
        before = self._before.get(number)
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)
