"""How Kubernetes spells names, labels, quantities, durations and time zones: each with what is wrong, or None.

Sources: kubernetes.io, Object Names and IDs; Labels and Selectors; apimachinery pkg/util/validation/validation.go and
pkg/api/resource/quantity.go (v1.34).
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


def dns_label(text: str) -> str | None:
    """Say what is wrong with a DNS-1123 label (lower case, digits, `-`), or None."""
    return _dns(text, _LABEL, LABEL_LENGTH)


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
def time_zone(text: str) -> str | None:
    """Say what is wrong with the name of a time zone of the IANA database, or None."""
    if text in ("", "Local") or re.search(r"^(TZ|CRON_TZ)=|^/|\.\.", text):
        return "names no time zone of the IANA database"
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return "names no time zone of the IANA database"
    return None


def whole_or_percent(value: object) -> str | None:
    """Say what is wrong with a count or a percentage such as `10%`, or None."""
    if isinstance(value, bool):
        return "is neither a whole number nor a percentage"
    if isinstance(value, int):
        return "is below 0" if value < 0 else None
    found = re.fullmatch(r"([0-9]+)%?", str(value))
    if found is None:
        return "is neither a whole number nor a percentage such as 10%"
    return "is over 100%" if str(value).endswith("%") and int(found[1]) > 100 else None
