"""A load-duration picture in text: the busiest hours at the left, and what carries each part of the load."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.plan.program.load_duration import LoadPoint

HEIGHT = 10
_LABEL = 8
OWNED, FIRST, LATER, ON_DEMAND, UNUSED = "█", "▓", "▒", "░", "·"
LEGEND = f"{OWNED} held  {FIRST} first layer  {LATER} later layers  {ON_DEMAND} on demand  {UNUSED} paid, not used"


def picture_points(width: int) -> int:
    """Return how many points of the curve a picture of a width shows."""
    return width - _LABEL - 2


def picture(points: Sequence[LoadPoint]) -> str:
    """Draw a curve, a column a point; a cell shows what carries the middle of its band of nodes."""
    top = max(point.load + point.unused for point in points)
    if top <= 0:
        return "no node was in use"
    lines = []
    for row in range(HEIGHT, 0, -1):
        nodes = (row - 0.5) * top / HEIGHT
        label = f"{row * top / HEIGHT:.1f}" if row in (HEIGHT, HEIGHT // 2) else ""
        lines.append(f"{label:>{_LABEL}} ┤" + "".join(_cell(point, nodes) for point in points).rstrip())
    half = len(points) // 2
    lines.append(f"{'0':>{_LABEL}} └" + "─" * len(points))
    lines.append(
        " " * (_LABEL + 2) + "busiest hour".ljust(half - 2) + "50 %" + "quietest".rjust(len(points) - half - 2)
    )
    return "\n".join([*lines, LEGEND])


def _cell(point: LoadPoint, nodes: float) -> str:
    """Return the mark for one height of one point: the layers are stacked from the bottom."""
    floor = 0.0
    for mark, part in (
        (OWNED, point.owned),
        (FIRST, point.first_layer),
        (LATER, point.later_layers),
        (ON_DEMAND, point.on_demand),
        (UNUSED, point.unused),
    ):
        floor += part
        if nodes < floor:
            return mark
    return " "
