"""A replay in lines of text: demand, and under it each policy's replicas and waits, column by column over time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from trimtab.cli.replay_run import ServiceRuns
from trimtab.replay.series import FloatArray

MARKS = "▁▂▃▄▅▆▇█"
GAP = "·"
_NAME = 26


def lines(service: ServiceRuns, width: int) -> str:
    """Draw a service's demand and each run on one scale; a column shows the highest of its stretch, a gap a dot."""
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
    """Return the highest value of each of so many stretches of equal length; NaN where a stretch knows none."""
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
