"""The answer of `trimtab fit` as one self-contained HTML page, and as the view of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from trimtab.catalog import BuyingOption
from trimtab.emit.fit_document import FitDocument, Way
from trimtab.emit.html.fit_charts import cost_against_time, memory_chart, memory_parts, roofline_chart, value_chart
from trimtab.emit.html.markup import Html, join, tag
from trimtab.emit.html.sections import bullets, keys, scroll, section, table
from trimtab.emit.money import dollars, dollars_and_cents
from trimtab.emit.writers.html import framed

_STYLE = """
.chart .dot { fill: var(--before); opacity: .55; } .chart .dot-best { fill: var(--accent); }
.m-0 { fill: var(--accent); background: var(--accent); } .m-1 { fill: #3b7dd8; background: #3b7dd8; }
.m-2 { fill: #c98a1b; background: #c98a1b; } .m-3 { fill: #8a63c9; background: #8a63c9; }
.m-4 { fill: #5aa469; background: #5aa469; } .m-5 { fill: #c4593f; background: #c4593f; }
.m-6 { fill: var(--before); background: var(--before); } .m-7 { fill: var(--w5); background: var(--w5); }
.where { font-size: 12.5px; }
pre { background: var(--cell); border-radius: 8px; padding: 14px 16px; overflow-x: auto; font: 13px/1.5 ui-monospace,
  SFMono-Regular, Menlo, Consolas, monospace; }
"""
_MOST_BARS = 12
_BOUGHT = {
    BuyingOption.ON_DEMAND: "on demand",
    BuyingOption.SPOT: "spot with losses",
    BuyingOption.RESERVED_1Y: "1 year",
    BuyingOption.RESERVED_3Y: "3 years",
    BuyingOption.OWNED: "owned",
}


def render_fit(document: FitDocument) -> str:
    """Return the page."""
    header = tag(
        "header",
        tag("div", "trimtab fit", class_="brand"),
        tag("h1", document.title),
        tag("p", document.question, class_="soft"),
    )
    parts = (
        _figures(document),
        _ranking(document),
        _pictures(document),
        _buying(document),
        _cost(document),
        _rest(document),
    )
    foot = tag(
        "footer", tag("p", "Intervals hold in 80 of 100 cases. Prices are those of the catalog at the date of asking.")
    )
    return framed(f"trimtab fit: {document.title}", header, tag("main", *parts), foot, style=_STYLE)


def _figures(document: FitDocument) -> Html:
    first = document.ways[0]
    cost = f"{first.cost.low:,.3g} to {first.cost.high:,.3g} {first.unit} (80%)"
    boxes = (
        ("Cheapest", first.label, first.where),
        ("Costs", _amount(first), cost),
        (
            "Takes",
            f"{first.time.value:,.3g} {first.time_unit}",
            f"{first.time.low:,.3g} to {first.time.high:,.3g} (80%)",
        ),
        ("All told", dollars(document.total.usd), f"a {document.total.per}, itemised below"),
    )
    return tag("div", *(_figure(*box) for box in boxes), class_="figures")


def _figure(name: str, value: str, note: str) -> Html:
    return tag(
        "div",
        tag("div", name, class_="name"),
        tag("div", value, class_="value", style="font-size:20px;white-space:normal"),
        tag("div", note, class_="note"),
        class_="figure",
    )


def _amount(one: Way) -> str:
    return dollars(one.cost.value) if one.unit == "$" else f"{one.cost.value:,.3f} {one.unit}"


def _ranking(document: FitDocument) -> Html:
    return section(
        "ranking",
        "What works, cheapest first",
        "The best way on each GPU, with the interval of its cost.",
        tag("div", way_table(document.ways), class_="scroll", id="ranking-table"),
    )


def _buying(document: FitDocument) -> Html:
    """Show what each way of buying costs, where it is sold at all."""
    shown = [option for option in _BOUGHT if any(option in one.bought for one in document.ways)]
    what = "a run" if document.ways[0].unit == "$" else "an hour"
    rows = (
        (
            one.label,
            *(dollars_and_cents(one.bought[option]) if option in one.bought else "–" for option in shown),
            one.where,
        )
        for one in document.ways
    )
    return section(
        "buying",
        f"What {what} costs under each way of buying",
        "Spot holds what lost nodes are expected to cost; a dash means that it is not sold there.",
        scroll(table("", ("GPUs", *(f"#{_BOUGHT[option]}" for option in shown), "offering"), rows)),
    )


def way_table(ways: Sequence[Way]) -> Html:
    """Return ranked ways as a table."""
    unit, time_unit = ways[0].unit, ways[0].time_unit
    heads = ("GPUs", "set-up", f"#{unit}", "#80%", f"#{time_unit}", "#tokens/s", "#$/h")
    rows = (
        (
            join((tag("span", one.label, class_="nowrap"), tag("div", one.where, class_="soft where"))),
            join((one.setup, tag("div", f"bound by {one.binding}", class_="soft where") if one.binding else Html())),
            f"{one.cost.value:,.3f}" if unit != "$" else f"{one.cost.value:,.0f}",
            f"{one.cost.low:,.2g}–{one.cost.high:,.2g}" if unit != "$" else f"{one.cost.low:,.0f}–{one.cost.high:,.0f}",
            f"{one.time.value:,.3g}",
            f"{one.tok_s:,.0f}",
            f"{one.usd_hr:,.2f}",
        )
        for one in ways
    )
    return table("", heads, rows)


def _pictures(document: FitDocument) -> Html:
    shown = document.ways[:_MOST_BARS]
    kinds = {part[:2]: None for one in shown for part in memory_parts(one.footprint)}
    return join(
        (
            section(
                "pareto",
                "Cost against time",
                "Each dot is a way that works. The line joins those that nothing beats in both.",
                scroll(cost_against_time(document.field)),
            ),
            section("value", "Tokens a second for a dollar an hour", "", scroll(value_chart(shown))),
            section("memory", "What fills the memory", "", keys(*sorted(kinds)), scroll(memory_chart(shown))),
            section(
                "roofline",
                "Roofline of the first way",
                "How much arithmetic a byte moved carries, and what the GPU can do with it.",
                *(scroll(roofline_chart(one)) for one in document.rooflines),
            ),
        )
    )


def _cost(document: FitDocument) -> Html:
    rows = ((line.item.value, dollars_and_cents(line.usd), line.how) for line in document.total.lines)
    return section(
        "cost",
        f"What the first way costs all told, a {document.total.per}",
        "Nodes are billed whole. Each figure besides is an assumption of the settings that can be overridden.",
        scroll(table("", ("item", "#USD", "how"), rows, total=("sum", dollars_and_cents(document.total.usd), ""))),
    )


def _rest(document: FitDocument) -> Html:
    rejected = [
        (gpu, one.what, one.reason.value, one.because)
        for gpu, group in groupby(sorted(document.rejected, key=lambda one: one.gpu), key=lambda one: one.gpu)
        for one in group
    ]
    return join(
        (
            section("paste", "To paste for the first way", "", tag("pre", document.paste), bullets(document.remarks)),
            section(
                "rejected",
                f"What was rejected, and why ({len(rejected)})",
                "",
                tag(
                    "details",
                    tag("summary", "all of them"),
                    scroll(table("", ("GPU", "way", "reason", "because"), rejected)),
                ),
            ),
        )
    )
