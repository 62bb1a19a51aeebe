"""How the GPUs are used, in the HTML report: the heat map of the week, and demand against capacity."""

from __future__ import annotations

from trimtab.emit.document import AuditDocument, CapacityPart, HeatMapPart
from trimtab.emit.html.charts import capacity, heat_key, heat_map
from trimtab.emit.html.markup import Html, tag
from trimtab.emit.html.sections import keys, more, scroll, section

_MOST_CAPACITY_PICTURES = 6
_MOST_HEAT_ROWS = 30


def use_section(document: AuditDocument) -> Html:
    """Return the section; nothing where nothing was measured."""
    heat = _dearest_rows(document)
    services = sorted(document.pictures.capacity, key=_most_held, reverse=True)
    parts: list[Html] = []
    if heat.rows:
        parts += [tag("h3", "Utilization through the week (hours in UTC)"), scroll(heat_map(heat)), heat_key()]
        parts.append(more(len(document.pictures.heat_map.rows) - len(heat.rows), "workloads"))
    if services:
        parts.append(tag("h3", "Demand against capacity"))
        parts.append(
            keys(
                ("key-demand", "GPUs that requests needed"), ("key-before", "held"), ("key-after", "held with the plan")
            )
        )
    for at, part in enumerate(services[:_MOST_CAPACITY_PICTURES]):
        parts += [tag("p", part.workload), scroll(capacity(part, at))]
    parts.append(more(len(services) - _MOST_CAPACITY_PICTURES, "services"))
    return section("use", "How the GPUs are used", "", *parts) if heat.rows or services else Html()


def _most_held(part: CapacityPart) -> float:
    return max((gpus or 0.0 for gpus in part.before_gpus), default=0.0)


def _dearest_rows(document: AuditDocument) -> HeatMapPart:
    """Return the heat map's rows, dearest workload first, as many as a page can show."""
    spend = {row.name: row.usd_mo for row in document.spend.by_workload}
    whole = document.pictures.heat_map
    pairs = sorted(zip(whole.rows, whole.activity_frac, strict=True), key=lambda pair: -spend.get(pair[0], 0.0))
    kept = pairs[:_MOST_HEAT_ROWS]
    return HeatMapPart(rows=tuple(name for name, _ in kept), activity_frac=tuple(values for _, values in kept))
