"""HTTP to what is read: who we are to a server, which failures are tried again and how, addresses of the web."""

from __future__ import annotations

import base64
import logging
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from trimtab.errors import CredentialsError, SourceError, UsageError
from trimtab.safe_text import secrets_in, without_secrets
from trimtab.units import BYTES_PER_MIB

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_STATUS = frozenset({429, 500, 502, 503, 504})
"""What a server answers that may answer later."""
_MOST_WAIT_S = 60.0
_TIMEOUT_S = 60.0
_MOST_REDIRECTS = 10
_MOST_BODY_MIB = 512
"""Of an answer that is read whole, unpacked; a page of a price list has 5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach a server: who we are, which tenant, which certificates we trust."""

    bearer: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tenant: str | None = None
    """Sent as X-Scope-OrgID, as Mimir and Thanos' receivers expect it."""
    ca_file: Path | None = None
    insecure: bool = False

    def request_headers(self) -> dict[str, str]:
        """Return the headers that carry the access. Raises UsageError if two kinds contradict."""
        headers = dict(self.headers)
        if self.bearer is not None and self.user is not None:
            raise UsageError("give either a bearer token or a user and password, not both")
        if self.bearer is not None:
            headers["Authorization"] = f"Bearer {self.bearer}"
        if self.user is not None:
            pair = base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode("ascii")
            headers["Authorization"] = f"Basic {pair}"
        if self.tenant is not None:
            headers["X-Scope-OrgID"] = self.tenant
        for name, value in headers.items():
            if not value.isprintable() or not value.isascii():
                raise UsageError(
                    f"the header {name} would hold a line break or another character that no header may hold; "
                    "is the token cut from a file with more lines? give it alone"
                )
        return headers

    def trust(self) -> bool | ssl.SSLContext:
        """Return what httpx is to check certificates against. Raises UsageError if the file is missing."""
        if self.insecure:
            return False
        if self.ca_file is not None:
            if not self.ca_file.is_file():
                raise UsageError(f"--ca-file {self.ca_file}: no such file")
            return ssl.create_default_context(cafile=str(self.ca_file))
        return True


class TransientError(Exception):
    """A request failed in a way that may pass; says how. `wait_s` is the time that the server asked us to wait, if any."""

    def __init__(self, reason: str, *, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and when to ask again: after each wait, or after the time that the server names where that is longer.

    By hand: a retrying transport of httpx would not serve the Kubernetes client, and would not ask again for a body that breaks
    off while it is read.
    """

    waits_s: tuple[float, ...]

    @property
    def tries(self) -> int:
        """Return how often a question is asked at most."""
        return len(self.waits_s) + 1

    def answer(
        self,
        ask: Callable[[], T],
        *,
        sleep: Callable[[float], None],
        report: Callable[[str], None] = lambda reason: None,
    ) -> T:
        """Ask until there is an answer; `report` gets the reason for each retry. Raises the last TransientError."""
        for wait_s in self.waits_s:
            try:
                return ask()
            except TransientError as error:
                report(str(error))
                sleep(min(max(wait_s, error.wait_s or 0.0), _MOST_WAIT_S))
        return ask()


def retry_after_s(value: str) -> float | None:
    """Return the seconds that a Retry-After header asks to wait; None if it names none, or a date."""
    return float(value) if value.isdecimal() else None


class Connection:
    """A client of one address, with what may be shown of it; `sleep` and `transport` are there for tests."""

    def __init__(
        self,
        url: str,
        *,
        example: str,
        headers: Mapping[str, str],
        timeout: float | httpx.Timeout = _TIMEOUT_S,
        verify: bool | ssl.SSLContext = True,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None],
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url!r} is not an address{example}")
        self.address = url.rstrip("/")
        self.url = without_secrets(self.address)
        """The server's address as it is shown: without a password."""
        self.client = httpx.Client(headers=dict(headers), timeout=timeout, verify=verify, transport=transport)
        self._own_headers = tuple(headers)
        self._secrets = secrets_in(url, headers)
        self._sleep = sleep

    def close(self) -> None:
        """Close the client."""
        self.client.close()

    def shown(self, text: str) -> str:
        """Return a text as it may be shown: without passwords, keys and tokens."""
        return without_secrets(text, self._secrets)

    def reason(self, error: Exception) -> str:
        """Return an error's message, safe to show, or its type if the message is empty."""
        return self.shown(str(error)) or type(error).__name__

    def answer(self, ask: Callable[[], T], policy: RetryPolicy, report: Callable[[str], None]) -> T:
        """Ask until there is an answer. Raises the last TransientError."""
        return policy.answer(ask, sleep=self._sleep, report=report)

    def send(self, request: httpx.Request) -> httpx.Response:
        """Send a request and follow where it is sent on; to another origin go none of our own headers, for they hold keys."""
        for _ in range(_MOST_REDIRECTS):
            answer = self.client.send(request, stream=True)
            following = answer.next_request
            if following is None:
                return answer
            answer.close()
            if _origin(following.url) != _origin(request.url):
                for name in (*self._own_headers, "Authorization", "Cookie"):
                    following.headers.pop(name, None)
            request = following
        raise httpx.TooManyRedirects(f"sent on more than {_MOST_REDIRECTS} times")


WEB_POLICY = RetryPolicy(waits_s=(0.5, 2.0, 8.0))


class WebServer:
    """One address that is read from. Use as a context manager; `sleep` is there for tests."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = Connection(url, example="; write https://HOST", headers=headers or {}, sleep=sleep)
        self.url = self._connection.url
        self.throttled = 0
        """Answers that said we ask too often."""

    def __enter__(self) -> WebServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str, parameters: Mapping[str, str] | None = None) -> bytes:
        """Return the body of an answer. Raises SourceError, CredentialsError if it is refused."""
        return self._body(self._request("GET", path, params=parameters or None), path)

    def post(self, path: str, content: Mapping[str, object]) -> bytes:
        """Return the body of the answer to a question in JSON; raises as `get` does."""
        return self._body(self._request("POST", path, json=dict(content)), path)

    @contextmanager
    def lines(self, path: str) -> Iterator[Iterator[str]]:
        """Give the lines of an answer as they come: a list may be hundreds of megabytes."""
        answer = self._tried(self._request("GET", path), path)
        try:
            yield self._lines(answer, path)
        finally:
            answer.close()

    def path_of(self, link: str) -> str:
        """Return the path of a link that the server gave, so that a replaced address stays in force.

        Raises SourceError for a link without a path of its own: set behind the address, it could make another host of it.
        """
        try:
            parts = urlsplit(link)
        except ValueError as error:
            raise SourceError(f"{self.url}: sent a link that is none ({error})") from error
        if not parts.path.startswith("/"):
            raise SourceError(f"{self.url}: sent a link without a path ({self._connection.shown(link[:100])})")
        return f"{parts.path}?{parts.query}" if parts.query else parts.path

    def _lines(self, answer: httpx.Response, path: str) -> Iterator[str]:
        try:
            yield from answer.iter_lines()
        except httpx.HTTPError as error:
            raise SourceError(f"{self.url}{path}: the answer broke off: {error}") from error

    def _body(self, request: httpx.Request, path: str) -> bytes:
        answer = self._tried(request, path)
        parts, size = list[bytes](), 0
        try:
            for part in answer.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > _MOST_BODY_MIB * BYTES_PER_MIB:
                    raise SourceError(
                        f"{self.url}{path}: an answer of more than {_MOST_BODY_MIB} MiB; is it another server?"
                    )
        except httpx.HTTPError as error:
            raise SourceError(f"{self.url}{path}: the answer broke off: {error}") from error
        finally:
            answer.close()
        return b"".join(parts)

    def _request(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, json: dict[str, object] | None = None
    ) -> httpx.Request:
        try:
            return self._connection.client.build_request(
                method, f"{self._connection.address}{path}", params=params, json=json
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise SourceError(f"{self.url}: no address can be made of {path[:100]!r} ({error})") from error

    def _tried(self, request: httpx.Request, path: str) -> httpx.Response:
        def again(reason: str) -> None:
            logger.debug("%s%s: %s; trying again", self.url, path, reason)

        try:
            return self._connection.answer(lambda: self._once(request, path), WEB_POLICY, again)
        except TransientError as error:
            raise SourceError(f"{self.url}{path} did not answer: {error}; try again later") from error.__cause__

    def _once(self, request: httpx.Request, path: str) -> httpx.Response:
        """Return the answer where it is a success. Raises TransientError for what may pass, and for the rest its error."""
        try:
            answer = self._connection.send(request)
            if answer.is_success:
                return answer
            said = self._refused(path, answer)
        except httpx.HTTPError as error:
            raise TransientError(self._connection.reason(error)) from error
        self.throttled += answer.status_code == httpx.codes.TOO_MANY_REQUESTS
        raise TransientError(said, wait_s=retry_after_s(answer.headers.get("Retry-After", "")))

    def _refused(self, path: str, answer: httpx.Response) -> str:
        """Return the answer of a server that may recover later. Raises for permanent errors."""
        try:
            body = next(answer.iter_bytes(), b"")[:200].decode("utf-8", "replace").strip()
        finally:
            answer.close()
        said = self._connection.shown(f"HTTP {answer.status_code} {body}".strip())
        if answer.status_code in (401, 403):
            raise CredentialsError(f"{self.url}{path} refused: {said}; check the key or token")
        if answer.status_code not in RETRY_STATUS:
            raise SourceError(f"{self.url}{path}: {said}")
        return said


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
