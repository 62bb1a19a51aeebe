"""A verification for people: a self-contained HTML page and Markdown, to be kept and sent each quarter."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.emit.html.markup import Html, join, tag
from trimtab.emit.html.sections import bullets, number, scroll, section, table
from trimtab.emit.html.style import STYLE
from trimtab.emit.html.svg import picture, text
from trimtab.emit.money import dollars, percent
from trimtab.emit.words import days
from trimtab.plan.verify.drift import Drift
from trimtab.plan.verify.purchases import NodePurchase, PurchaseOption
from trimtab.plan.verify.verification import ActionStatus, ActionVerdict, Verification

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_WIDTH, _ROW, _LABEL, _MONEY = 960.0, 30.0, 220.0, 90.0
_MOOD = {ActionStatus.ON_TRACK: ("✓ on track", "kept"), ActionStatus.SHORT: ("✗ short", "missed"),
         ActionStatus.NOT_ENACTED: ("✗ not enacted", "missed")}  # fmt: skip
_ACTION_HEADS = ("", "what", "", "#enacted", "#predicted a month", "#realised", "why")
_MARKDOWN_HEAD = (
    "| id | what | status | enacted | predicted $/month | realised | why |\n|---|---|---|---:|---:|---:|---|"
)
_BUY_HEADS = ("nodes", "#in use", "bought now", "#a month", "every way, a month", "what to change")


def render_verify_html(found: Verification, fleet: str) -> str:
    """Return the page."""
    title = f"Plan afterwards: {fleet}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(STYLE)),
    )
    header = tag(
        "header",
        tag("div", "trimtab", class_="brand"),
        tag("h1", title),
        tag("p", f"{_when(found)}; the plan's rates against today's told apart.", class_="soft"),
    )
    sections = (_bridge_section(found), _actions_section(found), _drift_section(found), _buy_section(found))
    body = tag("body", header, tag("main", _figures(found), *sections))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _when(found: Verification) -> str:
    return f"History of {days(found.window.start, found.window.end)}"


def _figures(found: Verification) -> Html:
    share = found.saved_usd_mo / found.predicted_usd_mo if found.predicted_usd_mo else 0.0
    kept = sum(one.status is ActionStatus.ON_TRACK for one in found.actions)
    cells = (
        ("The bill now", dollars(found.now_usd_mo), "a month", ""),
        (
            "Saved",
            dollars(found.saved_usd_mo),
            f"a month, at the plan's rates; {percent(share)} of the prediction",
            "good",
        ),
        ("On track", f"{kept} of {len(found.actions)}", "actions", "good" if kept == len(found.actions) else "bad"),
        ("Drift alerts", str(len(found.drifts)), "what no longer holds", "bad" if found.drifts else "good"),
    )
    return tag(
        "div",
        *(
            tag(
                "div",
                tag("div", name, class_="name"),
                tag("div", value, class_="value"),
                tag("div", note, class_="note"),
                class_=f"figure {mood}".strip(),
            )
            for name, value, note, mood in cells
        ),
        class_="figures",
    )


def _bridge(found: Verification) -> tuple[tuple[str, float], ...]:
    return (
        ("demand since then", found.demand_usd_mo),
        ("saved", -found.saved_usd_mo),
        ("new rates", found.rates_usd_mo),
    )


def _bridge_section(found: Verification) -> Html:
    lead = (
        f"Dollars a month. The plan was to save {dollars(found.predicted_usd_mo)}; {dollars(found.outside_usd_mo)} of what was "
        "saved is of no action of the plan."
    )
    return section("bridge", "From the bill then to the bill now", lead, scroll(_picture(found)), bullets(found.notes))


def _picture(found: Verification) -> Html:
    """Draw the bill then, what demand, the plan and rates did to it, and the bill now."""
    steps = _bridge(found)
    level, top = found.then_usd_mo, max(found.then_usd_mo, found.now_usd_mo, found.then_usd_mo + found.demand_usd_mo)
    scale = (_WIDTH - _LABEL - _MONEY) / (top or 1.0)
    bars = [_bar(0, "Then", 0.0, found.then_usd_mo, scale, "bar-before", dollars(found.then_usd_mo))]
    for at, (name, amount) in enumerate(steps, 1):
        style = "bar-saving" if amount <= 0 else "bar-before"
        low, high = sorted((level, level + amount))
        sign = "+" if amount > 0 else ""
        bars.append(_bar(at, name, low, high, scale, style, f"{sign}{dollars(amount)}"))
        level += amount
    now = dollars(found.now_usd_mo)
    bars.append(_bar(len(steps) + 1, "Now", 0.0, found.now_usd_mo, scale, "bar-after", now))
    said = "; ".join(f"{name} {dollars(amount)}" for name, amount in steps)
    return picture(_WIDTH, _ROW * len(bars) + 4, "The bill then and now", f"{said}.", *bars, name="bridge-picture")


def _bar(at: int, label: str, low: float, high: float, scale: float, style: str, shown: str) -> Html:
    y = _ROW * at + 4
    wide = max((high - low) * scale, 1.0)
    return tag(
        "g",
        text(_LABEL - 12, y + 19, label, anchor="end", style="label"),
        tag("rect", x=_LABEL + low * scale, y=y + 3, width=wide, height=_ROW - 8, rx=2, class_=style),
        text(_WIDTH, y + 19, shown, anchor="end", style="label"),
    )


def _actions_section(found: Verification) -> Html:
    rows = (
        (
            tag("code", one.id),
            join([tag("strong", one.subject), f": {one.lever}"]),
            tag("span", _MOOD[one.status][0], class_=_MOOD[one.status][1]),
            number(percent(one.enacted_frac)),
            number(f"{dollars(one.predicted_usd_mo.value)} ({_range(one)})"),
            number(dollars(one.realised_usd_mo)),
            one.cause,
        )
        for one in found.actions
    )
    lead = "Realised: at today's demand and the plan's rates. In brackets the 80% interval of the prediction."
    return section("actions", "Action by action", lead, scroll(table("", _ACTION_HEADS, rows)))


def _range(one: ActionVerdict) -> str:
    return f"{one.predicted_usd_mo.low:,.0f}–{one.predicted_usd_mo.high:,.0f}"


def _drift_section(found: Verification) -> Html:
    lines = [drift_line(one) for one in found.drifts] or [
        "Nothing: what was moved still fits, and commitments are used for more than pays them."
    ]
    return section("drift", "What no longer holds", "", bullets(lines))


def drift_line(one: Drift) -> str:
    """Say an alert in one line."""
    action = f" ({one.action})" if one.action else ""
    side = "below" if one.seen_frac < one.limit_frac else "above"
    return f"{one.subject}{action}: {one.kind.value} {percent(one.seen_frac)}, {side} {percent(one.limit_frac)}; {one.advice}"


def _buy_section(found: Verification) -> Html:
    rows = (
        (
            join([tag("strong", one.instance_type), f" {one.region}"]),
            number(f"{one.mean_nodes:.1f}"),
            one.now,
            number(dollars(one.now_usd_mo)),
            tag("ul", *(tag("li", option_words(option)) for option in _cheapest_first(one)), class_="plain"),
            one.advice,
        )
        for one in found.purchases
    )
    lead = (
        "The nodes in use, at today's rates under every way of buying them. Spot is shown beside: it may be taken back."
    )
    return section("buying", "How it is bought", lead, scroll(table("", _BUY_HEADS, rows)))


def _cheapest_first(one: NodePurchase) -> Sequence[PurchaseOption]:
    return sorted(one.options, key=lambda option: option.usd_mo)


def option_words(option: PurchaseOption) -> str:
    """Say one way of buying."""
    commit = f", {option.commit} committed" if option.option.term_years else ""
    return f"{option.option.value} {dollars(option.usd_mo)}{commit}"


def purchase_line(one: NodePurchase) -> str:
    """Say a pool's use and every way of buying it in one line."""
    ways = ", ".join(option_words(option) for option in _cheapest_first(one))
    return (
        f"{one.instance_type} {one.region}, {one.mean_nodes:.1f} nodes, {one.now}, {dollars(one.now_usd_mo)} a month; "
        f"every way: {ways}. {one.advice[:1].upper()}{one.advice[1:]}."
    )


def render_verify_markdown(found: Verification, fleet: str) -> str:
    """Return the same as Markdown."""
    bridge = ", ".join(f"{name} {amount:+,.0f}" for name, amount in _bridge(found))
    rows = [
        f"| `{one.id}` | {_cell(one.subject)}: {one.lever} | {one.status.value} | {percent(one.enacted_frac)} | "
        f"{one.predicted_usd_mo.value:,.0f} ({_range(one)}) | {one.realised_usd_mo:,.0f} | {_cell(one.cause)} |"
        for one in found.actions
    ]
    lines = [
        f"# Plan afterwards: {_cell(fleet)}",
        f"{_when(found)}. $/month: the bill then {found.then_usd_mo:,.0f}, {bridge} = {found.now_usd_mo:,.0f} now. Predicted "
        f"to save {found.predicted_usd_mo:,.0f}; {found.outside_usd_mo:,.0f} of what was saved is of no action of the plan.",
        *(f"- {_cell(note)}" for note in found.notes),
        "## Action by action",
        "\n".join([_MARKDOWN_HEAD, *rows]),
        "## What no longer holds",
        "\n".join(f"- {_cell(drift_line(one))}" for one in found.drifts) or "Nothing.",
        "## How it is bought, at today's rates",
        "\n".join(f"- {_cell(purchase_line(one))}" for one in found.purchases),
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


def _cell(raw: str) -> str:
    for mark in "\\`*_|<>[]":
        raw = raw.replace(mark, f"\\{mark}")
    return raw
