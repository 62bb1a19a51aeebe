"""Sections of the plan: what to do, the year ahead, alternatives worth a look, and what was rejected or not judged."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.emit.blocks import (
    Amount,
    Block,
    Bullets,
    Chart,
    Folded,
    ListItem,
    Paragraph,
    StyledText,
    Table,
    TableColumn,
    TableRow,
    Tone,
    Words,
    bullets,
    code,
    soft,
    strong,
    table,
)
from trimtab.emit.document import AuditDocument
from trimtab.emit.document.plan import ActionPart, AlternativePart, RoadmapPart
from trimtab.emit.html.charts import phone_waterfall, waterfall, year_picture
from trimtab.emit.html.markup import PHONE_WIDTH
from trimtab.emit.money import bill_left, dollars, percent
from trimtab.emit.sections.actions import action_sections
from trimtab.emit.words import (
    UNDECLARED_LEAD,
    UNDECLARED_NOTE,
    alternative_subject,
    interval,
    plan_note,
    quick_wins,
    roadmap_lines,
    undeclared_line,
)
from trimtab.levers.registry import title_of

_BRIEF_ACTIONS = 20
_BRIEF_LINES = 8
_RISK_TONE = {"low": Tone.GOOD, "medium": Tone.WARN, "high": Tone.BAD}
_COLUMNS = (
    TableColumn(title="id", whole=True),
    TableColumn(title="what to do"),
    TableColumn(title="saves $/month", right=True),
    TableColumn(title="80% interval", right=True, optional=1),
    TableColumn(title="alone", right=True, optional=4, gloss="what it saves if it is the only action"),
    TableColumn(title="last in", right=True, optional=5, gloss="what is lost if it alone is left out"),
    TableColumn(title="weeks", right=True, optional=3, gloss="engineer-weeks"),
    TableColumn(title="risk", whole=True),
    TableColumn(title="when", whole=True, optional=2),
)


def bridge_blocks(document: AuditDocument) -> list[Block]:
    """Return the chart of how the actions reduce the bill. Formats without pictures show the plan's table instead."""
    if not document.plan.actions:
        return []
    return [Chart(draw=lambda: waterfall(document), on_phone=lambda: phone_waterfall(document))]


def plan_blocks(document: AuditDocument) -> list[Block]:
    """Return the actions, and how close to the optimum the plan is."""
    plan = document.plan
    if not plan.actions:
        return [Paragraph(words="Nothing worth doing was found; see below what was considered and rejected.")]
    wins = quick_wins(document)
    star = " ★: a quick win: little work, low risk, paid back within a month." if wins else ""
    rest = plan.actions[_BRIEF_ACTIONS:]
    return [
        Table(
            columns=_COLUMNS,
            rows=tuple(_action_row(document, action, action.id in wins) for action in plan.actions),
            total=_across("", strong("together"), Amount(plan.joint_saving_usd_mo, strong=True)),
            brief_rows=_BRIEF_ACTIONS,
            rest=_across("", f"{len(rest)} more in `-o json`", Amount(sum(action.saving_usd_mo for action in rest))),
        ),
        Paragraph(words=soft(f"Savings overlap; each figure is a fair share, so they add up.{star} {plan_note(plan)}")),
        *_conditions(plan.actions),
        *_questions(plan.actions),
    ]


def _conditions(actions: Sequence[ActionPart]) -> list[Block]:
    """Return what must be changed before some actions, each once."""
    needed: dict[str, list[str]] = {}
    for action in actions:
        for condition in action.preconditions:
            needed.setdefault(condition, []).append(action.id)
    lines = [(strong(f"Before {' and '.join(ids)}"), f": {condition}") for condition, ids in needed.items()]
    return [Bullets(items=tuple(map(_item, lines)), brief_items=_BRIEF_LINES)] if lines else []


def _questions(actions: Sequence[ActionPart]) -> list[Block]:
    """Return the questions to ask before purchases that cannot be undone, each once."""
    asked: dict[str, list[str]] = {}
    for action in actions:
        for question in action.ask_first:
            asked.setdefault(question, []).append(action.id)
    lines = [
        (strong(f"Before {' and '.join(ids)}"), f", which cannot be undone, ask about {question}")
        for question, ids in asked.items()
    ]
    return [Bullets(items=tuple(map(_item, lines)), brief_items=_BRIEF_LINES)] if lines else []


def _across(*cells: str | StyledText | Amount) -> TableRow:
    return TableRow(cells=(*cells, *[""] * (len(_COLUMNS) - len(cells))))


def _action_row(document: AuditDocument, action: ActionPart, quick_win: bool) -> TableRow:
    return TableRow(
        id=action.id,
        cells=(
            code(action.id),
            (strong(action.subject), f": {action.effect}{' ★' if quick_win else ''}"),
            Amount(action.saving_usd_mo),
            interval(action),
            f"{action.standalone_usd_mo:,.0f}",
            f"{action.last_in_usd_mo:,.0f}",
            f"{action.effort_weeks:g}",
            StyledText(action.risk, _RISK_TONE[action.risk]),
            f"Q{action.quarter}" if action.quarter else "later",
        ),
        details_title="Why, the sums, how to undo it",
        details=action_sections(document, action),
    )


def roadmap_blocks(document: AuditDocument) -> list[Block]:
    """Return the year ahead, month by month; empty if there is no roadmap."""
    found = document.plan.roadmap
    if found is None:
        return []
    return [
        Chart(
            draw=lambda: year_picture(found, document.plan.actions),
            on_phone=lambda: year_picture(found, document.plan.actions, width=PHONE_WIDTH),
            keys=(("key-after", "in this order"), ("key-before", "in the customary order")),
        ),
        bullets(roadmap_lines(found)),
        Folded(title="Month by month, and how robust the order is", blocks=tuple(_year_tables(document, found))),
    ]


def _year_tables(document: AuditDocument, found: RoadmapPart) -> list[Table]:
    subjects = {action.id: action.subject for action in document.plan.actions}
    today = found.course.bill_usd_mo[0]
    steps = [
        (
            code(step.action),
            f"{subjects.get(step.action, '')}{' ★' if step.quick_win else ''}",
            f"{step.start_mo:.1f}",
            f"{step.done_mo:.1f}",
            f"{bill_left(today, step.bill_usd_mo):,}",
        )
        for step in found.course.steps
    ]
    bills = [[bill_left(today, bill) for bill in course.bill_usd_mo] for course in (found.course, found.fixed)]
    months = [
        (str(month), f"{ordered:,}", f"{fixed:,}", f"{fixed - ordered:,}")
        for month, (ordered, fixed) in enumerate(zip(*bills, strict=True))
    ]
    sways = [
        (
            f"{title_of(sway.lever)} at {'half' if sway.factor < 1 else 'twice'} its effort",
            percent(sway.same_frac),
            code(sway.first),
            f"{sway.regret_usd:,.0f}",
        )
        for sway in found.sways
    ]
    firm = ("if", "#pairs in the same order", "first", "#keeping this order costs, $ over the year")
    return [
        table(("id", "what", "#begins, months", "#done", "#bill $/month then"), steps, title="Steps"),
        table(
            ("#after months", "#bill $/month, this order", "#customary order", "#difference"),
            months,
            title="Bill a month",
        ),
        table(firm, sways, title="How robust the order is"),
    ]


def closer_look_blocks(document: AuditDocument) -> list[Block]:
    """Return the alternatives that are worth a closer look."""
    items = [_alternative(alternative) for alternative in document.plan.always_judged if alternative.worth]
    return [Bullets(items=tuple(items))] if items else []


def not_worth_blocks(document: AuditDocument) -> list[Block]:
    """Return what was considered and rejected, and why."""
    alternatives = [_alternative(alternative) for alternative in document.plan.always_judged if not alternative.worth]
    refused = [
        _reasoned(f"{title_of(row.lever)}: {row.subject}", saves_words(row.saving_usd_mo), row.reason)
        for row in document.plan.not_worth_doing
    ]
    items = (*alternatives, *map(_item, refused))
    return [Bullets(items=items, brief_items=len(alternatives) + _BRIEF_LINES)] if items else []


def unjudged_blocks(document: AuditDocument) -> list[Block]:
    """Return the workloads that could not be judged and therefore stay unchanged."""
    lines = [_reasoned(row.workload, f"{dollars(row.usd_mo)} a month", row.reason) for row in document.unjudged]
    return [bullets(lines, brief=_BRIEF_LINES)] if lines else []


def undeclared_blocks(document: AuditDocument) -> list[Block]:
    """Return missing declarations, what declaring them would save, and the lines to paste."""
    if not document.undeclared:
        return []
    items = tuple(ListItem(words=undeclared_line(part), code=part.declaration) for part in document.undeclared)
    return [
        Paragraph(words=f"{UNDECLARED_LEAD}."),
        Bullets(items=items, brief_items=_BRIEF_LINES),
        Paragraph(words=soft(UNDECLARED_NOTE)),
    ]


def _alternative(alternative: AlternativePart) -> ListItem:
    words: Words = (strong(alternative_subject(alternative)), f": {alternative.reason}")
    return ListItem(
        words=words, beneath=f"assumed: {', '.join(alternative.assumptions)}" if alternative.assumptions else ""
    )


def _item(words: Words) -> ListItem:
    return ListItem(words=words)


def _reasoned(what: str, money: str, reason: str) -> Words:
    return (strong(what), f"{f' ({money})' if money else ''}: {reason}")


def saves_words(usd_mo: float | None) -> str:
    """Say what something saves or costs; empty if that is not known."""
    if usd_mo is None:
        return ""
    return f"saves {dollars(usd_mo)} a month" if usd_mo >= 0 else f"costs {dollars(-usd_mo)} a month more"
