"""Write HTML and SVG without ever forgetting to escape, and the few shapes that charts are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from trimtab.safe_text import for_terminal

Attribute = str | int | float | None


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


_VOID = frozenset({"meta", "link", "br", "hr", "input", "rect", "line", "path", "circle"})
"""Elements written without an end tag where they have no children."""


def tag(name: str, /, *children: str, **attributes: Attribute) -> Html:
    """Return an element. An attribute that is None is left out; `class_` stands for class, `_` in a name for `-`.

    >>> tag("td", "a < b", class_="num", aria_label="x")
    '<td class="num" aria-label="x">a &lt; b</td>'
    """
    head = "".join([name, *(_attribute(key, value) for key, value in attributes.items() if value is not None)])
    if not children and name in _VOID:
        return Html(f"<{head}/>")
    return Html(f"<{head}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Html:
    """Return children one after the other, escaping those that are not markup: also what lets a text read as another."""
    return Html(
        "".join(child if isinstance(child, Html) else escape(for_terminal(child), quote=False) for child in children)
    )


def number(value: float) -> str:
    """Write a coordinate with at most one digit after the point."""
    shown = f"{value:.1f}".removesuffix(".0")
    return "0" if shown == "-0" else shown


def _attribute(key: str, value: Attribute) -> str:
    text = number(value) if isinstance(value, float) else for_terminal(str(value))
    return f' {key.rstrip("_").replace("_", "-")}="{escape(text)}"'


WIDTH = 960.0
PHONE_WIDTH = 340.0
"""Of the form of a picture that fits a phone: the same figures in fewer and shorter words."""
Series = Sequence[float | None]
"""Values at equal steps; None breaks the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A plotting area inside a picture: `count` equal steps to the right, 0 to `top` upwards."""

    left: float
    right: float
    upper: float
    lower: float
    count: int
    top: float

    def x(self, at: float) -> float:
        """Return the horizontal place of a step's beginning."""
        return self.left + (self.right - self.left) * at / max(self.count, 1)

    def y(self, value: float) -> float:
        """Return the vertical place of a value."""
        return self.lower - (self.lower - self.upper) * value / (self.top or 1.0)


def picture(width: float, height: float, title: str, description: str, *shapes: Html, name: str) -> Html:
    """Return an SVG that a screen reader announces by title and description; `name` is unique in the page."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *shapes,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        class_=f"chart {name}",
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", style: str | None = None) -> Html:
    """Return a line of text."""
    return tag("text", words, x=x, y=y, text_anchor=None if anchor == "start" else anchor, class_=style)


def ticks(top: float, *, about: int = 4) -> list[float]:
    """Return round values from 0 up to `top`, about so many steps.

    >>> ticks(9.0)
    [0.0, 2.5, 5.0, 7.5]
    """
    if not top > 0:
        return [0.0]
    raw = top / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(round_step * power for round_step in (1, 2, 2.5, 5, 10) if round_step * power >= raw * (1 - 1e-9))
    return [step * i for i in range(int(top / step + 1e-9) + 1)]


def step_line(frame: Frame, values: Series, style: str) -> Html:
    """Return values as a staircase, broken where one is missing."""
    parts = []
    for first, run in runs(values):
        moves = "".join(f"V{number(frame.y(v))}H{number(frame.x(first + i + 1))}" for i, v in enumerate(run))
        parts.append(f"M{number(frame.x(first))} {number(frame.y(run[0]))}{moves}")
    return tag("path", d="".join(parts), class_=style, fill="none")


def step_area(frame: Frame, values: Series, style: str) -> Html:
    """Return the area under a staircase."""
    parts = []
    base = number(frame.lower)
    for first, run in runs(values):
        moves = "".join(f"V{number(frame.y(v))}H{number(frame.x(first + i + 1))}" for i, v in enumerate(run))
        parts.append(f"M{number(frame.x(first))} {base}{moves}V{base}Z")
    return tag("path", d="".join(parts), class_=style)


def runs(values: Series) -> Iterator[tuple[int, list[float]]]:
    """Yield the first index and the values of each stretch without a missing one."""
    run: list[float] = []
    for at, value in enumerate([*values, None]):
        if value is not None:
            run.append(value)
        elif run:
            yield at - len(run), run
            run = []


def level_lines(frame: Frame, labels: dict[float, str]) -> Html:
    """Return a thin line and a label at each value."""
    return tag(
        "g",
        *(
            tag("line", x1=frame.left, x2=frame.right, y1=frame.y(value), y2=frame.y(value), class_="grid")
            for value in labels
        ),
        *(
            text(frame.left - 8, frame.y(value) + 4, label, anchor="end", style="tick")
            for value, label in labels.items()
        ),
    )
