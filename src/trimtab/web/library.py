"""The audits that a server shows, and the plans behind them that can be chosen again; both kept in memory within limits.

An audit's document is read where its page is asked for. Its plan is made again from the history, in the background, one at a
time: without it every page works but the switches, which say why.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar, cast

from trimtab.emit.document import AuditDocument
from trimtab.emit.document.switched import SwitchedPart
from trimtab.emit.from_audit.switched import switched_part
from trimtab.errors import TrimtabError
from trimtab.pipeline.auditing import Progress, ProvenPlan, what_if_beside
from trimtab.plan.proof.own_order import OrderedYear, OwnOrders
from trimtab.plan.proof.scenario import Scenario, WhatIf
from trimtab.plan.proof.switched import switched
from trimtab.plan.proof.undeclared import ServiceLimitPrices, limit_prices
from trimtab.plan.verify.verification import Verification
from trimtab.web.tables import AllocatedBill, AllocationQuestion

MOST_DOCUMENTS = 8
MOST_PLANS = 2
"""Plans of which all that was replayed is held in memory."""
MOST_ANSWERS = 512
MOST_WAITING = 8
"""Questions that wait for one plan at once; another is turned away."""
MOST_WORKED_OUT = 64
"""Verifications, scenarios and allocations kept in memory."""
ABANDONED_S = 30.0
"""Work that was not asked about for so long is stopped, so that the next question does not wait for it. A page that
waits asks every few seconds."""
ANSWER_WAIT_S = 2.0
"""How long a page waits for what is being worked out before it says so."""
log = logging.getLogger(__name__)


class TooBusy(TrimtabError):
    """As many questions wait as may."""


class _Closed(TrimtabError):
    """The server ends, and with it what it was preparing."""


class _Abandoned(TrimtabError):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An audit as the list has it."""

    name: str
    """Its number, or the name of its file: part of addresses."""
    stamp: str
    """Changes when the audit does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """Work that goes on: which stage, and the share of it that is done."""

    stage: str
    done_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Work that cannot be done, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAudit:
    """An audit that is being made: of what, since when, and how far it is."""

    fleet: str
    started: datetime
    stage: str
    done_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentsQuestion:
    """What to commit to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHoursQuestion:
    """What each GPU of a workload did, hour by hour."""

    workload: str


HistoryQuestion = CommitmentsQuestion | GpuHoursQuestion
"""What a history is asked besides its plan."""


class AuditSource(Protocol):
    """Where audits come from."""

    def entries(self) -> Sequence[AuditEntry]:
        """Return the audits, the latest first."""
        ...

    def document(self, name: str) -> AuditDocument:
        """Read an audit; raises TrimtabError."""
        ...

    def plan(self, name: str, tell: Progress) -> ProvenPlan:
        """Make an audit's plan again from its history; raises TrimtabError where that is not at hand."""
        ...

    def verified(self, name: str, tell: Progress) -> Verification:
        """Hold an audit's plan against later history; raises TrimtabError where the one or the other is not at hand."""
        ...

    def later_stamp(self, name: str) -> str:
        """Return what changes when the later history does."""
        ...

    def allocated(self, name: str, asked: AllocationQuestion, tell: Progress) -> AllocatedBill:
        """Split the bill of an audit's history; raises TrimtabError where that is not at hand."""
        ...

    def worked_out(self, name: str, question: HistoryQuestion, tell: Progress) -> object:
        """Answer a question about an audit's history; raises TrimtabError where that is not at hand."""
        ...

    def running(self) -> Sequence[RunningAudit]:
        """Return the audits that are being made."""
        ...


class Switchboard:
    """One plan, chosen again for every set of actions that people switch off; one at a time, and each set once."""

    def __init__(self, made: ProvenPlan) -> None:
        self._made = made
        self._ids = frozenset(action.id for action in made.planned.plan.actions)
        self._known: OrderedDict[frozenset[str], SwitchedPart] = OrderedDict()
        self._orders = OwnOrders(planned=made.planned)
        self._solving = threading.Lock()
        self._places = threading.BoundedSemaphore(MOST_WAITING)

    def without(self, off: frozenset[str]) -> SwitchedPart:
        """Return the plan without some actions; ids that it does not have are left aside. Raises TooBusy."""
        off &= self._ids
        if (found := self._known.get(off)) is not None:
            return found
        if not self._places.acquire(blocking=False):
            raise TooBusy("too many plans are being chosen at once; try again in a few seconds")
        try:
            with self._solving:
                if (found := self._known.get(off)) is not None:
                    return found
                answer = switched(self._made.planned, self._made.proven, off)
                found = switched_part(answer, self._made.planned.plan.window.hours)
                self._known[off] = found
                if len(self._known) > MOST_ANSWERS:
                    self._known.popitem(last=False)
                return found
        finally:
            self._places.release()

    def year(self, order: Sequence[str]) -> OrderedYear:
        """Return the year if the plan's actions are done in an order; takes milliseconds."""
        with self._solving:
            return self._orders.year(order)

    def limit_prices(self, tell: Progress) -> tuple[ServiceLimitPrices, ...]:
        """Price latency limits that are not declared; switches wait meanwhile. Raises TrimtabError."""
        with self._solving:
            return limit_prices(self._made.planned, self._made.opened.market, self._made.opened.settings, tell)

    def what_if(self, scenario: Scenario, tell: Progress) -> WhatIf:
        """Plan the fleet in another world beside this plan; switches wait meanwhile. Raises TrimtabError."""
        with self._solving:
            return what_if_beside(self._made, scenario, tell)


T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Job:
    """Something that is being worked out, and how far it is."""

    work: Future[object]
    state: UnderWay
    asked_s: float
    """When somebody last asked after it, by the monotonic clock."""


class Answers:
    """What takes long: each question worked out once, in the background, one at a time; the last answers are kept."""

    def __init__(self, closed: threading.Event) -> None:
        self._closed = closed
        self._jobs: OrderedDict[object, _Job] = OrderedDict()
        self._access = threading.Lock()
        self._waiting = threading.BoundedSemaphore(MOST_WAITING)
        self._worker = ThreadPoolExecutor(max_workers=1)

    def ask(self, key: object, make: Callable[[Progress], T], wait_s: float = ANSWER_WAIT_S) -> T | UnderWay | Refused:
        """Return the answer to a question, or how far it is after a short wait; raises TooBusy where too many are asked."""
        with self._access:
            job = self._jobs.get(key)
            if job is None or _was_abandoned(job):
                job = self._begun(key, make)
            job.asked_s = time.monotonic()
            self._jobs.move_to_end(key)
        if not job.work.done() and self._waiting.acquire(blocking=False):
            try:
                wait([job.work], wait_s)
            finally:
                self._waiting.release()
        if not job.work.done():
            return job.state
        fault = None if job.work.cancelled() else job.work.exception()
        if fault is None and not job.work.cancelled():
            return cast("T", job.work.result())
        with self._access:  # what was not at hand may be at hand when it is asked for again
            self._jobs.pop(key, None)
        if isinstance(fault, TrimtabError):
            return Refused(reason=str(fault))
        log.error("an answer could not be worked out", exc_info=fault)
        return Refused(reason="it could not be worked out; the server's log says why")

    def _begun(self, key: object, make: Callable[[Progress], T]) -> _Job:
        if sum(not job.work.done() for job in self._jobs.values()) >= MOST_WAITING:
            raise TooBusy("too many questions are being worked out at once; try again in a few seconds")
        waiting = UnderWay(stage="waiting for its turn", done_frac=0.0)
        job = _Job(work=Future(), state=waiting, asked_s=time.monotonic())

        def tell(stage: str, done_frac: float) -> None:
            if self._closed.is_set():
                raise _Closed
            if time.monotonic() - job.asked_s > ABANDONED_S:
                raise _Abandoned
            job.state = UnderWay(stage=stage, done_frac=done_frac)

        job.work = self._worker.submit(make, tell)
        self._jobs[key] = job
        while len(self._jobs) > MOST_WORKED_OUT:
            self._jobs.popitem(last=False)
        return job

    def close(self) -> None:
        """Begin no more work."""
        self._worker.shutdown(wait=False, cancel_futures=True)


def _was_abandoned(job: _Job) -> bool:
    return job.work.done() and not job.work.cancelled() and isinstance(job.work.exception(), _Abandoned)


@dataclass(slots=True, eq=False)
class Library:
    """The audits of a source."""

    source: AuditSource
    _documents: OrderedDict[AuditEntry, AuditDocument] = field(default_factory=OrderedDict)
    _boards: OrderedDict[AuditEntry, Switchboard | UnderWay | Refused] = field(default_factory=OrderedDict)
    _access: threading.RLock = field(default_factory=threading.RLock)
    _closed: threading.Event = field(default_factory=threading.Event)
    _worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=1))
    _answers: Answers = field(init=False)

    def __post_init__(self) -> None:
        self._answers = Answers(self._closed)

    def entries(self) -> Sequence[AuditEntry]:
        """Return the audits, the latest first."""
        return self.source.entries()

    def entry(self, name: str) -> AuditEntry | None:
        """Return the audit of a name, None where there is none."""
        return next((entry for entry in self.entries() if entry.name == name), None)

    def document(self, entry: AuditEntry) -> AuditDocument:
        """Return an audit's document; raises TrimtabError where it cannot be read."""
        with self._access:
            if entry not in self._documents:
                self._documents[entry] = self.source.document(entry.name)
                _forget(self._documents, MOST_DOCUMENTS)
            self._documents.move_to_end(entry)
            return self._documents[entry]

    def switchboard(self, entry: AuditEntry) -> Switchboard | UnderWay | Refused:
        """Return an audit's switches; where they were not asked for yet, begin to make them."""
        with self._access:
            if entry not in self._boards:
                self._boards[entry] = UnderWay(stage="waiting for its turn", done_frac=0.0)
                self._worker.submit(self._make, entry).add_done_callback(partial(self._ended, entry))
            self._boards.move_to_end(entry)
            return self._boards[entry]

    def what_if(self, entry: AuditEntry, scenario: Scenario) -> WhatIf | UnderWay | Refused:
        """Return an audit's fleet in another world beside its plan; raises TooBusy."""
        board = self.switchboard(entry)
        if not isinstance(board, Switchboard):
            return board
        return self._answers.ask((entry, scenario), lambda tell: board.what_if(scenario, tell))

    def year(self, entry: AuditEntry, order: Sequence[str]) -> OrderedYear | UnderWay | Refused:
        """Return the year if an audit's actions are done in an order."""
        board = self.switchboard(entry)
        return board.year(order) if isinstance(board, Switchboard) else board

    def limit_prices(self, entry: AuditEntry) -> tuple[ServiceLimitPrices, ...] | UnderWay | Refused:
        """Return what latency limits that are not declared would save; raises TooBusy."""
        board = self.switchboard(entry)
        if not isinstance(board, Switchboard):
            return board
        return self._answers.ask((entry, "limit prices"), board.limit_prices)

    def worked_out(self, entry: AuditEntry, question: HistoryQuestion) -> object | UnderWay | Refused:
        """Return the answer to a question about an audit's history; raises TooBusy."""
        return self._answers.ask((entry, question), lambda tell: self.source.worked_out(entry.name, question, tell))

    def running(self) -> Sequence[RunningAudit]:
        """Return the audits that are being made."""
        return self.source.running()

    def verified(self, entry: AuditEntry) -> Verification | UnderWay | Refused:
        """Return an audit's plan compared with later history, worked out again when that has grown; raises TooBusy."""
        key = (entry, "verified", self.source.later_stamp(entry.name))
        return self._answers.ask(key, lambda tell: self.source.verified(entry.name, tell))

    def allocated(self, entry: AuditEntry, asked: AllocationQuestion) -> AllocatedBill | UnderWay | Refused:
        """Return the bill of an audit's history, split; raises TooBusy."""
        return self._answers.ask((entry, asked), lambda tell: self.source.allocated(entry.name, asked, tell))

    def close(self) -> None:
        """Begin no more work, and end what goes on at its next stage."""
        self._closed.set()
        self._answers.close()
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _make(self, entry: AuditEntry) -> Switchboard | Refused:
        def tell(stage: str, done_frac: float) -> None:
            if self._closed.is_set():
                raise _Closed
            self._set(entry, UnderWay(stage=stage, done_frac=done_frac))

        made = self.source.plan(entry.name, tell)
        fault = _unlike(self.document(entry), made)
        return Refused(reason=fault) if fault else Switchboard(made)

    def _ended(self, entry: AuditEntry, work: Future[Switchboard | Refused]) -> None:
        if work.cancelled() or self._closed.is_set():
            return
        match work.exception():
            case None:
                self._set(entry, work.result())
            case TrimtabError() as error:
                self._set(entry, Refused(reason=str(error)))
            case error:
                # a fault of the program: the page says that there are no switches, the log says why
                self._set(entry, Refused(reason="the plan could not be made again; the server's log says why"))
                log.error("the plan of audit %s could not be made again", entry.name, exc_info=error)

    def _set(self, entry: AuditEntry, state: Switchboard | UnderWay | Refused) -> None:
        with self._access:
            self._boards[entry] = state
            ready = [key for key, board in self._boards.items() if isinstance(board, Switchboard)]
            for key in ready[:-MOST_PLANS]:
                del self._boards[key]


def _forget(kept: OrderedDict[AuditEntry, AuditDocument], most: int) -> None:
    while len(kept) > most:
        kept.popitem(last=False)


def _unlike(document: AuditDocument, made: ProvenPlan) -> str:
    """Say how a plan made again differs from the one that was kept; empty where it does not."""
    now = switched_part(switched(made.planned, made.proven, ()), made.planned.plan.window.hours)
    kept = {(action.id, action.lever, action.subject) for action in document.plan.actions}
    again = {(action.id, action.lever, action.subject) for action in made.planned.plan.actions}
    if kept == again and abs(now.bill_usd_mo - document.plan.objective_usd_mo) < _CENT:
        return ""
    return (
        "planned again, this history gives another plan than the one kept: it, the settings, the prices, the program or the "
        "commitments held are not those of the audit; run `trimtab audit` again"
    )


_CENT = 0.011
"""Dollars: half a cent on either side, and what a float loses."""
