"""The picture of a profiled run: how active the GPUs were from its start to its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trimtab.emit.html.markup import (
    WIDTH,
    Frame,
    Html,
    Series,
    level_lines,
    number,
    picture,
    step_line,
    tag,
    text,
    ticks,
)

HEIGHT = 240.0
_LEFT, _RIGHT, _UPPER, _BELOW = 48.0, 14.0, 12.0, 34.0
_MARK_ROOM = 40.0
STYLES = ("run-0", "run-1", "run-2", "run-3")
"""Of the lines, in the order of the series; each has a colour of its own in the shared style."""


def activity_chart(series: Mapping[str, Series], step_s: float, *, width: float = WIDTH) -> Html:
    """Draw shares 0..1 at steps of `step_s` from the start of a run, a line each; None breaks a line."""
    count = max((len(values) for values in series.values()), default=0)
    frame = Frame(left=_LEFT, right=width - _RIGHT, upper=_UPPER, lower=HEIGHT - _BELOW, count=count, top=1.0)
    return picture(
        width,
        HEIGHT,
        "Activity of the GPUs over the run",
        f"In {count} steps of {number(step_s)} s: "
        + "; ".join(
            f"{name} {_range(values)}" for name, values in series.items() if any(v is not None for v in values)
        ),
        level_lines(frame, {share / 4: f"{share / 4:.0%}" for share in range(5)}),
        *(step_line(frame, values, style) for values, style in zip(series.values(), STYLES, strict=False)),
        *_time_marks(frame, step_s),
        name=f"run-activity-{number(width)}",
    )


def _range(values: Series) -> str:
    known = [value for value in values if value is not None]
    return f"{min(known):.0%} to {max(known):.0%}"


def _time_marks(frame: Frame, step_s: float) -> Iterator[Html]:
    for at_s in ticks(frame.count * step_s):
        x = frame.x(at_s / step_s)
        yield tag("line", x1=x, x2=x, y1=frame.lower, y2=frame.lower + 5, class_="grid")
        # the last label ends at its mark, so that it stays within the picture
        anchor = "end" if x > frame.right - _MARK_ROOM else "start"
        yield text(x - 3 if anchor == "end" else x + 3, frame.lower + 18, f"{at_s:,g} s", anchor=anchor, style="tick")
