"""What takes long: each question worked out once, in the background, one at a time, until it is answered or cancelled.

A thread cannot be ended from outside: work that is cancelled ends where it next tells how far it is, and what waits behind it
begins then.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar, cast

from trimtab.errors import TrimtabError
from trimtab.pipeline.auditing import Progress

MOST_WAITING = 8
"""Questions that are begun at once; another is turned away."""
MOST_WORKED_OUT = 64
"""Answers kept in memory: verifications, scenarios and allocations."""
ABANDONED_S = 30.0
"""Work that was not asked about for so long is stopped, so that the next question does not wait for it. A page that
waits asks every few seconds."""
ANSWER_WAIT_S = 2.0
"""How long a page waits for what is being worked out before it says so."""
CANCELLED = "the computation was cancelled"
log = logging.getLogger(__name__)
T = TypeVar("T")


class TooBusy(TrimtabError):
    """As many questions wait as may."""


class _Stopped(BaseException):
    """Raised inside work that is to end: no Exception, so that nothing on the way takes it for a fault of the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """Work that goes on: which stage, and the share of it that is done."""

    stage: str
    done_frac: float
    computation: str = ""
    """The id by which it can be cancelled; empty where it cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Work that cannot be done, and why."""

    reason: str
    computation: str = ""
    """The id by which it can be begun again, where a reader cancelled it; empty otherwise."""


class State(StrEnum):
    """Where a computation stands."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    """It is cancelled, and ends with the stage that it is in."""
    CANCELLED = "cancelled"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuestion:
    """What is worked out: of which audit, what is asked (of a type of its own for each kind), and that in words."""

    audit: str
    """Its name."""
    stamp: str
    """What changes when the audit does."""
    asked: Hashable
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputationState:
    """A computation as programs see it."""

    ident: str
    question: AuditQuestion
    state: State
    stage: str
    done_frac: float


@dataclass(slots=True, eq=False)
class _Computation:
    """One question, how it is worked out, and how far it is."""

    question: AuditQuestion
    make: Callable[[Progress], object]
    ident: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    """Not to be guessed, so that no page elsewhere can name it."""
    work: Future[object] = field(default_factory=Future)
    progress: UnderWay = UnderWay(stage="waiting for its turn", done_frac=0.0)
    cancelled: threading.Event = field(default_factory=threading.Event)
    asked_s: float = 0.0
    """When somebody last asked after it, by the monotonic clock."""

    @property
    def answered(self) -> bool:
        done = self.work.done() and not self.work.cancelled() and not self.cancelled.is_set()
        return done and self.work.exception() is None

    @property
    def stopped(self) -> bool:
        """Return whether it ended without an answer and without a fault."""
        return self.work.cancelled() or (self.work.done() and isinstance(self.work.exception(), _Stopped))

    def state(self) -> ComputationState:
        if self.cancelled.is_set():
            state = State.CANCELLED if self.work.done() else State.STOPPING
        elif not self.work.done():
            state = State.RUNNING if self.work.running() else State.WAITING
        else:
            state = State.DONE if self.answered else State.FAILED
        return ComputationState(
            ident=self.ident,
            question=self.question,
            state=state,
            stage=self.progress.stage,
            done_frac=1.0 if state is State.DONE else self.progress.done_frac,
        )


class Computations:
    """Questions and the last answers to them; one worker, so that they do not take the time of one another."""

    def __init__(
        self,
        closed: threading.Event,
        *,
        most_kept: int = MOST_WORKED_OUT,
        most_begun: float = MOST_WAITING,
        abandoned_s: float | None = None,
        keeps_refusals: bool = False,
    ) -> None:
        """`keeps_refusals`: what could not be worked out is not tried again when it is asked for again."""
        self._closed, self._most_kept, self._most_begun = closed, most_kept, most_begun
        self._abandoned_s, self._keeps_refusals = abandoned_s, keeps_refusals
        # by hand: computations are cancelled, reported while they run, and forgotten only when they are done
        self._known: OrderedDict[AuditQuestion, _Computation] = OrderedDict()
        self._access = threading.RLock()
        self._waiting = threading.BoundedSemaphore(MOST_WAITING)
        self._worker = ThreadPoolExecutor(max_workers=1)

    def ask(
        self, question: AuditQuestion, make: Callable[[Progress], T], wait_s: float | None = None
    ) -> T | UnderWay | Refused:
        """Return the answer to a question, or how far it is after a short wait; raises TooBusy where too many are asked.

        One that was cancelled stays so until it is begun again.
        """
        found = self._asked(question, make)
        if found.cancelled.is_set():
            return Refused(reason=CANCELLED, computation=found.ident)
        work = found.work
        if not work.done() and self._waiting.acquire(blocking=False):
            try:
                wait([work], ANSWER_WAIT_S if wait_s is None else wait_s)
            finally:
                self._waiting.release()
        if found.cancelled.is_set():
            return Refused(reason=CANCELLED, computation=found.ident)
        if not work.done():
            return UnderWay(stage=found.progress.stage, done_frac=found.progress.done_frac, computation=found.ident)
        fault = None if work.cancelled() else work.exception()
        if fault is None and not work.cancelled():
            return cast("T", work.result())
        if not self._keeps_refusals:
            with self._access:  # what was not at hand may be at hand when it is asked for again
                self._known.pop(question, None)
        if isinstance(fault, TrimtabError):
            return Refused(reason=str(fault))
        return Refused(reason="it could not be worked out; the server's log says why")

    def _asked(self, question: AuditQuestion, make: Callable[[Progress], object]) -> _Computation:
        """Return the computation of a question, begun where it is not known or was abandoned."""
        with self._access:
            found = self._known.get(question)
            if found is None or (found.stopped and not found.cancelled.is_set() and not self._closed.is_set()):
                found = _Computation(question=question, make=make)
                self._begin(found)
            found.asked_s = time.monotonic()
            self._known.move_to_end(question)
            return found

    def _begin(self, found: _Computation) -> None:
        """Hand a computation to the worker; raises TooBusy."""
        if sum(not other.work.done() for other in self._known.values()) >= self._most_begun:
            raise TooBusy("too many questions are being worked out at once; try again in a few seconds")
        cancelled = found.cancelled = threading.Event()
        found.asked_s, found.progress = time.monotonic(), UnderWay(stage="waiting for its turn", done_frac=0.0)

        def tell(stage: str, done_frac: float) -> None:
            abandoned_s = ABANDONED_S if self._abandoned_s is None else self._abandoned_s
            if self._closed.is_set() or cancelled.is_set() or time.monotonic() - found.asked_s > abandoned_s:
                raise _Stopped
            found.progress = UnderWay(stage=stage, done_frac=done_frac)

        found.work = self._worker.submit(found.make, tell)
        found.work.add_done_callback(_log_fault)
        self._known[found.question] = found
        answered = [key for key, other in self._known.items() if other.answered]
        for key in answered[: max(0, len(answered) + 1 - self._most_kept)]:
            del self._known[key]

    def latest(self, audit: str, stamp: str, kind: type[T]) -> tuple[object, T] | None:
        """Return the answer of a type that was asked for last of an audit, after what was asked; None where there is none."""
        for found in reversed(self._all()):
            of_audit = (found.question.audit, found.question.stamp) == (audit, stamp)
            if of_audit and found.answered and isinstance(answer := found.work.result(), kind):
                return found.question.asked, answer
        return None

    def states(self) -> Iterator[ComputationState]:
        """Return all that is known."""
        return (found.state() for found in self._all())

    def _all(self) -> Sequence[_Computation]:
        with self._access:
            return tuple(self._known.values())

    def _named(self, ident: str) -> _Computation | None:
        return next((found for found in self._all() if found.ident == ident), None)

    def cancel(self, ident: str) -> ComputationState | None:
        """Stop what goes on, at the end of its stage; what is answered stays. Return its state, None for an unknown id."""
        with self._access:
            found = self._named(ident)
            if found is None:
                return None
            if not found.work.done():
                found.cancelled.set()
                found.work.cancel()  # what waits for its turn never begins
            return found.state()

    def begin_again(self, ident: str) -> ComputationState | None:
        """Begin what was cancelled again; leave what was not. Return its state, None for an unknown id. Raises TooBusy."""
        with self._access:
            found = self._named(ident)
            if found is not None and found.cancelled.is_set():
                self._begin(found)
            return None if found is None else found.state()

    def close(self) -> None:
        """Begin no more work."""
        self._worker.shutdown(wait=False, cancel_futures=True)


def _log_fault(work: Future[object]) -> None:
    fault = None if work.cancelled() else work.exception()
    if fault is not None and not isinstance(fault, TrimtabError | _Stopped):
        log.error("an answer could not be worked out", exc_info=fault)
