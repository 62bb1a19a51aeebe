"""A picture of a replay: demand against the replicas that each policy would have run, hour by hour."""

from __future__ import annotations

import numpy as np

from trimtab.cli.replay_run import ServiceRuns
from trimtab.emit.markup import tag
from trimtab.emit.svg import Frame, level_lines, picture, step_area, step_line, text, ticks
from trimtab.replay.series import FloatArray
from trimtab.units import S_PER_HR

WIDTH, HEIGHT = 960.0, 320.0
COLOURS = ("#1b6ca8", "#c2410c", "#15803d", "#7e22ce", "#b45309", "#0f766e", "#be123c", "#4d7c0f")
MOST_LINES = len(COLOURS)


def capacity_picture(service: ServiceRuns) -> str:
    """Return an SVG file of one service: mean demand in replicas as an area, each policy's mean replicas as a line."""
    per_hour = max(1, round(S_PER_HR / service.history.step_s))
    demand = _hourly(service.history.load(service.model), per_hour)
    lines = [_hourly(run.replay.replicas.astype(float), per_hour) for run in service.runs[:MOST_LINES]]
    top = max(1.0, *(float(np.nanmax(line)) for line in (demand, *lines))) * 1.08
    frame = Frame(left=56, right=WIDTH - 8, upper=24, lower=HEIGHT - 48, count=len(demand), top=top)
    style = "".join(f".line-{at}{{stroke:{COLOURS[at]};stroke-width:1.4}}" for at in range(len(lines)))
    drawn = picture(
        WIDTH,
        HEIGHT,
        f"Capacity against demand: {service.workload}",
        f"Replicas that requests kept busy, and replicas under each policy, by hour over {service.window}.",
        tag("style", f"text{{font:11px sans-serif}}.grid{{stroke:#ddd}}.demand{{fill:#9ca3af;opacity:.5}}{style}"),
        level_lines(frame, {value: f"{value:g}" for value in ticks(top)}),
        step_area(frame, _series(demand), "demand"),
        *(step_line(frame, _series(line), f"line-{at}") for at, line in enumerate(lines)),
        *(
            text(56 + 112 * at, HEIGHT - 16, f"— {run.name}", style=f"name-{at}")
            for at, run in enumerate(service.runs[:MOST_LINES])
        ),
        tag("style", "".join(f".name-{at}{{fill:{COLOURS[at]}}}" for at in range(len(lines)))),
        text(56, 14, f"{service.workload}: replicas by hour, {service.window}; grey: demand"),
        name="replay",
    )
    return str(drawn).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)


def _hourly(values: FloatArray, per_hour: int) -> FloatArray:
    whole = len(values) // per_hour * per_hour
    grouped = values[:whole].reshape(-1, per_hour)
    known = ~np.isnan(grouped)
    sums = np.where(known, grouped, 0.0).sum(axis=1)
    means: FloatArray = np.full(len(sums), np.nan)
    np.divide(sums, known.sum(axis=1), out=means, where=known.any(axis=1))
    return means


def _series(values: FloatArray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]
