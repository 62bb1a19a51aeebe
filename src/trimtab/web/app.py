"""The application: which page or document stands under each address, and pages kept as they were sent last."""

from __future__ import annotations

import gzip
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from trimtab.catalog import Catalog
from trimtab.emit.document import AuditDocument, render_json
from trimtab.emit.document.plan import SwitchedPart
from trimtab.emit.verify_document import verify_document
from trimtab.emit.writers.xlsx import write_workbook
from trimtab.errors import TrimtabError
from trimtab.plan.proof.own_order import OrderedYear
from trimtab.plan.proof.scenario import WhatIf
from trimtab.plan.verify.verification import Verification
from trimtab.web import api, pages, plan_pages, replay_pages, switches, tables, worked_out
from trimtab.web.access import (
    COMPUTATIONS,
    AccessGate,
    AccessRules,
    read_body,
)
from trimtab.web.computations import ComputationState, Refused, State, TooBusy, UnderWay
from trimtab.web.layout import assets, audit_path
from trimtab.web.library import (
    AuditEntry,
    CommitmentsQuestion,
    GpuHoursQuestion,
    Library,
    SwitchedPlans,
)
from trimtab.web.picker import Picker, answered
from trimtab.web.plan_pages import CommitmentsResult
from trimtab.web.price_list import PriceList, prices_page, rates_file
from trimtab.web.questions import (
    BadQuestion,
    allocation,
    ordered,
    rows_asked,
    scenario,
    subject,
    switched_off,
    table_question,
    whole_number,
    word,
)
from trimtab.web.replay_pages import GpuHours
from trimtab.web.reviews import KeptReview, ReviewFolder, review_page, review_table, reviews_page
from trimtab.web.section_tables import COMMITMENTS, section_tables, sections_of
from trimtab.web.tables import TABLES, AllocatedBill, DataTable, audit_workbook

MOST_BYTES = 32_000_000
"""Of all packed pages together; those not asked for longest go first."""
_LEVEL = 5
Key = tuple[AuditEntry, str]


@dataclass(slots=True, eq=False)
class PageCache:
    """Packed pages by audit and address; by hand, since `lru_cache` counts entries and this is bounded in bytes."""

    _packed: OrderedDict[Key, bytes] = field(default_factory=OrderedDict)
    _size: int = 0
    _access: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request, entry: AuditEntry, make: Callable[[], str]) -> Response:
        """Return the page of an address, made where it is not kept; packed where the reader takes that."""
        packed = self._found((entry, f"{request.url.path}?{request.url.query}"), make)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return HTMLResponse(packed, headers={"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
        return HTMLResponse(gzip.decompress(packed), headers={"Vary": "Accept-Encoding"})

    def _found(self, key: Key, make: Callable[[], str]) -> bytes:
        with self._access:
            if (packed := self._packed.get(key)) is not None:
                self._packed.move_to_end(key)
                return packed
        packed = gzip.compress(make().encode(), _LEVEL, mtime=0)
        with self._access:
            self._size += len(packed) - len(self._packed.pop(key, b""))
            self._packed[key] = packed
            while self._size > MOST_BYTES:
                self._size -= len(self._packed.popitem(last=False)[1])
        return packed


_SMALLEST_ZIPPED = 1000
_JSON = "application/json"
_XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PageMaker = Callable[[str, AuditDocument, QueryParams], str | None]


def web_app(
    library: Library, rules: AccessRules, *, catalog: Catalog | None = None, reviews: Path | None = None
) -> AccessGate:
    """Return the application: every page and document of a library, behind the rules of access.

    `catalog` has the prices that are shown (default: the packaged ones), `reviews` is a folder of kept reviews.
    """
    routes = Routes(
        library=library,
        picker=Picker(),
        cache=PageCache(),
        prices=PriceList(given=catalog),
        reviews=ReviewFolder(folder=reviews),
    )
    pages_and_documents = Starlette(
        routes=routes.table(),
        middleware=[Middleware(GZipMiddleware, minimum_size=_SMALLEST_ZIPPED, compresslevel=5)],
        exception_handlers={
            HTTPException: _missing,
            TrimtabError: _failed,
            500: _broken,
        },
    )
    # outermost, so that what is said of a fault of the program has the headers of every answer too
    return AccessGate(app=pages_and_documents, rules=rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """What answers each address."""

    library: Library
    picker: Picker
    cache: PageCache
    prices: PriceList
    reviews: ReviewFolder

    def table(self) -> list[Route]:
        """Return the addresses."""
        made: Mapping[str, PageMaker] = {
            "": lambda name, document, _: pages.overview(name, document),
            "/spend": lambda name, document, query: pages.spend(name, document, table_question(query)),
            "/workload": lambda name, document, query: pages.workload(name, document, word(query, "name")),
            "/action": lambda name, document, query: switches.action(name, document, word(query, "id")),
            "/proof": lambda name, document, _: pages.proof(name, document),
            "/finance": lambda name, document, _: pages.finance(name, document),
            "/replay": lambda name, document, query: replay_pages.replay(
                name, document, word(query, "what"), whole_number(query, "from"), whole_number(query, "hours")
            ),
            "/use": lambda name, document, _: pages.use(name, document),
            "/more": lambda name, document, _: pages.more(name, document),
        }
        return [
            Route("/", self.front),
            Route("/login", self.login),
            Route("/static/{name}", self.static),
            Route("/audits", self.audits),
            Route("/fit", self.fit),
            Route("/prices", self.price_page),
            Route("/prices/rates.{form}", self.price_file),
            Route("/reviews", self.review_list),
            Route("/reviews/table.{form}", self.review_list_file),
            Route("/reviews/{review}", self.review),
            Route("/reviews/{review}/table.{form}", self.review_file),
            *(Route(f"/audits/{{audit}}{path}", self.page_of(make)) for path, make in made.items()),
            Route("/audits/{audit}/plan", self.plan),
            Route("/audits/{audit}/what-if", self.what_if),
            Route("/audits/{audit}/verify", self.verify),
            Route("/audits/{audit}/allocation", self.allocation),
            Route("/audits/{audit}/year", self.year),
            Route("/audits/{audit}/limits", self.limits),
            Route("/audits/{audit}/commitments", self.commitments),
            Route("/audits/{audit}/gpus", self.gpus),
            Route("/audits/{audit}/{page}", self.steered, methods=["POST"]),
            Route("/audits/{audit}/workbook.xlsx", self.workbook),
            Route("/audits/{audit}/tables/{table}.{form}", self.table_file),
            Route("/api/openapi.json", self.openapi),
            Route("/api/audits", self.api_audits),
            Route("/api/audits/{audit}", self.api_audit),
            Route("/api/audits/{audit}/plan", self.api_plan),
            Route("/api/audits/{audit}/what-if", self.api_what_if),
            Route("/api/audits/{audit}/verify", self.api_verify),
            Route("/api/audits/{audit}/allocation", self.api_allocation),
            Route("/api/audits/{audit}/year", self.api_year),
            Route("/api/audits/{audit}/commitments", self.api_commitments),
            Route("/api/audits/{audit}/tables/{table}", self.api_table),
            Route("/api/computations", self.api_computations),
            Route(f"{COMPUTATIONS}{{computation}}", self.api_computation),
            Route(f"{COMPUTATIONS}{{computation}}", self.api_cancel, methods=["DELETE"]),
            Route(f"{COMPUTATIONS}{{computation}}", self.api_begin_again, methods=["POST"]),
            Route("/api/prices", self.api_prices),
            Route("/api/reviews", self.api_reviews),
            Route("/api/reviews/{review}", self.api_review),
        ]

    def front(self, request: Request) -> Response:
        """Lead to the latest audit."""
        entries = self.library.entries()
        return RedirectResponse(audit_path(entries[0].name) if entries else "/audits", 303)

    def login(self, request: Request) -> Response:
        """Ask for the token."""
        return HTMLResponse(
            pages.login(word(request.query_params, "next") or "/", wrong="wrong" in request.query_params)
        )

    def static(self, request: Request) -> Response:
        """Return the style or the script."""
        found = assets().get(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        return Response(found[1], media_type=found[0])

    def audits(self, request: Request) -> Response:
        """List the audits."""
        found: list[tuple[AuditEntry, AuditDocument | str]] = []
        for entry in self.library.entries():
            try:
                found.append((entry, self.library.document(entry)))
            except TrimtabError as error:
                found.append((entry, str(error)))
        return HTMLResponse(pages.audits(found, self.library.running(), table_question(request.query_params)))

    def fit(self, request: Request) -> Response:
        """Answer with the GPU picker."""
        return HTMLResponse(answered(self.picker, request.query_params))

    def price_page(self, request: Request) -> Response:
        """Answer with prices and how they changed."""
        return HTMLResponse(prices_page(self.prices, request.query_params))

    def price_file(self, request: Request) -> Response:
        """Answer with prices as a file."""
        return _file(request, rates_file(self.prices, request.query_params))

    def api_prices(self, request: Request) -> Response:
        """Answer with prices."""
        return _json(rates_file(self.prices, request.query_params).plain())

    def review_list(self, request: Request) -> Response:
        """Answer with the list of kept reviews."""
        return HTMLResponse(reviews_page(self.reviews, table_question(request.query_params)))

    def review_list_file(self, request: Request) -> Response:
        """Answer with that list as a file."""
        return _file(request, rows_asked(self.reviews.table(), request.query_params))

    def review(self, request: Request) -> Response:
        """Answer with a kept review."""
        return HTMLResponse(review_page(self._kept_review(request), table_question(request.query_params)))

    def review_file(self, request: Request) -> Response:
        """Answer with a kept review's rows as a file."""
        table = review_table(self._kept_review(request))
        return _file(request, rows_asked(table, request.query_params))

    def api_reviews(self, request: Request) -> Response:
        """Answer with the list of kept reviews."""
        return _json(rows_asked(self.reviews.table(), request.query_params).plain())

    def api_review(self, request: Request) -> Response:
        """Answer with a kept review, as `trimtab review -o json` has it."""
        found = self._kept_review(request)
        return _json(api.row_document([row.model_dump(mode="json") for row in found.rows]))

    def _kept_review(self, request: Request) -> KeptReview:
        """Return the review that an address names; raises HTTPException where there is none, InputError where it is broken."""
        name = request.path_params["review"]
        if name not in self.reviews.names():
            raise HTTPException(404)
        return self.reviews.review(name)

    def page_of(self, make: PageMaker) -> Callable[[Request], Response]:
        """Return what answers with a page of an audit."""

        def answer(request: Request) -> Response:
            entry, document = self._asked(request)

            def made() -> str:
                found = make(entry.name, document, request.query_params)
                if found is None:
                    raise HTTPException(404)
                return found

            return self.cache.answer(request, entry, made)

        return answer

    def plan(self, request: Request) -> Response:
        """Answer with the plan as it is switched; what a form sends becomes an address that can be kept."""
        entry, document = self._asked(request)
        if "set" in request.query_params:
            on = set(request.query_params.getlist("on"))
            off = ",".join(action.id for action in document.plan.actions if action.id not in on)
            path = f"{audit_path(entry.name)}/plan"
            return RedirectResponse(f"{path}?off={off}" if off else path, 303)
        known = {action.id for action in document.plan.actions}
        off_ids = switched_off(request.query_params) & known
        found = self._without(entry, off_ids)
        if not isinstance(found, SwitchedPart):
            return HTMLResponse(switches.plan(entry.name, document, off_ids, found))
        return self.cache.answer(request, entry, lambda: switches.plan(entry.name, document, off_ids, found))

    def what_if(self, request: Request) -> Response:
        """Answer with the fleet in another world, kept once it is worked out; where that is cancelled, the last answer."""
        entry, document = self._asked(request)
        query = request.query_params
        asked = scenario(query)
        found = None if asked is None else self.library.what_if(entry, asked)
        earlier = self.library.earlier(entry, WhatIf) if _is_cancelled(found) else None

        def made() -> str:
            return worked_out.what_if(entry.name, document, query, asked, found, earlier[1] if earlier else None)

        ready = found is None or isinstance(found, WhatIf)
        return self.cache.answer(request, entry, made) if ready else HTMLResponse(made())

    def year(self, request: Request) -> Response:
        """Answer with the year in the order that an address names, kept once it is billed."""
        entry, document = self._asked(request)
        order, found = self._year(entry, document, request.query_params)

        def made() -> str:
            return plan_pages.year(entry.name, document, order, found)

        ready = found is None or isinstance(found, OrderedYear)
        return self.cache.answer(request, entry, made) if ready else HTMLResponse(made())

    def _year(
        self, entry: AuditEntry, document: AuditDocument, query: QueryParams
    ) -> tuple[tuple[str, ...], OrderedYear | UnderWay | Refused | None]:
        """Return the whole order and its year; None for the plan's own order, which the audit has worked out.

        Until the plan is at hand the plan's order is shown, since no other can be billed.
        """
        own = tuple(action.id for action in document.plan.actions)
        named = dict.fromkeys(name for name in ordered(query) if name in own)
        order = (*named, *(name for name in own if name not in named))
        if order == own or document.plan.roadmap is None:
            self.library.switchboard(entry)
            return own, None
        found = self.library.year(entry, order)
        return (order if isinstance(found, OrderedYear) else own), found

    def limits(self, request: Request) -> Response:
        """Answer with what undeclared limits are worth, kept once they are priced."""
        entry, document = self._asked(request)
        question = table_question(request.query_params)
        found = self.library.limit_prices(entry)

        def made() -> str:
            return plan_pages.limits(entry.name, document, question, found)

        return self.cache.answer(request, entry, made) if isinstance(found, tuple) else HTMLResponse(made())

    def commitments(self, request: Request) -> Response:
        """Answer with what to commit to, kept once it is worked out."""
        entry, document = self._asked(request)
        found = self.library.worked_out(entry, CommitmentsQuestion())

        def made() -> str:
            return plan_pages.commitments(entry.name, document, found)

        return self.cache.answer(request, entry, made) if isinstance(found, CommitmentsResult) else HTMLResponse(made())

    def gpus(self, request: Request) -> Response:
        """Answer with each GPU of a workload, hour by hour."""
        entry, document = self._asked(request)
        wanted, week = word(request.query_params, "name"), whole_number(request.query_params, "week")
        found = self._gpu_hours(entry, document, wanted)

        def made() -> str:
            return replay_pages.gpus(entry.name, document, wanted, week, found)

        return self.cache.answer(request, entry, made) if isinstance(found, GpuHours) else HTMLResponse(made())

    def _gpu_hours(self, entry: AuditEntry, document: AuditDocument, workload: str) -> object:
        """Return a workload's GPUs by hour; raises HTTPException where the audit has no such workload."""
        if all(row.name != workload for row in document.spend.by_workload):
            raise HTTPException(404)
        return self.library.worked_out(entry, GpuHoursQuestion(workload=workload))

    def verify(self, request: Request) -> Response:
        """Answer with the plan compared with later history, made again where that has grown."""
        entry, document = self._asked(request)
        question = table_question(request.query_params)
        found, stamp = self.library.verified(entry), self.library.source.later_stamp(entry.name)
        earlier = self.library.earlier(entry, Verification) if _is_cancelled(found) else None

        def made() -> str:
            return worked_out.verify(entry.name, document, question, found, earlier[1] if earlier else None)

        if not isinstance(found, Verification):
            return HTMLResponse(made())
        return self.cache.answer(request, replace(entry, stamp=f"{entry.stamp} {stamp}"), made)

    def allocation(self, request: Request) -> Response:
        """Answer with the bill split, kept once it is."""
        entry, document = self._asked(request)
        query = request.query_params
        question = table_question(query)
        found = self.library.allocated(entry, allocation(query))
        earlier = self.library.earlier(entry, AllocatedBill) if _is_cancelled(found) else None

        def made() -> str:
            return worked_out.allocation(entry.name, document, query, question, found, earlier[0] if earlier else None)

        return self.cache.answer(request, entry, made) if isinstance(found, AllocatedBill) else HTMLResponse(made())

    def table_file(self, request: Request) -> Response:
        """Answer with a table as CSV, JSON or a workbook."""
        if request.path_params["form"] not in FORMS:
            raise HTTPException(404)
        table = self._table(request)
        if not isinstance(table, DataTable):
            return _unready(table)
        return _file(request, rows_asked(table, request.query_params))

    def _table(self, request: Request) -> DataTable | UnderWay | Refused:
        """Return the table that an address names; raises HTTPException where there is none."""
        entry, document = self._asked(request)
        name, query = request.path_params["table"], request.query_params
        split, _ = allocation(query), scenario(query)  # refused wherever they are given, as their description says
        if name in TABLES:
            return TABLES[name](document)
        page = name.partition("-")[0]
        if name in (inside := section_tables(page, sections_of(page, document))):
            return inside[name]
        match name:
            case "verified":
                found = self.library.verified(entry)
                return tables.verified(found) if isinstance(found, Verification) else found
            case "what-if":
                other = self._what_if(entry, query)
                return tables.scenario_figures(other) if isinstance(other, WhatIf) else other
            case "year":
                _, year = self._year(entry, document, query)
                return year if isinstance(year, UnderWay | Refused) else plan_pages.year_table(document, year)
            case "limit-prices":
                limits = self.library.limit_prices(entry)
                return plan_pages.limit_prices_table(limits) if isinstance(limits, tuple) else limits
            case "switched":
                switched = self._without(entry, switched_off(query))
                return switches.switched_table(switched) if isinstance(switched, SwitchedPart) else switched
            case "commitments":
                commitments = self.library.worked_out(entry, CommitmentsQuestion())
                return commitments.steps if isinstance(commitments, CommitmentsResult) else _state_of(commitments)
            case _ if page == COMMITMENTS:
                shown = self.library.worked_out(entry, CommitmentsQuestion())
                if not isinstance(shown, CommitmentsResult):
                    return _state_of(shown)
                if name in (sold := section_tables(COMMITMENTS, shown.page.filled_sections)):
                    return sold[name]
            case "gpus":
                gpus = self._gpu_hours(
                    entry, document, subject(query, "name", [row.name for row in document.spend.by_workload])
                )
                return replay_pages.gpus_table(gpus) if isinstance(gpus, GpuHours) else _state_of(gpus)
            case "capacity":
                what = subject(query, "what", [part.workload for part in document.pictures.capacity])
                for part in document.pictures.capacity:
                    if part.workload == what:
                        return replay_pages.capacity_table(part)
            case "allocation":
                paid = self.library.allocated(entry, split)
                if not isinstance(paid, AllocatedBill):
                    return paid
                return worked_out.with_teams(paid.table, document) if split.split == "workload" else paid.table
        raise HTTPException(404)

    def _what_if(self, entry: AuditEntry, query: QueryParams) -> WhatIf | UnderWay | Refused:
        asked = scenario(query)
        if asked is None:
            raise BadQuestion(
                "what is different? give demand, price, target, no_spot, spot_max, quota, cloud, region, node_start, budget or "
                "deadline"
            )
        return self.library.what_if(entry, asked)

    def workbook(self, request: Request) -> Response:
        """Answer with all tables of an audit as a workbook."""
        entry, document = self._asked(request)
        name = f'attachment; filename="trimtab-audit-{quote(entry.name)}.xlsx"'
        return Response(audit_workbook(document), media_type=_XLSX, headers={"Content-Disposition": name})

    def openapi(self, request: Request) -> Response:
        """Answer with the description of the API."""
        return Response(api.json_text(api.openapi(self.prices)), media_type=_JSON)

    def api_audits(self, request: Request) -> Response:
        """Answer with the list of audits; those that cannot be read are left out."""
        rows = []
        for entry in self.library.entries():
            try:
                rows.append(api.entry_row(entry, self.library.document(entry)))
            except TrimtabError:
                continue
        return Response(api.json_text({"audits": rows}), media_type=_JSON)

    def api_audit(self, request: Request) -> Response:
        """Answer with an audit, as `-o json` writes it."""
        _, document = self._asked(request)
        return Response(render_json(document), media_type=_JSON)

    def api_plan(self, request: Request) -> Response:
        """Answer with the plan as it is switched."""
        entry, _ = self._asked(request)
        found = self._without(entry, switched_off(request.query_params))
        return _json(found.model_dump(mode="json")) if isinstance(found, SwitchedPart) else _unready(found)

    def api_what_if(self, request: Request) -> Response:
        """Answer with a scenario, as `trimtab what-if -o json` has it."""
        entry, _ = self._asked(request)
        found = self._what_if(entry, request.query_params)
        return _json(api.rows(tables.scenario_figures(found))) if isinstance(found, WhatIf) else _unready(found)

    def api_year(self, request: Request) -> Response:
        """Answer with the year in the order that an address names."""
        entry, document = self._asked(request)
        _, found = self._year(entry, document, request.query_params)
        return (
            _unready(found)
            if isinstance(found, UnderWay | Refused)
            else _json(plan_pages.year_document(document, found))
        )

    def api_commitments(self, request: Request) -> Response:
        """Answer with what to commit to, as `trimtab commit -o json` has it."""
        entry, _ = self._asked(request)
        found = self.library.worked_out(entry, CommitmentsQuestion())
        return _json(found.document) if isinstance(found, CommitmentsResult) else _unready(_state_of(found))

    def api_verify(self, request: Request) -> Response:
        """Answer with a verification, as `trimtab verify -o json` has it."""
        entry, _ = self._asked(request)
        found = self.library.verified(entry)
        return _json(verify_document(found)) if isinstance(found, Verification) else _unready(found)

    def api_allocation(self, request: Request) -> Response:
        """Answer with a bill split, as `trimtab allocate -o json` has it."""
        entry, _ = self._asked(request)
        found = self.library.allocated(entry, allocation(request.query_params))
        return _json(api.rows(found.table)) if isinstance(found, AllocatedBill) else _unready(found)

    def api_table(self, request: Request) -> Response:
        """Answer with a table."""
        table = self._table(request)
        if not isinstance(table, DataTable):
            return _unready(table)
        return _json(rows_asked(table, request.query_params).plain())

    async def steered(self, request: Request) -> Response:
        """Cancel what a page waits for, or begin it again, as the page's form says; lead back to the page."""
        body = await read_body(request.receive)
        form = QueryParams((body or b"").decode("utf-8", "replace"))
        steer = {"cancel": self.library.cancel, "again": self.library.begin_again}.get(form.get("do", ""))
        if steer is None:
            raise HTTPException(405)
        steer(form.get("computation", ""))  # one that is no longer known needs nothing: the page says how things are
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{quote(request.url.path)}{query}", 303)

    def api_computations(self, request: Request) -> Response:
        """Answer with all that is being worked out, and what was as far as it is kept."""
        return _json({"computations": [api.computation_row(state) for state in self.library.computations()]})

    def api_computation(self, request: Request) -> Response:
        """Answer with a computation's state."""
        return _state(self.library.computation(request.path_params["computation"]))

    def api_cancel(self, request: Request) -> Response:
        """Cancel a computation; what is finished stays, and is said to be."""
        found = self.library.cancel(request.path_params["computation"])
        if found is not None and found.state in (State.DONE, State.FAILED):
            return Response(api.json_text({"error": f"it is finished: {found.state}"}), 409, media_type=_JSON)
        return _state(found)

    def api_begin_again(self, request: Request) -> Response:
        """Begin a cancelled computation again; one that goes on or is finished is left as it is."""
        return _state(self.library.begin_again(request.path_params["computation"]))

    def _asked(self, request: Request) -> tuple[AuditEntry, AuditDocument]:
        """Return the audit that an address names; raises HTTPException where there is none, TrimtabError where it is broken."""
        entry = self.library.entry(request.path_params["audit"])
        if entry is None:
            raise HTTPException(404)
        return entry, self.library.document(entry)

    def _without(self, entry: AuditEntry, off: frozenset[str]) -> SwitchedPart | UnderWay | Refused:
        board = self.library.switchboard(entry)
        return board.without(off) if isinstance(board, SwitchedPlans) else board


def _json(plain: object) -> Response:
    return Response(api.json_text(plain), media_type=_JSON)


FORMS = ("csv", "json", "xlsx")
"""The forms in which every table can be had."""


def _file(request: Request, table: DataTable) -> Response:
    """Answer with a table in the form that the address names; raises HTTPException for another form."""
    form = request.path_params["form"]
    if form == "json":
        return _json(table.plain())
    if form not in FORMS:
        raise HTTPException(404)
    content, kind = (table.csv(), "text/csv") if form == "csv" else (write_workbook([table.sheet()]), _XLSX)
    name = f'attachment; filename="trimtab-{table.key}.{form}"'
    return Response(content, media_type=kind, headers={"Content-Disposition": name})


def _state_of(found: object) -> UnderWay | Refused:
    """Return the state of work that has no answer yet."""
    assert isinstance(found, UnderWay | Refused), found
    return found


def _unready(state: UnderWay | Refused) -> Response:
    """Answer a program that asked for what is not worked out yet, or cannot be."""
    if isinstance(state, UnderWay):
        told = {"stage": state.stage, "done_frac": state.done_frac, "computation": state.computation}
        return Response(api.json_text(told), 202, media_type=_JSON)
    again = f"; POST {COMPUTATIONS}{state.computation} begins it again" if state.computation else ""
    return Response(api.json_text({"error": f"{state.reason}{again}"}), 409, media_type=_JSON)


def _is_cancelled(found: object) -> bool:
    return isinstance(found, Refused) and bool(found.computation)


def _state(found: ComputationState | None) -> Response:
    if found is None:
        raise HTTPException(404)
    return _json(api.computation_row(found))


def _missing(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    words = "Nothing was found at this address." if status == 404 else "This cannot be asked here."
    return _said(request, status, "Not found" if status == 404 else "Not possible", words)


def _failed(request: Request, error: Exception) -> Response:
    """Say what a question or an audit lacks."""
    status = 400 if isinstance(error, BadQuestion) else 429 if isinstance(error, TooBusy) else 409
    answer = _said(request, status, "This cannot be answered", f"{error}.")
    if status == 429:
        answer.headers["Retry-After"] = "5"
    return answer


def _broken(request: Request, error: Exception) -> Response:
    """Say that it is the program's fault, and nothing of what went wrong: that is in the server's log."""
    return _said(request, 500, "Something broke", "The server's log says what.")


def _said(request: Request, status: int, title: str, words: str) -> Response:
    if request.url.path.startswith(f"{api.PREFIX}/"):
        return Response(api.json_text({"error": words}), status, media_type=_JSON)
    return HTMLResponse(pages.message(title, words), status)
