"""The pictures of a fit: cost against time with the frontier, tokens for a dollar, rooflines, what fills the memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trimtab.emit.fit_document import FitWay, frontier
from trimtab.emit.html.markup import WIDTH, Html, number, picture, tag, text
from trimtab.physics.footprint import Footprint
from trimtab.physics.roofline import Roofline

STYLE = """
.chart .dot { fill: var(--before); opacity: .55; } .chart .dot-best { fill: var(--accent); }
.m-0 { fill: var(--accent); background: var(--accent); } .m-1 { fill: #3b7dd8; background: #3b7dd8; }
.m-2 { fill: #c98a1b; background: #c98a1b; } .m-3 { fill: #8a63c9; background: #8a63c9; }
.m-4 { fill: #5aa469; background: #5aa469; } .m-5 { fill: #c4593f; background: #c4593f; }
.m-6 { fill: var(--before); background: var(--before); } .m-7 { fill: var(--w5); background: var(--w5); }
.figure .value { font-size: 20px; white-space: normal; }
"""
"""Of these pictures and of the page that they are in."""
HEIGHT = 400.0
ROW = 30.0
LABEL = 210.0
VALUE = 112.0
LABEL_GAP = 15.0
LETTER = 7.2
"""Width of a letter of a label, about."""
MOST_LABELS = 10
ROUND = (1.0, 2.0, 5.0)
MOST_TIMES = 30.0
"""Ways that cost more than this many times the cheapest are left out of the picture of cost against time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis from `low` to `high` over a stretch of the picture."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the place of a value."""
        share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return self.start + (self.end - self.start) * min(1.0, share)

    def ticks(self) -> list[float]:
        """Return round values on the axis: 1, 2, 5 and their tens; tens alone where the axis is long."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = ROUND if last - first <= 3 else ROUND[:1]
        return [
            step * 10.0**power
            for power in range(first, last + 1)
            for step in steps
            if self.low <= step * 10.0**power <= self.high
        ]


def _axis(values: Sequence[float], start: float, end: float, room: float = 1.25) -> Axis:
    return Axis(low=min(values) / room, high=max(values) * room, start=start, end=end)


def _grid(across: Axis, up: Axis) -> Iterator[Html]:
    """Yield thin lines and labels at the round values of both axes."""
    for value in up.ticks():
        y = up.at(value)
        yield tag("line", x1=across.start, x2=across.end, y1=y, y2=y, class_="grid")
        yield text(across.start - 8, y + 4, f"{value:,g}", anchor="end", style="tick")
    for value in across.ticks():
        x = across.at(value)
        yield tag("line", x1=x, x2=x, y1=up.start, y2=up.end, class_="grid")
        yield text(x, up.start + 18, f"{value:,g}", anchor="middle", style="tick")


def cost_against_time(ways: Sequence[FitWay]) -> Html:
    """Draw every way as a dot, cost up and time to the right; a line joins those that nothing beats, which carry names."""
    if not ways or min(way.cost.value for way in ways) <= 0:
        return Html()
    least = min(way.cost.value for way in ways)
    ways = [way for way in ways if way.cost.value <= least * MOST_TIMES]
    across = _axis([way.time.value for way in ways], 72, WIDTH - 16)
    up = _axis([way.cost.value for way in ways], HEIGHT - 48, 24)
    best = frontier(ways)
    corners = [f"{number(across.at(way.time.value))} {number(up.at(way.cost.value))}" for way in best]
    dots = (_dot(way, across, up, "dot") for way in ways if way not in best)
    return picture(
        WIDTH,
        HEIGHT,
        "Cost against time",
        f"{len(ways)} ways; {len(best)} of them are beaten by none in both: "
        + "; ".join(f"{way.label} at {way.cost.value:,.3g} {way.unit}, {way.time.value:,.3g} {way.time_unit}" for way in best),
        *_grid(across, up),
        text(across.start, 14, f"{ways[0].unit} (up) against {ways[0].time_unit} (right)", style="tick"),
        *dots,
        tag("path", d="M" + "L".join(corners), class_="line-after", fill="none"),
        *(_dot(way, across, up, "dot-best") for way in best),
        *_names(best, across, up),
        name="pareto",
    )  # fmt: skip


def _dot(way: FitWay, across: Axis, up: Axis, style: str) -> Html:
    title = f"{way.label}, {way.setup}: {way.cost.value:,.3g} {way.unit}, {way.time.value:,.3g} {way.time_unit}, {way.where}"
    x, y = across.at(way.time.value), up.at(way.cost.value)
    return tag("g", tag("title", title), tag("circle", cx=x, cy=y, r=5.0 if style == "dot-best" else 3.5, class_=style))


def _names(best: Sequence[FitWay], across: Axis, up: Axis) -> Iterator[Html]:
    """Yield names beside the dots of the frontier, each above those that it would cover."""
    placed: list[tuple[float, float, float]] = []
    for way in best[:: max(1, math.ceil(len(best) / MOST_LABELS))]:
        x, y = across.at(way.time.value), up.at(way.cost.value) - 9
        wide = len(way.label) * LETTER
        right = x + wide < across.end
        left = x + 6 if right else x - 6 - wide
        while any(abs(y - above) < LABEL_GAP and left < end and start < left + wide for start, end, above in placed):
            y -= LABEL_GAP
        placed.append((left, left + wide, y))
        yield text(left if right else x - 6, max(y, 26.0), way.label, anchor="start" if right else "end", style="label")


def value_chart(ways: Sequence[FitWay]) -> Html:
    """Draw tokens per second per dollar an hour, a bar per offering."""
    worth = [(way, way.tok_s_per_usd_hr) for way in ways if way.tok_s_per_usd_hr]
    if not worth:
        return Html()
    scale = (WIDTH - LABEL - VALUE) / max(value for _, value in worth)
    bars = (
        tag(
            "g",
            tag("title", f"{way.label}, {way.where}: {value:,.0f} tokens/s per $/h"),
            text(LABEL - 12, ROW * at + 20, way.label, anchor="end", style="label"),
            tag("rect", x=LABEL, y=ROW * at + 5, width=value * scale, height=ROW - 10, rx=2, class_="bar-after"),
            text(LABEL + value * scale + 8, ROW * at + 20, f"{value:,.0f}", style="label"),
        )
        for at, (way, value) in enumerate(worth)
    )
    title = "Tokens per second per dollar an hour; the table has the same figures."
    return picture(WIDTH, ROW * len(worth), "Tokens for a dollar", title, *bars, name="value")


def memory_chart(ways: Sequence[FitWay]) -> Html:
    """Draw what fills each GPU's memory, a bar of parts per way, the whole bar being what the GPU shows."""
    width = WIDTH - LABEL - VALUE
    rows: list[Html] = []
    for at, way in enumerate(ways):
        total = max(way.gpu.memory_gib, way.footprint.total_gib)
        y = ROW * at
        rows.append(text(LABEL - 12, y + 20, way.label, anchor="end", style="label"))
        rows.append(tag("rect", x=LABEL, y=y + 5, width=width, height=ROW - 10, rx=2, class_="h-0"))
        x = LABEL
        for colour, name, gib in memory_parts(way.footprint):
            wide = gib / total * width
            part = tag("title", f"{way.label}: {name} {gib:,.1f} of {total:,.1f} GiB")
            rows.append(tag("g", part, tag("rect", x=x, y=y + 5, width=wide, height=ROW - 10, class_=colour)))
            x += wide
        share = f"{way.footprint.total_gib:,.0f} of {way.gpu.memory_gib:,.0f} GiB"
        rows.append(text(WIDTH, y + 20, share, anchor="end", style="label"))
    title = "Memory of the fullest GPU by what fills it."
    return picture(WIDTH, ROW * len(ways), "Memory", title, *rows, name="memory")


def memory_parts(footprint: Footprint) -> list[tuple[str, str, float]]:
    """Return colour class, name and GiB of each part that there is."""
    return [
        (f"m-{at}", item.value, footprint.gib(item))
        for at, item in enumerate(type(next(iter(footprint.bytes_by_item))))
        if footprint.gib(item) > 0
    ]


def roofline_chart(roofline: Roofline) -> Html:
    """Draw the roof of a GPU and the workload's phases under it, both axes logarithmic."""
    intensities = [roofline.ridge_flop_per_byte, *(point.flop_per_byte for point in roofline.points)]
    across = _axis(intensities, 72, WIDTH - 16, room=5.0)
    lowest = min([roofline.peak_tflops, *(point.attainable_tflops for point in roofline.points)])
    up = Axis(low=lowest / 5, high=roofline.peak_tflops * 2.5, start=HEIGHT - 48, end=24)
    left = max(across.low, roofline.ridge_flop_per_byte * up.low / roofline.peak_tflops)
    left_tflops = roofline.peak_tflops * left / roofline.ridge_flop_per_byte
    ridge = across.at(roofline.ridge_flop_per_byte)
    roof = (
        f"M{number(across.at(left))} {number(up.at(left_tflops))}L{number(ridge)} {number(up.at(roofline.peak_tflops))}"
        f"H{number(across.end)}"
    )
    points: list[Html] = []
    for point in roofline.points:
        x, y = across.at(point.flop_per_byte), up.at(point.attainable_tflops)
        points += [
            tag("line", x1=x, x2=x, y1=up.start, y2=y, class_="link"),
            tag("circle", cx=x, cy=y, r=6.0, class_="dot-best"),
            text(
                x + (10 if x < WIDTH * 0.6 else -10),
                y + 20,
                f"{point.phase.value}: {point.flop_per_byte:,.0f} FLOP/byte, bound by {point.binding.value}",
                anchor="start" if x < WIDTH * 0.6 else "end",
                style="label",
            ),
        ]
    return picture(
        WIDTH,
        HEIGHT,
        f"Roofline of {roofline.gpu.name}",
        f"Peak {roofline.peak_tflops:,.0f} TFLOPS, ridge at {roofline.ridge_flop_per_byte:,.0f} FLOP/byte.",
        *_grid(across, up),
        text(across.start, 14, "TFLOPS attainable (up) against FLOP per byte moved (right)", style="tick"),
        tag("path", d=roof, class_="line-before", fill="none"),
        text(
            across.end,
            up.at(roofline.peak_tflops) - 8,
            f"{roofline.peak_tflops:,.0f} TFLOPS",
            anchor="end",
            style="tick",
        ),
        *points,
        name=f"roofline-{roofline.gpu.name.casefold()}",
    )
