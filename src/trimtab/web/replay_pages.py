"""The replay hour by hour with zoom, and each GPU of a workload hour by hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trimtab.emit.document import AuditDocument, BillByHour, CapacityPart
from trimtab.emit.html.charts import bill_by_hour, capacity, heat_key, week_map
from trimtab.emit.html.markup import PHONE_WIDTH, Html, tag
from trimtab.emit.money import percent
from trimtab.units import HR_PER_DAY, HR_PER_WEEK
from trimtab.web import tables
from trimtab.web.layout import (
    Place,
    audit_path,
    both,
    file_links,
    page,
    panel,
    renewed_s,
    safe,
    select,
    waiting,
    workload_path,
)
from trimtab.web.tables import DataColumn, DataTable, Row

_LEAST_HOURS = 6
_MOST_SERVICES = 6
"""Services that are drawn beside the bill; the others are chosen from the list."""
_GPUS_SHOWN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownHours:
    """A stretch of the proof window: `hours` hours from hour `first`, within `total`."""

    first: int
    hours: int
    total: int

    @staticmethod
    def within(total: int, first: int | None, hours: int | None) -> ShownHours:
        """Return the stretch that is asked for, as far as it lies within the window; all of it where none is."""
        kept = min(max(hours or total, _LEAST_HOURS), max(total, 1))
        return ShownHours(first=max(0, min(first or 0, total - kept)), hours=kept, total=total)

    def moved(self, by_hours: int) -> ShownHours:
        """Return a stretch of the same length, earlier or later."""
        return ShownHours.within(self.total, self.first + by_hours, self.hours)

    def scaled(self, factor: float) -> ShownHours:
        """Return a stretch about the same middle, `factor` times as long."""
        hours = round(self.hours * factor)
        return ShownHours.within(self.total, round(self.first + (self.hours - hours) / 2), hours)

    @property
    def slice(self) -> slice:
        """Return the hours as an index."""
        return slice(self.first, self.first + self.hours)


def replay(name: str, document: AuditDocument, what: str, first: int | None, hours: int | None) -> str:
    """Return the replay of the proof window: the bill and services' capacity by hour, for the stretch that is asked for."""
    place = Place(title="Hour by hour", audit=name, fleet=document.fleet, section="/replay")
    bill, services = document.pictures.bill_by_hour, document.pictures.capacity
    total = len(bill.before_usd)
    if not total:
        return page(place, panel("The replay", tag("p", "This audit keeps no series by hour.")))
    span = ShownHours.within(total, first, hours)
    known = [part for part in services if part.workload == what]
    drawn = known or services[:_MOST_SERVICES]
    path = f"{audit_path(name)}/replay"
    pictures = [] if known else [_bill_panel(name, bill, span, path)]
    pictures += [_service_panel(name, part, at, span, path, what) for at, part in enumerate(drawn)]
    return page(place, _controls(path, services, what, span, bill.start), *pictures)


def _controls(path: str, services: Sequence[CapacityPart], what: str, span: ShownHours, start: datetime) -> Html:
    choices = (("", "the bill, and the largest services"), *((part.workload, part.workload) for part in services))
    form = tag(
        "form",
        select("Pictures of", "what", choices, what),
        tag("input", type="hidden", name="from", value=str(span.first)),
        tag("input", type="hidden", name="hours", value=str(span.hours)),
        tag("button", "Show"),
        action=path,
        method="get",
        class_="fit-form wide-field",
    )
    begin, end = (start + timedelta(hours=hour) for hour in (span.first, span.first + span.hours))
    steps = (
        ("Zoom in", "zoom-in", span.scaled(0.5)),
        ("Zoom out", "zoom-out", span.scaled(2.0)),
        ("Earlier", "zoom-earlier", span.moved(-span.hours // 2)),
        ("Later", "zoom-later", span.moved(span.hours // 2)),
        ("Whole window", "zoom-whole", ShownHours.within(span.total, None, None)),
    )
    links = [
        tag("a", title, href=_address(path, what, to), id=ident) if to != span else tag("span", title, class_="soft")
        for title, ident, to in steps
    ]
    return panel(
        "What is shown",
        form,
        tag("p", f"{begin:%a %-d %b %Y %H:%M} to {end:%a %-d %b %H:%M} UTC, {span.hours} of {span.total} hours."),
        tag("p", *(tag("span", link, " ") for link in links), class_="zoom-links"),
        lead="The proof window, replayed: as it was, and under the plan. Drag across a picture to zoom in; + and - zoom, "
        "and the arrow keys move, when a picture has the focus.",
    )


def _address(path: str, what: str, span: ShownHours) -> str:
    whole = span.hours == span.total
    return f"{path}?{tables.query(what=what, **({} if whole else {'from': str(span.first), 'hours': str(span.hours)}))}"


def _bill_panel(name: str, bill: BillByHour, span: ShownHours, path: str) -> Html:
    shown = bill.model_copy(
        update={
            "start": bill.start + timedelta(hours=span.first),
            "before_usd": bill.before_usd[span.slice],
            "after_usd": bill.after_usd[span.slice],
        }
    )
    before, after = sum(shown.before_usd), sum(shown.after_usd)
    keys = (("key-before", f"as it was, ${before:,.0f}"), ("key-after", f"under the plan, ${after:,.0f}"))
    return panel(
        "The bill, dollars an hour",
        _keys(keys),
        _zoomed(
            both(bill_by_hour(shown), bill_by_hour(shown, width=PHONE_WIDTH)),
            span,
            path,
            "",
            "The bill by hour",
            "zoom-bill",
        ),
        file_links(f"{audit_path(name)}/tables/hours", {}),
    )


def _service_panel(name: str, part: CapacityPart, at: int, span: ShownHours, path: str, what: str) -> Html:
    shown = part.model_copy(
        update={
            "start": part.start + timedelta(hours=span.first),
            **{key: getattr(part, key)[span.slice] for key in ("demand_gpus", "before_gpus", "after_gpus")},
        }
    )
    keys = (("key-demand", "GPUs that requests needed"), ("key-before", "held"), ("key-after", "held under the plan"))
    pictures = both(capacity(shown, at), capacity(shown, at, width=PHONE_WIDTH))
    return panel(
        safe(part.workload),
        _keys(keys),
        _zoomed(pictures, span, path, what, f"Capacity of {safe(part.workload)} by hour", f"zoom-{at}"),
        file_links(f"{audit_path(name)}/tables/capacity", {"what": part.workload}),
        tag("p", tag("a", "Page of this workload", href=workload_path(name, part.workload)), class_="under"),
    )


def _keys(pairs: Sequence[tuple[str, str]]) -> Html:
    items = (tag("li", tag("span", class_=f"key {style}"), words) for style, words in pairs)
    return tag("ul", *items, class_="keys")


def _zoomed(pictures: Html, span: ShownHours, path: str, what: str, words: str, ident: str) -> Html:
    return tag(
        "div",
        pictures,
        id=ident,
        class_="zoom",
        tabindex="0",
        role="group",
        aria_label=f"{words}: + and - zoom, arrows move",
        data_path=path,
        data_what=what,
        data_first=str(span.first),
        data_hours=str(span.hours),
        data_total=str(span.total),
    )


def capacity_table(part: CapacityPart) -> DataTable:
    """Return a service's demand and capacity by hour."""
    columns = (
        DataColumn(key="hour", title="hour from the start", format=tables.WHOLE),
        DataColumn(key="demand_gpus", title="needed", format=tables.DECIMAL),
        DataColumn(key="before_gpus", title="held", format=tables.DECIMAL),
        DataColumn(key="after_gpus", title="held under the plan", format=tables.DECIMAL),
    )
    series = zip(part.demand_gpus, part.before_gpus, part.after_gpus, strict=True)
    rows = [
        {"hour": hour, "demand_gpus": needed, "before_gpus": held, "after_gpus": planned}
        for hour, (needed, held, planned) in enumerate(series)
    ]
    return DataTable(key="capacity", title="Capacity by hour", columns=columns, rows=rows)


# GPUs of a workload


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHours:
    """Activity of each GPU that a workload held, hour by hour: shares in 0..1, None where it was not held or not measured."""

    start: datetime
    """The first hour, a Monday 00:00 UTC."""
    gpus: tuple[str, ...]
    """Names of the GPUs, with their nodes."""
    activity_frac: tuple[tuple[float | None, ...], ...]
    """One series a GPU, all of whole weeks."""

    @property
    def weeks(self) -> int:
        """Return how many weeks there are."""
        return len(self.activity_frac[0]) // HR_PER_WEEK if self.activity_frac else 0


def gpus(name: str, document: AuditDocument, workload: str, week: int | None, found: object) -> str:
    """Return every GPU that a workload held, hour by hour in one week (from 1; None: the last)."""
    trail = (("The fleet", f"{audit_path(name)}/spend"), (workload, workload_path(name, workload)))
    place = Place(
        title=f"GPUs of {workload}",
        audit=name,
        fleet=document.fleet,
        section="/spend",
        trail=trail,
        renewed_s=renewed_s(found),
    )
    if not isinstance(found, GpuHours):
        return page(place, waiting(found, "The readings are being read"))
    if not found.gpus:
        return page(place, panel("GPUs", tag("p", "No GPU of this workload was measured.")))
    shown = min(max(week or found.weeks, 1), found.weeks)
    hours = slice((shown - 1) * HR_PER_WEEK, shown * HR_PER_WEEK)
    begin = found.start + timedelta(hours=hours.start)
    path = f"{audit_path(name)}/gpus"
    links = [
        tag("a", words, href=f"{path}?{tables.query(name=workload, week=str(other))}")
        for words, other in (("Week before", shown - 1), ("Week after", shown + 1))
        if 1 <= other <= found.weeks
    ]
    ranked = sorted(
        zip(found.gpus, (series[hours] for series in found.activity_frac), strict=True), key=lambda pair: pair[0]
    )
    held = [(gpu, series) for gpu, series in ranked if any(value is not None for value in series)]
    maps = (_gpu(at, gpu, series) for at, (gpu, series) in enumerate(held[:_GPUS_SHOWN]))
    rest = len(held) - _GPUS_SHOWN
    return page(
        place,
        tag("p", f"Week {shown} of {found.weeks}, from {begin:%A %-d %B %Y}, in UTC.", class_="lead"),
        tag("p", *(tag("span", link, " ") for link in links), class_="zoom-links"),
        tag("section", tag("h2", f"{len(held)} GPUs"), tag("div", *maps, class_="gpu-maps"), heat_key())
        if held
        else panel("GPUs", tag("p", "It held none in this week.")),
        tag("p", f"{rest} more are in the files.", class_="soft") if rest > 0 else Html(),
        file_links(f"{audit_path(name)}/tables/gpus", {"name": workload}),
    )


def _gpu(at: int, gpu: str, series: Sequence[float | None]) -> Html:
    known = [value for value in series if value is not None]
    mean = percent(sum(known) / len(known)) if known else "not measured"
    return tag(
        "div",
        tag("h3", safe(gpu), class_="gpu-name"),
        tag("p", f"{mean} active in {len(known)} hours", class_="soft"),
        week_map(safe(gpu), series, name=f"week-map-{at}"),
    )


def gpus_table(found: GpuHours) -> DataTable:
    """Return every reading: GPU, day, hour, activity."""
    columns = (
        DataColumn(key="gpu", title="GPU"),
        DataColumn(key="hour", title="hour, UTC"),
        DataColumn(key="activity_frac", title="active", format=tables.SHARE),
    )
    rows: list[Row] = [
        {"gpu": gpu, "hour": f"{found.start + timedelta(hours=hour):%Y-%m-%dT%H:00Z}", "activity_frac": value}
        for gpu, series in zip(found.gpus, found.activity_frac, strict=True)
        for hour, value in enumerate(series)
        if value is not None
    ]
    return DataTable(key="gpus", title="GPUs by hour", columns=columns, rows=rows)


def monday_of(moment: datetime) -> datetime:
    """Return the Monday 00:00 that begins a moment's week."""
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(hours=day.weekday() * HR_PER_DAY)
