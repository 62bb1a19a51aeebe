"""Sections on where the money goes, what it buys, how the GPUs are used, and what was broken or is untidy, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from trimtab.emit.blocks import (
    Amount,
    Block,
    Cell,
    Chart,
    DetailLevel,
    Noted,
    Paragraph,
    Table,
    TableColumn,
    TableRow,
    Tone,
    bullets,
    soft,
    strong,
)
from trimtab.emit.document import AuditDocument, CapacityPart, HeatMapPart
from trimtab.emit.document.bill import HygienePart, SpendPart
from trimtab.emit.html.charts import capacity, heat_key, heat_map, phone_heat_map, waste_bar, waste_style
from trimtab.emit.html.markup import PHONE_WIDTH
from trimtab.emit.money import dollars, dollars_and_cents, percent
from trimtab.emit.words import USEFUL

_BRIEF_ROWS = 8
_PAGE_WORKLOADS = 25
_CAPACITY_CHARTS = 6
_HEAT_ROWS = 30
_TOKEN_RULES = 12
_UNREAD_FRAC = 0.01
_CAPACITY_KEYS = (
    ("key-demand", "GPUs that requests needed"),
    ("key-before", "held"),
    ("key-after", "held with the plan"),
)
_MONEY = TableColumn(title="$/month", right=True)
_SHARE = TableColumn(title="share", right=True)
_ACTIVE = TableColumn(title="GPU active", right=True)


def spend_blocks(document: AuditDocument) -> list[Block]:
    """Return the bill by workload type, by team and by workload, with a summary of each workload's readings."""
    spend = document.spend
    return [
        _spend_table("workload type", spend.by_kind),
        _spend_table("team", spend.by_team),
        _workload_table(document),
    ]


def _spend_table(title: str, rows: Sequence[SpendPart]) -> Table:
    most = max((row.share_frac for row in rows), default=0.0) or 1.0
    kept = len(rows) if len(rows) <= _BRIEF_ROWS else _BRIEF_ROWS - 1
    return Table(
        columns=(TableColumn(title=title), _MONEY, _SHARE, _ACTIVE),
        rows=tuple(
            TableRow(
                cells=(row.name, Amount(row.usd_mo), percent(row.share_frac), percent(row.activity_frac)),
                bar_frac=row.share_frac / most,
            )
            for row in rows
        ),
        brief_rows=kept,
        rest=_rest(rows[kept:], 4),
    )


def _rest(rows: Sequence[SpendPart], width: int) -> TableRow:
    """Return the sum of rows as one row."""
    sums = (f"{len(rows)} more", Amount(sum(row.usd_mo for row in rows)), percent(sum(row.share_frac for row in rows)))
    return TableRow(cells=(*sums, *[""] * (width - len(sums))))


def _workload_table(document: AuditDocument) -> Table:
    verdicts = {verdict.workload: verdict.headline for verdict in document.verdicts}
    rows = document.spend.by_workload
    kept = len(rows) if len(rows) <= _BRIEF_ROWS else _BRIEF_ROWS - 1
    return Table(
        columns=(
            TableColumn(title="workload"),
            _MONEY,
            TableColumn(title="share", right=True, optional=2),
            TableColumn(title="GPU active", right=True, optional=1),
            TableColumn(title="what its readings say", readable=30),
        ),
        rows=tuple(
            TableRow(
                cells=(
                    row.name,
                    Amount(row.usd_mo),
                    percent(row.share_frac),
                    percent(row.activity_frac),
                    verdicts.get(row.name, ""),
                )
            )
            for row in rows
        ),
        brief_rows=kept,
        rest=_rest(rows[kept:], 5),
        page_rows=_PAGE_WORKLOADS,
        of="workloads",
    )


def token_blocks(document: AuditDocument) -> list[Block]:
    """Return the token cost of each service and the rule that divided it; empty if no tokens were read."""
    rows = document.tokens
    if not rows:
        return []
    table = Table(
        columns=(
            TableColumn(title="service"),
            _MONEY,
            TableColumn(title="$/M input", right=True),
            TableColumn(title="$/M output", right=True),
            TableColumn(title="$/M cached", right=True, optional=2),
            TableColumn(title="divided by", optional=1),
        ),
        rows=tuple(
            TableRow(
                cells=(
                    row.service,
                    Amount(row.usd_mo),
                    _price(row.input_usd_per_mtok),
                    _price(row.output_usd_per_mtok),
                    _price(row.cached_usd_per_mtok),
                    row.rule,
                )
            )
            for row in rows
        ),
        page_rows=_PAGE_WORKLOADS,
        of="services",
    )
    unread = [
        f"{row.service}: {percent(row.unread_usd_mo / row.usd_mo)} of its share is for hours without token readings"
        for row in rows
        if row.usd_mo > 0 and row.unread_usd_mo / row.usd_mo >= _UNREAD_FRAC
    ]
    rules = [f"{row.service}, {row.rule}: {row.because}" for row in rows[:_TOKEN_RULES]]
    return [table, bullets([*rules, *unread])]


def long_tail_blocks(document: AuditDocument) -> list[Block]:
    """Return the costs beside the GPUs, and what reduces each kind; empty if there are none."""
    rows = document.long_tail
    if not rows:
        return []
    table = Table(
        columns=(
            TableColumn(title="what", readable=24),
            _MONEY,
            TableColumn(title="of"),
            TableColumn(title="evidence", optional=2),
        ),
        rows=tuple(
            TableRow(
                cells=(
                    strong(row.kind),
                    "–" if row.usd_mo is None else Amount(row.usd_mo),
                    row.subject if row.tied else f"everything in {row.subject}",
                    row.evidence,
                )
            )
            for row in rows
        ),
        page_rows=_PAGE_WORKLOADS,
        of="costs",
    )
    advice: dict[str, None] = dict.fromkeys(f"{row.kind}: {row.advice}" for row in rows)
    note = "None of it is in the bill above or in the plan's saving, except for GPUs that wait for images or load."
    return [table, bullets([*advice]), Paragraph(words=soft(note))]


def _price(usd_per_mtok: float | None) -> str:
    return "–" if usd_per_mtok is None else f"{usd_per_mtok:,.3f}"


def waste_blocks(document: AuditDocument) -> list[Block]:
    """Return what the bill pays for: useful work and each kind of waste, which sum to the bill."""
    shown = [row for row in document.waste if row.usd_mo > 0]
    most = max((row.share_frac for row in shown), default=0.0) or 1.0
    rows = tuple(
        TableRow(
            cells=(
                (strong(row.kind), f": {row.meaning}"),
                Amount(row.usd_mo),
                percent(row.share_frac),
                ", ".join(row.where),
            ),
            bar_frac=row.share_frac / most,
            tone=Tone.GOOD if row.kind == USEFUL else Tone.BAD,
            key=waste_style(row, at),
        )
        for at, row in enumerate(shown)
    )
    return [
        Chart(draw=lambda: waste_bar(document.waste), on_phone=lambda: waste_bar(document.waste, width=PHONE_WIDTH)),
        Table(
            columns=(TableColumn(title="what", readable=34), _MONEY, _SHARE, TableColumn(title="mostly", optional=2)),
            rows=rows,
            total=TableRow(cells=(strong("the bill"), Amount(document.bill_usd_mo, strong=True), "", "")),
        ),
        Paragraph(words=soft(_product_form(document))),
    ]


def _product_form(document: AuditDocument) -> str:
    form = document.product_form
    text = f"Of 100 GPU-hours paid, {form.allocation_frac * 100:.0f} were held by a workload"
    if form.busy_frac is None:
        return f"{text}; how busy they were was not measured."
    text += f", {form.allocation_frac * form.busy_frac * 100:.0f} were busy"
    if form.product_frac is None:
        return f"{text}; how hard they worked was not measured."
    factors = " x ".join(percent(part) for part in (form.allocation_frac, form.busy_frac, form.efficiency_frac))
    return f"{text}, {form.product_frac * 100:.0f} did full work ({factors})."


def use_blocks(document: AuditDocument) -> list[Block]:
    """Return the heat map of the week, and demand against capacity; empty if nothing was measured."""
    heat = _dearest_rows(document)
    services = sorted(document.pictures.capacity, key=_most_held, reverse=True)
    blocks: list[Block] = []
    if heat.rows:
        blocks.append(
            Chart(
                title="Utilization through the week (hours in UTC)",
                draw=lambda: heat_map(heat),
                on_phone=lambda: phone_heat_map(heat),
            )
        )
        blocks.append(Chart(draw=heat_key))
        blocks += _left_out(len(document.pictures.heat_map.rows) - len(heat.rows), "workloads")
    for at, part in enumerate(services[:_CAPACITY_CHARTS]):
        blocks.append(
            Chart(
                title=f"Demand against capacity: {part.workload}",
                keys=() if at else _CAPACITY_KEYS,
                draw=partial(capacity, part, at),
                on_phone=partial(capacity, part, at, width=PHONE_WIDTH),
            )
        )
    return [*blocks, *_left_out(len(services) - _CAPACITY_CHARTS, "services")]


def _left_out(count: int, what: str) -> list[Block]:
    if count <= 0:
        return []
    return [Paragraph(words=soft(f"{count} more {what} are in the JSON form of this report."), level=DetailLevel.PAGE)]


def _most_held(part: CapacityPart) -> float:
    return max((gpus or 0.0 for gpus in part.before_gpus), default=0.0)


def _dearest_rows(document: AuditDocument) -> HeatMapPart:
    """Return the heat map's rows, most expensive workload first, as many as fit on a page."""
    spend = {row.name: row.usd_mo for row in document.spend.by_workload}
    whole = document.pictures.heat_map
    pairs = sorted(zip(whole.rows, whole.activity_frac, strict=True), key=lambda pair: -spend.get(pair[0], 0.0))
    kept = pairs[:_HEAT_ROWS]
    return HeatMapPart(rows=tuple(name for name, _ in kept), activity_frac=tuple(values for _, values in kept))


_PAGE_ROWS = 50
_NAMED = 4
BROKEN_NOTE = (
    "Measured over the whole history and scaled to a month. The part that falls on the days used for planning is also in "
    "“What it buys”, as two kinds of waste of its own."
)
HYGIENE_NOTE = (
    "These dollars are already part of the waste in “What it buys”, under the kind named on each line: do not add them "
    "to it. `trimtab emit` writes the patches to the folder `hygiene`, separate from the plan's."
)


def broken_blocks(document: AuditDocument) -> list[Block]:
    """Return what was broken, and who to contact."""
    if not document.broken:
        return []
    rows = [
        TableRow(
            cells=(
                _name(row.subject, row.what),
                Amount(row.usd_mo),
                Noted(words=f"{row.evidence}{_now(row.usd_hr)}. Call: {row.call}", beneath=row.retried),
            )
        )
        for row in document.broken
    ]
    kept = len(rows) if len(rows) <= _BRIEF_ROWS else _BRIEF_ROWS - 1
    rest = (f"{len(rows) - kept} more", Amount(sum(row.usd_mo for row in document.broken[kept:])), "")
    table = Table(
        columns=(TableColumn(title="what", readable=30), _MONEY, TableColumn(title="evidence", readable=30)),
        rows=tuple(rows),
        brief_rows=kept,
        rest=TableRow(cells=rest),
        page_rows=_PAGE_ROWS,
        of="broken things",
    )
    return [table, Paragraph(words=soft(BROKEN_NOTE))]


def hygiene_blocks(document: AuditDocument) -> list[Block]:
    """Return the offenders by kind: first each with its cost, then one by one with the evidence."""
    if not document.hygiene:
        return []
    kinds: dict[str, list[HygienePart]] = {}
    for row in document.hygiene:
        kinds.setdefault(row.kind, []).append(row)
    by_kind = Table(
        columns=(
            TableColumn(title="what is untidy", readable=26),
            _MONEY,
            TableColumn(title="who, $/month each", readable=26),
            TableColumn(title="counted in", optional=1),
        ),
        rows=tuple(_kind_row(kind, rows) for kind, rows in kinds.items()),
    )
    one_by_one = Table(
        columns=(TableColumn(title="who", readable=30), _MONEY, TableColumn(title="evidence", readable=40)),
        rows=tuple(
            TableRow(
                cells=(
                    _name(row.subject, row.kind),
                    Amount(row.usd_mo),
                    Noted(words=_words(row), beneath=_beneath(row)),
                )
            )
            for row in document.hygiene
        ),
        title="One by one",
        brief_rows=0,
        page_rows=_PAGE_ROWS,
        of="offenders",
    )
    return [by_kind, one_by_one, Paragraph(words=soft(HYGIENE_NOTE))]


def _kind_row(kind: str, rows: Sequence[HygienePart]) -> TableRow:
    who = [f"{row.subject}{_cost(row.usd_mo)}{_now(row.usd_hr)}" for row in rows[:_NAMED]]
    if len(rows) > _NAMED:
        who.append(f"{len(rows) - _NAMED} more{_cost(sum(row.usd_mo for row in rows[_NAMED:]))}")
    counted = dict.fromkeys(row.counted_in for row in rows if row.counted_in)
    return TableRow(
        cells=(strong(kind), Amount(sum(row.usd_mo for row in rows)), "; ".join(who), ", ".join(counted)),
    )


def _words(row: HygienePart) -> str:
    counted = f"; counted in “{row.counted_in}”" if row.counted_in else ""
    return f"{row.evidence}{_now(row.usd_hr)}{counted}. Call: {row.call}"


def _beneath(row: HygienePart) -> str:
    return "; ".join(_notes(row))


def _notes(row: HygienePart) -> Iterator[str]:
    if row.unschedulable:
        yield f"a taint keeps off until they tolerate it: {_few(row.unschedulable)}"
    if row.daemons:
        yield f"DaemonSets that belong there: {_few(row.daemons)}"


def _name(subject: str, what: str) -> Cell:
    return (strong(subject), f": {what}")


def _cost(usd_mo: float) -> str:
    return f" {dollars(usd_mo)}" if usd_mo else ""


def _now(usd_hr: float | None) -> str:
    return "" if usd_hr is None else f", {dollars_and_cents(usd_hr)} an hour while it lasts"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
