"""The year ahead in the HTML report: the bill falling as actions are done, beside the order that guides give."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.emit.document import ActionPart, AuditDocument, CoursePart, RoadmapPart
from trimtab.emit.html.markup import Html, join, tag
from trimtab.emit.html.sections import bullets, keys, number, scroll, section, table
from trimtab.emit.html.svg import Frame, level_lines, picture, step_area, step_line, text, ticks
from trimtab.emit.money import dollars, percent
from trimtab.emit.roadmap_words import roadmap_lines
from trimtab.units import MO_PER_YEAR

_WIDTH = 960.0
_LOWER = 212.0
_STEPS_PER_MO = 20
_LANE = 18.0


def roadmap_section(document: AuditDocument) -> Html:
    """Return the section; nothing where there is no roadmap."""
    found = document.plan.roadmap
    if found is None:
        return Html()
    return section(
        "roadmap",
        "The year ahead",
        "One lever is taken up a month and finished before the next. The bill falls as actions are done; each fall is an exact "
        "re-bill of all that is done by then.",
        keys(("key-after", "in this order"), ("key-before", "in the fixed order")),
        scroll(year_picture(found, document.plan.actions)),
        bullets(roadmap_lines(found)),
        tag("details", tag("summary", "Month by month, and how firm the order is"), _tables(document, found)),
    )


def year_picture(found: RoadmapPart, actions: Sequence[ActionPart]) -> Html:
    """Draw the monthly bill through the year in both orders, and under it when each action is worked on."""
    steps = [step for step in found.course.steps if step.start_mo < MO_PER_YEAR]
    top = max(*found.course.bill_usd_mo, *found.fixed.bill_usd_mo, 1e-9) * 1.06
    frame = Frame(left=70, right=_WIDTH, upper=8, lower=_LOWER, count=MO_PER_YEAR * _STEPS_PER_MO, top=top)
    mine, fixed = _curve(found.course), _curve(found.fixed)
    words = {action.id: f"{action.subject}: {action.effect}" for action in actions}
    first_lane = _LOWER + 30
    bars = []
    for lane, step in enumerate(steps):
        left, right = (frame.x(min(month, MO_PER_YEAR) * _STEPS_PER_MO) for month in (step.start_mo, step.done_mo))
        y = first_lane + lane * _LANE
        told = f"{step.action} {words.get(step.action, '')}. From then on {dollars(step.bill_usd_mo)} a month."
        bars.append(
            tag(
                "g",
                tag("title", told),
                tag("rect", x=left, y=y, width=max(right - left, 3.0), height=_LANE - 6, rx=2, class_="bar-saving"),
                text(56, y + 10, f"{step.action}{' ★' if step.quick_win else ''}", anchor="end", style="tick"),
            )
        )
    return picture(
        _WIDTH,
        first_lane + len(steps) * _LANE,
        "The bill through the year",
        f"From {dollars(found.course.bill_usd_mo[0])} a month to {dollars(found.year_end_bill_usd_mo)} after twelve months; "
        "below, when each action is worked on. A star marks a quick win.",
        level_lines(frame, {value: dollars(value) for value in ticks(top)}),
        step_area(frame, mine, "area-after"),
        step_line(frame, fixed, "line-before"),
        step_line(frame, mine, "line-after"),
        _months(frame),
        *bars,
        name="year",
    )


def _curve(course: CoursePart) -> list[float]:
    """Return the bill at equal steps through the year."""
    ends = sorted((step.done_mo, step.bill_usd_mo) for step in course.steps)
    values = []
    for at in range(MO_PER_YEAR * _STEPS_PER_MO):
        done = [bill for end, bill in ends if end <= at / _STEPS_PER_MO]
        values.append(done[-1] if done else course.bill_usd_mo[0])
    return values


def _months(frame: Frame) -> Html:
    marks = []
    for month in range(MO_PER_YEAR):
        x = frame.x(month * _STEPS_PER_MO)
        marks.append(tag("line", x1=x, x2=x, y1=frame.lower, y2=frame.lower + 5, class_="grid"))
        marks.append(text(x + 3, frame.lower + 18, f"month {month + 1}", style="tick"))
    return join(marks)


def _tables(document: AuditDocument, found: RoadmapPart) -> Html:
    subjects = {action.id: action.subject for action in document.plan.actions}
    steps = (
        (
            tag("code", step.action),
            f"{subjects.get(step.action, '')}{' ★ quick win' if step.quick_win else ''}",
            number(f"{step.start_mo:.1f}"),
            number(f"{step.done_mo:.1f}"),
            number(dollars(step.bill_usd_mo)),
        )
        for step in found.course.steps
    )
    months = (
        (f"after {month} months", number(dollars(mine)), number(dollars(fixed)), number(dollars(fixed - mine)))
        for month, (mine, fixed) in enumerate(zip(found.course.bill_usd_mo, found.fixed.bill_usd_mo, strict=True))
    )
    sways = (
        (
            f"{sway.lever} at {'half' if sway.factor < 1 else 'twice'} its effort",
            number(percent(sway.same_frac)),
            tag("code", sway.first),
            number(dollars(sway.regret_usd)),
        )
        for sway in found.sways
    )
    heads = ("", "what", "#begins, months", "#done", "#bill a month then")
    return join(
        [
            scroll(table("Steps", heads, steps)),
            scroll(table("Bill a month", ("", "#in this order", "#in the fixed order", "#difference"), months)),
            scroll(
                table(
                    "How firm the order is",
                    ("if", "#pairs in the same order", "first", "#keeping this order costs, over the year"),
                    sways,
                )
            ),
        ]
    )
