"""Text of others as it is shown: harmless in a terminal, in a spreadsheet, and without passwords or keys.

Names of workloads, cells of bills and answers of servers go where they can do harm: an escape sequence rewrites a screen or its
clipboard, a bidirectional mark lets a text read as another, a cell that begins with `=` runs in a spreadsheet.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, unquote, urlsplit

HIDDEN = "***"
_LEAST_SECRET = 4
"""A text shorter than this is not a secret that could be found in another text."""
_COLOURS = r"\x1b\[[0-9;]{0,16}m"
_HARMFUL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
"""Control characters but for tab and line break (Unicode's C0, DEL, C1), bidirectional marks and other invisible ones."""
_HARM = re.compile(f"[{_HARMFUL}]")
_HARM_OR_COLOUR = re.compile(f"({_COLOURS})|[{_HARMFUL}]")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\n")
_SECRETS = (
    (re.compile(r"(?<=://)[^/\s?#@]*:[^/\s?#]*@(?=[^\s/])"), f"{HIDDEN}@"),
    (
        re.compile(
            r"(?i)([?&;](?:[\w.-]*(?:token|secret|passw(?:or)?d|signature|credential|api_?-?key)|key|sig|code)=)[^&\s#'\"]+"
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    (
        re.compile(r"(?i)\b((?:x-goog-api-key|x-api-key|authorization)['\"]?\s*[:=]\s*['\"]?)[^\s'\",;]+"),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"), HIDDEN),
)


def for_terminal(text: str, *, colours: bool = False) -> str:
    r"""Return text that a terminal only shows: each harmful character as its escape, `\x1b`; with `colours` those stay."""
    if not colours:
        return _HARM.sub(_escaped, text)
    return _HARM_OR_COLOUR.sub(lambda found: found[1] or _escaped(found), text)


def _escaped(found: re.Match[str]) -> str:
    if found[0] == "\r":
        return ""
    return found[0].encode("unicode_escape").decode("ascii")


def spreadsheet_cell(value: object) -> object:
    """Return a cell that no spreadsheet runs: text that begins like a formula and is not a number gets an apostrophe."""
    if not isinstance(value, str):
        return value
    # csv.writer leaves a lone carriage return unquoted, which a spreadsheet takes for the end of the row
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(_FORMULA_STARTS) and not _is_number(text) else text


def csv_text(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return CSV text whose cells no spreadsheet runs."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in (head, *rows):
        writer.writerow([spreadsheet_cell(cell) for cell in row])
    return stream.getvalue()


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Return text without the passwords of addresses, tokens and keys of known forms, and without the secrets given."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _LEAST_SECRET:
            text = text.replace(secret, HIDDEN)
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def secrets_in(url: str, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets in a server's address and in the headers sent to it."""
    parts = urlsplit(url)
    words = [word for value in headers.values() for word in (value, value.rpartition(" ")[2])]
    password = parts.password or ""
    return tuple(word for word in (*words, password, unquote(password), quote(unquote(password))) if word)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isprintable()
