"""Hours of the week as cron: which stretches to hold, from minute to minute, in UTC."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trimtab.units import DAYS_PER_WEEK, HR_PER_DAY, HR_PER_WEEK, S_PER_HR, S_PER_MIN

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSpan:
    """A stretch that repeats: cron expressions (UTC) of its start and its end."""

    start: str
    end: str


def held_stretches(hours_of_week: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return hours of the week (Monday 00:00 is 0) as `[start, end)` stretches; one that passes Sunday midnight stays whole.

    All 168 hours are one stretch of a week. Raises ValueError for an hour outside 0..167.
    """
    held = sorted(set(hours_of_week))
    if held and not 0 <= held[0] <= held[-1] < HR_PER_WEEK:
        raise ValueError(f"hours of the week run from 0 to {HR_PER_WEEK - 1}, got {held[0]}..{held[-1]}")
    stretches: list[list[int]] = []
    for hour in held:
        if stretches and stretches[-1][1] == hour:
            stretches[-1][1] = hour + 1
        else:
            stretches.append([hour, hour + 1])
    if len(stretches) > 1 and stretches[0][0] == 0 and stretches[-1][1] == HR_PER_WEEK:
        first = stretches.pop(0)
        stretches[-1][1] += first[1]
    return tuple((start, end) for start, end in stretches)


def cron_spans(stretches_s: Sequence[tuple[int, int]]) -> tuple[CronSpan, ...]:
    """Return stretches of the week, in seconds from Monday 00:00 UTC, as cron; days with the same times share one."""
    days: dict[tuple[int, int], list[int]] = defaultdict(list)
    for start, end in stretches_s:
        day = start // (HR_PER_DAY * S_PER_HR)
        midnight = day * HR_PER_DAY * S_PER_HR
        days[start - midnight, end - midnight].append(day)
    return tuple(
        CronSpan(start=_cron(start, at), end=_cron(end, at)) for (start, end), at in sorted(days.items(), key=str)
    )


def hours_in_words(stretches: Sequence[tuple[int, int]]) -> str:
    """Return stretches of hours of the week in words, days with the same hours together: `Mon, Tue 08:00-20:00`."""
    days: dict[tuple[int, int], list[int]] = defaultdict(list)
    for start, end in stretches:
        day, hour = divmod(start, HR_PER_DAY)
        days[hour, end - day * HR_PER_DAY].append(day)
    return "; ".join(
        f"{', '.join(_DAYS[day] for day in at)} {start:02d}:00-{_closing(at, end)}"
        for (start, end), at in sorted(days.items(), key=lambda item: (item[1], item[0]))
    )


def _closing(days: Sequence[int], end: int) -> str:
    """Return when a stretch ends; with its day where that is not the one on which it began."""
    later, hour = divmod(end, HR_PER_DAY)
    if later == 0 or (later, hour) == (1, 0):
        return f"{hour or HR_PER_DAY:02d}:00"
    return f"{hour:02d}:00 {f'of {_DAYS[(days[0] + later) % DAYS_PER_WEEK]}' if len(days) == 1 else f'{later} d later'}"


def _cron(second_of_day: int, days: Sequence[int]) -> str:
    day_on, within = divmod(second_of_day, HR_PER_DAY * S_PER_HR)
    hour, rest = divmod(within, S_PER_HR)
    # cron counts days from Sunday = 0; the week here starts on Monday
    on = sorted({(day + day_on + 1) % DAYS_PER_WEEK for day in days})
    return f"{rest // S_PER_MIN} {hour} * * {','.join(map(str, on)) if len(on) < DAYS_PER_WEEK else '*'}"
