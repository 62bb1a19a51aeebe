"""What each tool of `trimtab mcp` answers. Every figure comes from the code of the command or page that shows it elsewhere.

An answer is small enough for an agent's context, cut into pages that say how to get the rest, and harmless: no escape
sequence, no mark that lets a text read as another.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError as NotDone
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from trimtab.catalog import load_catalog
from trimtab.cli.allocate import AllocateOptions
from trimtab.cli.allocate.run import charged_back
from trimtab.cli.allocate.tables import who_sheet
from trimtab.cli.fit import FitOptions
from trimtab.cli.fit.run import fit_answered
from trimtab.cli.fit.tables import models_sheet
from trimtab.cli.made_plans import DEMO_PREFIX
from trimtab.cli.options import parsed
from trimtab.cli.output import Sheet
from trimtab.cli.prices import PricesOptions, found_prices
from trimtab.cli.prices.tables import long_sheet, matrix_sheet, with_provenance
from trimtab.cli.serve.run import PlanRefresh, history_of
from trimtab.cli.what_if import WhatIfOptions
from trimtab.cli.what_if.run import asked_scenario, planned_otherwise, what_if_sheet
from trimtab.emit.blocks import plain
from trimtab.emit.document import AuditDocument
from trimtab.emit.document.plan import SwitchedPart
from trimtab.emit.explain import action_lines, explained
from trimtab.emit.kept_plan import KeptPlan
from trimtab.emit.sections.audit import audit_headline
from trimtab.emit.verify_document import verify_document
from trimtab.errors import InputError, TrimtabError, UnknownName, UsageError
from trimtab.pipeline import open_fleet, verify_plan
from trimtab.safe_text import for_terminal
from trimtab.web.api import entry_row
from trimtab.web.computations import Refused, UnderWay
from trimtab.web.library import AuditEntry, Library, SwitchedPlans
from trimtab.web.tables import TABLES, DataTable, TableQuestion, actions

MOST_BYTES = 4000
"""Of an answer in UTF-8."""
_FACTS_BYTES = 2600
"""Of what stands on every page of an answer."""
_CUTS = (600, 300, 160, 80, 40, 20, 8)
"""Characters of a text, tried one after the other until it has room."""
_MORE = "…"
_LINE_CHARS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Facts that stand on every page, rows under columns of which a page shows some, and what to ask next."""

    facts: Mapping[str, object]
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    advice: str = ""


def table_of(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> list[list[object]]:
    """Return rows by key as rows in the order of the columns; what a row lacks is null."""
    return [[row.get(column) for column in columns] for row in rows]


def answer_text(answer: Answer, start: int = 0) -> str:
    """Return the page that begins at a row, as JSON of at most `MOST_BYTES`.

    A row that has no room even alone has its texts shortened, as have facts that are too large; shortened text ends in `…`.
    """
    head = _fitting(
        {name: _plain(value) for name, value in answer.facts.items() if value not in (None, "", (), [])}, _FACTS_BYTES
    )
    first = min(max(start, 0), len(answer.rows))
    whole = _page(head, answer, first, [list(map(_plain, row)) for row in answer.rows[first:]])
    if _size(whole) <= MOST_BYTES:
        return _json(whole)
    shown: list[JsonValue] = []
    for row in answer.rows[first:]:
        fuller = [*shown, list(map(_plain, row))]
        if _size(_page(head, answer, first, fuller)) > MOST_BYTES:
            break
        shown = fuller
    if not shown:
        room = MOST_BYTES - _size(_page(head, answer, first, []))
        shown = [_fitting(list(map(_plain, answer.rows[first])), room - 2)]
    return _json(_page(head, answer, first, shown))


def lines_text(text: str, start: int = 0) -> str:
    """Return the page of a text that begins at a line, with at most `MOST_BYTES`; its last line says how to go on."""
    lines = [_shortened(for_terminal(line), _LINE_CHARS) for line in text.rstrip("\n").split("\n")]
    first = min(max(start, 0), len(lines) - 1)
    shown: list[str] = []
    # the longest that this line can be
    rest = _further(first, len(lines) - 1, len(lines))
    for line in lines[first:]:
        if len("\n".join([*shown, line, rest]).encode()) > MOST_BYTES:
            break
        shown.append(line)
    end = first + len(shown)
    return "\n".join(shown if first == 0 and end == len(lines) else [*shown, _further(first, end, len(lines))])


def short_words(words: str) -> str:
    """Return what is said of a fault, harmless and within `MOST_BYTES`."""
    fitting = _fitting(for_terminal(words), MOST_BYTES // 2, cuts=(MOST_BYTES // 2, MOST_BYTES // 4, MOST_BYTES // 8))
    return str(fitting)


def _further(first: int, end: int, of: int) -> str:
    shown = f"[lines {first + 1} to {end} of {of}"
    return f"{shown}; ask again with start={end} for the rest]" if end < of else f"{shown}: the last]"


def _page(head: JsonValue, answer: Answer, first: int, rows: list[JsonValue]) -> dict[str, JsonValue]:
    """Return a page: the facts, the rows that it shows, which those are where they are not all, and what to ask next."""
    page: dict[str, JsonValue] = dict(head) if isinstance(head, dict) else {}
    if answer.columns:
        page |= {"columns": list(answer.columns), "rows": rows}
    end, of = first + len(rows), len(answer.rows)
    if end < of or first:
        page["shown"] = f"rows {first + 1} to {end} of {of}" if rows else f"no row: there are {of}"
    if end < of:
        page["rest"] = f"ask again with start={end}"
    if answer.advice:
        page["next"] = answer.advice
    return page


def _plain(value: object) -> JsonValue:
    """Return a value as JSON has it, its texts harmless; what JSON does not have becomes text."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if abs(value) < float("inf") else None
        case str():
            return for_terminal(value)
        case Mapping():
            return {for_terminal(str(key)): _plain(part) for key, part in value.items()}
        case Sequence():
            return [_plain(part) for part in value]
        case _:
            return for_terminal(str(value))


def _fitting(value: JsonValue, most_bytes: int, cuts: Sequence[int] = _CUTS) -> JsonValue:
    """Return a value whose JSON has at most so many bytes: its texts shortened, then its lists and mappings."""
    if _size(value) <= most_bytes:
        return value
    for chars in cuts:
        value = _with_short_texts(value, chars)
        if _size(value) <= most_bytes:
            return value
    if isinstance(value, dict):
        return _first_parts(value, most_bytes)
    return [] if isinstance(value, list) else _MORE


def _first_parts(value: dict[str, JsonValue], most_bytes: int) -> JsonValue:
    kept: dict[str, JsonValue] = {}
    for name, part in value.items():
        if _size({**kept, name: part}) <= most_bytes:
            kept[name] = part
    return kept


def _with_short_texts(value: JsonValue, chars: int) -> JsonValue:
    match value:
        case str():
            return _shortened(value, chars)
        case list():
            return [_with_short_texts(part, chars) for part in value]
        case dict():
            return {name: _with_short_texts(part, chars) for name, part in value.items()}
        case _:
            return value


def _shortened(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}{_MORE}"


def _size(value: JsonValue) -> int:
    return len(_json(value).encode())


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


WAIT_S = 40.0
"""How long a call waits for an answer that has to be planned; clients end a call after a minute or so."""
_MOST_KEPT = 32
"""Answers that had to be planned, kept in memory."""
_SUMMARY_ACTIONS = ("id", "subject", "effect", "saving_usd_mo", "effort_weeks", "risk", "lever")
_PRICE_COLUMNS = (
    "provider",
    "instance_type",
    "region",
    "option",
    "gpu",
    "gpu_count",
    "usd_gpu_hr",
    "usd_hr",
    "as_of",
    "stale",
)
_SERVING_COLUMNS = (
    "gpu", "gpus", "replicas", "format", "usd_per_mtok", "usd_per_mtok_low", "usd_per_mtok_high", "usd_hr", "ttft_p95_ms",
    "tpot_ms", "concurrency", "offering",
)  # fmt: skip
_TRAINING_COLUMNS = (
    "gpu",
    "gpus",
    "usd",
    "usd_low",
    "usd_high",
    "days",
    "micro_batch",
    "optimizer",
    "usd_hr",
    "offering",
)
_MEASURED_LEFT_OUT = ("source", "usd_hr_by_option")
_FIT_FACTS = ("model", "kind", "unit", "remarks", "paste")
_VERIFY_PARTS = ("rows", "drifts", "purchases")
_ASK_TABLE = (
    f"`table` with one of {', '.join((*TABLES, 'not-worth'))}; `explain` with an action's id or a workload's name"
)


class _ServerEnds(TrimtabError):
    """The client has gone, so that the plan in progress is no longer needed."""


@dataclass(slots=True, eq=False)
class Toolbox:
    """The tools over a library of audits; bundles are opened below `roots` only. Threads may ask at once."""

    library: Library
    kept_plan: Callable[[str], KeptPlan]
    """Returns the plan that was kept with an audit of the library; raises TrimtabError."""
    plans: PlanRefresh
    roots: Sequence[Path]
    wait_s: float = WAIT_S
    _planned: dict[object, Future[Answer]] = field(default_factory=dict)
    _worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=1))
    _searching: threading.Lock = field(default_factory=threading.Lock)
    _access: threading.Lock = field(default_factory=threading.Lock)
    _closed: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        """Begin no more work, and end what goes on at its next stage."""
        self._closed.set()
        self.library.close()
        self._worker.shutdown(wait=False, cancel_futures=True)

    # of kept audits

    def audits(self, start: int = 0) -> str:
        """List the kept audits, the latest first; one that cannot be read says why."""
        rows: list[Mapping[str, object]] = []
        for entry in self.library.entries():
            try:
                rows.append(entry_row(entry, self.library.document(entry)))
            except TrimtabError as error:
                rows.append({"name": entry.name, "fleet": f"cannot be read: {error}"})
        columns = ("name", "fleet", "start", "end", "bill_usd_mo", "joint_saving_usd_mo")
        advice = (
            "`audit` with a name for its summary" if rows else "run `trimtab audit --demo`, or `trimtab audit FLEET/`"
        )
        return answer_text(
            Answer(facts={"audits": len(rows)}, columns=columns, rows=table_of(rows, columns), advice=advice), start
        )

    def audit(self, audit: str = "", start: int = 0) -> str:
        """Summarise an audit: the bill, the plan, its proof, and the actions, what to do first stands first."""
        entry, document = self._asked(audit)
        proof, plan = document.proof, document.plan
        facts = {
            "audit": entry.name,
            "fleet": document.fleet,
            "headline": plain(audit_headline(document)),
            "seen": document.coverage.summary,
            "weaker_because": document.degraded,
            "bill_usd_mo": document.bill_usd_mo,
            "bill_with_plan_usd_mo": plan.objective_usd_mo,
            "saving_usd_mo": plan.joint_saving_usd_mo,
            "saving_low_usd_mo": plan.joint_saving_low_usd_mo,
            "saving_high_usd_mo": plan.joint_saving_high_usd_mo,
            "proof_saving_frac": proof.saving_frac,
            "targets_kept": proof.targets_kept,
            "targets": len(proof.targets),
        }
        rows = table_of(actions(document).plain_rows(), _SUMMARY_ACTIONS)
        return answer_text(Answer(facts=facts, columns=_SUMMARY_ACTIONS, rows=rows, advice=_ASK_TABLE), start)

    def table(
        self, table: str, audit: str = "", words: str = "", team: str = "", sort: str = "", start: int = 0
    ) -> str:
        """Show a table of an audit: rows that hold some words or belong to a team, the largest of a column first."""
        entry, document = self._asked(audit)
        if table == "not-worth":
            return answer_text(_not_worth(entry, document, words), start)
        if table not in TABLES:
            raise UnknownName("table", table, [*TABLES, "not-worth"])
        made = TABLES[table](document)
        if sort and sort not in [column.key for column in made.columns]:
            raise UnknownName("column", sort, [column.key for column in made.columns], where=f"table {table}")
        found = made.asked(TableQuestion(words=words, team=team, sort=sort))
        return answer_text(_table_answer(entry, found, len(made.rows)), start)

    def explain(self, name: str = "", audit: str = "", start: int = 0) -> str:
        """Explain an action by its id, or a workload by its name; without a name, list the actions."""
        _, document = self._asked(audit)
        return lines_text(explained(document, name) if name else action_lines(document), start)

    def without(self, off: Sequence[str], audit: str = "", start: int = 0) -> str:
        """Choose, bill and prove the plan again without some actions."""
        entry, document = self._asked(audit)
        known = [action.id for action in document.plan.actions]
        for name in off:
            if name not in known:
                raise UnknownName(
                    "action", name, known, where=f"the plan of audit {entry.name}, whose actions are {', '.join(known)}"
                )
        board = self._board(entry)
        if isinstance(board, UnderWay):
            return answer_text(_under_way(board))
        return answer_text(_without_answer(entry, document, board.without(frozenset(off))), start)

    # planned from a history

    def what_if(self, asked: Sequence[str], audit: str = "", bundle: str = "", start: int = 0) -> str:
        """Plan a history in another world; `asked` are options of `trimtab what-if`."""
        options = parsed(WhatIfOptions, [*asked, *self._options()])
        scenario = asked_scenario(options)
        fleet = self._fleet(audit, bundle)

        def planned() -> Answer:
            found = planned_otherwise(
                options, scenario, fleet, history_of, self._tell, keep_outcomes=self.plans.keep_outcomes
            )
            return _sheet_answer(what_if_sheet(found, people=False), {"fleet": fleet})

        return self._once_planned(("what-if", tuple(asked), self._stamp(fleet)), planned, start)

    def allocate(self, asked: Sequence[str], audit: str = "", bundle: str = "", start: int = 0) -> str:
        """Split a history's bill; `asked` are options of `trimtab allocate`."""
        fleet = self._fleet(audit, bundle)
        named = ["--demo", fleet.removeprefix(DEMO_PREFIX)] if fleet.startswith(DEMO_PREFIX) else ["--", fleet]
        options = parsed(AllocateOptions, [*asked, *self._prices(), *named])

        def split() -> Answer:
            _, answer = charged_back(options, self._tell)
            return _sheet_answer(who_sheet(answer), {"fleet": fleet})

        return self._once_planned(("allocate", tuple(asked), self._stamp(fleet)), split, start)

    def verify(self, bundle: str, audit: str = "", part: str = "rows", start: int = 0) -> str:
        """Hold a kept plan against a later bundle: its actions, what drifted, or every way of buying what is used."""
        if part not in _VERIFY_PARTS:
            raise UnknownName("part", part, _VERIFY_PARTS)
        folder = str(self._bundle(bundle))
        entry, _ = self._asked(audit)

        def verified() -> Answer:
            kept = self.kept_plan(entry.name)
            document = verify_document(verify_plan(kept, open_fleet(folder), catalog=load_catalog(self.plans.prices)))
            rows = document[part]
            facts = {name: value for name, value in document.items() if name not in _VERIFY_PARTS}
            others = ", ".join(f"{name} ({len(_listed(document[name]))})" for name in _VERIFY_PARTS if name != part)
            return _rows_answer(_listed(rows), facts, advice=f"`verify` with part: {others}")

        return self._once_planned(("verify", folder, entry, part), verified, start)

    # of prices and physics alone

    def prices(self, asked: Sequence[str], *, matrix: bool = False, start: int = 0) -> str:
        """List what GPUs cost, or what they are; `asked` are options of `trimtab prices`."""
        options = parsed(PricesOptions, [*asked, *(["--gpus"] if matrix else []), *self._prices()])
        catalog, chosen, found = found_prices(options)
        if matrix:
            return answer_text(_sheet_answer(with_provenance(matrix_sheet(catalog, chosen)), {}), start)
        return answer_text(
            _sheet_answer(long_sheet(catalog, chosen, found).only(_PRICE_COLUMNS), {"rates": len(found)}), start
        )

    def fit(self, asked: Sequence[str], model: str = "", part: str = "rows", start: int = 0) -> str:
        """Find which GPU a model needs; `asked` are options of `trimtab fit`. Without a question, list the models.

        `part` is rows, rejected, or costs (of the first row).
        """
        if not asked and not model:
            return answer_text(_sheet_answer(models_sheet(), {}), start)
        if model and Path(model).exists():
            self._inside(model)
        options = parsed(FitOptions, [*asked, *self._prices(), *(["--", model] if model else [])])
        with self._searching:
            document = fit_answered(options)
        return answer_text(_fit_answer(document, part), start)

    # what the tools share

    def _asked(self, name: str) -> tuple[AuditEntry, AuditDocument]:
        entries = self.library.entries()
        if not entries:
            raise InputError(
                "no audit is kept here; run `trimtab audit --demo` or `trimtab audit FLEET/`, then ask again"
            )
        entry = self.library.entry(name) if name else entries[0]
        if entry is None:
            raise UnknownName(
                "audit", name, [known.name for known in entries], where="kept audits (`audits` lists them)"
            )
        return entry, self.library.document(entry)

    def _board(self, entry: AuditEntry) -> SwitchedPlans | UnderWay:
        """Return the switches of an audit's plan, made within the wait; raises InputError where they cannot be."""
        until = time.monotonic() + self.wait_s
        while isinstance(board := self.library.switchboard(entry), UnderWay) and time.monotonic() < until:
            time.sleep(0.05)
        if isinstance(board, Refused):
            raise InputError(
                f"the plan of audit {entry.name} cannot be chosen again: {board.reason}. `audit`, `table` and `explain` "
                "answer without its history"
            )
        return board

    def _tell(self, _stage: str, _done_frac: float) -> None:
        if self._closed.is_set():
            raise _ServerEnds

    def _once_planned(self, key: object, make: Callable[[], Answer], start: int) -> str:
        """Return an answer that takes long: made once, in the background; while it is, say so."""
        with self._access:
            future = self._planned.get(key)
            if future is None or (future.done() and (future.cancelled() or future.exception() is not None)):
                future = self._planned[key] = self._worker.submit(make)
            while len(self._planned) > _MOST_KEPT:
                del self._planned[next(iter(self._planned))]
        try:
            return answer_text(future.result(self.wait_s), start)
        except NotDone:
            return answer_text(_under_way(UnderWay(stage="planning", done_frac=0.0)))

    def _fleet(self, audit: str, bundle: str) -> str:
        """Return the history that is asked about: a bundle's folder, else that of the audit."""
        return str(self._bundle(bundle)) if bundle else self._asked(audit)[1].fleet

    def _stamp(self, fleet: str) -> tuple[str, float]:
        path = Path(fleet)
        return fleet, path.stat().st_mtime if path.is_dir() else 0.0

    def _bundle(self, name: str) -> Path:
        path = self._inside(name)
        if not path.is_dir():
            raise InputError(f"there is no bundle {name}; {self._where()}")
        return path

    def _inside(self, name: str) -> Path:
        """Return a path below one of the roots; raises InputError for any other."""
        for root in self.roots:
            path = (root / name).resolve()
            if path.is_relative_to(root.resolve()) and path.exists():
                return path
        raise InputError(f"{name} is not there, or outside of what may be opened; {self._where()}")

    def _where(self) -> str:
        folders = ", ".join(str(root) for root in self.roots)
        return f"bundles are looked for in {folders}; `trimtab mcp --bundles DIR` allows another folder"

    def _options(self) -> list[str]:
        owned = [] if self.plans.owned is None else ["--owned", str(self.plans.owned)]
        return [*self._prices(), *owned]

    def _prices(self) -> list[str]:
        return [] if self.plans.prices is None else ["--prices", str(self.plans.prices)]


def _under_way(found: UnderWay) -> Answer:
    return Answer(
        facts={"under_way": found.stage, "done_frac": round(found.done_frac, 2)},
        advice="the history is being planned in the background: ask the same again in 20 seconds",
    )


def _table_answer(entry: AuditEntry, table: DataTable, of: int) -> Answer:
    columns = [column.key for column in table.columns]
    facts = {"audit": entry.name, "table": table.title, "rows_found": f"{len(table.rows)} of {of}"}
    return Answer(facts=facts, columns=columns, rows=table_of(table.plain_rows(), columns))


def _not_worth(entry: AuditEntry, document: AuditDocument, words: str) -> Answer:
    """Return what was judged and refused, and what could not be judged."""
    rows = [(row.lever, row.subject, row.saving_usd_mo, row.reason) for row in document.plan.not_worth_doing]
    rows += [("(not judged)", row.workload, None, row.reason) for row in document.unjudged]
    found = [row for row in rows if any(words.casefold() in str(cell).casefold() for cell in row)]
    return Answer(
        facts={"audit": entry.name, "table": "Judged and refused"},
        columns=("lever", "subject", "saving_usd_mo", "reason"),
        rows=found,
    )


def _without_answer(entry: AuditEntry, document: AuditDocument, found: SwitchedPart) -> Answer:
    facts = {
        "audit": entry.name,
        "off": found.off,
        "bill_usd_mo": found.before_usd_mo,
        "bill_with_this_plan_usd_mo": found.bill_usd_mo,
        "bill_if_nothing_took_their_place_usd_mo": found.rest_usd_mo,
        "saving_usd_mo": found.joint_saving_usd_mo,
        "saving_of_the_whole_plan_usd_mo": document.plan.joint_saving_usd_mo,
        "proof_saving_frac": found.proof_saving_frac,
        "targets_kept": found.targets_kept,
        "targets": len(found.targets),
        "missed": [f"{row.workload}: {row.target}" for row in found.targets if not row.kept],
    }
    columns = ("id", "lever", "subject", "effect", "saving_usd_mo")
    rows = [
        (row.id or "in place of one that is off", row.lever, row.subject, row.effect, row.saving_usd_mo)
        for row in found.actions
    ]
    shares = "" if found.shares else "saving_usd_mo is what is lost without the action: they do not add up"
    return Answer(facts=facts, columns=columns, rows=rows, advice=shares)


def _fit_answer(document: Mapping[str, object], part: str) -> Answer:
    rows, misses = _listed(document["rows"]), _listed(document["rejected"])
    total = document.get("total_cost")
    facts = {name: document[name] for name in _FIT_FACTS if name in document}
    if part == "rejected":
        return _rows_answer(misses, {"rejected": len(misses)})
    if isinstance(total, Mapping):
        facts["first_row_all_told"] = f"{total['usd']} USD a {total['per']}"
        if part == "costs":
            return _rows_answer(_listed(total["lines"]), facts)
    first = rows[0]
    known = next((columns for columns in (_SERVING_COLUMNS, _TRAINING_COLUMNS) if set(columns) <= set(first)), ())
    columns = known or tuple(name for name in first if name not in _MEASURED_LEFT_OUT)
    advice = f"`fit` with part=costs (of the first row), part=rejected ({len(misses)} ways, with reasons)"
    return Answer(facts=facts, columns=columns, rows=table_of(rows, columns), advice=advice)


def _sheet_answer(sheet: Sheet, facts: Mapping[str, object]) -> Answer:
    columns = [column.key for column in sheet.columns]
    notes = {"notes": list(sheet.notes)} if sheet.notes else {}
    return Answer(facts={**facts, **notes}, columns=columns, rows=table_of(sheet.rows, columns))


def _rows_answer(rows: Sequence[Mapping[str, object]], facts: Mapping[str, object], *, advice: str = "") -> Answer:
    columns = list(rows[0]) if rows else []
    return Answer(facts=facts, columns=columns, rows=table_of(rows, columns), advice=advice)


def _listed(rows: object) -> list[Mapping[str, object]]:
    """Return the rows of a document's list."""
    if not isinstance(rows, list):
        raise UsageError("the document has no such rows")
    return rows
