"""The pages of an audit but for its plan: overview, where the money goes down to a workload, proof, use, and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from trimtab.emit.blocks import Block, Bullets, Folded, Paragraph, Section, Table, soft
from trimtab.emit.document import AuditDocument, CapacityPart
from trimtab.emit.explain import workload_sections
from trimtab.emit.html.charts import (
    bill_by_hour,
    capacity,
    heat_key,
    phone_waterfall,
    waste_bar,
    waste_style,
    waterfall,
    week_map,
)
from trimtab.emit.html.markup import PHONE_WIDTH, Html, tag
from trimtab.emit.money import dollars, percent
from trimtab.emit.sections.audit import audit_figures, audit_headline
from trimtab.emit.sections.finance import finance_figures, finance_headline, finance_sections
from trimtab.emit.writers.html import coded, figures_html, section_html, words_html
from trimtab.web import tables
from trimtab.web.layout import (
    RENEWED_S,
    Place,
    TablePlace,
    audit_path,
    both,
    facts,
    file_links,
    listed,
    page,
    panel,
    safe,
    table_html,
    workload_path,
)
from trimtab.web.library import AuditEntry, RunningAudit
from trimtab.web.section_tables import section_with_files, sections_of
from trimtab.web.tables import DataColumn, DataTable, TableQuestion

_TOP_ACTIONS = 5
_MOST_LINES = 40
"""Lines of a list and rows of a report's table on a page; the whole is in the JSON."""


def overview(name: str, document: AuditDocument) -> str:
    """Return the front page of an audit: the figures, how the plan takes the bill down, what to do first."""
    place = Place(title="Overview", audit=name, fleet=document.fleet, section="")
    notes = [*document.degraded]
    return page(
        place,
        tag("div", *(tag("p", safe(note)) for note in notes), class_="notice", role="note") if notes else Html(),
        figures_html(audit_figures(document)),
        tag("p", words_html(audit_headline(document)), class_="headline"),
        _first_actions(name, document),
        _bridge(document),
        _buys(name, document),
        panel("What was seen", tag("p", f"{safe(document.coverage.summary)}."), listed(_noted(document))),
    )


def _buys(name: str, document: AuditDocument) -> Html:
    """Return what the bill buys, kinds of waste and useful work."""
    where = TablePlace(path=audit_path(name), files=f"{audit_path(name)}/tables/waste", kept={})
    picture = both(waste_bar(document.waste), waste_bar(document.waste, width=PHONE_WIDTH))
    table = tables.waste(document)
    bought = [row for row in document.waste if row.usd_mo > 0]
    colours = {row.kind: waste_style(row, at) for at, row in enumerate(bought)}
    shown = replace(table, rows=[row for row in table.rows if row["kind"] in colours])
    return panel(
        "What it buys",
        picture,
        table_html(shown, TableQuestion(), where, keys=colours, ordered=False),
        lead=f"Together the parts are the bill, {dollars(document.bill_usd_mo)} a month.",
    )


def _noted(document: AuditDocument) -> list[str]:
    return [safe(note) for note in document.coverage.notes[:_MOST_LINES]]


def _bridge(document: AuditDocument) -> Html:
    if not document.plan.actions:
        return Html()
    return panel("From today's bill to the plan's", both(waterfall(document), phone_waterfall(document)))


def _first_actions(name: str, document: AuditDocument) -> Html:
    actions = document.plan.actions
    if not actions:
        return panel("What to do first", tag("p", "Nothing that is worth doing was found."))
    shown = document.plan.shown_savings_usd_mo()
    items = [
        tag(
            "li",
            tag("a", tag("strong", safe(action.subject)), href=f"{audit_path(name)}/action?id={action.id}"),
            f": {safe(action.effect)}; ",
            tag("span", f"saves {dollars(shown[action.id])} a month", class_="tone-good"),
        )
        for action in actions[:_TOP_ACTIONS]
    ]
    words = f"All {len(actions)} actions, with switches" if len(actions) > 1 else "The plan, with a switch"
    more = tag("a", words, href=f"{audit_path(name)}/plan")
    return panel("What to do first", tag("ol", *items, class_="first"), tag("p", more))


def spend(name: str, document: AuditDocument, question: TableQuestion) -> str:
    """Return where the money goes: the fleet by team and type, or one team, and its workloads."""
    team = next((row for row in document.spend.by_team if row.name == question.team), None)
    path = f"{audit_path(name)}/spend"
    place = Place(title="Where the money goes", audit=name, fleet=document.fleet, section="/spend")
    if team is None:
        head = [_spent_by(name, document), _by_hour(name, document)]
    else:
        place = replace(place, title=f"Team {safe(team.name)}", trail=(("The fleet", path),))
        head = [
            facts(
                (
                    ("A month", dollars(team.usd_mo)),
                    ("Of the bill", percent(team.share_frac, 1)),
                    ("GPU-hours held", f"{team.gpu_hours:,.0f}"),
                    ("GPU active", percent(team.activity_frac)),
                )
            )
        ]
    kept = {key: value for key, value in (("team", question.team), ("q", question.words)) if value}
    found = tables.workloads(document)
    links = {"workload": _workload_links(name, document), "team": _team_links(name, document)}
    where = TablePlace(path=path, files=f"{audit_path(name)}/tables/workloads", kept=kept)
    shown = table_html(found, question, where, links=links, bars="share_frac", filtered=True)
    return page(place, *head, panel("Workloads", shown, name="workloads"))


def _spent_by(name: str, document: AuditDocument) -> Html:
    by_team = _small(name, tables.teams(document), {"team": _team_links(name, document)})
    by_kind = _small(name, tables.kinds(document), {})
    return tag("div", panel("By team", by_team), panel("By workload type", by_kind), class_="pair")


def _small(name: str, table: DataTable, links: dict[str, dict[str, str]]) -> Html:
    """Return a table in the order that it has, with links but no filter."""
    where = TablePlace(path=f"{audit_path(name)}/spend", files=f"{audit_path(name)}/tables/{table.key}", kept={})
    return table_html(table, TableQuestion(), where, links=links, bars="share_frac", ordered=False)


def _by_hour(name: str, document: AuditDocument) -> Html:
    bill = document.pictures.bill_by_hour
    if not bill.before_usd:
        return Html()
    keys = tag(
        "ul",
        tag("li", tag("span", class_="key key-before"), "as it was"),
        tag("li", tag("span", class_="key key-after"), "with the plan"),
        class_="keys",
    )
    files = file_links(f"{audit_path(name)}/tables/hours", {})
    return panel(
        "Hour by hour, over the proof window",
        keys,
        both(bill_by_hour(bill), bill_by_hour(bill, width=PHONE_WIDTH)),
        files,
    )


def _workload_links(name: str, document: AuditDocument) -> dict[str, str]:
    return {row.name: workload_path(name, row.name) for row in document.spend.by_workload if row.kind is not None}


def _team_links(name: str, document: AuditDocument) -> dict[str, str]:
    known = {row.team for row in document.spend.by_workload}
    return {row.name: team_path(name, row.name) for row in document.spend.by_team if row.name in known}


def team_path(name: str, team: str) -> str:
    """Return the address of a team's page."""
    return f"{audit_path(name)}/spend?{tables.query(team=team)}"


def workload(name: str, document: AuditDocument, wanted: str) -> str | None:
    """Return a workload's page, None where the audit has none of that name."""
    row = next((row for row in document.spend.by_workload if row.name == wanted), None)
    if row is None:
        return None
    trail = [("The fleet", f"{audit_path(name)}/spend")]
    trail += [(row.team, team_path(name, row.team))] if row.team else []
    place = Place(title=row.name, audit=name, fleet=document.fleet, section="/spend", trail=tuple(trail))
    return page(
        place,
        facts(
            (
                ("A month", dollars(row.usd_mo)),
                ("Of the bill", percent(row.share_frac, 1)),
                ("GPU-hours held", f"{row.gpu_hours:,.0f}"),
                ("GPU active", percent(row.activity_frac)),
            )
        ),
        *_of_workload(name, document, wanted),
    )


def _of_workload(name: str, document: AuditDocument, wanted: str) -> Iterator[Html]:
    """Yield the panels of a workload's page: its explanation, with its pictures and links where a page has room for them."""
    yield from _pictures_of(name, document, wanted)
    for section in workload_sections(document, wanted):
        match section.name:
            case "cost":  # heads the page
                pass
            case "actions":
                yield _changed_by(name, document, wanted) or section_html(section)
            case "targets":
                yield _targets_of(name, document, wanted)
            case _:
                yield section_html(section)


def _pictures_of(name: str, document: AuditDocument, wanted: str) -> Iterator[Html]:
    heat = dict(zip(document.pictures.heat_map.rows, document.pictures.heat_map.activity_frac, strict=True))
    if wanted in heat:
        yield panel(
            "Its week, GPU activity by hour in UTC",
            tag("div", week_map(safe(wanted), heat[wanted]), class_="week"),
            heat_key(),
            tag("p", tag("a", "Each of its GPUs, hour by hour", href=gpus_path(name, wanted))),
        )
    for part in document.pictures.capacity:
        if part.workload == wanted:
            yield _capacity_panel(name, part)


def _changed_by(name: str, document: AuditDocument, wanted: str) -> Html:
    links = [
        tag(
            "li",
            tag("a", f"{action.id} {safe(action.subject)}", href=f"{audit_path(name)}/action?id={action.id}"),
            f": {safe(action.effect)}",
        )
        for action in document.plan.actions
        if any(change.subject == wanted for change in action.changes)
    ]
    return panel("What the plan does to it", tag("ul", *links, class_="plain")) if links else Html()


def _targets_of(name: str, document: AuditDocument, wanted: str) -> Html:
    where = TablePlace(path=workload_path(name, wanted), files=f"{audit_path(name)}/tables/targets", kept={"q": wanted})
    shown = _own_rows(tables.targets(document), wanted)
    return panel("Its targets in the proof", table_html(shown, TableQuestion(), where, ordered=False))


def _own_rows(table: DataTable, wanted: str) -> DataTable:
    """Return the rows of one workload, which need not name it."""
    columns = tuple(column for column in table.columns if column.key != "workload")
    return replace(table, columns=columns, rows=[row for row in table.rows if row["workload"] == wanted])


def _capacity_panel(name: str, part: CapacityPart) -> Html:
    keys = (("key-demand", "GPUs that requests needed"), ("key-before", "held"), ("key-after", "held with the plan"))
    items = (tag("li", tag("span", class_=f"key {style}"), words) for style, words in keys)
    pictures = both(capacity(part, 0), capacity(part, 0, width=PHONE_WIDTH))
    zoom = f"{audit_path(name)}/replay?{tables.query(what=part.workload)}"
    return panel(
        "Demand against capacity, hour by hour",
        tag("ul", *items, class_="keys"),
        pictures,
        tag("p", tag("a", "Zoom in", href=zoom), class_="under"),
    )


def gpus_path(name: str, workload: str) -> str:
    """Return the address of a workload's GPUs by hour."""
    return f"{audit_path(name)}/gpus?{tables.query(name=workload)}"


def proof(name: str, document: AuditDocument) -> str:
    """Return whether the plan holds: the replay of unseen history, the laws under it, what departures do to it."""
    return _of_sections(name, document, "Proof and robustness", "proof")


def finance(name: str, document: AuditDocument) -> str:
    """Return the audit for those who pay: no word of the trade, what is uncertain, what one would be bound to."""
    place = Place(title="For finance", audit=name, fleet=document.fleet, section="/finance")
    workbook = tag("a", "The whole audit as a workbook (XLSX)", href=f"{audit_path(name)}/workbook.xlsx")
    return page(
        place,
        figures_html(finance_figures(document)),
        tag("p", words_html(finance_headline(document)), class_="headline"),
        *_sections_with_files(name, "finance", finance_sections(document)),
        tag("p", workbook, class_="under soft"),
    )


def use(name: str, document: AuditDocument) -> str:
    """Return how the GPUs are used through the week."""
    return _of_sections(name, document, "Use", "use")


def more(name: str, document: AuditDocument) -> str:
    """Return the rest: the year ahead, what was refused, not declared or not judged, limits, the method."""
    return _of_sections(name, document, "Beside the plan", "more")


def _of_sections(name: str, document: AuditDocument, title: str, key: str) -> str:
    place = Place(title=title, audit=name, fleet=document.fleet, section=f"/{key}")
    sections = sections_of(key, document)
    contents = (tag("a", section.title, href=f"#{section.name}") for section in sections)
    jump = tag("nav", *contents, class_="jump", aria_label="On this page") if len(sections) > 2 else Html()
    shown = _sections_with_files(name, key, sections)
    return page(place, jump, *(shown or [tag("p", "There is nothing to show.")]))


def _sections_with_files(name: str, key: str, sections: Sequence[Section]) -> list[Html]:
    """Return sections as a page has room for them, with the files of their tables."""
    address = f"{audit_path(name)}/tables"
    return [section_with_files(key, section, shortened(section), address) for section in sections]


def shortened(section: Section) -> Section:
    """Return a section as a page has room for it: long lists end early, and say so."""
    return replace(section, blocks=tuple(part for block in section.blocks for part in _short(block)))


def _short(block: Block) -> Iterator[Block]:
    match block:
        case Bullets() if len(block.items) > _MOST_LINES:
            yield replace(block, items=block.items[:_MOST_LINES])
            yield Paragraph(words=soft(f"{len(block.items) - _MOST_LINES} more are in the JSON of this audit."))
        case Table() if len(block.rows) > _MOST_LINES:
            yield replace(block, page_rows=min(block.page_rows or _MOST_LINES, _MOST_LINES))
        case Folded():
            yield replace(block, blocks=tuple(part for inner in block.blocks for part in _short(inner)))
        case _:
            yield block


def audits(
    entries: Sequence[tuple[AuditEntry, AuditDocument | str]],
    running: Sequence[RunningAudit],
    question: TableQuestion,
) -> str:
    """Return the list of audits with those that are being made; of one that cannot be read, why."""
    table = audits_table(entries)
    links = {"audit": {entry.name: audit_path(entry.name) for entry, _ in entries}}
    where = TablePlace(path="/audits", files="", kept={"q": question.words} if question.words else {})
    none = tag("p", "No audit is kept here. Run ", tag("code", "trimtab audit"), ", and load this page again.")
    body = table_html(table, question, where, links=links, filtered=True) if entries else none
    place = Place(title="Audits", section="audits", renewed_s=RENEWED_S if running else None)
    return page(place, _running(running), panel("Kept audits, the latest first", body))


def _running(running: Sequence[RunningAudit]) -> Html:
    if not running:
        return Html()
    items = (
        tag(
            "li",
            tag("strong", safe(audit.fleet)),
            f": {safe(audit.stage)}, begun {audit.started:%H:%M} UTC ",
            tag("progress", max="1", value=f"{audit.done_frac:.2f}", aria_label=f"Audit of {safe(audit.fleet)}"),
        )
        for audit in running
    )
    return panel("Being made", tag("ul", *items, class_="plain", id="waiting"))


def audits_table(entries: Sequence[tuple[AuditEntry, AuditDocument | str]]) -> DataTable:
    """Return one row per audit."""
    columns = (
        DataColumn(key="audit", title="audit"),
        DataColumn(key="fleet", title="fleet"),
        DataColumn(key="start", title="from", less=True),
        DataColumn(key="end", title="to", less=True),
        DataColumn(key="bill_usd_mo", title="bill $/month", format=tables.MONEY, less=True),
        DataColumn(key="saving_usd_mo", title="saving found", format=tables.MONEY),
        DataColumn(key="saving_frac", title="share", format=tables.SHARE, less=True),
    )
    rows: list[dict[str, tables.Value]] = []
    for entry, found in entries:
        row: dict[str, tables.Value] = {column.key: None for column in columns}
        if isinstance(found, str):
            row |= {"audit": entry.name, "fleet": found}
        else:
            window = found.coverage.window
            row |= {
                "audit": entry.name,
                "fleet": found.fleet,
                "start": f"{window.start:%Y-%m-%d}",
                "end": f"{window.end - timedelta(hours=1):%Y-%m-%d}",
                "bill_usd_mo": found.bill_usd_mo,
                "saving_usd_mo": found.plan.joint_saving_usd_mo,
                "saving_frac": found.plan.saving_frac,
            }
        rows.append(row)
    return DataTable(key="audits", title="Audits", columns=columns, rows=rows)


def message(title: str, words: str, *, renewed_s: int | None = None) -> str:
    """Return a page that says one thing."""
    return page(Place(title=title, renewed_s=renewed_s), tag("section", tag("p", coded(safe(words)))))


def login(next_path: str, *, wrong: bool) -> str:
    """Return the page that asks for the token."""
    form = tag(
        "form",
        tag("input", type="hidden", name="next", value=next_path),
        tag(
            "label",
            "Token ",
            tag("input", type="password", name="token", autocomplete="current-password", required="required"),
        ),
        tag("button", "Sign in"),
        action="/login",
        method="post",
        class_="filter",
    )
    said = tag("p", "That is not the token.", class_="tone-bad", role="alert") if wrong else Html()
    return page(Place(title="Sign in"), tag("section", said, form))
