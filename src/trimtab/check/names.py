"""How Kubernetes spells names, labels, quantities, durations, timetables and time zones: each with what is wrong, or None.

Sources: kubernetes.io, Object Names and IDs; Labels and Selectors; apimachinery pkg/util/validation/validation.go and
pkg/api/resource/quantity.go (v1.34); robfig/cron v3 parser.go, which CronJob and KEDA read timetables with.
"""

from __future__ import annotations

import re
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trimtab.sources.kubernetes.objects import quantity

LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
CRON_JOB_LENGTH = 52
"""A CronJob's Jobs add 11 characters to its name (kubernetes.io, CronJob)."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
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


def dns_label(text: str, length: int = LABEL_LENGTH) -> str | None:
    """Say what is wrong with a DNS-1123 label (lower case, digits, `-`), or None."""
    return _dns(text, _LABEL, length)


def dns_subdomain(text: str, length: int = SUBDOMAIN_LENGTH) -> str | None:
    """Say what is wrong with a DNS-1123 subdomain (labels with dots between them), or None."""
    return _dns(text, _SUBDOMAIN, length)


def _dns(text: str, form: re.Pattern[str], length: int) -> str | None:
    if len(text) > length:
        return f"has {len(text)} characters, and {length} are allowed"
    dots = " and '.'" if form is _SUBDOMAIN else ""
    letters = f"only lower case letters, digits, '-'{dots}, beginning and ending with a letter or digit"
    return None if form.fullmatch(text) else f"is no DNS name: {letters}"


def label_key(text: str) -> str | None:
    """Say what is wrong with the key of a label, annotation or taint, or None.

    >>> label_key("trimtab.dev/action"), label_key("-x")
    (None, 'has a name that is empty, longer than 63 characters or not of letters, digits, -, _ and .')
    """
    prefix, slash, name = text.rpartition("/")
    if slash and (dns_subdomain(prefix) or not prefix):
        return f"has a prefix {prefix!r} that is no DNS name"
    if len(name) > LABEL_LENGTH or not _QUALIFIED.fullmatch(name):
        return f"has a name that is empty, longer than {LABEL_LENGTH} characters or not of letters, digits, -, _ and ."
    return None


def label_value(text: str) -> str | None:
    """Say what is wrong with the value of a label, or None; it may be empty."""
    if len(text) > LABEL_LENGTH:
        return f"has {len(text)} characters, and {LABEL_LENGTH} are allowed"
    if text and not _QUALIFIED.fullmatch(text):
        return "is no label value: letters, digits, -, _ and . only, beginning and ending with a letter or digit"
    return None


def amount(value: object) -> str | None:
    """Say what is wrong with a quantity (`10m`, `16Gi`, `8`), or None."""
    if quantity(value) is None or re.search(r"\s", str(value)):
        return (
            "is no quantity: a number with n, u, m, k, M, G, T, P, E or Ki, Mi, Gi, Ti, Pi, Ei behind it, not below 0"
        )
    return None


@cache
def timetable(text: str) -> str | None:
    """Say what is wrong with a cron expression of five fields, or None.

    >>> timetable("55 23 * * 5"), timetable("60 * * * *")
    (None, 'is no timetable: the minute 60 is not in 0-59')
    """
    if text in _MACROS or re.fullmatch(r"@every ([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+", text):
        return None
    parts = text.split()
    if len(parts) != len(_FIELDS):
        return f"is no timetable: {len(parts)} fields, and minute, hour, day, month and weekday are asked for"
    for part, (name, low, high, words) in zip(parts, _FIELDS, strict=True):
        wrong = next((said for item in part.split(",") if (said := _item(item, name, low, high, words))), None)
        if wrong:
            return f"is no timetable: {wrong}"
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
    return f"never comes: day {days} of month {months}" if int(days) > longest else None


@cache
def time_zone(text: str) -> str | None:
    """Say what is wrong with the name of a time zone of the IANA database, or None."""
    if text in ("", "Local") or re.search(r"^(TZ|CRON_TZ)=|^/|\.\.", text):
        return "names no time zone of the IANA database"
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return "names no time zone of the IANA database"
    return None


def whole_or_percent(value: object, *, most: int = 100) -> str | None:
    """Say what is wrong with a count or a percentage such as `10%`, or None."""
    if isinstance(value, bool):
        return "is neither a whole number nor a percentage"
    if isinstance(value, int):
        return "is below 0" if value < 0 else None
    found = re.fullmatch(r"([0-9]+)%?", str(value))
    if found is None:
        return "is neither a whole number nor a percentage such as 10%"
    return f"is over {most}%" if str(value).endswith("%") and int(found[1]) > most else None
