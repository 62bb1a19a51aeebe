"""Write HTML and SVG without ever forgetting to escape: text is escaped, `Html` is taken as it is."""

from __future__ import annotations

from collections.abc import Iterable
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
