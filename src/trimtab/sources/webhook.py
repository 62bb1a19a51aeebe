"""Post a message to an address that is itself a secret: a webhook of Slack, Teams or the like.

Whoever knows the address may post. So no part of it beyond the host is in an error or a log, nor in what a server answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import httpx

from trimtab._version import __version__
from trimtab.errors import CredentialsError, SourceError, UsageError
from trimtab.safe_text import for_terminal, without_secrets
from trimtab.sources.http import RETRY_STATUS, WEB_POLICY, Connection, TransientError, retry_after_s

logger = logging.getLogger(__name__)

_NOT_ALLOWED = frozenset({401, 403, 404, 410})
"""What Slack and Teams answer where a webhook was removed, or its channel was."""
_SAID_BYTES = 300
"""Of a refusal, as much as is shown."""


def post_json(url: str, body: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Post JSON text and wait until it is taken.

    What may pass (429, 5xx, no connection) is tried again as `sources.http` has it. A message that was sent and not answered is
    not sent again, because it may be there already. Raises UsageError for what is not an address, CredentialsError and
    SourceError; none of them names more of the address than its host.
    """
    host = _host(url)
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": f"trimtab/{__version__}"}
    connection = Connection(url, example="; write https://HOST/...", headers=headers, sleep=sleep)
    try:
        failure = _tried(connection, host, url, body.encode("utf-8"))
    finally:
        connection.close()
    # raised here, so that no error of the library, which holds the address, is its context
    if failure is not None:
        raise failure


def _tried(connection: Connection, host: str, url: str, body: bytes) -> SourceError | None:
    def again(reason: str) -> None:
        logger.debug("%s: %s; trying again", host, reason)

    try:
        return connection.answer(lambda: _once(connection, host, url, body), WEB_POLICY, again)
    except TransientError as error:
        return SourceError(f"{host} did not take the message: {error}; try again later")


def _once(connection: Connection, host: str, url: str, body: bytes) -> SourceError | None:
    """Send it once; return why it is refused for good, None if it is taken. Raises TransientError for what may pass."""
    try:
        # redirects are not followed: the message would go to whoever the answer names
        with connection.client.stream("POST", url, content=body) as answer:
            status, wait_s = answer.status_code, retry_after_s(answer.headers.get("Retry-After", ""))
            said = _hidden(f"HTTP {status} {_said(answer)}".strip(), url)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise TransientError(_hidden(connection.reason(error), url)) from None
    except httpx.HTTPError as error:
        reason = _hidden(connection.reason(error), url)
        return SourceError(f"{host} did not answer ({reason}): the message may be there; look before you post it again")
    if status in RETRY_STATUS:
        raise TransientError(said, wait_s=wait_s)
    return _verdict(host, status, said)


def _verdict(host: str, status: int, said: str) -> SourceError | None:
    """Return what an answer that stays the same means; None if the message was taken."""
    if httpx.codes.is_success(status):
        return None
    if httpx.codes.is_redirect(status):
        return SourceError(
            f"{host} sends messages on elsewhere ({said}), where this one was not sent; give that address"
        )
    if status in _NOT_ALLOWED:
        return CredentialsError(f"{host} refused the message: {said}; is the address whole, and still in force?")
    return SourceError(f"{host} refused the message: {said}")


def _host(url: str) -> str:
    """Return the host of an address. Raises UsageError, which does not repeat it."""
    host = None
    with suppress(ValueError, httpx.InvalidURL):
        host = httpx.URL(url).host if url.startswith(("http://", "https://")) else None
    if not host or not url.isprintable() or " " in url:
        raise UsageError(
            "what was given to post to is not an address (it is not shown: it is a secret); write https://HOST/..."
        )
    return host


def _said(answer: httpx.Response) -> str:
    """Return the beginning of what a server says."""
    said = next(answer.iter_bytes(_SAID_BYTES), b"")
    return for_terminal(" ".join(said.decode("utf-8", "replace").split()))


def _hidden(text: str, url: str) -> str:
    """Return a text without any part of the address but its host, as given or decoded."""
    parts = urlsplit(url)
    path = [parts.path, *parts.path.split("/"), parts.query, parts.fragment]
    words = [
        url,
        *path,
        *(word for pair in parse_qsl(parts.query) for word in pair),
        parts.username or "",
        parts.password or "",
    ]
    return without_secrets(
        text, [form for word in words if word for form in (word, unquote(word), quote(unquote(word)))]
    )
