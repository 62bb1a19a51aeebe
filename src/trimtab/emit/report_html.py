"""The audit as one self-contained HTML page: figures, pictures, the plan with its reasons, the proof, the method.

No script, no font, no picture from elsewhere: the page's own policy forbids every request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.emit.charts import bill_by_hour, capacity, heat_key, heat_map, waste_bar, waste_style, waterfall
from trimtab.emit.document import AuditDocument, CapacityPart, HeatMapPart, SpendPart, TargetPart
from trimtab.emit.markup import Html, join, tag
from trimtab.emit.money import dollars, dollars_and_cents, percent
from trimtab.emit.report_plan import plan_table
from trimtab.emit.report_style import STYLE
from trimtab.emit.words import GLOSSARY, USEFUL, certificate, days

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_MOST_CAPACITY_PICTURES = 6
_MOST_WORKLOADS = 25
_MOST_HEAT_ROWS = 30
_TARGETS_UNFOLDED = 8
_SIDES = {"#": "num", ">": "wide"}


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
        _waste_section(document),
        _spend_section(document),
        _use_section(document),
        _proof_section(document),
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
        _figure("With the plan", dollars(plan.objective_usd_mo), "a month"),
        _figure(
            "Saved", dollars(plan.joint_saving_usd_mo), f"a month, {percent(plan.saving_frac, 1)} of the bill", "good"
        ),
        _figure(
            "Proved on unseen history",
            percent(proof.saving_frac, 1),
            f"less; {proof.targets_kept} of {len(proof.targets)} targets kept",
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


def _section(name: str, title: str, lead: str, *body: Html) -> Html:
    return tag(
        "section",
        tag("h2", title, id=name),
        tag("p", lead, class_="lead") if lead else Html(),
        *body,
        aria_labelledby=name,
    )


def _scroll(*body: Html) -> Html:
    return tag("div", *body, class_="scroll")


def _waterfall_section(document: AuditDocument) -> Html:
    if not document.plan.actions:
        return _section(
            "steps", "Nothing to do", "No action that is worth its effort was found: the fleet is well kept."
        )
    return _section(
        "steps",
        "From today's bill to the plan's",
        "Dollars a month. Savings overlap, so each step is the action's fair share: the steps add up to the cent. "
        "The thin line is the 80% interval.",
        _scroll(waterfall(document)),
    )


def _plan_section(document: AuditDocument) -> Html:
    plan = document.plan
    if not plan.actions:
        return Html()
    return _section(
        "plan",
        "The plan",
        "In the order in which to do it: the most saved for an engineer's week first.",
        _scroll(plan_table(document)),
        tag("p", certificate(plan), class_="soft"),
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
            _number(dollars_and_cents(row.usd_mo)),
            _number(percent(row.share_frac)),
            ", ".join(row.where),
        )
        for at, row in enumerate(shown)
    ]
    wasted = document.bill_usd_mo - sum(row.usd_mo for row in shown if row.kind == USEFUL)
    return _section(
        "buys",
        "What the bill buys",
        f"{dollars(wasted)} a month of {dollars(document.bill_usd_mo)} did not go into useful work. {_product_form(document)}",
        _scroll(waste_bar(document.waste)),
        _scroll(
            _table(
                "",
                ("what", "#$ a month", "#share", "mostly"),
                rows,
                total=("The bill", _number(dollars_and_cents(document.bill_usd_mo)), "", ""),
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
    return _section(
        "spend",
        "Where the money goes",
        "“GPU active” is the mean share of the GPU at work while it was held.",
        tag(
            "div",
            _scroll(_spend_table("By workload type", spend.by_kind)),
            _scroll(_spend_table("By team", spend.by_team)),
            class_="two",
        ),
        tag(
            "details",
            tag("summary", f"By workload ({len(spend.by_workload)})"),
            _scroll(_spend_table("By workload", spend.by_workload[:_MOST_WORKLOADS])),
            _more(len(spend.by_workload) - _MOST_WORKLOADS, "workloads"),
        ),
    )


def _more(count: int, what: str) -> Html:
    return tag("p", f"{count} more {what} are in the JSON form of this report.", class_="soft") if count > 0 else Html()


def _spend_table(title: str, rows: Sequence[SpendPart]) -> Html:
    most = max((row.share_frac for row in rows), default=0.0)
    cells = (
        (
            row.name,
            _number(dollars(row.usd_mo)),
            _number(percent(row.activity_frac)),
            _number(percent(row.share_frac)),
            tag("span", class_="bar", style=f"width:{100 * row.share_frac / most if most else 0:.1f}%"),
        )
        for row in rows
    )
    return _table(title, ("", "#$ a month", "#GPU active", "#share", ">"), cells)


def _use_section(document: AuditDocument) -> Html:
    heat = _dearest_rows(document)
    services = sorted(document.pictures.capacity, key=_most_held, reverse=True)
    parts: list[Html] = []
    if heat.rows:
        parts += [tag("h3", "Utilization through the week (hours in UTC)"), _scroll(heat_map(heat)), heat_key()]
        parts.append(_more(len(document.pictures.heat_map.rows) - len(heat.rows), "workloads"))
    if services:
        parts.append(tag("h3", "Demand against capacity"))
        parts.append(
            _keys(
                ("key-demand", "GPUs that requests needed"), ("key-before", "held"), ("key-after", "held with the plan")
            )
        )
    for at, part in enumerate(services[:_MOST_CAPACITY_PICTURES]):
        parts += [tag("p", part.workload), _scroll(capacity(part, at))]
    parts.append(_more(len(services) - _MOST_CAPACITY_PICTURES, "services"))
    return _section("use", "How the GPUs are used", "", *parts) if heat.rows or services else Html()


def _most_held(part: CapacityPart) -> float:
    return max((gpus or 0.0 for gpus in part.before_gpus), default=0.0)


def _dearest_rows(document: AuditDocument) -> HeatMapPart:
    """Return the heat map's rows, dearest workload first, as many as a page can show."""
    spend = {row.name: row.usd_mo for row in document.spend.by_workload}
    whole = document.pictures.heat_map
    pairs = sorted(zip(whole.rows, whole.activity_frac, strict=True), key=lambda pair: -spend.get(pair[0], 0.0))
    kept = pairs[:_MOST_HEAT_ROWS]
    return HeatMapPart(rows=tuple(name for name, _ in kept), activity_frac=tuple(values for _, values in kept))


def _keys(*keys: tuple[str, str]) -> Html:
    items = (tag("li", tag("span", class_=f"key {style}"), words) for style, words in keys)
    return tag("ul", *items, class_="keys")


def _proof_section(document: AuditDocument) -> Html:
    proof = document.proof
    window = f"{days(proof.window.start, proof.window.end)}"
    return _section(
        "proof",
        "The proof",
        f"The plan was made without the history of {window}. Replayed on it, the bill of {dollars(proof.before_usd)} becomes "
        f"{dollars(proof.after_usd)}: {percent(proof.saving_frac, 1)} less. With the future known, no plan could have gone "
        f"below {dollars(proof.clairvoyant_usd)}. {proof.interruptions} spot interruptions; {proof.lost_gpu_hr:.1f} GPU-hours "
        "of work done twice.",
        tag("h3", "Bill by hour"),
        _keys(("key-before", "as it was"), ("key-after", "with the plan")),
        _scroll(bill_by_hour(document.pictures.bill_by_hour)),
        _targets(proof.targets),
        _list(proof.notes),
    )


def _targets(targets: Sequence[TargetPart]) -> Html:
    """Return the table of targets: missed and declared ones first, the rest folded away where they are many."""
    if not targets:
        return tag("p", "No workload has a target that could be checked.", class_="notice")
    order = sorted(targets, key=lambda target: (target.kept, not target.declared))
    first = [target for target in order if target.declared or not target.kept]
    if len(order) <= _TARGETS_UNFOLDED or not first:
        return _target_table("Targets", order)
    rest = order[len(first) :]
    summary = tag("summary", f"{len(rest)} more that nobody declared, all kept: no worse than observed")
    return join(
        [_target_table("Targets", first), tag("details", summary, _target_table("No worse than observed", rest))]
    )


def _target_table(title: str, targets: Iterable[TargetPart]) -> Html:
    rows = (
        (
            target.workload,
            join([target.target, tag("div", target.because, class_="query")]),
            _number(percent(target.before_frac, 1)),
            _number(percent(target.attained_frac, 1)),
            tag("span", "✓ kept", class_="kept") if target.kept else tag("span", "✗ missed", class_="missed"),
        )
        for target in targets
    )
    return _scroll(_table(title, ("workload", "target", "#before", "#with the plan", ""), rows))


def _left_out_section(document: AuditDocument) -> Html:
    refused = [
        (
            f"{row.lever} on {row.subject}",
            _number("–" if row.saving_usd_mo is None else dollars(row.saving_usd_mo)),
            row.reason,
        )
        for row in document.plan.not_worth_doing
    ]
    unjudged = [(row.workload, _number(dollars(row.usd_mo)), row.reason) for row in document.unjudged]
    notes = [*document.coverage.notes, *(f"{count:,} {what}" for what, count in document.coverage.counts.items())]
    return _section(
        "left-out",
        "What is left out, and why",
        "",
        _scroll(_table("Not worth doing", ("what", "#would save a month", "why not"), refused)) if refused else Html(),
        _scroll(_table("Not judged: left as it is", ("workload", "#costs a month", "why"), unjudged))
        if unjudged
        else Html(),
        tag("h3", "What was seen") if notes else Html(),
        _list(notes),
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
    return _section(
        "method", "How this was worked out", "", _list(steps), tag("h3", "Words used here"), tag("dl", *terms)
    )


def _footer(document: AuditDocument) -> Html:
    return tag("footer", f"trimtab {document.trimtab_version}. Reads only; people apply what it writes.")


def _list(lines: Iterable[str]) -> Html:
    items = [tag("li", line) for line in lines]
    return tag("ul", *items, class_="plain") if items else Html()


def _number(shown: str) -> Html:
    return tag("span", shown, class_="num")


def _table(
    title: str, heads: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, total: tuple[str, ...] | None = None
) -> Html:
    """Return a table; a head that begins with `#` stands over numbers, set flush right, one with `>` over a wide column."""
    sides = [_SIDES.get(head[:1]) for head in heads]
    head = tag(
        "tr", *(tag("th", name.lstrip("#>"), scope="col", class_=side) for name, side in zip(heads, sides, strict=True))
    )
    body = [_table_row(row, sides) for row in rows]
    if total is not None:
        body.append(_table_row(total, sides, style="total"))
    caption = tag("caption", title) if title else Html()
    return tag("table", caption, tag("thead", head), tag("tbody", *body))


def _table_row(row: tuple[str, ...], sides: list[str | None], *, style: str | None = None) -> Html:
    return tag("tr", *(tag("td", cell, class_=side) for cell, side in zip(row, sides, strict=True)), class_=style)
