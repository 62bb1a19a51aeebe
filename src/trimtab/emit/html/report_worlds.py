"""Services' laws, limits, commitments held, and a scenario beside the world as it is, in the HTML report."""

from __future__ import annotations

from trimtab.emit.document import AuditDocument
from trimtab.emit.html.markup import Html, tag
from trimtab.emit.html.sections import bullets, number, scroll, section, table
from trimtab.emit.money import dollars
from trimtab.emit.words import (
    UNDECLARED_LEAD,
    UNDECLARED_NOTE,
    compared_cells,
    headroom_line,
    law_line,
    limit_line,
    load_test_line,
    owned_lines,
    stress_line,
    undeclared_line,
)


def limits_section(document: AuditDocument) -> Html:
    """Return what the plan may not exceed and what is paid anyway; nothing where there is neither."""
    lines = [*map(limit_line, document.plan.limits), *owned_lines(document)]
    if not lines:
        return Html()
    lead = "What the plan may not exceed, what that costs, and commitments that run already."
    return section("limits", "Limits and commitments held", lead, bullets(lines))


def laws_section(document: AuditDocument) -> Html:
    """Return how services answer under load, and the load tests that buy more; nothing where there are no services."""
    if not document.laws:
        return Html()
    lead = "What a replica is taken to serve, and how that did on busier hours than it was fitted on."
    tests = [load_test_line(one) for one in document.laws if one.load_test]
    more = (tag("h3", "Load tests that buy more"), bullets(tests)) if tests else ()
    return section("laws", "How services answer under load", lead, bullets([*map(law_line, document.laws)]), *more)


def undeclared_section(document: AuditDocument) -> Html:
    """Return what was not declared, what declaring it would save, and the lines to paste; nothing where that is nothing."""
    rows = [
        (undeclared_line(one), number(dollars(one.saves_usd_mo)), tag("pre", one.declaration))
        for one in document.undeclared
    ]
    if not rows:
        return Html()
    heads = ("what", "#saves a month", "to paste")
    body = (scroll(table("", heads, rows)), tag("p", UNDECLARED_NOTE, class_="soft"))
    return section("undeclared", "What was not declared", f"{UNDECLARED_LEAD}.", *body)


def robustness_section(document: AuditDocument) -> Html:
    """Return the proof under stress; nothing where it was not made."""
    found = document.robustness
    if found is None:
        return Html()
    lead = "The proof again, where speeds and demand depart from what the plan was made for."
    lines = [*map(stress_line, found.stressed), headroom_line(found), *found.notes]
    return section("robustness", "Robustness", lead, bullets(lines))


def what_if_section(document: AuditDocument) -> Html:
    """Return both worlds side by side; nothing where no scenario was asked for."""
    found = document.what_if
    if found is None:
        return Html()
    rows = [
        (figure.section, figure.what, *(number(cell) for cell in compared_cells(figure))) for figure in found.figures
    ]
    refused = [f"There is no plan in that world: {found.refused}."] if found.refused else []
    heads = ("", "", "#as it is", "#what if")
    return section("what-if", "What if", "; ".join(found.scenario), scroll(table("", heads, rows)), bullets(refused))
