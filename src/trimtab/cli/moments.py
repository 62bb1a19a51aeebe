"""Moments on the command line: `14d` (that long ago), `now-14d`, ISO dates and times; all in UTC."""

from __future__ import annotations

from datetime import date, datetime

import click

from trimtab.errors import UsageError
from trimtab.units import as_utc, parse_span


def parse_moment(text: str, now: datetime) -> datetime:
    """Return the moment that a text means; raises UsageError with the forms that are understood."""
    plain = text.strip()
    if plain == "now":
        return now
    try:
        return now - parse_span(plain.removeprefix("now-"))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError as error:
        raise UsageError(f"{text!r} is no moment; write 14d, now-14d, 2026-09-01 or 2026-09-01T12:00Z") from error
    return as_utc(moment)


def parse_window(start: str, end: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the window `[start, end)`; a length such as `14d` as start counts back from the end."""
    end_at = parse_moment(end, now)
    start_at = parse_moment(start, end_at if not start.startswith("now") else now)
    if start_at >= end_at:
        raise UsageError(f"--from {start} is not before --to {end}")
    return start_at, end_at


def parse_day(_context: click.Context, _parameter: click.Parameter, value: str | None) -> date | None:
    """Return the day that an option gives (a click callback); raises BadParameter with the form that is understood."""
    try:
        return date.fromisoformat(value) if value else None
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a date; write 2026-07-20") from error
