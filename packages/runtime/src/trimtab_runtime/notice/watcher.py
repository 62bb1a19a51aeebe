"""Watch sources of notices, each in a daemon thread that sleeps in the kernel: training never waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from trimtab_runtime.notice.notice import NoticeBoard, NoticeSource
from trimtab_runtime.notice.signals import SignalNotices

logger = logging.getLogger(__name__)

_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 30.0
_ODD_ANSWERS = (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError)
"""What reading an unexpected answer may raise: the watch goes on, since the next answer may be the notice."""


class NoticeWatcher:
    """Posts on a board what its sources announce, from `start` until `stop`."""

    def __init__(
        self, board: NoticeBoard, sources: Sequence[NoticeSource], signals: SignalNotices | None = None
    ) -> None:
        self.board = board
        self._sources = sources
        self._signals = signals
        self._stop = threading.Event()
        self.failed_looks = 0
        """How often no answer, or none that could be read, came from a source."""

    def start(self) -> Self:
        """Start watching."""
        if self._signals is not None:
            self._signals.install()
        for source in self._sources:
            threading.Thread(
                target=self._watch, args=(source,), name=f"trimtab-notice-{source.name}", daemon=True
            ).start()
        return self

    def stop(self) -> None:
        """Stop watching; a long poll under way ends with the process."""
        self._stop.set()
        if self._signals is not None:
            self._signals.restore()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _watch(self, source: NoticeSource) -> None:
        retry_s = _FIRST_RETRY_S
        while not self._stop.is_set():
            try:
                for notice in source.look():
                    self.board.post(notice)
                retry_s, pause_s = _FIRST_RETRY_S, source.pause_s
            except _ODD_ANSWERS as error:
                self.failed_looks += 1
                level = logging.WARNING if retry_s == _FIRST_RETRY_S else logging.DEBUG
                logger.log(level, "no notice can be had from %s (%r); trying again", source.name, error)
                pause_s, retry_s = retry_s, min(_LONGEST_RETRY_S, 2 * retry_s)
            self._stop.wait(pause_s)
