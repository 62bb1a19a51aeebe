"""What an engine and its runner say to one another."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from trimtab_runtime.batcher.lanes import Taken

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

FOREVER_S = -1.0


class State(Enum):
    """Whether a batcher takes requests."""

    OPEN = "open"
    DRAINING = "draining"
    CLOSED = "closed"


class Step(NamedTuple):
    """What a runner does next: run `taken`, else wait `wait_s` (`FOREVER_S`: until woken); `ended` means go home."""

    taken: Taken | None
    wait_s: float = FOREVER_S
    ended: bool = False


ENDED = Step(None, 0.0, True)


class Waker(NamedTuple):
    """How the engine reaches its runner.

    `wake` is told the caller's event loop (None in a thread), and whether all expected requests have arrived. Then none is
    left to join, and the runner need not give them a turn of the loop.
    """

    wake: Callable[[AbstractEventLoop | None, bool], None]
    wake_all: Callable[[], None]
