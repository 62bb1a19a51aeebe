"""The server's addresses: which page or document stands under each, and what is said where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from trimtab.emit.audit_data import render_json
from trimtab.emit.document import AuditDocument
from trimtab.emit.document.switched import SwitchedPart
from trimtab.errors import TrimtabError
from trimtab.web import api, pages, switches
from trimtab.web.access import AccessGate, AccessRules
from trimtab.web.layout import assets, audit_path
from trimtab.web.library import AuditEntry, Library, Refused, Switchboard, TooBusy, UnderWay
from trimtab.web.page_cache import PageCache
from trimtab.web.picker import Picker, answered
from trimtab.web.questions import BadQuestion, switched_off, table_question, word
from trimtab.web.tables import TABLES

_SMALLEST_ZIPPED = 1000
_JSON = "application/json"
PageMaker = Callable[[str, AuditDocument, QueryParams], str | None]


def web_app(library: Library, rules: AccessRules) -> AccessGate:
    """Return the application: every page and document of a library, behind the rules of access."""
    routes = Routes(library=library, picker=Picker(), cache=PageCache())
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

    def table(self) -> list[Route]:
        """Return the addresses."""
        made: Mapping[str, PageMaker] = {
            "": lambda name, document, _: pages.overview(name, document),
            "/spend": lambda name, document, query: pages.spend(name, document, table_question(query)),
            "/workload": lambda name, document, query: pages.workload(name, document, word(query, "name")),
            "/action": lambda name, document, query: switches.action(name, document, word(query, "id")),
            "/proof": lambda name, document, _: pages.proof(name, document),
            "/use": lambda name, document, _: pages.use(name, document),
            "/more": lambda name, document, _: pages.more(name, document),
        }
        return [
            Route("/", self.front),
            Route("/login", self.login),
            Route("/static/{name}", self.static),
            Route("/audits", self.audits),
            Route("/fit", self.fit),
            *(Route(f"/audits/{{audit}}{path}", self.page_of(make)) for path, make in made.items()),
            Route("/audits/{audit}/plan", self.plan),
            Route("/audits/{audit}/tables/{table}.{form}", self.table_file),
            Route("/api/openapi.json", self.openapi),
            Route("/api/audits", self.api_audits),
            Route("/api/audits/{audit}", self.api_audit),
            Route("/api/audits/{audit}/plan", self.api_plan),
            Route("/api/audits/{audit}/tables/{table}", self.api_table),
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
        return HTMLResponse(pages.audits(found))

    def fit(self, request: Request) -> Response:
        """Answer with the GPU picker."""
        return HTMLResponse(answered(self.picker, request.query_params))

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

    def table_file(self, request: Request) -> Response:
        """Answer with a table as CSV or JSON."""
        _, document = self._asked(request)
        make, form = TABLES.get(request.path_params["table"]), request.path_params["form"]
        if make is None or form not in ("csv", "json"):
            raise HTTPException(404)
        table = make(document).asked(table_question(request.query_params))
        if form == "json":
            return Response(api.json_text(table.plain()), media_type=_JSON)
        name = f"trimtab-{table.key}.csv"
        return Response(
            table.csv(), media_type="text/csv", headers={"Content-Disposition": f'attachment; filename="{name}"'}
        )

    def openapi(self, request: Request) -> Response:
        """Answer with the description of the API."""
        return Response(api.json_text(api.openapi()), media_type=_JSON)

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
        match self._without(entry, switched_off(request.query_params)):
            case SwitchedPart() as found:
                return Response(api.json_text(found.model_dump(mode="json")), media_type=_JSON)
            case UnderWay(stage=stage, done_frac=done_frac):
                return Response(api.json_text({"stage": stage, "done_frac": done_frac}), 202, media_type=_JSON)
            case Refused(reason=reason):
                return Response(api.json_text({"error": reason}), 409, media_type=_JSON)

    def api_table(self, request: Request) -> Response:
        """Answer with a table."""
        _, document = self._asked(request)
        make = TABLES.get(request.path_params["table"])
        if make is None:
            raise HTTPException(404)
        return Response(
            api.json_text(make(document).asked(table_question(request.query_params)).plain()), media_type=_JSON
        )

    def _asked(self, request: Request) -> tuple[AuditEntry, AuditDocument]:
        """Return the audit that an address names; raises HTTPException where there is none, TrimtabError where it is broken."""
        entry = self.library.entry(request.path_params["audit"])
        if entry is None:
            raise HTTPException(404)
        return entry, self.library.document(entry)

    def _without(self, entry: AuditEntry, off: frozenset[str]) -> SwitchedPart | UnderWay | Refused:
        board = self.library.switchboard(entry)
        return board.without(off) if isinstance(board, Switchboard) else board


def _missing(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    words = "There is nothing under this address." if status == 404 else "This cannot be asked here."
    return _said(request, status, "Not here", words)


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
