"""The plan's page: every action with its switch, and the plan that is chosen again without those that are off."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from trimtab.emit.blocks import Section
from trimtab.emit.document import AuditDocument
from trimtab.emit.document.plan import ActionPart, PlanPart, SwitchedActionPart, SwitchedPart
from trimtab.emit.html.charts import phone_waterfall, waterfall
from trimtab.emit.html.markup import Html, join, tag
from trimtab.emit.money import bill_left, dollars, percent, whole_dollars
from trimtab.emit.sections.actions import action_sections
from trimtab.emit.words import plan_note
from trimtab.emit.writers.html import section_html
from trimtab.levers.registry import title_of
from trimtab.safe_text import for_terminal
from trimtab.web.computations import Refused, UnderWay
from trimtab.web.layout import Place, audit_path, both, file_links, page, panel, place_of, safe, steer, waiting
from trimtab.web.tables import LEVER, MONEY, DataColumn, DataTable


def plan(name: str, document: AuditDocument, off: Collection[str], found: SwitchedPart | UnderWay | Refused) -> str:
    """Return the page. `found` is the plan without what is off, or why there is none yet."""
    place = place_of("The plan", name, document, "/plan", found)
    if not document.plan.actions:
        return page(place, panel("What to do", tag("p", "Nothing that is worth doing was found.")))
    answer = found if isinstance(found, SwitchedPart) else None
    return page(
        place,
        _figures(document, answer),
        _state(document, off, found),
        _actions(name, document, off, answer),
        _instead(answer),
        _picture(document, answer),
        _missed(answer),
        Html() if off else tag("p", for_terminal(plan_note(document.plan)), class_="soft"),
    )


def _figures(document: AuditDocument, answer: SwitchedPart | None) -> Html:
    """Return the figures of the plan as it is switched, each beside that of the whole plan where the two differ."""
    whole = document.plan
    bill = answer.bill_usd_mo if answer else whole.objective_usd_mo
    saved = answer.joint_saving_usd_mo if answer else whole.joint_saving_usd_mo
    share = answer.saving_frac if answer else whole.saving_frac
    proven = answer.proof_saving_frac if answer else document.proof.saving_frac
    kept, targets = (
        (answer.targets_kept, len(answer.targets))
        if answer
        else (document.proof.targets_kept, len(document.proof.targets))
    )
    lost = whole.joint_saving_usd_mo - saved
    shown = (
        ("The bill today", dollars(whole.before_usd_mo), "a month"),
        ("With what is on", dollars(bill_left(whole.before_usd_mo, bill)), "a month"),
        (
            "Saved",
            dollars(saved),
            f"{percent(share, 1)} of the bill" + (f", {dollars(lost)} given up" if lost >= 1 else ""),
        ),
        ("Proved on unseen history", percent(proven, 1), f"less; {kept} of {targets} targets kept"),
    )
    parts = [
        tag(
            "div",
            tag("div", what, class_="name"),
            tag("div", value, class_="value"),
            tag("div", note, class_="note"),
            class_="figure"
            + (" good" if what == "Saved" else "")
            + (" bad" if kept < targets and "Proved" in what else ""),
        )
        for what, value, note in shown
    ]
    return tag("div", *parts, class_="figures", aria_live="polite")


def _state(document: AuditDocument, off: Collection[str], found: SwitchedPart | UnderWay | Refused) -> Html:
    """Say what the switches do, or why they do nothing yet."""
    match found:
        case UnderWay():
            return waiting(found, "The switches are being made ready")
        case Refused():
            said = tag("p", f"The switches cannot be used: {safe(found.reason)}.")
            return tag("div", said, steer(found), class_="notice", role="note")
        case SwitchedPart():
            if not off:
                return tag(
                    "p", "Switch an action off, and the best plan that does without it is chosen again.", class_="lead"
                )
            if found.rest_usd_mo - found.bill_usd_mo < 1:
                return tag("p", "Nothing takes the place of what is off.", class_="lead")
            words = (
                f"What takes the place of what is off makes up {dollars(found.rest_usd_mo - found.bill_usd_mo)} a month: "
                f"without it the bill would be {dollars(found.rest_usd_mo)}."
            )
            return tag("p", words, class_="lead")


def _actions(name: str, document: AuditDocument, off: Collection[str], answer: SwitchedPart | None) -> Html:
    now = {action.id: action for action in answer.actions if action.id} if answer else None
    shown = _shown_savings(document.plan, answer)
    rows = [_row(name, action, off, now, shown) for action in document.plan.actions]
    what = "saves $/month" if answer is None or answer.shares else "lost without it, $/month"
    heads = (("on", None), ("what to do", None), (what, "num"), ("weeks of work", "num less"), ("risk", "less"))
    head = tag("tr", *(tag("th", title, scope="col", class_=style) for title, style in heads))
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="data switches")
    path = f"{audit_path(name)}/plan"
    form = tag(
        "form",
        tag("input", type="hidden", name="set", value="1"),
        table,
        tag("p", tag("button", "Choose again"), " ", tag("a", "All on", href=path), class_="under")
        if answer
        else Html(),
        action=path,
        method="get",
        id="switches",
    )
    without = {"off": ",".join(sorted(off))}
    files = file_links(
        f"{audit_path(name)}/tables/{'switched' if off and answer else 'actions'}", without if off else {}
    )
    whole = tag("a", "JSON of the whole answer", href=f"/api/audits/{name}/plan?off={without['off']}")
    return panel("What to do, first things first", form, files, tag("p", whole, class_="under soft"))


def switched_table(found: SwitchedPart) -> DataTable:
    """Return the actions of the plan that was chosen again."""
    columns = (
        DataColumn(key="id", title="id"),
        DataColumn(key="lever", title="lever", format=LEVER),
        DataColumn(key="subject", title="what"),
        DataColumn(key="effect", title="what to do"),
        DataColumn(
            key="saving_usd_mo", title="saves $/month" if found.shares else "lost without it, $/month", format=MONEY
        ),
        DataColumn(key="risk", title="risk"),
    )
    rows = [{column.key: getattr(action, column.key) for column in columns} for action in found.actions]
    return DataTable(key="switched", title="Actions of the switched plan", columns=columns, rows=rows)


def _shown_savings(plan: PlanPart, answer: SwitchedPart | None) -> dict[str, int]:
    """Return what each action of the plan saves in whole dollars, by id."""
    if answer is None:
        return plan.shown_savings_usd_mo()
    savings = zip(answer.actions, _switched_savings(answer), strict=True)
    return {action.id: usd_mo for action, usd_mo in savings if action.id is not None}


def _switched_savings(answer: SwitchedPart) -> list[int]:
    """Return what each action saves in whole dollars; figures that overlap are rounded each for itself."""
    amounts = [action.saving_usd_mo for action in answer.actions]
    return whole_dollars(amounts) if answer.shares else [round(usd_mo) for usd_mo in amounts]


def _row(
    name: str,
    action: ActionPart,
    off: Collection[str],
    now: Mapping[str, SwitchedActionPart] | None,
    savings: Mapping[str, int],
) -> Html:
    on = action.id not in off
    box = tag(
        "input",
        type="checkbox",
        name="on",
        value=action.id,
        id=f"switch-{action.id}",
        role="switch",
        checked="checked" if on else None,
        disabled="disabled" if now is None else None,
        aria_label=f"{action.id}: {safe(action.subject)}",
    )
    found = action if now is None else now.get(action.id)
    shown = ("does not pay now" if on else "off") if found is None else f"{savings[action.id]:,}"
    changed = found is not None and found.subject != action.subject
    effect = f"now {found.subject}: {found.effect}" if found is not None and changed else action.effect
    link = tag(
        "a", f"{action.id} ", tag("strong", safe(action.subject)), href=f"{audit_path(name)}/action?id={action.id}"
    )
    return tag(
        "tr",
        tag("td", box, class_="box"),
        tag("td", link, tag("div", f"{title_of(action.lever)}: {safe(effect)}", class_="cut")),
        tag("td", shown, class_="num"),
        tag("td", f"{action.effort_weeks:g}", class_="num less"),
        tag("td", tag("span", action.risk, class_=f"risk-{action.risk}"), class_="nowrap less"),
        class_=None if on else "is-off",
    )


def _instead(answer: SwitchedPart | None) -> Html:
    savings = zip(answer.actions, _switched_savings(answer), strict=True) if answer else ()
    fresh = [(action, usd_mo) for action, usd_mo in savings if action.id is None]
    if not fresh:
        return Html()
    items = (
        tag(
            "li",
            tag("strong", safe(action.subject)),
            f": {title_of(action.lever)}, {safe(action.effect)}; ",
            tag("span", f"saves {dollars(usd_mo)} a month", class_="tone-good"),
        )
        for action, usd_mo in fresh
    )
    return panel("In their place", tag("ul", *items, class_="plain"))


def _picture(document: AuditDocument, answer: SwitchedPart | None) -> Html:
    if answer is not None and not answer.shares:
        return Html()
    shown = document if answer is None or not answer.off else _as_switched(document, answer)
    return panel("From today's bill to the plan's", both(waterfall(shown), phone_waterfall(shown)))


def _as_switched(document: AuditDocument, answer: SwitchedPart) -> AuditDocument:
    """Return the document whose plan has the actions of the switched one, as its picture needs it."""
    known = {action.id: action for action in document.plan.actions}
    actions = tuple(
        _as_action(action, known.get(action.id or ""), document.plan.actions[0]) for action in answer.actions
    )
    plan = document.plan.model_copy(update={"actions": actions, "objective_usd_mo": answer.bill_usd_mo})
    return document.model_copy(update={"plan": plan})


def _as_action(action: SwitchedActionPart, known: ActionPart | None, any_action: ActionPart) -> ActionPart:
    update = {
        "id": action.id or "new",
        "lever": action.lever,
        "subject": action.subject,
        "effect": action.effect,
        "saving_usd_mo": action.saving_usd_mo,
        "saving_low_usd_mo": action.saving_usd_mo,
        "saving_high_usd_mo": action.saving_usd_mo,
    }
    return (known or any_action).model_copy(update=update)


def _missed(answer: SwitchedPart | None) -> Html:
    missed = [target for target in answer.targets if not target.kept] if answer else []
    if not missed:
        return Html()
    lines = (
        tag("li", f"{safe(row.workload)}: {safe(row.target)}, attained {percent(row.attained_frac, 1)}")
        for row in missed
    )
    return panel("Targets that are missed", tag("ul", *lines, class_="plain tone-bad"))


def action(name: str, document: AuditDocument, wanted: str) -> str | None:
    """Return an action's page, None where the plan has none of that id."""
    found = document.action(wanted)
    if found is None:
        return None
    trail = (("The plan", f"{audit_path(name)}/plan"),)
    place = Place(title=f"{found.id}: {found.subject}", audit=name, fleet=document.fleet, section="/plan", trail=trail)
    sections = [section_html(section) for section in _named(action_sections(document, found))]
    without = f"{audit_path(name)}/plan?off={found.id}"
    return page(
        place,
        tag("p", tag("strong", f"{title_of(found.lever)}: "), safe(found.effect), class_="headline"),
        tag("p", tag("a", "The plan without it", href=without)),
        join(sections),
        file_links(f"{audit_path(name)}/tables/actions", {}, "All actions:"),
    )


def _named(sections: Sequence[Section]) -> list[Section]:
    """Return sections with names of their own, which headings of a page must have."""
    return [replace(section, name=f"part-{number}") for number, section in enumerate(sections)]
