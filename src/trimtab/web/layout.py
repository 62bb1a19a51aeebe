"""What every page of the server has around it: head, navigation, foot; and the few parts that several pages are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from urllib.parse import quote, urlencode

from trimtab._version import __version__
from trimtab.emit.document import AuditDocument
from trimtab.emit.html.fit_charts import STYLE as FIT_STYLE
from trimtab.emit.html.markup import Html, join, tag
from trimtab.emit.html.style import STYLE
from trimtab.safe_text import for_terminal
from trimtab.web.computations import Refused, UnderWay
from trimtab.web.tables import PAGE_ROWS, DataColumn, DataTable, Row, TableQuestion

_LONG_WORD = 20
"""Characters of a word from which on it may be broken anywhere, so that no table is wider than its page."""
MOST_SHOWN = 300
"""Characters of a name that a page shows; the whole of it is in JSON and CSV."""
_GROUPS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("Overview", (("", "Overview"),)),
    (
        "Money",
        (
            ("/spend", "Where it goes"),
            ("/use", "Use"),
            ("/allocation", "Allocation"),
            ("/commitments", "Commitments"),
            ("/finance", "Finance"),
        ),
    ),
    (
        "Plan",
        (("/plan", "Actions"), ("/year", "The year"), ("/what-if", "What if"), ("/limits", "Undeclared limits")),
    ),
    ("Proof", (("/proof", "Proof"), ("/replay", "Hour by hour"), ("/verify", "Verify"))),
    ("More", (("/more", "More"),)),
)
"""Sections of an audit by group: paths below the audit's address, with their titles."""
_EVERYWHERE = (
    ("/fit", "fit", "GPU picker"),
    ("/prices", "prices", "Prices"),
    ("/reviews", "reviews", "Reviews"),
    ("/audits", "audits", "Audits"),
)
"""Pages of no audit: address, section, title."""


@cache
def assets() -> Mapping[str, tuple[str, bytes]]:
    """Return what pages load, by a name that changes with its content: type and bytes."""
    folder = files("trimtab.web") / "static"
    style = (STYLE + FIT_STYLE + (folder / "page.css").read_text(encoding="utf-8")).encode()
    script = (folder / "page.js").read_bytes()
    return {
        _hashed("page", style, "css"): ("text/css", style),
        _hashed("page", script, "js"): ("text/javascript", script),
    }


def _hashed(name: str, content: bytes, suffix: str) -> str:
    return f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.{suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page is: its audit (empty: none), what it is called, and the path to it from the fleet."""

    title: str
    audit: str = ""
    fleet: str = ""
    section: str | None = None
    """As in the navigation."""
    trail: tuple[tuple[str, str], ...] = ()
    """Pairs of a title and an address, from the fleet down."""
    renewed_s: int | None = None
    """Loaded again after so many seconds, by browsers that run no script."""


RENEWED_S = 5
"""Seconds after which browsers that run no script load a page again that waits for something."""


def renewed_s(found: object) -> int | None:
    """Return after how many seconds a page is loaded again that waits for its answer; None where it has it."""
    return RENEWED_S if isinstance(found, UnderWay) else None


def place_of(title: str, name: str, document: AuditDocument, section: str, found: object = None) -> Place:
    """Return where a page of an audit is; one that waits for its answer is loaded again."""
    return Place(title=title, audit=name, fleet=document.fleet, section=section, renewed_s=renewed_s(found))


def page(place: Place, *body: str) -> str:
    """Return a whole page."""
    style, script = (f"/static/{name}" for name in assets())
    renewal = (
        tag("noscript", tag("meta", http_equiv="refresh", content=str(place.renewed_s))) if place.renewed_s else Html()
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{safe(place.title)} · trimtab"),
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href=style),
        tag("script", src=script, defer="defer"),
        renewal,
    )
    main = tag("main", _trail(place), tag("h1", safe(place.title)), *body, id="main", tabindex="-1")
    inside = tag("body", tag("a", "Skip to the content", href="#main", class_="skip"), _top(place), main, _foot(place))
    return f"<!doctype html>\n{tag('html', head, inside, lang='en')}\n"


def _top(place: Place) -> Html:
    links = _audit_links(place) if place.audit else []
    links += [
        tag("a", title, href=address, aria_current="page" if place.section == section else None)
        for address, section, title in _EVERYWHERE
    ]
    about = tag("span", safe(place.fleet), class_="fleet") if place.fleet else Html()
    return tag(
        "header",
        tag("div", tag("a", "trimtab", href="/", class_="brand"), about, class_="bar-name"),
        tag("nav", *links, aria_label="Pages"),
        _within_group(place),
        class_="top",
    )


def _audit_links(place: Place) -> list[Html]:
    """Return a link to the first page of each group; the group of this page is marked."""
    base = audit_path(place.audit)
    links = []
    for title, sections in _GROUPS:
        here = any(path == place.section for path, _ in sections)
        current = None if not here else "page" if sections[0][0] == place.section else "true"
        links.append(tag("a", title, href=base + sections[0][0], aria_current=current))
    return links


def _within_group(place: Place) -> Html:
    """Return the links to the other pages of this page's group."""
    group = next((sections for _, sections in _GROUPS if any(path == place.section for path, _ in sections)), ())
    if not place.audit or len(group) < 2:
        return Html()
    base = audit_path(place.audit)
    links = (
        tag("a", title, href=base + path, aria_current="page" if path == place.section else None)
        for path, title in group
    )
    return tag("nav", *links, aria_label="In this part", class_="part")


def _trail(place: Place) -> Html:
    if not place.trail:
        return Html()
    steps = [tag("a", safe(title), href=address) for title, address in place.trail]
    return tag("nav", *(tag("span", step) for step in steps), class_="trail", aria_label="Where this is")


def _foot(place: Place) -> Html:
    words = f"trimtab {__version__}. Reads only; people apply what it writes."
    links = [tag("a", "API", href="/api/openapi.json")]
    if place.audit:
        links.insert(0, tag("a", "This audit as JSON", href=f"/api/audits/{quote(place.audit)}"))
    return tag("footer", words, " ", *(tag("span", link, " ") for link in links))


def audit_path(audit: str) -> str:
    """Return the address of an audit's front page."""
    return f"/audits/{quote(audit, safe='')}"


def workload_path(audit: str, workload: str) -> str:
    """Return the address of a workload's page."""
    return f"{audit_path(audit)}/workload?{urlencode({'name': workload})}"


def safe(text: str) -> str:
    """Return text of others as a page may show it: nothing that lets it read as another, and not without end."""
    shown = for_terminal(text)
    return shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}…"


def breakable(text: str) -> Html:
    """Return text in which a line may break after each slash of a name."""
    return Html(join([text]).replace("/", "/<wbr>"))


def panel(title: str, *body: str, lead: str = "", name: str = "") -> Html:
    """Return a titled part of a page."""
    heading = tag("h2", title, id=name or None)
    return tag("section", heading, tag("p", lead, class_="lead") if lead else Html(), *body)


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Return a few figures with their names."""
    parts = (
        tag("div", tag("div", name, class_="name"), tag("div", safe(value), class_="value"), class_="figure")
        for name, value in pairs
    )
    return tag("div", *parts, class_="figures")


def both(wide: Html, on_phone: Html) -> Html:
    """Return a picture in the form for each width of screen."""
    return tag("div", tag("div", wide, class_="scroll wide"), tag("div", on_phone, class_="narrow"))


# Tables

_FEW_ROWS = 3
"""A table of so many is seen at a glance, and needs no filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """Where a table stands: its page's address, what else the address says, and where its files come from."""

    path: str
    files: str
    """Address of its CSV and JSON, without the suffix."""
    kept: Mapping[str, str]
    """Parts of the query that its links keep."""


def table_html(
    table: DataTable,
    question: TableQuestion,
    place: TablePlace,
    *,
    links: Mapping[str, Mapping[str, str]] | None = None,
    bars: str = "",
    keys: Mapping[str, str] | None = None,
    filtered: bool = False,
    ordered: bool = True,
) -> Html:
    """Return a table with its order, page and files in links.

    `links`: column -> text -> address; `bars`: a column of shares; `keys`: text -> its colour in a picture. A table that is not
    `ordered` by its address has no links in its head: for pages with several tables.
    """
    asked = table.asked(question)
    first = (question.page - 1) * PAGE_ROWS
    shown = asked.rows[first : first + PAGE_ROWS]
    most = max((value for row in table.rows if isinstance(value := row.get(bars), float)), default=0.0) or 1.0
    head = (_head(column, question, place) if ordered else _plain_head(column) for column in table.columns)
    rows = [
        tag("tr", *(_cell(column, row, links or {}, bars, most, keys or {}) for column in table.columns))
        for row in shown
    ]
    return join(
        [
            _filter(question, place) if filtered and (len(table.rows) > _FEW_ROWS or question.words) else Html(),
            _scrolling(head, rows) if rows else tag("p", "Nothing is like that.", class_="soft"),
            _under(asked, question, place),
        ]
    )


def short_table(table: DataTable) -> Html:
    """Return a table of few rows, in the order that they have."""
    head = (_plain_head(column) for column in table.columns)
    return _scrolling(head, [tag("tr", *(_cell(column, row) for column in table.columns)) for row in table.rows])


def _scrolling(head: Iterable[Html], rows: Sequence[Html]) -> Html:
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="data")
    return tag("div", table, class_="scroll", tabindex="0")


def _filter(question: TableQuestion, place: TablePlace) -> Html:
    kept = {key: value for key, value in place.kept.items() if key != "q"}
    hidden = [tag("input", type="hidden", name=key, value=value) for key, value in kept.items()]
    return tag(
        "form",
        *hidden,
        tag("label", "Filter ", tag("input", type="search", name="q", value=question.words, maxlength="200")),
        tag("button", "Show"),
        action=place.path,
        method="get",
        class_="filter",
    )


def _plain_head(column: DataColumn) -> Html:
    classes = _classes(column)
    return tag("th", column.title, scope="col", class_=classes) if column.title else tag("td", class_=classes)


def _head(column: DataColumn, question: TableQuestion, place: TablePlace) -> Html:
    classes = _classes(column)
    if not column.title:
        return tag("td", class_=classes)
    ordered = question.sort == column.key
    down = not question.down if ordered else column.format.right
    query = {**place.kept, "sort": column.key, "down": str(int(down))}
    arrow = (" ↓" if question.down else " ↑") if ordered else ""
    link = tag("a", f"{column.title}{arrow}", href=f"{place.path}?{urlencode(query)}")
    order = ("descending" if question.down else "ascending") if ordered else None
    return tag("th", link, scope="col", class_=classes, aria_sort=order)


def _classes(column: DataColumn, *, cut: bool = False) -> str | None:
    names = (
        ("num", column.format.right),
        ("less", column.less),
        ("cut", cut),
        ("nowrap", column.whole),
        ("phone-cut", column.cut),
    )
    return " ".join(name for name, holds in names if holds) or None


def _cell(
    column: DataColumn,
    row: Row,
    links: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    bars: str = "",
    most: float = 1.0,
    keys: Mapping[str, str] = MappingProxyType({}),
) -> Html:
    value = row[column.key]
    key = keys.get(value) if isinstance(value, str) else None
    words = breakable(safe(column.format.show(value)))
    address = links.get(column.key, {}).get(value) if isinstance(value, str) else None
    if address:
        words = tag("a", words, href=address)
    if column.key == "kept":
        words = tag("span", words, class_="tone-good" if value else "tone-bad")
    bar: str = ""
    share = row.get(bars) if bars and column.key != bars and not column.format.right and not column.less else None
    if isinstance(share, float):
        bar = tag("span", class_=f"bar long-{round(100 * min(share / most, 1.0))}")
    unbroken = max(map(len, column.format.show(value).replace("/", " ").split()), default=0)
    mark = tag("span", class_=f"key {key}") if key else Html()
    return tag("td", mark, words, bar, class_=_classes(column, cut=unbroken > _LONG_WORD))


def _under(asked: DataTable, question: TableQuestion, place: TablePlace) -> Html:
    """Return the pages of a table and the files of its rows."""
    pages = -(-len(asked.rows) // PAGE_ROWS)
    query = {**place.kept}
    if question.sort:
        query |= {"sort": question.sort, "down": str(int(question.down))}
    parts = [f"{len(asked.rows):,} row{'' if len(asked.rows) == 1 else 's'}"]
    if pages > 1:
        parts.append(f", page {question.page} of {pages} ")
    links = []
    for title, number in (("Earlier", question.page - 1), ("Later", question.page + 1)):
        if 1 <= number <= pages:
            links.append(tag("a", title, href=f"{place.path}?{urlencode({**query, 'page': str(number)})}"))
    for title, suffix in (("CSV", "csv"), ("JSON", "json"), ("XLSX", "xlsx")) if place.files else ():
        address = f"{place.files}.{suffix}" + (f"?{urlencode(query)}" if query else "")
        links.append(tag("a", title, href=address))
    return tag("p", *parts, *(tag("span", " ", link) for link in links), class_="under soft")


def file_links(address: str, query: Mapping[str, str], about: str = "") -> Html:
    """Return links to a table's files: `address` is that of the table, without a suffix; `about` says of which."""
    asked = {key: value for key, value in query.items() if value}
    suffix = f"?{urlencode(asked)}" if asked else ""
    links = (
        tag("span", " ", tag("a", title, href=f"{address}.{form}{suffix}"))
        for title, form in (("CSV", "csv"), ("JSON", "json"), ("XLSX", "xlsx"))
    )
    return tag("p", about, *links, class_="under soft")


def select(title: str, key: str, choices: Iterable[tuple[str, str]], chosen: str) -> Html:
    """Return a field with a list of values, each with its words."""
    options = (
        tag("option", words, value=value, selected="selected" if value == chosen else None) for value, words in choices
    )
    return tag("label", title, tag("select", *options, name=key))


def waiting(found: object, what: str) -> Html:
    """Say how far work is, or why its answer cannot be had; `found` is `UnderWay` or `Refused`."""
    match found:
        case UnderWay():
            bar = tag("progress", max="1", value=f"{found.done_frac:.2f}", aria_label="Done")
            words = tag("p", f"{what}: {safe(found.stage)}")
            return tag("div", words, bar, steer(found), class_="notice", id="waiting", data_wait="1")
        case Refused():
            reason = safe(found.reason)
            said = f"{reason[:1].upper()}{reason[1:]}" if found.computation else f"Not available: {reason}"
            words = tag("p", f"{said}.")
            return tag("div", words, steer(found), class_="notice", role="note")
    return Html()


def steer(found: UnderWay | Refused) -> Html:
    """Return the button that cancels what a page waits for, or begins again what was cancelled; else nothing."""
    if not found.computation:
        return Html()
    does, title = ("cancel", "Cancel") if isinstance(found, UnderWay) else ("again", "Begin again")
    return tag(
        "form",
        tag("input", type="hidden", name="do", value=does),
        tag("input", type="hidden", name="computation", value=found.computation),
        tag("button", title, id="steer"),
        method="post",
        id="steering",
    )


def listed(lines: Sequence[str]) -> Html:
    """Return lines as a list."""
    return tag("ul", *(tag("li", line) for line in lines), class_="plain")
