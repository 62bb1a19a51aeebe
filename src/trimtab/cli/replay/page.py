"""A replay as one self-contained page of figures and charts: capacity, waits, cost against requests in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from trimtab.cli.output import Sheet
from trimtab.cli.replay.run import ReplayRow, ServiceRuns
from trimtab.emit.blocks import Chart, Page, Section, Table, bullets
from trimtab.emit.html.markup import Frame, Html, level_lines, picture, step_area, step_line, tag, text, ticks
from trimtab.emit.writers import html
from trimtab.ledger.arrays import FloatArray
from trimtab.units import S_PER_HR

WIDTH, HEIGHT = 960.0, 300.0
COLOURS = ("#1b6ca8", "#c2410c", "#15803d", "#7e22ce", "#b45309", "#0f766e", "#be123c", "#6b7280")
MOST_LINES = len(COLOURS)
MOST_COLUMNS = 480
CHART_STYLE = ".demand{fill:#9ca3af;opacity:.45}" + "".join(
    f".line-{at}{{stroke:{colour};stroke-width:1.5}}.name-{at}{{fill:{colour};color:{colour}}}"
    for at, colour in enumerate(COLOURS)
)
_LETTER = 7.0
"""Width of a letter of 11 px, generously."""
_LINE = 14.0

MARKS = "▁▂▃▄▅▆▇█"
GAP = "·"
_NAME = 26


def capacity_picture(service: ServiceRuns) -> str:
    """Return an SVG file of one service: demand in replicas as an area, each policy's replicas as a line."""
    drawn = capacity_chart(service, name="replay")
    style = str(tag("style", Html(f"text{{font:11px sans-serif}}.grid{{stroke:#ddd}}{CHART_STYLE}")))
    return (
        str(drawn)
        .replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        .replace("</desc>", f"</desc>{style}", 1)
    )


def capacity_chart(service: ServiceRuns, *, name: str) -> Html:
    """Draw demand and the replicas of the first runs, each column the mean of its interval."""
    demand = _means(service.history.load(service.model), service.history.step_s)
    lines = [_means(run.replay.replicas.astype(float), service.history.step_s) for run in service.runs[:MOST_LINES]]
    frame = _frame(len(demand), [demand, *lines])
    return picture(
        WIDTH,
        HEIGHT,
        f"Capacity against demand: {service.workload}",
        f"Replicas that requests kept busy, and replicas under each policy, over {service.span}.",
        level_lines(frame, {value: f"{value:g}" for value in ticks(frame.top)}),
        step_area(frame, _series(demand), "demand"),
        *(step_line(frame, _series(line), f"line-{at}") for at, line in enumerate(lines)),
        text(frame.left, 14, f"{service.workload}: replicas, {service.span}; grey: demand", style="tick"),
        *_legend(service),
        name=name,
    )


def waits_chart(service: ServiceRuns, *, name: str) -> Html:
    """Draw the longest wait in the queue of each interval, under each policy."""
    lines = [highest(run.replay.queued_s, MOST_COLUMNS) for run in service.runs[:MOST_LINES]]
    frame = _frame(max(len(line) for line in lines), lines, least=0.1)
    return picture(
        WIDTH,
        HEIGHT,
        f"Longest waits: {service.workload}",
        f"The longest wait in the queue under each policy, over {service.span}.",
        level_lines(frame, {value: f"{value:g} s" for value in ticks(frame.top)}),
        *(step_line(frame, _series(line), f"line-{at}") for at, line in enumerate(lines)),
        text(frame.left, 14, "longest wait in the queue, in seconds", style="tick"),
        *_legend(service),
        name=name,
    )


def front_chart(service: ServiceRuns, *, name: str) -> Html:
    """Draw every run as a dot, late requests against cost, with the Pareto front highlighted."""
    rows, front = service.rows(), service.front()
    most_usd = max(row.usd_mo for row in rows) * 1.05 or 1.0
    most_late = max(1 - row.attained_frac for row in rows) * 1.15 or 0.01
    frame = Frame(left=64, right=WIDTH - 24, upper=26, lower=HEIGHT - 36, count=1, top=most_late)

    def x(usd_mo: float) -> float:
        return frame.left + (frame.right - frame.left) * usd_mo / most_usd

    best = sorted((row for row in rows if row.name in front), key=lambda row: row.usd_mo)
    path = "".join(
        f"{'L' if at else 'M'}{x(row.usd_mo):.1f} {frame.y(1 - row.attained_frac):.1f}" for at, row in enumerate(best)
    )
    return picture(
        WIDTH,
        HEIGHT,
        f"Cost against requests in time: {service.workload}",
        "Each dot is a run: cost to the right, requests that came late upwards; the line joins those that no other beats.",
        level_lines(frame, {value: f"{value:.2%}" for value in ticks(most_late)}),
        *(text(x(usd), HEIGHT - 16, f"${usd:,.0f}", anchor="middle", style="tick") for usd in ticks(most_usd)[1:]),
        tag("path", d=path, class_="front", fill="none"),
        *(
            tag(
                "circle",
                tag("title", f"{row.name}: ${row.usd_mo:,.0f} a month, {row.attained_frac:.2%} in time"),
                cx=x(row.usd_mo),
                cy=frame.y(1 - row.attained_frac),
                r=5 if row.name in front else 3.5,
                class_="dot-best" if row.name in front else "dot",
            )
            for row in rows
        ),
        *_dot_names(best, x, frame),
        text(
            frame.left,
            14,
            "requests late (up) against $ a month (right); the line: no other run beats these",
            style="tick",
        ),
        name=name,
    )


def _dot_names(best: Sequence[ReplayRow], x: Callable[[float], float], frame: Frame) -> Iterator[Html]:
    """Label the dots of the front, each beside its dot, or above the previous label if they would overlap."""
    taken: list[tuple[float, float, float]] = []
    for row in best:
        wide = _LETTER * len(row.name)
        left = min(x(row.usd_mo) + 8, frame.right - wide)
        level = frame.y(1 - row.attained_frac) - 8
        while any(left < right and start < left + wide and abs(level - other) < _LINE for start, right, other in taken):
            level -= _LINE
        taken.append((left, left + wide, level))
        yield text(left, level, row.name, style="label")


def _legend(service: ServiceRuns) -> Iterator[Html]:
    at_x, at_y = 56.0, HEIGHT - 26
    for at, run in enumerate(service.runs[:MOST_LINES]):
        wide = _LETTER * (len(run.name) + 4)
        if at_x + wide > WIDTH:
            at_x, at_y = 56.0, at_y + _LINE
        yield text(at_x, at_y, f"— {run.name}", style=f"name-{at}")
        at_x += wide
    left_out = len(service.runs) - MOST_LINES
    if left_out > 0:
        yield text(at_x, at_y, f"and {left_out} more, not drawn", style="tick")


def _frame(count: int, lines: Sequence[FloatArray], least: float = 1.0) -> Frame:
    known = [float(np.nanmax(line)) for line in lines if np.any(~np.isnan(line))]
    return Frame(
        left=56, right=WIDTH - 8, upper=24, lower=HEIGHT - 48, count=count, top=max(least, *known, least) * 1.08
    )


def _means(values: FloatArray, step_s: float) -> FloatArray:
    """Return means by the hour, or by the shortest interval that the picture has columns for."""
    stretch = max(1, min(round(S_PER_HR / step_s), -(-len(values) // MOST_COLUMNS)))
    whole = len(values) // stretch * stretch
    grouped = values[:whole].reshape(-1, stretch)
    known = ~np.isnan(grouped)
    sums = np.where(known, grouped, 0.0).sum(axis=1)
    means: FloatArray = np.full(len(sums), np.nan)
    np.divide(sums, known.sum(axis=1), out=means, where=known.any(axis=1))
    return means


def _series(values: FloatArray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def lines(service: ServiceRuns, width: int) -> str:
    """Draw a service's demand and each run on one scale; a column shows the maximum of its interval, a gap a dot."""
    columns = max(10, width - _NAME - 12)
    demand = highest(service.history.load(service.model), columns)
    runs = [(run, highest(run.replay.replicas.astype(float), columns)) for run in service.runs]
    top = max(
        1.0,
        *(
            float(np.nanmax(values))
            for values in (demand, *(values for _, values in runs))
            if np.any(~np.isnan(values))
        ),
    )
    drawn = [f"{service.workload}, replicas over time; a full block is {top:,.0f}"]
    drawn.append(_line("demand", demand, top, ""))
    for run, replicas in runs:
        drawn.append(_line(run.name, replicas, top, ""))
        waits = highest(run.replay.queued_s, columns)
        longest = float(waits.max(initial=0.0))
        if longest > 0:
            drawn.append(
                _line("  longest wait", waits, longest, f" {longest:,.0f} s" if longest >= 1 else f" {longest:.2g} s")
            )
    return "\n".join(drawn)


def highest(values: FloatArray, columns: int) -> FloatArray:
    """Return the maximum of each of this many equal intervals; NaN if an interval has no data."""
    edges = np.linspace(0, len(values), min(columns, len(values)) + 1).astype(int)
    return np.array(list(_highest(values, edges)))


def _highest(values: FloatArray, edges: np.ndarray) -> Iterator[float]:
    for first, last in pairwise(edges):
        known = values[first:last][~np.isnan(values[first:last])]
        yield float(known.max()) if len(known) else float("nan")


def _line(name: str, values: FloatArray, top: float, after: str) -> str:
    label = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    return f"{label:<{_NAME}} {''.join(_mark(value, top) for value in values)}{after}"


def _mark(value: float, top: float) -> str:
    if np.isnan(value):
        return GAP
    if value <= 0:
        return " "
    return MARKS[min(len(MARKS) - 1, int(np.ceil(value / top * len(MARKS))) - 1)]


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
        foot="Demand is replayed as recorded.",
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
