"""The audit as one self-contained HTML page: figures, pictures, the plan with its reasons, the proof, the method.

No script, no font, no picture from elsewhere: the page's own policy forbids every request.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.emit.document import AuditDocument, SpendPart
from trimtab.emit.html.charts import waste_bar, waste_style, waterfall
from trimtab.emit.html.markup import Html, join, tag
from trimtab.emit.html.report_plan import plan_table
from trimtab.emit.html.report_proof import proof_section
from trimtab.emit.html.report_roadmap import roadmap_section
from trimtab.emit.html.report_use import use_section
from trimtab.emit.html.report_worlds import (
    laws_section,
    limits_section,
    robustness_section,
    undeclared_section,
    what_if_section,
)
from trimtab.emit.html.sections import bullets, more, number, scroll, section, table
from trimtab.emit.html.style import STYLE
from trimtab.emit.money import dollars, dollars_and_cents, percent
from trimtab.emit.venture_words import venture_verdict
from trimtab.emit.words import GLOSSARY, USEFUL, days, kept_words, moving_in, plan_note

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_MOST_WORKLOADS = 25
_JUDGED_HEADS = ("what", "#saves a month", "#low to high", "#costs once", "why")


def render_html(document: AuditDocument) -> str:
    """Return the page."""
    title = f"GPU cost audit: {document.fleet}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(STYLE)),
    )
    sections = (
        _waterfall_section(document),
        _plan_section(document),
        roadmap_section(document),
        undeclared_section(document),
        _waste_section(document),
        _spend_section(document),
        use_section(document),
        proof_section(document),
        laws_section(document),
        robustness_section(document),
        limits_section(document),
        what_if_section(document),
        _left_out_section(document),
        _method_section(document),
    )
    body = tag("body", _header(document), tag("main", _figures(document), *sections), _footer(document))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _header(document: AuditDocument) -> Html:
    seen = document.coverage.window
    return tag(
        "header",
        tag("div", "trimtab", class_="brand"),
        tag("h1", f"GPU cost audit: {document.fleet}"),
        tag(
            "p",
            f"History of {days(seen.start, seen.end)}: {document.coverage.summary}.",
            class_="soft",
        ),
        tag("div", *(tag("p", reason) for reason in document.degraded), class_="notice", role="note")
        if document.degraded
        else Html(),
    )


def _figures(document: AuditDocument) -> Html:
    plan, proof = document.plan, document.proof
    all_kept = proof.targets_kept == len(proof.targets)
    return tag(
        "div",
        _figure("The bill today", dollars(document.bill_usd_mo), "a month"),
        _figure("With the plan", dollars(plan.objective_usd_mo), f"a month{moving_in(plan.moving_usd_mo)}"),
        _figure(
            "Saved", dollars(plan.joint_saving_usd_mo), f"a month, {percent(plan.saving_frac, 1)} of the bill", "good"
        ),
        _figure(
            "Proved on unseen history",
            percent(proof.saving_frac, 1),
            f"less; {kept_words(proof)}",
            "good" if all_kept else "bad",
        ),
        class_="figures",
    )


def _figure(name: str, value: str, note: str, mood: str = "") -> Html:
    return tag(
        "div",
        tag("div", name, class_="name"),
        tag("div", value, class_="value"),
        tag("div", note, class_="note"),
        class_=f"figure {mood}".strip(),
    )


def _waterfall_section(document: AuditDocument) -> Html:
    if not document.plan.actions:
        return section(
            "steps", "Nothing to do", "No action that is worth its effort was found: the fleet is well kept."
        )
    return section(
        "steps",
        "From today's bill to the plan's",
        "Dollars a month. Savings overlap, so each step is the action's fair share: the steps add up to the cent. "
        "The thin line is the 80% interval.",
        scroll(waterfall(document)),
    )


def _plan_section(document: AuditDocument) -> Html:
    plan = document.plan
    if not plan.actions:
        return Html()
    return section(
        "plan",
        "The plan",
        "In the order in which to do it: by what an engineer's week saves, unless one action must wait for another.",
        scroll(plan_table(document)),
        tag("p", plan_note(plan), class_="soft"),
    )


def _waste_section(document: AuditDocument) -> Html:
    shown = [row for row in document.waste if row.usd_mo > 0]
    rows = [
        (
            join(
                [
                    tag("span", class_=f"key {waste_style(row, at)}"),
                    tag("strong", row.kind),
                    tag("span", f": {row.meaning}", class_="soft"),
                ]
            ),
            number(dollars_and_cents(row.usd_mo)),
            number(percent(row.share_frac)),
            ", ".join(row.where),
        )
        for at, row in enumerate(shown)
    ]
    wasted = document.bill_usd_mo - sum(row.usd_mo for row in shown if row.kind == USEFUL)
    return section(
        "buys",
        "What the bill buys",
        f"{dollars(wasted)} a month of {dollars(document.bill_usd_mo)} did not go into useful work. {_product_form(document)}",
        scroll(waste_bar(document.waste)),
        scroll(
            table(
                "",
                ("what", "#$ a month", "#share", "mostly"),
                rows,
                total=("The bill", number(dollars_and_cents(document.bill_usd_mo)), "", ""),
            )
        ),
    )


def _product_form(document: AuditDocument) -> str:
    form = document.product_form
    if form.busy_frac is None or form.efficiency_frac is None or form.product_frac is None:
        return f"Of 100 GPU-hours paid, {form.allocation_frac * 100:.0f} were held by a workload."
    busy = form.allocation_frac * form.busy_frac
    return (
        f"Of 100 GPU-hours paid, {form.allocation_frac * 100:.0f} were held by a workload, {busy * 100:.0f} were busy, and "
        f"{form.product_frac * 100:.0f} did full work ({percent(form.allocation_frac)} × {percent(form.busy_frac)} × "
        f"{percent(form.efficiency_frac)})."
    )


def _spend_section(document: AuditDocument) -> Html:
    spend = document.spend
    return section(
        "spend",
        "Where the money goes",
        "“GPU active” is the mean share of the GPU at work while it was held.",
        tag(
            "div",
            scroll(_spend_table("By workload type", spend.by_kind)),
            scroll(_spend_table("By team", spend.by_team)),
            class_="two",
        ),
        scroll(_workload_table(document)),
        more(len(spend.by_workload) - _MOST_WORKLOADS, "workloads"),
    )


def _workload_table(document: AuditDocument) -> Html:
    verdicts = {verdict.workload: verdict.headline for verdict in document.verdicts}
    rows = (
        (
            tag("span", row.name, class_="nowrap"),
            number(dollars(row.usd_mo)),
            number(percent(row.share_frac)),
            number(percent(row.activity_frac)),
            tag("span", verdicts.get(row.name, ""), class_="soft says"),
        )
        for row in document.spend.by_workload[:_MOST_WORKLOADS]
    )
    return table("By workload", ("", "#$ a month", "#share", "#GPU active", "what its readings say"), rows)


def _spend_table(title: str, rows: Sequence[SpendPart]) -> Html:
    most = max((row.share_frac for row in rows), default=0.0)
    cells = (
        (
            join([row.name, _bar(row.share_frac / most if most else 0.0)]),
            number(dollars(row.usd_mo)),
            number(percent(row.share_frac)),
            number(percent(row.activity_frac)),
        )
        for row in rows
    )
    return table(title, ("", "#$ a month", "#share", "#GPU active"), cells)


def _bar(frac: float) -> Html:
    return tag("span", class_="bar", style=f"width:{100 * frac:.1f}%")


def _left_out_section(document: AuditDocument) -> Html:
    refused = [
        (
            f"{row.lever} on {row.subject}",
            number("–" if row.saving_usd_mo is None else dollars(row.saving_usd_mo)),
            row.reason,
        )
        for row in document.plan.not_worth_doing
    ]
    judged = [
        (
            join([tag("strong", one.kind), f", {one.subject}: {venture_verdict(one)}"]),
            number(dollars(one.saving_usd_mo)),
            number(f"{dollars(one.saving_low_usd_mo)} to {dollars(one.saving_high_usd_mo)}"),
            number(dollars(one.once_usd)),
            join([one.reason, tag("div", f"assumed: {', '.join(one.assumptions)}", class_="query")]),
        )
        for one in document.plan.always_judged
    ]
    unjudged = [(row.workload, number(dollars(row.usd_mo)), row.reason) for row in document.unjudged]
    notes = [*document.coverage.notes, *(f"{count:,} {what}" for what, count in document.coverage.counts.items())]
    return section(
        "left-out",
        "What is left out, and why",
        "",
        scroll(table("Always judged, beside the plan", _JUDGED_HEADS, judged)) if judged else Html(),
        scroll(table("Not worth doing", ("what", "#would save a month", "why not"), refused)) if refused else Html(),
        scroll(table("Not judged: left as it is", ("workload", "#costs a month", "why"), unjudged))
        if unjudged
        else Html(),
        tag("h3", "What was seen") if notes else Html(),
        bullets(notes),
    )


def _method_section(document: AuditDocument) -> Html:
    plan = document.plan
    pruned = "; ".join(f"{count:,} dropped: {why}" for why, count in plan.pruned.items())
    steps = (
        "The bill is worked out hour by hour from the nodes that were up and the prices that held, and divided among what ran "
        "on them. What nothing ran on stays on the bill.",
        "For each workload the possible changes are tried on its own past: the same requests and runs are played through the "
        "changed fleet, which gives a cost and says whether its targets hold.",
        f"One choice is made for all workloads together, because they share nodes and commitments. {plan.options:,} options "
        f"were considered{f' ({pruned})' if pruned else ''}; a lower bound says how far from the best the choice can be.",
        f"The joint saving is shared among the actions ({plan.attribution}): what an action adds on average over the orders "
        "in which they could be taken. Shares add up; stand-alone savings do not.",
        "A workload for which nobody declared a target must stay no worse than it was observed to be.",
        "The last part of the history is kept from the planner. The proof replays the finished plan on it.",
        "Months have 730 hours. Prices are those of the price book at the date of the audit, or your own rates.",
    )
    terms = (part for term, meaning in GLOSSARY.items() for part in (tag("dt", term), tag("dd", meaning)))
    return section(
        "method", "How this was worked out", "", bullets(steps), tag("h3", "Words used here"), tag("dl", *terms)
    )


def _footer(document: AuditDocument) -> Html:
    return tag("footer", f"trimtab {document.trimtab_version}. Reads only; people apply what it writes.")
