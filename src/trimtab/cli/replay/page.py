"""A replay as one self-contained page: for each service its figures, capacity against demand, waits, and the front."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.cli.replay.pictures import STYLE as CHART_STYLE, capacity_chart, front_chart, waits_chart
from trimtab.cli.replay.run import ServiceRuns
from trimtab.cli.sheet import Sheet
from trimtab.emit.html.markup import Html, tag
from trimtab.emit.html.sections import bullets, section, table
from trimtab.emit.html.style import STYLE

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_STYLE = """
.chart .dot { fill: var(--before); opacity: .7; } .chart .dot-best { fill: var(--accent); }
.chart .front { stroke: var(--accent); stroke-width: 1.5; } .chart .name-7 { fill: var(--soft); }
"""
_SHOWN = (
    "policy",
    "usd_mo",
    "over_clairvoyant",
    "attained_frac",
    "keeps_targets",
    "wait_p50_s",
    "wait_p95_s",
    "wait_p99_s",
    "cold_starts",
    "pareto",
)
_ON_SPOT = ("spot_frac", "lost_replicas")


def replay_page(found: Sequence[ServiceRuns], sheet: Sheet) -> str:
    """Return the page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", "trimtab replay"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(STYLE + CHART_STYLE + _STYLE)),
    )
    header = tag(
        "header",
        tag("div", "trimtab replay", class_="brand"),
        tag("h1", "What would have happened under other policies"),
        *(tag("p", note, class_="soft") for note in sheet.notes),
    )
    parts = (_service(at, service, sheet) for at, service in enumerate(found))
    body = tag("body", header, tag("main", *parts), tag("footer", tag("p", "Demand is taken as it was recorded.")))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _service(at: int, service: ServiceRuns, sheet: Sheet) -> Html:
    remarks = [*service.impossible, *(f"{row.name}: {'; '.join(row.notes)}" for row in service.rows() if row.notes)]
    gaps = service.runs[0].replay.gap_steps
    if gaps:
        remarks.append(f"{gaps / len(service.history.arrivals):.1%} of the time has no record: gaps, not lulls")
    return section(
        f"service-{at}",
        service.workload,
        f"Over {service.span}. A star marks the runs that no other beats in both cost and requests in time.",
        tag("div", _table(service, sheet), class_="scroll"),
        *([bullets(remarks)] if remarks else []),
        tag("h3", "Capacity against demand"),
        capacity_chart(service, name=f"capacity-{at}"),
        tag("h3", "Queue"),
        waits_chart(service, name=f"waits-{at}"),
        tag("h3", "Cost against requests in time"),
        front_chart(service, name=f"front-{at}"),
    )


def _table(service: ServiceRuns, sheet: Sheet) -> Html:
    columns = sheet.only((*_SHOWN, *(_ON_SPOT if service.spot else ()))).columns
    rows = [row for row in sheet.rows if row["workload"] == service.workload]
    return table(
        "",
        tuple(f"#{column.title}" if column.right else column.title for column in columns),
        (tuple(column.text(row.get(column.key)) for column in columns) for row in rows),
    )
