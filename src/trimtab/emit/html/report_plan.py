"""The plan's table in the HTML report: a row an action, its reasons folded beneath."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.emit.document import ActionPart, AuditDocument, EvidencePart, TargetPart
from trimtab.emit.html.markup import Html, join, tag
from trimtab.emit.money import dollars, dollars_and_cents, percent
from trimtab.emit.roadmap_words import quick_wins
from trimtab.emit.words import interval, risk_meaning, sampled_share
from trimtab.levers.lever import Risk

_HEADS = (
    ("", None),
    ("what to do", None),
    ("saves a month", "num"),
    ("80% interval", "num"),
    ("alone", "num"),
    ("last in", "num"),
    ("weeks", "num"),
    ("risk", None),
    ("quarter", None),
)


def plan_table(document: AuditDocument) -> Html:
    """Return the table."""
    head = tag("tr", *(tag("th", name, scope="col", class_=side) for name, side in _HEADS))
    total = tag(
        "tbody",
        tag(
            "tr",
            tag("td"),
            tag("td", "together"),
            tag("td", dollars(document.plan.joint_saving_usd_mo), class_="num"),
            tag("td", colspan=6),
            class_="total",
        ),
    )
    bodies = (_action(document, action) for action in document.plan.actions)
    return tag("table", tag("thead", head), *bodies, total, class_="plan")


def _action(document: AuditDocument, action: ActionPart) -> Html:
    row = tag(
        "tr",
        tag("td", tag("code", action.id)),
        tag("td", tag("strong", action.subject), f": {action.effect}", _star(document, action), class_="what"),
        tag("td", dollars(action.saving_usd_mo), class_="num"),
        tag("td", interval(action), class_="num"),
        tag("td", dollars(action.standalone_usd_mo), class_="num", title="what it saves if it is the only action"),
        tag("td", dollars(action.last_in_usd_mo), class_="num", title="what is lost if it alone is left out"),
        tag("td", f"{action.effort_weeks:g}", class_="num"),
        tag(
            "td",
            action.risk,
            class_=f"risk-{action.risk}",
            title="; ".join(action.hazards) or risk_meaning(Risk(action.risk), action.lever),
        ),
        tag("td", f"Q{action.quarter}" if action.quarter else "later"),
    )
    more = tag(
        "tr",
        tag("td"),
        tag(
            "td", tag("details", tag("summary", "Why, the sums, how to undo it"), _inside(document, action)), colspan=8
        ),
        class_="more",
    )
    return tag("tbody", row, more, id=action.id)


def _star(document: AuditDocument, action: ActionPart) -> Html:
    return tag("span", " ★ quick win", class_="soft") if action.id in quick_wins(document) else Html()


def _inside(document: AuditDocument, action: ActionPart) -> Html:
    changes = (f"{change.subject}: {change.summary}" for change in action.changes)
    left = (
        _part("Evidence", _items(_evidence(row) for row in action.evidence)),
        _part("What changes", _items(changes)),
        _part("What it must keep", _items(_target(target) for target in action.targets)) if action.targets else Html(),
    )
    right = (
        _part("Arithmetic, dollars a month", _sums(document, action)),
        _part("How sure", _basis(action)),
        _part("Try it on a small part first", tag("ol", *(tag("li", step) for step in action.canary))),
        _part("Rollback", tag("p", action.rollback)),
    )
    return tag("div", tag("div", *left), tag("div", *right), class_="inside")


def _part(title: str, body: Html) -> Html:
    return join([tag("h4", title), body])


def _items(lines: Iterable[str]) -> Html:
    return tag("ul", *(tag("li", line) for line in lines))


def _evidence(row: EvidencePart) -> Html:
    against = f" (held against: {row.threshold})" if row.threshold else ""
    return join(
        [f"{row.what}: ", tag("strong", row.value), against, tag("div", f"{row.query}, {row.window}", class_="query")]
    )


def _target(target: TargetPart) -> str:
    verdict = "kept" if target.kept else "MISSED"
    return f"{target.workload}: {target.target}; {percent(target.attained_frac, 1)} on the proof window, {verdict}"


def _sums(document: AuditDocument, action: ActionPart) -> Html:
    rows = [
        ("if it is the only action", action.standalone_usd_mo),
        ("lost if it alone is left out", action.last_in_usd_mo),
        ("its share of the joint saving", action.saving_usd_mo),
        ("the joint saving", document.plan.joint_saving_usd_mo),
    ]
    if sampled_share(action):
        rows.insert(3, ("lower end of that share: orders are sampled, 95% interval", action.share_low_usd_mo or 0.0))
        rows.insert(4, ("upper end of it", action.share_high_usd_mo or 0.0))
    if action.moving_usd_mo:
        rows.append(("moving and traffic, paid within these sums", action.moving_usd_mo))
    if action.spend_usd_mo is not None:
        rows.insert(0, ("today's spend on what it touches", action.spend_usd_mo))
    return tag(
        "table",
        *(tag("tr", tag("td", what), tag("td", dollars_and_cents(usd_mo), class_="num")) for what, usd_mo in rows),
    )


def _basis(action: ActionPart) -> Html:
    because = f": {action.saving_because}" if action.saving_because else ""
    return tag("p", f"{action.saving_basis}{because}")
