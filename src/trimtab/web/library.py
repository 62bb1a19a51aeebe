"""The audits that a server shows, and the plans behind them that can be chosen again; both kept in memory within limits.

An audit's document is read where its page is asked for. Its plan is made again from the history, in the background, one at a
time: without it every page works but the switches, which say why.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from trimtab.emit.document import AuditDocument
from trimtab.emit.document.switched import SwitchedPart
from trimtab.emit.from_audit.switched import switched_part
from trimtab.errors import TrimtabError
from trimtab.pipeline.auditing import Progress, ProvenPlan
from trimtab.plan.proof.switched import switched

MOST_DOCUMENTS = 8
MOST_PLANS = 2
"""Plans of which all that was replayed is held in memory."""
MOST_ANSWERS = 512
MOST_WAITING = 8
"""Questions that wait for one plan at once; another is turned away."""
log = logging.getLogger(__name__)


class TooBusy(TrimtabError):
    """As many questions wait as may."""


class _Closed(TrimtabError):
    """The server ends, and with it what it was preparing."""


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


class Switchboard:
    """One plan, chosen again for every set of actions that people switch off; one at a time, and each set once."""

    def __init__(self, made: ProvenPlan) -> None:
        self._made = made
        self._ids = frozenset(action.id for action in made.planned.plan.actions)
        self._known: OrderedDict[frozenset[str], SwitchedPart] = OrderedDict()
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


@dataclass(slots=True, eq=False)
class Library:
    """The audits of a source."""

    source: AuditSource
    _documents: OrderedDict[AuditEntry, AuditDocument] = field(default_factory=OrderedDict)
    _boards: OrderedDict[AuditEntry, Switchboard | UnderWay | Refused] = field(default_factory=OrderedDict)
    _access: threading.RLock = field(default_factory=threading.RLock)
    _closed: threading.Event = field(default_factory=threading.Event)
    _worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=1))

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
        """Return an audit's switches; where nobody asked for them yet, begin to make them."""
        with self._access:
            if entry not in self._boards:
                self._boards[entry] = UnderWay(stage="waiting for its turn", done_frac=0.0)
                self._worker.submit(self._make, entry).add_done_callback(partial(self._ended, entry))
            self._boards.move_to_end(entry)
            return self._boards[entry]

    def close(self) -> None:
        """Begin no more work, and end what goes on at its next stage."""
        self._closed.set()
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
