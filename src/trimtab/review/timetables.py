"""What a cron expression says: what is wrong with it, and the times of a week at which it fires.

As robfig/cron v3 has it (parser.go, spec.go), with which CronJob, KEDA and Karpenter read them: five fields, days of the week
from Sunday = 0 to 6, no range that runs backwards. An expression of a day that never comes has no next time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trimtab.deployment.effects import TimedReplicas
from trimtab.sources.kubernetes.objects import Object, text
from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, HR_PER_WEEK, S_PER_HR, S_PER_MIN

_MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_DAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}), ("hour", 0, 23, {}), ("day of the month", 1, 31, {}), ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 6, _DAYS),
)  # fmt: skip
_MACROS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_PART = re.compile(r"(?P<first>\*|\?|[0-9a-z]+)(-(?P<last>[0-9a-z]+))?(/(?P<step>[0-9]+))?")
_MIN_PER_HR = S_PER_HR // S_PER_MIN
_NEVER = "never comes"
_WEEKLY = {"@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *"}


@cache
def timetable(text: str) -> str | None:
    """Say what is wrong with a cron expression of five fields, or None.

    >>> timetable("55 23 * * 5"), timetable("60 * * * *")
    (None, 'is not a timetable: the minute 60 is not in 0-59')
    """
    if text in _MACROS or re.fullmatch(r"@every ([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+", text):
        return None
    parts = text.split()
    if len(parts) != len(_FIELDS):
        return f"is not a timetable: {len(parts)} fields, and minute, hour, day, month and weekday are asked for"
    for part, (name, low, high, words) in zip(parts, _FIELDS, strict=True):
        wrong = next((said for item in part.split(",") if (said := _item(item, name, low, high, words))), None)
        if wrong:
            return f"is not a timetable: {wrong}"
    return _impossible_day(parts[2], parts[3])


def _item(item: str, name: str, low: int, high: int, words: dict[str, int]) -> str | None:
    found = _PART.fullmatch(item.lower())
    if found is None:
        return f"the {name} {item!r} is neither a number, a range, a step nor *"
    ends = [found["first"], found["last"] or found["first"]]
    if ends[0] in ("*", "?"):
        ends = [str(low), str(high)]
    values = [words.get(end, int(end) if end.isdigit() else None) for end in ends]
    if any(value is None or not low <= value <= high for value in values):
        return f"the {name} {item} is not in {low}-{high}"
    if (values[0] or 0) > (values[1] or 0):
        return f"the {name} {item} runs backwards"
    return f"the {name} {item} has a step of 0" if found["step"] and not int(found["step"]) else None


def _impossible_day(days: str, months: str) -> str | None:
    """Say that a day never comes, such as 30 February, where both are plain numbers."""
    if not (days.isdigit() and all(month.isdigit() for month in months.split(","))):
        return None
    longest = max(29 if int(month) == 2 else 30 if int(month) in (4, 6, 9, 11) else 31 for month in months.split(","))
    return f"{_NEVER}: day {days} of month {months}" if int(days) > longest else None


def never_comes(text: str) -> bool:
    """Return whether a timetable is of a day that no year has."""
    return _NEVER in (timetable(text) or "")


def minutes_of_week(text: str) -> list[int] | None:
    """Return the minutes of the week (Monday 00:00 is 0) at which a timetable fires; None where not every week is alike.

    >>> minutes_of_week("30 6 * * SUN"), minutes_of_week("@weekly"), len(minutes_of_week("*/20 9-10 * * *"))
    ([9030], [8640], 42)
    >>> minutes_of_week("0 0 1 * *"), minutes_of_week("0 0 * * tue-mon")
    (None, None)
    """
    text = _WEEKLY.get(text, text)
    parts = text.split()
    if timetable(text) is not None or len(parts) != len(_FIELDS) or not {parts[2], parts[3]} <= {"*", "?"}:
        return None
    minutes, hours, days = (_values(parts[place], *_FIELDS[place][1:]) for place in (0, 1, 4))
    # cron counts days from Sunday = 0; the week here starts on Monday
    return sorted(
        (((day - 1) % DAYS_PER_WEEK) * HR_PER_DAY + hour) * _MIN_PER_HR + minute
        for day in days
        for hour in hours
        for minute in minutes
    )


def active_spans(starts: Sequence[int], ends: Sequence[int], week: int) -> list[tuple[int, int]]:
    """Return the spans of a week (first unit, length) in which KEDA's cron trigger is active: those that an end comes after.

    So of two starts in a row the first does not count, and of two ends the second counts (kedacore/keda v2.20.2,
    pkg/scalers/cron_scaler.go, GetMetricsAndActivity: the next start is not before the next end).

    >>> active_spans([8], [18], 24), active_spans([22], [6], 24), active_spans([8, 10], [18, 20], 24)
    ([(8, 10)], [(22, 8)], [(10, 8), (18, 2)])
    """
    turns = sorted({*starts, *ends})
    return [
        (turn, (after - turn) % week or week)
        for turn, after in zip(turns, [*turns[1:], *turns[:1]], strict=True)
        if after in ends
    ]


def timed_replicas(trigger: Object, moment: datetime) -> tuple[TimedReplicas, ...] | str:
    """Return what a cron trigger of KEDA asks for by the week, its clock set as at a moment, or why that is not known.

    What KEDA refuses is after v2.20.2, pkg/scalers/cron_scaler.go (Validate).
    """
    start, end, zone_name, desired = (
        text(trigger, "metadata", key) for key in ("start", "end", "timezone", "desiredReplicas")
    )
    if wrong := next((f"{key} {said}" for key in (start, end) if (said := timetable(key))), ""):
        return f"KEDA refuses it: {wrong}"
    if start == end or not desired.isdigit() or not int(desired):
        return "KEDA refuses it: its start is its end, or it has no desiredReplicas"
    try:
        zone = ZoneInfo(zone_name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"KEDA refuses it: {zone_name!r} is no time zone"
    if text(trigger, "metricType") == "Value":
        return "its target is no average value"
    starts, ends = minutes_of_week(start), minutes_of_week(end)
    if starts is None or ends is None:
        return "its hours are not those of every week"
    week_min = HR_PER_WEEK * _MIN_PER_HR
    ahead_min = round((moment.astimezone(zone).utcoffset() or timedelta()).total_seconds() / S_PER_MIN)
    return tuple(
        TimedReplicas(begin_min=(begin - ahead_min) % week_min, length_min=length, replicas=int(desired))
        for begin, length in active_spans(starts, ends, week_min)
    )


def _values(part: str, low: int, high: int, words: dict[str, int]) -> set[int]:
    """Return the values that a field without a fault names: a step without an end goes on to the highest."""
    found: set[int] = set()
    for item in part.lower().split(","):
        match = _PART.fullmatch(item)
        if match is None:
            raise ValueError(f"{item!r} is not part of a timetable")
        first, last, step = match["first"], match["last"], int(match["step"] or 1)
        if first in ("*", "?"):
            begin, end = low, high
        else:
            begin = words.get(first, int(first) if first.isdigit() else low)
            open_ended = begin if match["step"] is None else high
            end = open_ended if last is None else words.get(last, int(last) if last.isdigit() else high)
        found |= set(range(begin, end + 1, step))
    return found


def moments(text: str) -> list[int] | None:
    """Return the hours of the week (Monday 00:00 is 0) at which a timetable fires; None where it fires at others.

    >>> moments("0 8 * * 0-2"), moments("0 8 * * sun"), moments("30 8 * * *"), moments("0 8 * * 7")
    ([8, 32, 152], [152], None, None)
    """
    minutes = minutes_of_week(text)
    if minutes is None or any(minute % _MIN_PER_HR for minute in minutes):
        return None
    return [minute // _MIN_PER_HR for minute in minutes]
