"""What the sections of the HTML report are built of: sections, tables, lists, keys."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.emit.html.markup import Html, tag


def section(name: str, title: str, lead: str, *body: Html) -> Html:
    """Return a titled part of the page; `name` is unique in it, `lead` may be empty."""
    return tag(
        "section",
        tag("h2", title, id=name),
        tag("p", lead, class_="lead") if lead else Html(),
        *body,
        aria_labelledby=name,
    )


def scroll(*body: Html) -> Html:
    """Return something wide in a frame that scrolls on small screens."""
    return tag("div", *body, class_="scroll")


def more(count: int, what: str) -> Html:
    """Say how many rows are not shown, where there are any."""
    return tag("p", f"{count} more {what} are in the JSON form of this report.", class_="soft") if count > 0 else Html()


def keys(*pairs: tuple[str, str]) -> Html:
    """Return the key of a chart, from pairs of a colour class and its meaning."""
    items = (tag("li", tag("span", class_=f"key {style}"), words) for style, words in pairs)
    return tag("ul", *items, class_="keys")


def bullets(lines: Iterable[str]) -> Html:
    """Return a list, or nothing where there is no line."""
    items = [tag("li", line) for line in lines]
    return tag("ul", *items, class_="plain") if items else Html()


def number(shown: str) -> Html:
    """Return a figure that is never broken over two lines."""
    return tag("span", shown, class_="num")


def table(
    title: str, heads: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, total: tuple[str, ...] | None = None
) -> Html:
    """Return a table; a head that begins with `#` stands over numbers, set flush right."""
    sides = ["num" if head.startswith("#") else None for head in heads]
    head = tag(
        "tr", *(tag("th", name.lstrip("#"), scope="col", class_=side) for name, side in zip(heads, sides, strict=True))
    )
    body = [_table_row(row, sides) for row in rows]
    if total is not None:
        body.append(_table_row(total, sides, style="total"))
    caption = tag("caption", title) if title else Html()
    return tag("table", caption, tag("thead", head), tag("tbody", *body))


def _table_row(row: tuple[str, ...], sides: list[str | None], *, style: str | None = None) -> Html:
    return tag("tr", *(tag("td", cell, class_=side) for cell, side in zip(row, sides, strict=True)), class_=style)
