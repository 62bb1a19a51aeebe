"""Pages about the plan over time: the year in any order of its actions, what to commit to, what undeclared limits are worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.emit.blocks import Page
from trimtab.emit.document import AuditDocument
from trimtab.emit.document.plan import RoadmapPart
from trimtab.emit.from_audit.plan import schedule_part
from trimtab.emit.html.charts import year_picture
from trimtab.emit.html.markup import PHONE_WIDTH, Html, tag
from trimtab.emit.money import bill_left, dollars
from trimtab.emit.words import UNDECLARED_LEAD, UNDECLARED_NOTE, undeclared_line
from trimtab.emit.writers.html import words_html
from trimtab.plan.proof.own_order import OrderedYear, OrderFault
from trimtab.plan.proof.undeclared import ServiceLimitPrices
from trimtab.units import HR_PER_MO, HR_PER_WEEK
from trimtab.web import tables
from trimtab.web.computations import Refused, UnderWay
from trimtab.web.layout import (
    TablePlace,
    audit_path,
    both,
    file_links,
    page,
    panel,
    place_of,
    safe,
    table_html,
    waiting,
)
from trimtab.web.pages import shortened
from trimtab.web.section_tables import COMMITMENTS, section_with_files
from trimtab.web.tables import DataColumn, DataTable, Row, TableQuestion

_RULES = "rules"
"""The section that compares rules for buying: long, and folded away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentsResult:
    """What `trimtab commit` answers: its page for people, its document for programs, and its purchases as a table."""

    page: Page
    document: dict[str, object]
    steps: DataTable


# The year


def year(
    name: str, document: AuditDocument, order: Sequence[str], found: OrderedYear | UnderWay | Refused | None
) -> str:
    """Return the year ahead. `order` names all actions; `found` is that year, None where it is the plan's own order."""
    place = place_of("The year ahead", name, document, "/year", found)
    roadmap = document.plan.roadmap
    if roadmap is None:
        return page(place, panel("The year ahead", tag("p", "There is nothing to do, so the bill stays as it is.")))
    shown = roadmap
    if isinstance(found, OrderedYear):
        shown = roadmap.model_copy(update={"course": schedule_part(found.course)})
    ready = found is None or isinstance(found, OrderedYear)
    faults = found.faults if isinstance(found, OrderedYear) else ()
    return page(
        place,
        _year_figures(roadmap, shown),
        Html() if ready else waiting(found, "The order is being prepared"),
        _order_panel(name, document, shown, order, faults, ready),
        panel(
            "The bill through the year",
            _year_keys(shown is not roadmap, any(step.quick_win for step in shown.course.steps)),
            both(_picture(shown, document), _picture(shown, document, width=PHONE_WIDTH)),
        ),
        file_links(f"{audit_path(name)}/tables/year", {"order": ",".join(order)} if found else {}),
    )


def _picture(shown: RoadmapPart, document: AuditDocument, **width: float) -> Html:
    return year_picture(shown, document.plan.actions, **width)


def _year_keys(own_order: bool, wins: bool) -> Html:
    first = "in your order" if own_order else "in the plan's order"
    keys = (("key-after", first), ("key-before", "in the customary order"))
    star = [tag("li", "★ a quick win: little work, low risk, paid back within a month")] if wins else []
    lines = (tag("li", tag("span", class_=f"key {key}"), words) for key, words in keys)
    return tag("ul", *lines, *star, class_="keys")


def _year_figures(plan: RoadmapPart, shown: RoadmapPart) -> Html:
    untouched_usd = 12 * plan.course.bill_usd_mo[0]
    end_usd_mo = bill_left(plan.course.bill_usd_mo[0], shown.course.bill_usd_mo[-1])
    more_usd = shown.course.year_usd - plan.course.year_usd
    note = "the plan's order"
    if abs(more_usd) >= 1:
        note = f"{dollars(abs(more_usd))} {'more' if more_usd > 0 else 'less'} than in the plan's order"
    parts = (
        ("Twelve months as today", dollars(untouched_usd), "nothing done"),
        ("Twelve months in this order", dollars(bill_left(untouched_usd, shown.course.year_usd)), note),
        ("Saved over the year", dollars(untouched_usd - shown.course.year_usd), "as actions are done one by one"),
        (
            "A month at the end",
            dollars(end_usd_mo),
            "the same in any order, once all is done",
        ),
    )
    figures = (
        tag(
            "div",
            tag("div", title, class_="name"),
            tag("div", value, class_="value"),
            tag("div", words, class_="note"),
            class_="figure",
        )
        for title, value, words in parts
    )
    return tag("div", *figures, class_="figures", aria_live="polite")


def _order_panel(
    name: str,
    document: AuditDocument,
    shown: RoadmapPart,
    order: Sequence[str],
    faults: Sequence[OrderFault],
    ready: bool,
) -> Html:
    path = f"{audit_path(name)}/year"
    actions = {action.id: action for action in document.plan.actions}
    steps = {step.action: step for step in shown.course.steps}
    today = shown.course.bill_usd_mo[0]
    items = []
    for at, ident in enumerate(order):
        action, step = actions[ident], steps[ident]
        moves = [_move(path, order, at, at - 1, "earlier", "↑"), _move(path, order, at, at + 1, "later", "↓")]
        when = f"{_weeks(step.start_mo, step.done_mo)}; then the bill is {dollars(bill_left(today, step.bill_usd_mo))} a month"
        items.append(
            tag(
                "li",
                tag("span", "⠿", class_="grip", aria_hidden="true") if ready else Html(),
                tag(
                    "span",
                    tag(
                        "a",
                        f"{ident} ",
                        tag("strong", safe(action.subject)),
                        href=f"{audit_path(name)}/action?id={ident}",
                    ),
                    f": {safe(action.effect)}",
                    tag("span", when, class_="when"),
                    *(_fault(fault) for fault in faults if fault.action == ident),
                    class_="what",
                ),
                tag("span", *moves, class_="moves") if ready else Html(),
                id=f"order-{ident}",
                data_id=ident,
                draggable="true" if ready else None,
            )
        )
    again = tag("p", tag("a", "The plan's order", href=path), class_="under")
    return panel(
        "The order",
        tag("ol", *items, id="order", class_="order", data_path=path),
        again if tuple(order) != tuple(actions) else Html(),
        lead="Drag an action, or move it with its arrows. One is done after the other, at the pace of the team "
        "(planning.engineers), and the year is billed again.",
    )


def _weeks(start_mo: float, done_mo: float) -> str:
    """Say in which weeks of the year work is done, the first being 1."""
    per_mo = HR_PER_MO / HR_PER_WEEK
    first = math.floor(start_mo * per_mo) + 1
    last = max(first, math.ceil(done_mo * per_mo))
    return f"week {first}" if first == last else f"weeks {first} to {last}"


def _move(path: str, order: Sequence[str], at: int, to: int, words: str, arrow: str) -> Html:
    """Return a link to the order with an action exchanged with its neighbour; nothing beyond the ends."""
    if not 0 <= to < len(order):
        return tag("span", arrow, class_="no-move", aria_hidden="true")
    moved = [*order]
    moved[at], moved[to] = moved[to], moved[at]
    return tag(
        "a",
        arrow,
        href=f"{path}?order={','.join(moved)}",
        id=f"{words}-{order[at]}",
        aria_label=f"{order[at]} {words}",
        data_move=words,
    )


def _fault(fault: OrderFault) -> Html:
    words = (
        f"misses a target until {fault.needs} is done"
        if fault.misses_target
        else f"bought before {fault.needs}, which changes what is needed: part of it may stand unused"
    )
    return tag("span", words, class_="when tone-warn")


# Commitments


def commitments(name: str, document: AuditDocument, found: object) -> str:
    """Return what to commit to and when, what it returns, what is held already: `trimtab commit` as a page."""
    place = place_of("Commitments", name, document, "/commitments", found)
    if not isinstance(found, CommitmentsResult):
        return page(place, _planned_purchases(name, document), waiting(found, "The commitments are being worked out"))
    filled = found.page.filled_sections
    address = f"{audit_path(name)}/tables"
    sections = (
        section_with_files(COMMITMENTS, section, shortened(section), address)
        for section in filled
        if section.name != _RULES
    )
    rules = (
        tag(
            "details",
            tag("summary", safe(section.title)),
            section_with_files(COMMITMENTS, section, shortened(section), address),
        )
        for section in filled
        if section.name == _RULES
    )
    return page(
        place,
        tag("p", words_html(found.page.seen), class_="lead"),
        tag("p", words_html(found.page.headline), class_="headline") if found.page.headline else Html(),
        _planned_purchases(name, document),
        *sections,
        *rules,
        tag("p", tag("a", "JSON of all of it", href=f"/api/audits/{name}/commitments"), class_="under soft"),
    )


def _planned_purchases(name: str, document: AuditDocument) -> Html:
    bought = [action for action in document.plan.actions if action.lever == "commitment"]
    if not bought:
        return panel("In the plan", tag("p", "The plan buys no commitment."))
    shown = document.plan.shown_savings_usd_mo()
    items = (
        tag(
            "li",
            tag("a", f"{action.id} {safe(action.subject)}", href=f"{audit_path(name)}/action?id={action.id}"),
            f": {safe(action.effect)}; saves {dollars(shown[action.id])} a month",
            *(tag("div", f"Ask first about {safe(question)}.", class_="tone-warn") for question in action.ask_first),
        )
        for action in bought
    )
    return panel("In the plan", tag("ul", *items, class_="plain"))


# What was not declared


def limits(
    name: str,
    document: AuditDocument,
    question: TableQuestion,
    found: Sequence[ServiceLimitPrices] | UnderWay | Refused,
) -> str:
    """Return what declarations that were not made would save, latency limits with a slider each."""
    place = place_of("Undeclared limits", name, document, "/limits", found)
    if isinstance(found, UnderWay | Refused):
        services = [waiting(found, "Limits are being priced")]
    else:
        services = [_slider(name, number, service) for number, service in enumerate(found)]
        if services:
            services.append(file_links(f"{audit_path(name)}/tables/limit-prices", {}))
    none = tag("p", "Every service has a latency limit, or its latency was not measured.")
    where = TablePlace(path=f"{audit_path(name)}/limits", files=f"{audit_path(name)}/tables/undeclared", kept={})
    said = tables.undeclared(document)
    return page(
        place,
        panel(
            "How late may an answer be?",
            *(services or [none]),
            lead="No latency limit is declared for these services, so the plan keeps them as fast as they were. Move a "
            "slider to see what a looser limit (p95) would save besides the plan. Each is priced alone.",
        ),
        panel(
            "What else was not declared",
            *(
                [
                    tag("p", f"{UNDECLARED_LEAD}."),
                    table_html(said, question, where, filtered=True),
                    *(
                        _declaration(words_html(undeclared_line(part)), part.declaration)
                        for part in document.undeclared
                    ),
                    tag("p", safe(UNDECLARED_NOTE), class_="soft"),
                ]
                if said.rows
                else [tag("p", "Nothing that would save more than it takes.")]
            ),
        ),
    )


def _declaration(words: Html, lines: str) -> Html:
    return tag("details", tag("summary", words), tag("pre", safe(lines)))


def _slider(name: str, number: int, service: ServiceLimitPrices) -> Html:
    """Return a service's limits: a slider over them, and a table that says the same without a script."""
    rows = [
        tag(
            "tr",
            tag("td", f"{price.limit_s:g} s", class_="num"),
            tag("td", dollars(price.saves_usd_mo) if price.saves_usd_mo else "nothing", class_="num"),
            tag("td", tag("a", "plan it", href=_plan_it(name, service.workload, price.limit_s))),
        )
        for price in service.prices
    ]
    head = tag(
        "tr",
        tag("th", "p95 limit", scope="col", class_="num"),
        tag("th", "saves $/month", scope="col", class_="num"),
        tag("th", "with everything else", scope="col"),
    )
    ident = f"limit-{number}"
    control = tag(
        "div",
        tag("label", f"Limit of {safe(service.workload)} ", tag("output", "", for_=ident), for_=ident),
        tag("input", type="range", id=ident, min="0", max=str(len(service.prices) - 1), step="1", value="0"),
        class_="slider",
        hidden="hidden",
        data_stops=";".join(
            f"{price.limit_s:g} s|{dollars(price.saves_usd_mo) if price.saves_usd_mo else 'nothing'}"
            for price in service.prices
        ),
    )
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="data few")
    return tag(
        "div",
        tag("h3", safe(service.workload)),
        tag("p", f"p95 is {service.seen_s:.2g} s today.", class_="soft"),
        control,
        table,
        class_="service",
    )


def _plan_it(name: str, workload: str, limit_s: float) -> str:
    return f"{audit_path(name)}/what-if?{tables.query(target=f'{workload}={limit_s:g}')}"


def limit_prices_table(found: Sequence[ServiceLimitPrices]) -> DataTable:
    """Return every limit and what it saves."""
    columns = (
        DataColumn(key="workload", title="workload"),
        DataColumn(key="seen_s", title="p95 today, s", format=tables.DECIMAL),
        DataColumn(key="limit_s", title="limit, s", format=tables.DECIMAL),
        DataColumn(key="saves_usd_mo", title="saves $/month", format=tables.MONEY),
    )
    rows: list[Row] = [
        {
            "workload": service.workload,
            "seen_s": round(service.seen_s, 4),
            "limit_s": price.limit_s,
            "saves_usd_mo": round(price.saves_usd_mo, 2),
        }
        for service in found
        for price in service.prices
    ]
    return DataTable(key="limit-prices", title="Prices of latency limits", columns=columns, rows=rows)


def year_table(document: AuditDocument, found: OrderedYear | None) -> DataTable:
    """Return the steps of a year, in the order in which work on them begins."""
    roadmap = document.plan.roadmap
    course = schedule_part(found.course) if found else roadmap.course if roadmap else None
    subjects = {action.id: action.subject for action in document.plan.actions}
    columns = (
        DataColumn(key="id", title="id"),
        DataColumn(key="subject", title="on"),
        DataColumn(key="start_mo", title="begins, months", format=tables.DECIMAL),
        DataColumn(key="done_mo", title="done, months", format=tables.DECIMAL),
        DataColumn(key="bill_usd_mo", title="bill $/month then", format=tables.MONEY),
    )
    rows: list[Row] = [
        {
            "id": step.action,
            "subject": subjects.get(step.action, ""),
            "start_mo": step.start_mo,
            "done_mo": step.done_mo,
            "bill_usd_mo": step.bill_usd_mo,
        }
        for step in (course.steps if course else ())
    ]
    return DataTable(key="year", title="The year", columns=columns, rows=rows)


def year_document(document: AuditDocument, found: OrderedYear | None) -> dict[str, object]:
    """Return a year for programs: its course, what it costs beside the plan's, and what its order gets wrong."""
    roadmap = document.plan.roadmap
    course = schedule_part(found.course) if found else roadmap.course if roadmap else None
    faults = found.faults if found else ()
    return {
        "course": course.model_dump(mode="json") if course else None,
        "plan_year_usd": roadmap.course.year_usd if roadmap else None,
        "faults": [
            {"action": fault.action, "needs": fault.needs, "misses_target": fault.misses_target} for fault in faults
        ],
    }
