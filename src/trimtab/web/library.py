"""The audits that a server shows, and the plans behind them that can be chosen again; both kept in memory within limits.

An audit's document is read where its page is asked for. Its plan is made again from the history, in the background, one at a
time: without it every page works but the switches, which say why.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

from trimtab.emit.document import AuditDocument
from trimtab.emit.document.plan import SwitchedPart
from trimtab.emit.from_audit.plan import switched_part
from trimtab.errors import InputError
from trimtab.pipeline.auditing import Progress, ProvenPlan, what_if_beside
from trimtab.plan.proof.own_order import OrderedYear, OwnOrders
from trimtab.plan.proof.scenario import Scenario, WhatIf
from trimtab.plan.proof.switched import switched
from trimtab.plan.proof.undeclared import ServiceLimitPrices, limit_prices
from trimtab.plan.verify.verification import Verification
from trimtab.web.computations import (
    MOST_WAITING,
    AuditQuestion,
    Computations,
    ComputationState,
    Refused,
    TooBusy,
    UnderWay,
)
from trimtab.web.tables import AllocatedBill, AllocationQuestion

MOST_DOCUMENTS = 8
MOST_PLANS = 2
"""Plans of which all that was replayed is held in memory."""
MOST_ANSWERS = 512
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An audit as the list has it."""

    name: str
    """Its number, or the name of its file: part of addresses."""
    stamp: str
    """Changes when the audit does."""


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

    def words(self) -> str:
        """Say what is asked."""
        return "commitments"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHoursQuestion:
    """What each GPU of a workload did, hour by hour."""

    workload: str

    def words(self) -> str:
        """Say what is asked."""
        return f"the GPUs of {self.workload}, hour by hour"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterHistory:
    """What a plan is compared with, as it was at a time."""

    stamp: str


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


class SwitchedPlans:
    """One plan, chosen again for every set of actions that people switch off; one at a time, and each set once."""

    def __init__(self, made: ProvenPlan) -> None:
        self._made = made
        self._ids = frozenset(action.id for action in made.planned.plan.actions)
        # by hand: what is known is answered without the lock, and `lru_cache` would not solve each set only once
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


@dataclass(slots=True, eq=False)
class Library:
    """The audits of a source."""

    source: AuditSource
    _documents: OrderedDict[AuditEntry, AuditDocument] = field(default_factory=OrderedDict)
    """By hand: `functools.lru_cache` would read a document twice if two pages ask for it at once."""
    _access: threading.RLock = field(default_factory=threading.RLock)
    _closed: threading.Event = field(default_factory=threading.Event)
    _boards: Computations = field(init=False)
    _answers: Computations = field(init=False)

    def __post_init__(self) -> None:
        # a plan is made to its end even if no page asks after it: the first is begun before anyone asks
        self._boards = Computations(
            self._closed, most_kept=MOST_PLANS, most_begun=math.inf, abandoned_s=math.inf, keeps_refusals=True
        )
        self._answers = Computations(self._closed)

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

    def switchboard(self, entry: AuditEntry) -> SwitchedPlans | UnderWay | Refused:
        """Return an audit's switches; where they were not asked for yet, begin to make them."""
        question = AuditQuestion(
            audit=entry.name, stamp=entry.stamp, asked="plan", words="the plan, made again for its switches"
        )
        return self._boards.ask(question, lambda tell: self._made(entry, tell), wait_s=0.0)

    def what_if(self, entry: AuditEntry, scenario: Scenario) -> WhatIf | UnderWay | Refused:
        """Return an audit's fleet in another world beside its plan; raises TooBusy."""
        board = self.switchboard(entry)
        if not isinstance(board, SwitchedPlans):
            return board
        question = AuditQuestion(
            audit=entry.name, stamp=entry.stamp, asked=scenario, words=f"what if: {'; '.join(scenario.words())}"
        )
        return self._answers.ask(question, lambda tell: board.what_if(scenario, tell))

    def year(self, entry: AuditEntry, order: Sequence[str]) -> OrderedYear | UnderWay | Refused:
        """Return the year if an audit's actions are done in an order."""
        board = self.switchboard(entry)
        return board.year(order) if isinstance(board, SwitchedPlans) else board

    def limit_prices(self, entry: AuditEntry) -> tuple[ServiceLimitPrices, ...] | UnderWay | Refused:
        """Return what latency limits that are not declared would save; raises TooBusy."""
        board = self.switchboard(entry)
        if not isinstance(board, SwitchedPlans):
            return board
        question = AuditQuestion(
            audit=entry.name, stamp=entry.stamp, asked="limits", words="prices of undeclared latency limits"
        )
        return self._answers.ask(question, board.limit_prices)

    def worked_out(self, entry: AuditEntry, asked: HistoryQuestion) -> object | UnderWay | Refused:
        """Return the answer to a question about an audit's history; raises TooBusy."""
        question = AuditQuestion(audit=entry.name, stamp=entry.stamp, asked=asked, words=asked.words())
        return self._answers.ask(question, lambda tell: self.source.worked_out(entry.name, asked, tell))

    def running(self) -> Sequence[RunningAudit]:
        """Return the audits that are being made."""
        return self.source.running()

    def verified(self, entry: AuditEntry) -> Verification | UnderWay | Refused:
        """Return an audit's plan compared with later history, worked out again when that has grown; raises TooBusy."""
        later = LaterHistory(stamp=self.source.later_stamp(entry.name))
        question = AuditQuestion(
            audit=entry.name, stamp=entry.stamp, asked=later, words="the plan compared with later history"
        )
        return self._answers.ask(question, lambda tell: self.source.verified(entry.name, tell))

    def allocated(self, entry: AuditEntry, asked: AllocationQuestion) -> AllocatedBill | UnderWay | Refused:
        """Return the bill of an audit's history, split; raises TooBusy."""
        question = AuditQuestion(
            audit=entry.name, stamp=entry.stamp, asked=asked, words=f"the bill split by {asked.split}"
        )
        return self._answers.ask(question, lambda tell: self.source.allocated(entry.name, asked, tell))

    def earlier(self, entry: AuditEntry, kind: type[T]) -> tuple[object, T] | None:
        """Return what was worked out last of a kind of answers for an audit, after its question; None where nothing was."""
        return self._answers.latest(entry.name, entry.stamp, kind)

    def computations(self) -> Sequence[ComputationState]:
        """Return all that is being worked out or was, as far as it is kept."""
        return (*self._boards.states(), *self._answers.states())

    def computation(self, ident: str) -> ComputationState | None:
        """Return the state of a computation, None where there is none of that id."""
        return next((state for state in self.computations() if state.ident == ident), None)

    def cancel(self, ident: str) -> ComputationState | None:
        """Stop a computation that goes on; return its state then, None where there is none of that id."""
        return self._boards.cancel(ident) or self._answers.cancel(ident)

    def begin_again(self, ident: str) -> ComputationState | None:
        """Begin a cancelled computation again; return its state then, None where there is none of that id. Raises TooBusy."""
        return self._boards.begin_again(ident) or self._answers.begin_again(ident)

    def close(self) -> None:
        """Begin no more work, and end what goes on at its next stage."""
        self._closed.set()
        self._answers.close()
        self._boards.close()

    def _made(self, entry: AuditEntry, tell: Progress) -> SwitchedPlans:
        made = self.source.plan(entry.name, tell)
        if fault := _unlike(self.document(entry), made):
            raise InputError(fault)
        return SwitchedPlans(made)


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
