"""An interruption that has been announced, and the board on which any source posts it and the training loop looks.

Looking is one attribute read, so that it costs nothing at every step, in warm-up and in evaluation alike.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol


class NoticeKind(Enum):
    """How certain the end is."""

    INTERRUPTION = "interruption"
    """The machine will be taken at the deadline."""
    REBALANCE = "rebalance"
    """The machine is at elevated risk; no deadline. A reason to save now, not to stop."""


class Notice(NamedTuple):
    """One announcement. `deadline_s` is on the monotonic clock, so that a jump of the wall clock cannot move it."""

    source: str
    kind: NoticeKind
    seen_s: float
    deadline_s: float
    detail: str = ""


class NoticeBoard:
    """Holds the earliest deadline announced so far. Posting is safe from any thread, `signalled` from a signal handler."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen = threading.Event()
        self._interruption: Notice | None = None
        self._rebalance: Notice | None = None
        self.signalled: Notice | None = None
        """Written by signal handlers, whose whole body is this one write: no lock may be taken there."""

    @property
    def interruption(self) -> Notice | None:
        """The interruption with the earliest deadline."""
        if self.signalled is not None:  # not cleared: a signal between reading and clearing would be lost
            self.post(self.signalled)
        return self._interruption

    @property
    def rebalance(self) -> Notice | None:
        """The newest warning of elevated risk."""
        return self._rebalance

    def post(self, notice: Notice) -> None:
        """Put a notice up; a later deadline never replaces an earlier one."""
        with self._lock:
            match notice.kind:
                case NoticeKind.INTERRUPTION:
                    if self._interruption is None or notice.deadline_s < self._interruption.deadline_s:
                        self._interruption = notice
                    self._seen.set()
                case NoticeKind.REBALANCE:
                    self._rebalance = notice

    def interrupt(self, lead_s: float, source: str = "callback") -> None:
        """Post an interruption that is `lead_s` away: the callback for sources of your own."""
        self.post(interruption(source, lead_s, time.monotonic()))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for an interruption to be posted; return False if the time ran out first."""
        return self._seen.wait(timeout_s)


def interruption(source: str, lead_s: float, now_s: float, detail: str = "") -> Notice:
    """Return the notice of an interruption that is `lead_s` away at the monotonic time `now_s`."""
    return Notice(
        source=source,
        kind=NoticeKind.INTERRUPTION,
        seen_s=now_s,
        deadline_s=now_s + max(0.0, lead_s),
        detail=detail,
    )


class NoticeSource(Protocol):
    """A place where interruptions are announced."""

    @property
    def name(self) -> str: ...
    @property
    def pause_s(self) -> float:
        """How long to wait between two looks; 0 if looking itself waits."""
        ...

    def look(self) -> Sequence[Notice]:
        """Look once and return what is announced; raise `OSError` if the place cannot be reached."""
        ...
