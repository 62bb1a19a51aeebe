"""The pictures of reports: waterfall, waste, bill by hour, heat map, capacity, the year ahead, the bill then and now,
a profiled run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from trimtab.emit.document import AuditDocument, BillByHour, CapacityPart, HeatMapPart
from trimtab.emit.document.bill import WastePart
from trimtab.emit.document.plan import ActionPart, RoadmapPart, SchedulePart
from trimtab.emit.html.markup import (
    PHONE_WIDTH,
    WIDTH,
    Frame,
    Html,
    Series,
    join,
    level_lines,
    number,
    picture,
    step_area,
    step_line,
    tag,
    text,
    ticks,
)
from trimtab.emit.money import bill_left, dollars, percent, whole_dollars
from trimtab.emit.words import USEFUL
from trimtab.levers.registry import title_of
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, HR_PER_WEEK, MO_PER_YEAR

_ROW = 30.0
_LABEL = 316.0
_MONEY = 84.0
_LABEL_CHARS = 40
_BRIDGE_LABEL = 220.0
_MOST_STEPS = 14
_DAY_LABELS = 8
_LABEL_STEPS = ((96, HR_PER_DAY), (24, 6), (-1, 1))
"""Pairs: a chart of more hours than the first has marks so many hours apart."""
_HEAT_LEVELS = 10
_YEAR_LOWER = 212.0
_STEPS_PER_MO = 20
_LANE = 18.0
_MONTH_LABEL = 60.0
_PHONE_ROW = 42.0
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def waterfall(document: AuditDocument) -> Html:
    """Draw how the actions take today's bill down to the plan's, one step each, with their 80 % intervals."""
    plan = document.plan
    steps, after = _steps(plan.actions), plan.shown_bill_usd_mo()
    height = _ROW * (len(steps) + 2) + 8
    frame = Frame(left=_LABEL, right=WIDTH - _MONEY, upper=0, lower=height, count=1, top=1)
    scale = (frame.right - frame.left) / (plan.before_usd_mo or 1.0)
    rows = [_whole_bar(0, "Today", plan.before_usd_mo, scale, "bar-before")]
    left = plan.before_usd_mo
    for at, (label, full, saving, low, high) in enumerate(steps, 1):
        rows.append(_step_bar(at, label, full, left, saving, (low, high), scale))
        left -= saving
    rows.append(_whole_bar(len(steps) + 1, "With the plan", after, scale, "bar-after"))
    return picture(
        WIDTH,
        height,
        "How the plan takes the bill down",
        f"From {dollars(plan.before_usd_mo)} a month to {dollars(after)} in {len(steps)} steps; "
        "the table of the plan has the same figures.",
        *rows,
        name="waterfall",
    )


_Step = tuple[str, str, float, float, float]
"""Short label, full label, saving, low, high."""


def _steps(actions: Sequence[ActionPart]) -> list[_Step]:
    shown = whole_dollars([action.saving_usd_mo for action in actions])
    kept = actions if len(actions) <= _MOST_STEPS else actions[: _MOST_STEPS - 1]
    steps: list[_Step] = [
        (
            _short(f"{action.id} {title_of(action.lever)}: {action.subject}"),
            f"{action.id} {action.subject}: {action.effect}",
            saving_usd_mo,
            action.saving_low_usd_mo,
            action.saving_high_usd_mo,
        )
        for action, saving_usd_mo in zip(kept, shown, strict=False)
    ]
    rest = actions[len(kept) :]
    if rest:
        saving = sum(shown[len(kept) :])
        steps.append((f"{len(rest)} more", f"{len(rest)} more actions", saving, saving, saving))
    return steps


def _short(label: str) -> str:
    return label if len(label) <= _LABEL_CHARS else f"{label[: _LABEL_CHARS - 1]}…"


def _whole_bar(at: int, label: str, usd_mo: float, scale: float, style: str) -> Html:
    y = _ROW * at + 4
    return tag(
        "g",
        text(_LABEL - 12, y + 19, label, anchor="end", style="strong"),
        tag("rect", x=_LABEL, y=y + 3, width=max(usd_mo * scale, 0.0), height=_ROW - 8, rx=2, class_=style),
        text(WIDTH, y + 19, dollars(usd_mo), anchor="end", style="strong"),
    )


def _step_bar(
    at: int, label: str, full: str, left: float, saving: float, interval: tuple[float, float], scale: float
) -> Html:
    y = _ROW * at + 4
    end = _LABEL + (left - max(saving, 0.0)) * scale
    low, high = (_LABEL + (left - edge) * scale for edge in interval)
    middle = y + _ROW / 2 - 1
    return tag(
        "g",
        tag("title", f"{full}. Saves {dollars(saving)} a month ({dollars(interval[0])} to {dollars(interval[1])})."),
        text(_LABEL - 12, y + 19, label, anchor="end", style="label"),
        tag("line", x1=_LABEL + left * scale, x2=_LABEL + left * scale, y1=y - 5, y2=y + 3, class_="link"),
        tag("rect", x=end, y=y + 3, width=max(abs(saving) * scale, 1.0), height=_ROW - 8, rx=2, class_="bar-saving"),
        tag("line", x1=high, x2=low, y1=middle, y2=middle, class_="whisker") if low - high > 1 else Html(),
        text(WIDTH, y + 19, dollars(-saving), anchor="end", style="label"),
    )


def phone_waterfall(document: AuditDocument) -> Html:
    """Draw the waterfall for a phone: each step's words and amount stand above its bar."""
    plan = document.plan
    steps, after = _steps(plan.actions), plan.shown_bill_usd_mo()
    scale = PHONE_WIDTH / (plan.before_usd_mo or 1.0)
    rows = [_phone_step(0, "Today", dollars(plan.before_usd_mo), 0.0, plan.before_usd_mo * scale, "bar-before")]
    left = plan.before_usd_mo
    for at, (label, _, saving, _, _) in enumerate(steps, 1):
        rows.append(_phone_step(at, label, dollars(-saving), (left - saving) * scale, saving * scale, "bar-saving"))
        left -= saving
    rows.append(_phone_step(len(steps) + 1, "With the plan", dollars(after), 0.0, after * scale, "bar-after"))
    return picture(
        PHONE_WIDTH,
        _PHONE_ROW * len(rows),
        "How the plan takes the bill down",
        f"From {dollars(plan.before_usd_mo)} a month to {dollars(after)} in {len(steps)} steps.",
        *rows,
        name="waterfall-phone",
    )


def _phone_step(at: int, label: str, amount: str, x: float, width: float, style: str) -> Html:
    y = _PHONE_ROW * at
    return tag(
        "g",
        text(0, y + 13, label, style="label"),
        text(PHONE_WIDTH, y + 13, amount, anchor="end", style="strong"),
        tag("rect", x=x, y=y + 19, width=max(abs(width), 1.0), height=12, rx=2, class_=style),
    )


def waste_bar(waste: Sequence[WastePart], *, width: float = WIDTH) -> Html:
    """Draw the bill as one bar, cut into what it buys: kinds of waste, most expensive first, then useful work."""
    x = 0.0
    cuts = []
    for at, row in enumerate(row for row in waste if row.usd_mo > 0):
        wide = row.share_frac * width
        label = percent(row.share_frac) if wide > 40 else ""
        cuts.append(
            tag(
                "g",
                tag("title", f"{row.kind}: {dollars(row.usd_mo)} a month, {percent(row.share_frac)}"),
                tag("rect", x=x, y=0, width=max(wide - 1.5, 0.5), height=34, class_=waste_style(row, at)),
                text(x + wide / 2, 22, label, anchor="middle", style="on-bar"),
            )
        )
        x += wide
    lost = sum(row.share_frac for row in waste if row.kind != USEFUL)
    return picture(
        width,
        34,
        "What the bill buys",
        f"{percent(lost)} of the bill is not useful work; the table below has the same figures.",
        *cuts,
        name=_named("waste-bar", width),
    )


def waste_style(row: WastePart, at: int) -> str:
    """Return the colour class of a kind of waste, the most expensive darkest."""
    return "w-useful" if row.kind == USEFUL else f"w-{min(at, 7)}"


def _named(name: str, width: float) -> str:
    """Return what a picture is called in its page, where both of its forms stand."""
    return name if width == WIDTH else f"{name}-phone"


def bill_by_hour(bill: BillByHour, *, width: float = WIDTH) -> Html:
    """Draw the proof window's bill hour by hour, as it was and under the plan."""
    top = max([*bill.before_usd, *bill.after_usd, 1e-9]) * 1.06
    frame = Frame(left=56, right=width, upper=8, lower=212, count=len(bill.before_usd), top=top)
    labels = {value: _rate(value) for value in ticks(top)}
    days = _days(frame, bill.start, {"before": bill.before_usd, "with the plan": bill.after_usd}, "${:,.0f}")
    return picture(
        width,
        240,
        "Bill by hour, before and after",
        f"Dollars an hour over {len(bill.before_usd)} hours of the proof window.",
        level_lines(frame, labels),
        step_area(frame, bill.after_usd, "area-after"),
        step_line(frame, bill.before_usd, "line-before"),
        step_line(frame, bill.after_usd, "line-after"),
        days,
        name=_named("bill-by-hour", width),
    )


def _rate(usd_hr: float) -> str:
    return f"${usd_hr:,.0f}/h" if usd_hr >= 10 or usd_hr == 0 else f"${usd_hr:.2f}/h"


def capacity(part: CapacityPart, at: int, *, width: float = WIDTH) -> Html:
    """Draw one service's demand against what was held and what the plan holds."""
    known = [value for values in (part.demand_gpus, part.before_gpus, part.after_gpus) for value in values if value]
    top = max([*known, 1.0]) * 1.08
    frame = Frame(left=56, right=width, upper=8, lower=152, count=len(part.demand_gpus), top=top)
    series = {"demand": part.demand_gpus, "held before": part.before_gpus, "held with the plan": part.after_gpus}
    return picture(
        width,
        180,
        f"Demand against capacity: {part.workload}",
        "GPUs needed by requests, GPUs held, and GPUs that the plan holds, by hour of the proof window.",
        level_lines(frame, {value: f"{value:g} GPUs" for value in ticks(top, about=3)}),
        step_area(frame, part.demand_gpus, "area-demand"),
        step_line(frame, part.before_gpus, "line-before"),
        step_line(frame, part.after_gpus, "line-after"),
        _days(frame, part.start, series, "{:.1f} GPUs", mean=True),
        name=_named(f"capacity-{at}", width),
    )


LOAD_LAYERS = (
    ("load-held", "held already"),
    ("load-first", "bought at once"),
    ("load-later", "bought later"),
    ("load-demand", "on demand"),
    ("load-unused", "paid, not used"),
)
"""Pairs of a style and what it stands for, stacked from the bottom."""


def load_curve(name: str, at: int, layers: Sequence[Sequence[float]], *, width: float = WIDTH) -> Html:
    """Draw the nodes in use over the hours, the busiest first: a series for each of `LOAD_LAYERS`, stacked."""
    stacked = [[sum(parts) for parts in zip(*layers[: count + 1], strict=True)] for count in range(len(layers))]
    frame = Frame(left=56, right=width, upper=8, lower=152, count=len(layers[0]), top=max([*stacked[-1], 1.0]) * 1.08)
    areas = [step_area(frame, sums, style) for (style, _), sums in zip(LOAD_LAYERS, stacked, strict=True)]
    shares = ((0.0, "busiest hour", "start"), (0.5, "half of the hours", "middle"), (1.0, "quietest", "end"))
    return picture(
        width,
        180,
        f"Nodes in use, busiest hour first: {name}",
        "Nodes by share of the hours, from the bottom: held already, bought at once and later, on demand, paid and not used.",
        *reversed(areas),
        level_lines(frame, {value: f"{value:g}" for value in ticks(frame.top, about=3)}),
        *(
            text(frame.x(0) + (frame.right - frame.left) * x, 172, words, anchor=a, style="tick")
            for x, words, a in shares
        ),
        name=_named(f"load-{at}", width),
    )


def _days(frame: Frame, start: datetime, series: Mapping[str, Series], unit: str, *, mean: bool = False) -> Html:
    """Label days under a chart (hours, where it shows few), and tell each stretch's sums (or means) on hover."""
    parts = []
    step = next(hours for least, hours in _LABEL_STEPS if frame.count > least)
    stretches = -(-frame.count // step)
    labels = max(1, round(_DAY_LABELS * (frame.right - frame.left) / (WIDTH - frame.left)))
    every = max(1, -(-stretches // labels))
    for at in range(stretches):
        hours = slice(at * step, (at + 1) * step)
        x, width = frame.x(hours.start), frame.x(min(hours.stop, frame.count)) - frame.x(hours.start)
        moment = start + timedelta(hours=hours.start)
        when = f"{moment:%a %d %b}" if step == HR_PER_DAY else f"{moment:%a %H:%M}"
        figures = ", ".join(f"{name} {_told(values[hours], unit, mean)}" for name, values in series.items())
        height = frame.lower - frame.upper
        parts.append(
            tag(
                "rect",
                tag("title", f"{when}: {figures}"),
                x=x,
                y=frame.upper,
                width=width,
                height=height,
                class_="hover",
            )
        )
        if at % every == 0:
            parts.append(tag("line", x1=x, x2=x, y1=frame.lower, y2=frame.lower + 5, class_="grid"))
            parts.append(text(x + 3, frame.lower + 18, when, style="tick"))
    return join(parts)


def _told(values: Series, unit: str, mean: bool) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "not measured"
    return unit.format(sum(known) / len(known) if mean else sum(known))


def heat_map(part: HeatMapPart) -> Html:
    """Draw mean activity by row and hour of the week: the darker, the busier; crossed where nothing was held."""
    label, row_height = 190.0, 22.0
    cell = (WIDTH - label) / HR_PER_WEEK
    rows = []
    for at, (name, values) in enumerate(zip(part.rows, part.activity_frac, strict=True)):
        y = at * row_height
        rows.append(text(label - 10, y + 15, _short_tail(name), anchor="end", style="label"))
        rows += [_heat_cell(label + hour * cell, y, cell, row_height - 3, hour, v) for hour, v in enumerate(values)]
    height = len(part.rows) * row_height
    names = [
        text(label + day * HR_PER_DAY * cell + 3, height + 16, name, style="tick") for day, name in enumerate(_DAYS)
    ]
    marks = [
        tag("line", x1=x, x2=x, y1=0, y2=height + 18, class_="day-edge")
        for x in (label + day * HR_PER_DAY * cell for day in range(1, DAYS_PER_WEEK))
    ]
    return picture(
        WIDTH,
        height + 22,
        "Utilization through the week",
        "Mean activity of the GPUs held, by hour of the week in UTC; darker is busier.",
        *rows,
        *marks,
        *names,
        name="heat-map",
    )


def _heat_cell(x: float, y: float, width: float, height: float, hour: int, value: float | None) -> Html:
    when = f"{_DAYS[hour // HR_PER_DAY]} {hour % HR_PER_DAY:02d}:00"
    level = _heat_level(value)
    title = tag("title", f"{when} {'not held or not measured' if value is None else percent(value)}")
    return Html(
        f'<rect class="h-{level}" x="{x:.2f}" y="{y:.1f}" width="{width + 0.05:.2f}" height="{height:.1f}">{title}</rect>'
    )


def _short_tail(name: str) -> str:
    return name if len(name) <= 26 else f"…{name[-25:]}"


def phone_heat_map(part: HeatMapPart) -> Html:
    """Draw the heat map for a phone: each row's name above it, hours of one shade as one stretch."""
    cell, row_height = PHONE_WIDTH / HR_PER_WEEK, 30.0
    rows = []
    for at, (name, values) in enumerate(zip(part.rows, part.activity_frac, strict=True)):
        y = at * row_height
        rows.append(text(0, y + 11, _short_tail(name), style="label"))
        rows += _stretches(values, y + 15, cell, 10.0)
    height = len(part.rows) * row_height
    names = [text(day * HR_PER_DAY * cell, height + 12, name, style="tick") for day, name in enumerate(_DAYS)]
    return picture(
        PHONE_WIDTH,
        height + 18,
        "Utilization through the week",
        "Mean activity of the GPUs held, by hour of the week in UTC; darker is busier.",
        *rows,
        *names,
        name="heat-map-phone",
    )


def _stretches(values: Series, y: float, cell: float, height: float) -> Iterator[Html]:
    """Yield a row of a heat map, a rectangle for each run of hours of one shade."""
    for level, hours in groupby(range(len(values)), key=lambda hour: _heat_level(values[hour])):
        run = list(hours)
        x, width = run[0] * cell, len(run) * cell
        yield Html(f'<rect class="h-{level}" x="{x:.1f}" y="{y:.1f}" width="{width + 0.1:.1f}" height="{height:.0f}"/>')


def _heat_level(value: float | None) -> str:
    return "none" if value is None else str(min(_HEAT_LEVELS, round(value * _HEAT_LEVELS)))


def week_map(what: str, values: Series, *, name: str = "week-map") -> Html:
    """Draw one week of a workload or GPU, a row per day and a column an hour: darker is busier; small enough for a phone."""
    left, row_height = 36.0, 20.0
    cell = (PHONE_WIDTH - left) / HR_PER_DAY
    rows = []
    for day, label in enumerate(_DAYS):
        y = day * row_height
        rows.append(text(0, y + 14, label, style="tick"))
        rows += [
            _heat_cell(left + hour * cell, y, cell, row_height - 3, day * HR_PER_DAY + hour, value)
            for hour, value in enumerate(values[day * HR_PER_DAY : (day + 1) * HR_PER_DAY])
        ]
    height = DAYS_PER_WEEK * row_height
    hours = [text(left + hour * cell, height + 12, f"{hour:02d}", style="tick") for hour in range(0, HR_PER_DAY, 6)]
    return picture(
        PHONE_WIDTH,
        height + 18,
        f"The week of {what}",
        "Mean activity of the GPUs held, by hour of the week in UTC; darker is busier.",
        *rows,
        *hours,
        name=name,
    )


def heat_key() -> Html:
    """Draw the key of the heat map."""
    start, width = 34.0, 16.0
    levels = range(_HEAT_LEVELS + 1)
    cells = [tag("rect", x=start + level * width, y=0, width=width, height=12, class_=f"h-{level}") for level in levels]
    end = start + len(levels) * width
    return picture(
        480,
        14,
        "Key",
        "From idle to fully busy; paler than idle where nothing was held or measured.",
        text(0, 10, "idle", style="tick"),
        *cells,
        text(end + 8, 10, "fully busy", style="tick"),
        tag("rect", x=end + 100, y=0, width=width, height=12, class_="h-none"),
        text(end + 124, 10, "not held or not measured", style="tick"),
        name="heat-key",
    )


def year_picture(found: RoadmapPart, actions: Sequence[ActionPart], *, width: float = WIDTH) -> Html:
    """Draw the monthly bill through the year in both orders, and under it when each action is worked on."""
    steps = [step for step in found.course.steps if step.start_mo < MO_PER_YEAR]
    top = max(*found.course.bill_usd_mo, *found.fixed.bill_usd_mo, 1e-9) * 1.06
    frame = Frame(left=70, right=width, upper=8, lower=_YEAR_LOWER, count=MO_PER_YEAR * _STEPS_PER_MO, top=top)
    mine, fixed = _curve(found.course), _curve(found.fixed)
    words = {action.id: f"{action.subject}: {action.effect}" for action in actions}
    today_usd_mo = found.course.bill_usd_mo[0]
    first_lane = _YEAR_LOWER + 30
    bars = []
    for lane, step in enumerate(steps):
        left, right = (frame.x(min(month, MO_PER_YEAR) * _STEPS_PER_MO) for month in (step.start_mo, step.done_mo))
        y = first_lane + lane * _LANE
        then = dollars(bill_left(today_usd_mo, step.bill_usd_mo))
        title = f"{step.action} {words.get(step.action, '')}. From then on {then} a month."
        bars.append(
            tag(
                "g",
                tag("title", title),
                tag("rect", x=left, y=y, width=max(right - left, 3.0), height=_LANE - 6, rx=2, class_="bar-saving"),
                text(56, y + 10, f"{step.action}{' ★' if step.quick_win else ''}", anchor="end", style="tick"),
            )
        )
    return picture(
        width,
        first_lane + len(steps) * _LANE,
        "The bill through the year",
        f"From {dollars(today_usd_mo)} a month to {dollars(bill_left(today_usd_mo, found.year_end_bill_usd_mo))} after twelve "
        "months; "
        "below, when each action is worked on. A star marks a quick win.",
        level_lines(frame, {value: dollars(value) for value in ticks(top)}),
        step_area(frame, mine, "area-after"),
        step_line(frame, fixed, "line-before"),
        step_line(frame, mine, "line-after"),
        _month_marks(frame),
        *bars,
        name=_named("year", width),
    )


def _curve(course: SchedulePart) -> list[float]:
    """Return the bill at equal steps through the year."""
    ends = sorted((step.done_mo, step.bill_usd_mo) for step in course.steps)
    values = []
    for at in range(MO_PER_YEAR * _STEPS_PER_MO):
        done = [bill for end, bill in ends if end <= at / _STEPS_PER_MO]
        values.append(done[-1] if done else course.bill_usd_mo[0])
    return values


def _month_marks(frame: Frame) -> Html:
    marks = []
    every = 1 if frame.right - frame.left > MO_PER_YEAR * _MONTH_LABEL else 4
    for month in range(MO_PER_YEAR):
        x = frame.x(month * _STEPS_PER_MO)
        marks.append(tag("line", x1=x, x2=x, y1=frame.lower, y2=frame.lower + 5, class_="grid"))
        if month % every == 0:
            marks.append(text(x + 3, frame.lower + 18, f"month {month + 1}", style="tick"))
    return join(marks)


def bill_bridge(then_usd_mo: float, steps: Sequence[tuple[str, float]], now_usd_mo: float) -> Html:
    """Draw the bill then, what each step added or took, and the bill now."""
    levels = [then_usd_mo, *(then_usd_mo + sum(amount for _, amount in steps[: at + 1]) for at in range(len(steps)))]
    scale = (WIDTH - _BRIDGE_LABEL - _MONEY) / (max(*levels, now_usd_mo) or 1.0)
    bars = [_bridge_bar(0, "Then", (0.0, then_usd_mo), scale, "bar-before", dollars(then_usd_mo))]
    for at, (name, amount) in enumerate(steps, 1):
        style = "bar-saving" if amount <= 0 else "bar-before"
        sign = "+" if amount > 0 else ""
        bars.append(_bridge_bar(at, name, (levels[at - 1], levels[at]), scale, style, f"{sign}{dollars(amount)}"))
    bars.append(_bridge_bar(len(steps) + 1, "Now", (0.0, now_usd_mo), scale, "bar-after", dollars(now_usd_mo)))
    words = "; ".join(f"{name} {dollars(amount)}" for name, amount in steps)
    return picture(WIDTH, _ROW * len(bars) + 4, "The bill then and now", f"{words}.", *bars, name="bridge-picture")


def phone_bridge(then_usd_mo: float, steps: Sequence[tuple[str, float]], now_usd_mo: float) -> Html:
    """Draw the same for a phone: each step's words and amount stand above its bar."""
    levels = [then_usd_mo, *(then_usd_mo + sum(amount for _, amount in steps[: at + 1]) for at in range(len(steps)))]
    scale = PHONE_WIDTH / (max(*levels, now_usd_mo) or 1.0)
    rows = [_phone_step(0, "Then", dollars(then_usd_mo), 0.0, then_usd_mo * scale, "bar-before")]
    for at, (name, amount) in enumerate(steps, 1):
        style, sign = ("bar-saving", "") if amount <= 0 else ("bar-before", "+")
        low_usd_mo = min(levels[at - 1], levels[at])
        rows.append(_phone_step(at, name, f"{sign}{dollars(amount)}", low_usd_mo * scale, abs(amount) * scale, style))
    rows.append(_phone_step(len(steps) + 1, "Now", dollars(now_usd_mo), 0.0, now_usd_mo * scale, "bar-after"))
    words = "; ".join(f"{name} {dollars(amount)}" for name, amount in steps)
    return picture(
        PHONE_WIDTH, _PHONE_ROW * len(rows), "The bill then and now", f"{words}.", *rows, name="bridge-phone"
    )


def _bridge_bar(at: int, label: str, ends: tuple[float, float], scale: float, style: str, shown: str) -> Html:
    y = _ROW * at + 4
    low, high = sorted(ends)
    wide = max((high - low) * scale, 1.0)
    return tag(
        "g",
        text(_BRIDGE_LABEL - 12, y + 19, label, anchor="end", style="label"),
        tag("rect", x=_BRIDGE_LABEL + low * scale, y=y + 3, width=wide, height=_ROW - 8, rx=2, class_=style),
        text(WIDTH, y + 19, shown, anchor="end", style="label"),
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
