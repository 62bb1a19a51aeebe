"""A replay as one self-contained page: for each service its figures, capacity against demand, waits, and the front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from trimtab.cli.replay.pictures import STYLE as CHART_STYLE, capacity_chart, front_chart, waits_chart
from trimtab.cli.replay.run import ServiceRuns
from trimtab.cli.sheet import Sheet
from trimtab.emit.blocks import Chart, Page, Section, Table, bullets
from trimtab.emit.writers import html

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
    page = Page(
        brand="trimtab replay",
        title="What would have happened under other policies",
        notes=tuple(sheet.notes),
        sections=tuple(_service(at, service, sheet) for at, service in enumerate(found)),
        foot="Demand is taken as it was recorded.",
    )
    return html.write_page(page, style=CHART_STYLE + _STYLE)


def _service(at: int, service: ServiceRuns, sheet: Sheet) -> Section:
    remarks = [*service.impossible, *(f"{row.name}: {'; '.join(row.notes)}" for row in service.rows() if row.notes)]
    gaps = service.runs[0].replay.gap_steps
    if gaps:
        remarks.append(f"{gaps / len(service.history.arrivals):.1%} of the time has no record: gaps, not lulls")
    return Section(
        name=f"service-{at}",
        title=service.workload,
        gloss=f"over {service.span}; a star marks the runs that no other beats in both cost and requests in time",
        blocks=(
            _table(service, sheet),
            bullets(remarks),
            Chart(title="Capacity against demand", draw=partial(capacity_chart, service, name=f"capacity-{at}")),
            Chart(title="Queue", draw=partial(waits_chart, service, name=f"waits-{at}")),
            Chart(title="Cost against requests in time", draw=partial(front_chart, service, name=f"front-{at}")),
        ),
    )


def _table(service: ServiceRuns, sheet: Sheet) -> Table:
    rows = [row for row in sheet.rows if row["workload"] == service.workload]
    chosen = sheet.only((*_SHOWN, *(_ON_SPOT if service.spot else ())))
    return replace(chosen, rows=rows, section="").table()
