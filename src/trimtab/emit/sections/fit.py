"""The answer of `trimtab fit` as a page of sections."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from trimtab.catalog import BuyingOption
from trimtab.emit.blocks import (
    Block,
    Cell,
    Chart,
    Code,
    Figure,
    Folded,
    Noted,
    Page,
    Section,
    Table,
    TableRow,
    bullets,
    columns,
    strong,
    table,
)
from trimtab.emit.fit_document import FitDocument, FitWay
from trimtab.emit.html.fit_charts import cost_against_time, memory_chart, memory_parts, roofline_chart, value_chart
from trimtab.emit.money import dollars, dollars_and_cents
from trimtab.physics.found_ways import Rejected

_MOST_BARS = 12
_BOUGHT = {
    BuyingOption.ON_DEMAND: "on demand",
    BuyingOption.SPOT: "spot with losses",
    BuyingOption.RESERVED_1Y: "1 year",
    BuyingOption.RESERVED_3Y: "3 years",
    BuyingOption.OWNED: "owned",
}


def fit_page(document: FitDocument) -> Page:
    """Return the page."""
    shown = document.ways[:_MOST_BARS]
    kinds = {part[:2]: None for way in shown for part in memory_parts(way.footprint)}
    parts: tuple[tuple[str, str, str, tuple[Block, ...]], ...] = (
        (
            "ranking",
            "What works, cheapest first",
            "the best option on each GPU, with the interval of its cost",
            (ways_table(document.ways),),
        ),
        (
            "pareto",
            "Cost against time",
            "each dot is an option that works; the line joins those that no other beats in both cost and time",
            (Chart(draw=partial(cost_against_time, document.field)),),
        ),
        ("value", "Tokens per second per dollar an hour", "", (Chart(draw=partial(value_chart, shown)),)),
        (
            "memory",
            "What fills the memory",
            "",
            (Chart(draw=partial(memory_chart, shown), keys=tuple(sorted(kinds))),),
        ),
        (
            "roofline",
            "Roofline of the first option",
            "arithmetic per byte moved, and what the GPU can do with it",
            tuple(Chart(draw=partial(roofline_chart, roof)) for roof in document.rooflines),
        ),
        (
            "buying",
            f"What {'a run' if document.ways[0].unit == '$' else 'an hour'} costs under each buying option",
            "spot includes expected losses of nodes; a dash means that it is not sold there",
            (buying_table(document.ways),),
        ),
        (
            "cost",
            f"Full cost of the first option, per {document.total.per}",
            "nodes are billed whole; every other figure is an assumption that settings can override",
            (_cost(document),),
        ),
        (
            "paste",
            "Commands for the first option",
            "",
            (Code(text=document.paste), bullets(tuple(document.remarks))),
        ),
        (
            "rejected",
            f"What was rejected, and why ({len(document.rejected)})",
            "",
            (Folded(title="all of them", blocks=(rejected_table(document.rejected),)),),
        ),
    )
    return Page(
        brand="trimtab fit",
        title=document.title,
        seen=document.question,
        figures=_figures(document),
        sections=tuple(
            Section(name=name, title=title, gloss=gloss, blocks=blocks) for name, title, gloss, blocks in parts
        ),
        foot="Intervals are 80% intervals. Prices are those of the catalog on the date of asking.",
    )


def _figures(document: FitDocument) -> tuple[Figure, ...]:
    first = document.ways[0]
    amount = dollars(first.cost.value) if first.unit == "$" else f"{first.cost.value:,.3f} {first.unit}"
    cost = f"{first.cost.low:,.3g} to {first.cost.high:,.3g} {first.unit} (80%)"
    time = f"{first.time.low:,.3g} to {first.time.high:,.3g} (80%)"
    return (
        Figure(name="Cheapest", value=first.label, note=first.where),
        Figure(name="Costs", value=amount, note=cost),
        Figure(name="Takes", value=f"{first.time.value:,.3g} {first.time_unit}", note=time),
        Figure(name="All told", value=dollars(document.total.usd), note=f"a {document.total.per}, itemised below"),
    )


def ways_table(ways: Sequence[FitWay]) -> Table:
    """Return one row per option, with cost, its interval, time and speed. There is at least one."""
    unit, time_unit = ways[0].unit, ways[0].time_unit
    return table(("GPUs", "set-up", f"#{unit}", "#80%", f"#{time_unit}", "#tokens/s", "#$/h"), [*map(_way, ways)])


def _way(way: FitWay) -> tuple[Cell, ...]:
    money, ends = ("{:,.0f}", "{:,.0f}–{:,.0f}") if way.unit == "$" else ("{:,.3g}", "{:,.2g}–{:,.2g}")
    return (
        Noted(words=way.label, beneath=way.where),
        Noted(words=way.setup, beneath=f"bound by {way.binding}" if way.binding else ""),
        money.format(way.cost.value),
        ends.format(way.cost.low, way.cost.high),
        f"{way.time.value:,.3g}",
        f"{way.tok_s:,.0f}",
        f"{way.usd_hr:,.2f}",
    )


def buying_table(ways: Sequence[FitWay]) -> Table:
    """Return the cost under each buying option that is sold."""
    shown = [option for option in _BOUGHT if any(option in way.bought for way in ways)]
    rows = [
        (
            way.label,
            *(dollars_and_cents(way.bought[option]) if option in way.bought else "–" for option in shown),
            way.where,
        )
        for way in ways
    ]
    return table(("GPUs", *(f"#{_BOUGHT[option]}" for option in shown), "offering"), rows)


def _cost(document: FitDocument) -> Table:
    lines = document.total.lines
    return Table(
        columns=columns("item", "#USD", "how"),
        rows=tuple(TableRow(cells=(line.item.value, dollars_and_cents(line.usd), line.how)) for line in lines),
        total=TableRow(cells=(strong("sum"), strong(dollars_and_cents(document.total.usd)), "")),
    )


def rejected_table(rejected: Sequence[Rejected]) -> Table:
    """Return what does not work, by GPU, and why."""
    rows = [(way.gpu, way.what, way.reason.value, way.because) for way in sorted(rejected, key=lambda way: way.gpu)]
    return table(("GPU", "way", "reason", "because"), rows)
