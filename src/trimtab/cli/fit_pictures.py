"""Pictures for a terminal: a roofline with a workload's phases, cost against time, tokens a second for a dollar."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trimtab.emit.fit_document import FitWay, frontier
from trimtab.fleet.ownership import TotalCost
from trimtab.physics.roofline import Roofline

WIDTH = 60
HEIGHT = 14
BAR_WIDTH = 40


def _place(value: float, low: float, high: float, cells: int) -> int:
    """Return the cell of a value on a logarithmic axis."""
    if not 0 < low < high:
        return 0
    share = (math.log(max(value, low)) - math.log(low)) / (math.log(high) - math.log(low))
    return min(cells - 1, max(0, round(share * (cells - 1))))


def _drawn(grid: Sequence[Sequence[str]], title: str, below: str) -> str:
    return "\n".join([title, *("│" + "".join(row).rstrip() for row in grid), "└" + "─" * WIDTH, below])


def roofline_picture(one: Roofline) -> str:
    """Return a log-log roofline: the roof in dots, P for prefill, D for decode, T for a training step."""
    flops = [point.flop_per_byte for point in one.points]
    left, right = min(*flops, one.ridge_flop_per_byte) / 4, max(*flops, one.ridge_flop_per_byte) * 4
    bottom, top = one.peak_tflops * min(1, left / one.ridge_flop_per_byte), one.peak_tflops * 1.5
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for column in range(WIDTH):
        intensity = left * (right / left) ** (column / (WIDTH - 1))
        roof = one.peak_tflops * min(1, intensity / one.ridge_flop_per_byte)
        grid[HEIGHT - 1 - _place(roof, bottom, top, HEIGHT)][column] = "·"
    for point in one.points:
        row = HEIGHT - 1 - _place(point.attainable_tflops, bottom, top, HEIGHT)
        grid[row][_place(point.flop_per_byte, left, right, WIDTH)] = point.phase.value[0].upper()
    told = ", ".join(
        f"{point.phase.value} {point.flop_per_byte:,.0f} FLOP/byte: {point.binding.value}" for point in one.points
    )
    title = f"{one.gpu.name}: {one.peak_tflops:,.0f} TFLOPS, ridge at {one.ridge_flop_per_byte:,.0f} FLOP/byte"
    return _drawn(grid, title, told)


def pareto_picture(found: Sequence[FitWay]) -> str:
    """Return cost (up) against time (right); numbers are ranks, the frontier is listed below."""
    shown = list(found[:9])
    costs = [one.cost.value for one in shown]
    times = [one.time.value for one in shown]
    if not shown or min(costs) <= 0:
        return ""
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for rank, (cost, time) in enumerate(zip(costs, times, strict=True), start=1):
        row = HEIGHT - 1 - _place(cost, min(costs) / 1.2, max(costs) * 1.2, HEIGHT)
        grid[row][_place(time, min(times) / 1.2, max(times) * 1.2, WIDTH)] = str(rank)
    best = frontier(shown)
    named = ", ".join(f"{rank} {one.label}" for rank, one in enumerate(shown, start=1) if one in best)
    title = f"{shown[0].unit} (up) against {shown[0].time_unit} (right), by rank"
    return _drawn(grid, title, f"nothing beats: {named}")


def value_bars(found: Sequence[FitWay]) -> str:
    """Return a bar per offering: tokens a second for a dollar an hour."""
    values = [(one.label, one.tok_s_per_usd_hr) for one in found if one.tok_s_per_usd_hr]
    if not values:
        return ""
    most = max(value for _, value in values)
    widest = max(len(name) for name, _ in values)
    bars = (f"{name:<{widest}} {'█' * max(1, round(value / most * BAR_WIDTH))} {value:,.0f}" for name, value in values)
    return "\n".join(["tokens/s per $/h", *bars])


def cost_table(total: TotalCost) -> str:
    """Return the parts of a total cost with how each was reckoned."""
    lines = [f"all told, a {total.per}: ${total.usd:,.2f}"]
    return "\n".join([*lines, *(f"  {line.item.value:<24} {line.usd:>12,.2f}  {line.how}" for line in total.lines)])
