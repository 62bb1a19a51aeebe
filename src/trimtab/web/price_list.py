"""Prices: what a GPU-hour costs from whom, how it is bought, and how that changed over time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

from starlette.datastructures import QueryParams

from trimtab.catalog import BuyingOption, Catalog, load_catalog
from trimtab.catalog.prices import Price
from trimtab.emit.html.markup import PHONE_WIDTH, WIDTH, Frame, Html, join, level_lines, picture, tag, text, ticks
from trimtab.web.layout import Place, TablePlace, both, page, panel, select, table_html
from trimtab.web.questions import choice, rows_asked, table_question, word
from trimtab.web.tables import CHANGE, MONEY, SMALL_MONEY, DataColumn, DataTable, Row

_FIRST_GPU = "H100-SXM5-80GB"
OPTIONS = tuple(option.value for option in BuyingOption if option is not BuyingOption.OWNED)
_LINES = (
    (BuyingOption.ON_DEMAND, "on demand", "line-0"),
    (BuyingOption.SPOT, "spot", "line-1"),
    (BuyingOption.RESERVED_1Y, "one year", "line-2"),
    (BuyingOption.RESERVED_3Y, "three years", "line-3"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceQuestion:
    """Which rates are wanted; an empty text means all."""

    gpu: str
    provider: str = ""
    option: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class PriceList:
    """The rates that the server was started with, read when they are first asked for."""

    given: Catalog | None = None
    _access: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def catalog(self) -> Catalog:
        """Return the catalog."""
        return self.given or load_catalog()

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """Return the GPUs that somebody sells."""
        types = self.catalog.prices.instance_types
        return tuple(sorted({types[price.key[:2]].gpu for price in self.catalog.prices.prices}))

    @cached_property
    def providers(self) -> tuple[str, ...]:
        """Return who sells them."""
        return tuple(sorted({price.provider for price in self.catalog.prices.prices}))

    def asked(self, query: QueryParams) -> PriceQuestion:
        """Return what a query asks for; raises BadQuestion."""
        with self._access:
            first = _FIRST_GPU if _FIRST_GPU in self.gpus else self.gpus[0]
            return PriceQuestion(
                gpu=choice(query, "gpu", ("", *self.gpus)) or first,
                provider=choice(query, "provider", ("", *self.providers)),
                option=choice(query, "option", ("", *OPTIONS)),
            )

    def rates(self, asked: PriceQuestion) -> Iterator[Price]:
        """Yield every rate there ever was of what is asked for, that can be bought."""
        types = self.catalog.prices.instance_types
        for price in self.catalog.prices.prices:
            named = (price.provider, price.option.value)
            if types[price.key[:2]].gpu != asked.gpu or not price.purchasable:
                continue
            if all(wanted in ("", there) for wanted, there in zip((asked.provider, asked.option), named, strict=True)):
                yield price

    def usd_gpu_hr(self, price: Price) -> float:
        """Return what one GPU costs an hour."""
        return price.usd_hr / self.catalog.prices.instance_types[price.key[:2]].board_count

    def table(self, asked: PriceQuestion) -> DataTable:
        """Return every rate with the days between which it held: those that hold, the cheapest first; then former ones.

        A source that confirms a rate makes no row: what holds is dated by the day on which it was first seen.
        """
        courses: dict[object, list[Price]] = {}
        for price in sorted(self.rates(asked), key=lambda price: price.as_of):
            course = courses.setdefault(price.key, [])
            if not course or course[-1].usd_hr != price.usd_hr:
                course.append(price)
        now: list[Row] = []
        past: list[Row] = []
        for course in courses.values():
            for before, price, after in zip([None, *course], course, [*course[1:], None], strict=False):
                (past if after else now).append(self._row(before, price, after))
        now.sort(key=lambda row: (float(str(row["usd_gpu_hr"])), str(row["provider"])))
        past.sort(key=lambda row: str(row["as_of"]), reverse=True)
        return DataTable(key="prices", title="Prices", columns=PRICE_COLUMNS, rows=[*now, *past])

    def _row(self, before: Price | None, price: Price, after: Price | None) -> Row:
        return {
            "as_of": price.as_of.isoformat(),
            "until": after.as_of.isoformat() if after else None,
            "provider": price.provider,
            "instance_type": price.instance_type,
            "region": price.region,
            "option": price.option.value,
            "usd_gpu_hr": round(self.usd_gpu_hr(price), 4),
            "usd_hr": price.usd_hr,
            "change_frac": None if before is None else round(price.usd_hr / before.usd_hr - 1, 4),
            "basis": price.basis.value,
            "source": price.source,
        }

    def cheapest(self, asked: PriceQuestion, option: BuyingOption) -> list[tuple[date, float]]:
        """Return the cheapest GPU-hour in dollars under one buying option, from each day on which it changed."""
        held: dict[object, float] = {}
        steps: list[tuple[date, float]] = []
        for price in sorted(self.rates(asked), key=lambda price: price.as_of):
            if price.option is not option:
                continue
            held[price.key] = self.usd_gpu_hr(price)
            least = min(held.values())
            if steps and steps[-1][0] == price.as_of:
                steps.pop()
            if not steps or steps[-1][1] != least:
                steps.append((price.as_of, least))
        return steps


PRICE_COLUMNS = (
    DataColumn(key="as_of", title="from", whole=True, less=True),
    DataColumn(key="until", title="until", whole=True, less=True),
    DataColumn(key="provider", title="provider"),
    DataColumn(key="instance_type", title="instance type", less=True),
    DataColumn(key="region", title="region", cut=True),
    DataColumn(key="option", title="option"),
    DataColumn(key="usd_gpu_hr", title="$/GPU-h", format=SMALL_MONEY),
    DataColumn(key="usd_hr", title="$/h", format=MONEY, less=True),
    DataColumn(key="change_frac", title="change", format=CHANGE, less=True),
    DataColumn(key="basis", title="basis", less=True),
    DataColumn(key="source", title="source", less=True),
)
_SHOWN = ("as_of", "until", "provider", "instance_type", "region", "option", "usd_gpu_hr", "usd_hr", "change_frac")


def prices_page(prices: PriceList, query: QueryParams) -> str:
    """Return the page of prices; raises BadQuestion."""
    asked, question = prices.asked(query), table_question(query)
    kept = {key: value for key in ("gpu", "provider", "option", "q") if (value := word(query, key))}
    courses = [
        (words, style, steps)
        for option, words, style in _LINES
        if asked.option in ("", option.value) and (steps := prices.cheapest(asked, option))
    ]
    who = asked.provider or "any provider"
    return page(
        Place(title=f"Prices of {asked.gpu}", section="prices"),
        _form(prices, asked),
        _course_panel(f"Cheapest GPU-hour over time, {who}", courses),
        panel(
            "Rates",
            table_html(
                prices.table(asked).only(*_SHOWN),
                question,
                TablePlace(path="/prices", files="/prices/rates", kept=kept),
                filtered=True,
            ),
            lead="Current rates first, the cheapest on top; former rates below. The files name each source.",
        ),
    )


def _form(prices: PriceList, asked: PriceQuestion) -> Html:
    return panel(
        "Which prices",
        tag(
            "form",
            select("GPU", "gpu", [(gpu, gpu) for gpu in prices.gpus], asked.gpu),
            select("Provider", "provider", [("", "any"), *((name, name) for name in prices.providers)], asked.provider),
            select("Buying option", "option", [("", "any"), *((name, name) for name in OPTIONS)], asked.option),
            tag("button", "Show"),
            action="/prices",
            method="get",
            class_="fit-form",
        ),
    )


_Course = tuple[str, str, Sequence[tuple[date, float]]]


def _course_panel(title: str, courses: Sequence[_Course]) -> Html:
    if not courses:
        return panel(title, tag("p", "No provider in the list sells it that way."))
    keys = (
        tag("li", tag("span", class_=f"key key-{style}"), f"{words}: ${steps[-1][1]:.2f} now")
        for words, style, steps in courses
    )
    pictures = both(_course_picture(courses, WIDTH), _course_picture(courses, PHONE_WIDTH))
    return panel(title, tag("ul", *keys, class_="keys"), pictures)


def _course_picture(courses: Sequence[_Course], width: float) -> Html:
    first = min(steps[0][0] for _, _, steps in courses).toordinal()
    last = max(steps[-1][0] for _, _, steps in courses).toordinal() + 30
    top = max(usd for _, _, steps in courses for _, usd in steps) * 1.08
    frame = Frame(left=56, right=width, upper=8, lower=212, count=last - first, top=top)
    lines = [_line(frame, steps, first, style) for _, style, steps in courses]
    words = "; ".join(f"{words} from ${steps[0][1]:.2f} to ${steps[-1][1]:.2f}" for words, _, steps in courses)
    return picture(
        width,
        240,
        "Cheapest GPU-hour over time",
        f"{words}. The table has every rate.",
        level_lines(frame, {value: f"${value:.2f}" for value in ticks(top)}),
        *lines,
        _quarters(frame, first, last),
        name="prices" if width == WIDTH else "prices-phone",
    )


def _line(frame: Frame, steps: Sequence[tuple[date, float]], first: int, style: str) -> Html:
    begin, usd = steps[0]
    path = f"M{frame.x(begin.toordinal() - first):.1f} {frame.y(usd):.1f}"
    for day, then in steps[1:]:
        path += f"H{frame.x(day.toordinal() - first):.1f}V{frame.y(then):.1f}"
    return tag("path", d=f"{path}H{frame.right:.1f}", class_=style, fill="none")


def _quarters(frame: Frame, first: int, last: int) -> Html:
    """Label the first days of quarters, as many as there is room for."""
    days = [
        date(year, month, 1)
        for year in range(date.fromordinal(first).year, date.fromordinal(last).year + 1)
        for month in (1, 4, 7, 10)
        if first <= date(year, month, 1).toordinal() <= last
    ]
    every = max(1, -(-len(days) * 90 // round(frame.right - frame.left)))
    marks = []
    for day in days[::every]:
        x = frame.x(day.toordinal() - first)
        marks.append(tag("line", x1=x, x2=x, y1=frame.lower, y2=frame.lower + 5, class_="grid"))
        if x < frame.right - 50:
            marks.append(text(x + 3, frame.lower + 18, f"{day:%b %Y}", style="tick"))
    return join(marks)


def rates_file(prices: PriceList, query: QueryParams) -> DataTable:
    """Return the table that a file has; raises BadQuestion."""
    return rows_asked(prices.table(prices.asked(query)), query)
