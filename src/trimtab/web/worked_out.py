"""Pages that are worked out when they are asked for: the plan compared with later history, another world, the bill split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from trimtab.emit.comparison import (
    ACTIONS,
    HEADLINE_FIGURES,
    ComparedFigure,
    FigureUnit,
    compared,
    compared_notes,
    values_shown,
)
from trimtab.emit.document import AuditDocument
from trimtab.emit.html.markup import Html, join, tag
from trimtab.emit.money import dollars
from trimtab.emit.sections.verification import verification_page
from trimtab.emit.writers.html import figures_html, section_html, words_html
from trimtab.plan.proof.scenario import Scenario, WhatIf
from trimtab.plan.verify.verification import Verification
from trimtab.web import tables
from trimtab.web.computations import Refused, UnderWay
from trimtab.web.layout import (
    TablePlace,
    audit_path,
    listed,
    page,
    panel,
    place_of,
    safe,
    select,
    short_table,
    table_html,
    waiting,
    workload_path,
)
from trimtab.web.pages import shortened
from trimtab.web.questions import RULES, SPLITS, word
from trimtab.web.tables import CellFormat, DataColumn, DataTable, TableQuestion

_VERIFIED = ("id", "subject", "status", "enacted_frac", "predicted_usd_mo", "realised_usd_mo", "cause")
_ALLOCATED = (
    "name", "team", "usd", "share_frac", "usd_mo", "gpu_hours", "usd_per_gpu_hr", "usd_per_1k_requests", "usd_per_mtok",
)  # fmt: skip
"""Columns that a page has room for; files have all."""


def verify(
    name: str,
    document: AuditDocument,
    question: TableQuestion,
    found: Verification | UnderWay | Refused,
    earlier: Verification | None = None,
) -> str:
    """Return what the plan saved since, action by action, or why that is not known.

    `earlier` is what was found before the later history grew: shown where the comparison that is asked for is refused.
    """
    place = place_of("Predicted and realised", name, document, "/verify", found)
    state = Html()
    if not isinstance(found, Verification):
        state = waiting(found, "The plan is being compared with later history")
        if earlier is None:
            return page(place, state)
        state = join([state, tag("p", "Below is the comparison that was made before.", class_="lead")])
        found = earlier
    made = verification_page(found, document.fleet)
    where = TablePlace(
        path=f"{audit_path(name)}/verify",
        files=f"{audit_path(name)}/tables/verified",
        kept={"q": question.words} if question.words else {},
    )
    path = f"{audit_path(name)}/action?id="
    links = {
        "id": {action.id: f"{path}{action.id}" for action in document.plan.actions},
        "subject": {action.subject: f"{path}{action.id}" for action in document.plan.actions},
    }
    actions = table_html(tables.verified(found).only(*_VERIFIED), question, where, links=links, filtered=True)
    sections = [section for section in made.sections if section.name != "actions"]
    return page(
        place,
        state,
        tag("p", safe(made.seen), class_="lead"),
        figures_html(made.figures),
        tag("p", words_html(made.headline), class_="headline"),
        panel(
            "Action by action",
            actions,
            lead="Dollars a month. Realised: at today's demand and the plan's rates. The files have the intervals too.",
            name="actions",
        ),
        *(section_html(shortened(section)) for section in sections),
        tag("p", tag("a", "JSON of this verification", href=f"/api/audits/{name}/verify"), class_="under soft"),
    )


def what_if(
    name: str,
    document: AuditDocument,
    query: QueryParams,
    asked: Scenario | None,
    found: WhatIf | UnderWay | Refused | None,
    earlier: WhatIf | None = None,
) -> str:
    """Return the fleet in another world beside the world as it is; `asked` is None where nothing is asked yet.

    `earlier` is the last answer: shown where the one that is asked for is refused.
    """
    place = place_of("What if", name, document, "/what-if", found)
    path = f"{audit_path(name)}/what-if"
    form = _scenario_form(path, query)
    if asked is None or found is None:
        return page(place, form, _usual_questions(path, document))
    if not isinstance(found, WhatIf):
        state = waiting(found, "The fleet is being planned under these conditions")
        if earlier is None:
            return page(place, form, state)
        kept_words = tag("p", "Below is the answer that was worked out last.", class_="lead")
        return page(place, form, state, kept_words, *_answer(earlier))
    kept = {key: value for key, value in query.items() if value}
    files = f"{audit_path(name)}/tables/what-if"
    links = [
        tag("a", title, href=f"{files}.{suffix}?{urlencode(kept)}")
        for title, suffix in (("CSV", "csv"), ("JSON", "json"), ("XLSX", "xlsx"))
    ]
    return page(
        place,
        form,
        *_answer(found),
        tag("p", *(tag("span", " ", link) for link in links), class_="under soft"),
    )


def _answer(found: WhatIf) -> list[Html]:
    """Return the two worlds side by side."""
    figures = compared(found)
    notices = [tag("div", tag("p", safe(note)), class_="notice", role="note") for note in compared_notes(found)[1:]]
    return [
        tag("p", tag("strong", f"What if: {safe('; '.join(found.scenario.words()))}"), class_="headline"),
        *notices,
        _compared_figures(figures),
        *(_compared(section, list(rows)) for section, rows in groupby(figures, key=lambda row: row.section)),
    ]


def allocation(
    name: str,
    document: AuditDocument,
    query: QueryParams,
    question: TableQuestion,
    found: tables.AllocatedBill | UnderWay | Refused,
    earlier: object = None,
) -> str:
    """Return what each payer is charged: from teams down to a team's workloads, and to a workload.

    `earlier` is the split that was made last: linked where the one that is asked for is refused.
    """
    place = place_of("Allocation", name, document, "/allocation", found)
    path = f"{audit_path(name)}/allocation"
    kept = {key: value for key in ("by", "cost", "idle", "shared", "team", "q") if (value := word(query, key))}
    if question.team:
        place = replace(place, title=f"Allocation: team {safe(question.team)}", trail=(("All teams", path),))
    form = _allocation_form(path, kept)
    if not isinstance(found, tables.AllocatedBill):
        back = _earlier_split(path, earlier) if isinstance(earlier, tables.AllocationQuestion) else Html()
        return page(place, form, waiting(found, "The bill is being split"), back)
    split = kept.get("by", SPLITS[0])
    table = with_teams(found.table, document) if split == "workload" else found.table
    terms = {key: value for key, value in kept.items() if key in ("cost", "idle", "shared")}
    where = TablePlace(path=path, files=f"{audit_path(name)}/tables/allocation", kept=kept)
    shown_table = table_html(
        _few_columns(table),
        question,
        where,
        links={"name": _payers(name, document, path, split, terms)},
        bars="share_frac",
        filtered=True,
    )
    summed = {key: value for key, value in kept.items() if key not in ("team", "q")}
    json = tag("a", "JSON of the whole allocation", href=f"/api/audits/{name}/allocation?{urlencode(summed)}")
    return page(
        place,
        form,
        panel(f"By {split}", shown_table, tag("p", json, class_="under soft")),
        listed([safe(note) for note in found.notes]),
    )


def _earlier_split(path: str, asked: tables.AllocationQuestion) -> Html:
    terms = {"by": asked.split, "cost": asked.basis, "idle": asked.idle, "shared": asked.shared}
    address = f"{path}?{urlencode({key: value for key, value in terms.items() if value})}"
    return tag("p", "The split that was made last is kept: ", tag("a", f"by {safe(asked.split)}", href=address), ".")


def _few_columns(table: DataTable) -> DataTable:
    """Return the columns that a page has room for and that some row fills."""
    filled = [key for key in _ALLOCATED if any(row.get(key) is not None for row in table.rows)]
    return table.only(*filled)


def with_teams(table: DataTable, document: AuditDocument) -> DataTable:
    """Return an allocation by workload with each one's team, by which it can be narrowed."""
    team = {row.name: row.team for row in document.spend.by_workload}
    column = DataColumn(key="team", title="team", less=True)
    rows = [{**row, "team": team.get(str(row["name"]))} for row in table.rows]
    return replace(table, columns=(table.columns[0], column, *table.columns[1:]), rows=rows)


def _payers(name: str, document: AuditDocument, path: str, split: str, terms: Mapping[str, str]) -> dict[str, str]:
    """Return where each payer of a split leads: a team to its workloads, a workload to its page."""
    if split == "team":
        teams = {row.team for row in document.spend.by_workload if row.team}
        return {team: f"{path}?{urlencode({'by': 'workload', 'team': team, **terms})}" for team in teams}
    if split == "workload":
        return {row.name: workload_path(name, row.name) for row in document.spend.by_workload if row.kind is not None}
    return {}


# What if

_USUAL = (
    ("Demand grows by half", {"demand": "1.5"}),
    ("Demand falls by a fifth", {"demand": "0.8"}),
    ("Spot costs 30% more", {"price": "spot+30%"}),
    ("On demand costs 10% less", {"price": "on-demand-10%"}),
    ("Nothing may run on spot", {"no_spot": "1"}),
)


def _usual_questions(path: str, document: AuditDocument) -> Html:
    tight_usd_mo = f"{round(document.plan.objective_usd_mo * 1.1, -3):.0f}"
    budget = (f"The bill must stay within {dollars(float(tight_usd_mo))} a month", {"budget": tight_usd_mo})
    items = [
        tag("li", tag("a", words, href=f"{path}?{urlencode(query)}"))
        for words, query in (*_USUAL, *([budget] if float(tight_usd_mo) > 0 else []))
    ]
    return panel(
        "Questions that are often asked",
        tag("ul", *items, class_="plain"),
        lead="The fleet is planned again, proved again, and shown beside the plan as it is. That takes some seconds.",
    )


def _scenario_form(path: str, query: QueryParams) -> Html:
    fields = (
        ("Demand, times today's", "demand", "number", "1.5"),
        ("Prices that change", "price", "text", "H100-15%, spot+30%"),
        ("Targets, in seconds", "target", "text", "prod/chat=0.3"),
        ("Budget, $ a month", "budget", "number", "100000"),
        ("Done before", "deadline", "text", "2027-03"),
        ("Quotas", "quota", "text", "p5.48xlarge=16"),
        ("Other regions", "region", "text", "us-west-2"),
        ("Other clouds", "cloud", "text", "gcp"),
        ("Node start, seconds", "node_start", "number", "40"),
    )
    inputs = (
        tag(
            "label",
            title,
            tag(
                "input",
                type=kind,
                name=key,
                value=", ".join(query.getlist(key)) or None,
                placeholder=hint,
                maxlength="200" if kind == "text" else None,
                step="any" if kind == "number" else None,
                min="0" if kind == "number" else None,
            ),
        )
        for title, key, kind, hint in fields
    )
    spot = select("Spot", "no_spot", (("", "where it pays"), ("1", "none")), word(query, "no_spot"))
    form = tag(
        "form", *inputs, spot, tag("button", "Plan it"), action=path, method="get", class_="fit-form", id="scenario"
    )
    return panel("What is different", form, lead="What is left empty stays as it is.")


def _compared_figures(figures: tuple[ComparedFigure, ...]) -> Html:
    """Return the figures that matter most, each with what it is today."""
    parts = []
    for row, value in zip(figures, values_shown(figures), strict=True):
        if row.what in HEADLINE_FIGURES:
            name = f"{row.what[:1].upper()}{row.what[1:]}"
            note = f"{value.base} as it is"
            parts.append(
                tag(
                    "div",
                    tag("div", name, class_="name"),
                    tag("div", safe(value.scenario), class_="value"),
                    tag("div", safe(note), class_="note"),
                    class_="figure",
                )
            )
    return tag("div", *parts, class_="figures", aria_live="polite")


_RIGHT = CellFormat(show=str, right=True)


def _compared(section: str, rows: list[ComparedFigure]) -> Html:
    title = f"{section[:1].upper()}{section[1:]}"
    right = CellFormat(show=str) if all(row.unit in (FigureUnit.TEXT, FigureUnit.ACTIONS) for row in rows) else _RIGHT
    table = DataTable(
        key="what-if",
        title=title,
        columns=(
            DataColumn(key="what", title="action" if section == ACTIONS else "figure"),
            DataColumn(key="base", title="as it is", format=right),
            DataColumn(key="scenario", title="what if", format=right),
            DataColumn(key="change", title="change", format=right, less=True),
        ),
        rows=[
            {"what": row.what, "base": value.base, "scenario": value.scenario, "change": value.change}
            for row, value in zip(rows, values_shown(rows), strict=True)
        ],
    )
    return panel(title, short_table(table))


# Allocation


def _allocation_form(path: str, kept: Mapping[str, str]) -> Html:
    rule_words = {"show": "shown", "spread": "by what each held", "even": "in equal parts"}
    rules = tuple((rule, rule_words[rule]) for rule in RULES)
    split = kept.get("by", SPLITS[0])
    splits = (*SPLITS, *([split] if split not in SPLITS else []))
    bases = (("", "the default"), ("effective", "amortised"), ("billed", "as invoiced"), ("list", "list prices"))
    hidden = [tag("input", type="hidden", name="team", value=kept["team"])] if "team" in kept else []
    form = tag(
        "form",
        *hidden,
        select("By", "by", tuple((value, value) for value in splits), split),
        select("Charged at", "cost", bases, kept.get("cost", "")),
        select("Idle nodes", "idle", rules, kept.get("idle", RULES[0])),
        select("Tax, credits, unnamed", "shared", rules, kept.get("shared", RULES[0])),
        tag("button", "Split"),
        action=path,
        method="get",
        class_="fit-form",
        id="split",
    )
    return panel(
        "How the bill is split",
        form,
        lead="Of the whole history; the overview shows the days that the plan is made on.",
    )
