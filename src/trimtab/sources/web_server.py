"""A server of a cloud over HTTP: retries, addresses that tests and mirrors may replace, clear errors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx

from trimtab.errors import CredentialsError, SourceError, UsageError
from trimtab.safe_text import secrets_in, without_secrets

logger = logging.getLogger(__name__)

_RETRY_STATUS = frozenset({429, 500, 502, 503, 504})
_BACKOFF_S = (0.5, 2.0, 8.0)
_MOST_WAIT_S = 60.0
_TIMEOUT_S = 60.0
_MOST_REDIRECTS = 10


class WebServer:
    """One address that is read from. Use as a context manager; `sleep` is there for tests."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url!r} is no address; write https://HOST")
        self._address = url.rstrip("/")
        self.url = without_secrets(self._address)
        """The server's address as it is shown: without a password."""
        self.throttled = 0
        """Answers that said we ask too often."""
        self._sleep = sleep
        self._own_headers = tuple(headers or ())
        self._secrets = secrets_in(url, headers or {})
        self._client = httpx.Client(headers=dict(headers or {}), timeout=_TIMEOUT_S)

    def __enter__(self) -> WebServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, parameters: Mapping[str, str] | None = None) -> bytes:
        """Return the body of an answer; raises SourceError, CredentialsError where it is refused."""
        return self._body(self._client.build_request("GET", f"{self._address}{path}", params=parameters or None), path)

    def post(self, path: str, content: Mapping[str, object]) -> bytes:
        """Return the body of the answer to a question in JSON; raises as `get` does."""
        return self._body(self._client.build_request("POST", f"{self._address}{path}", json=dict(content)), path)

    @contextmanager
    def lines(self, path: str) -> Iterator[Iterator[str]]:
        """Give the lines of an answer as they come: a list may be hundreds of megabytes."""
        answer = self._tried(self._client.build_request("GET", f"{self._address}{path}"), path)
        try:
            yield self._lines(answer, path)
        finally:
            answer.close()

    def path_of(self, link: str) -> str:
        """Return the path of a link that the server gave, so that a replaced address stays in force."""
        parts = urlsplit(link)
        return f"{parts.path}?{parts.query}" if parts.query else parts.path

    def _lines(self, answer: httpx.Response, path: str) -> Iterator[str]:
        try:
            yield from answer.iter_lines()
        except httpx.HTTPError as error:
            raise SourceError(f"{self.url}{path}: the answer broke off: {error}") from error

    def _body(self, request: httpx.Request, path: str) -> bytes:
        answer = self._tried(request, path)
        try:
            return answer.read()
        except httpx.HTTPError as error:
            raise SourceError(f"{self.url}{path}: the answer broke off: {error}") from error
        finally:
            answer.close()

    def _tried(self, request: httpx.Request, path: str) -> httpx.Response:
        said = ""
        for wait_s in (*_BACKOFF_S, None):
            try:
                answer = self._sent(request)
            except httpx.HTTPError as error:
                said, asked_s = without_secrets(str(error), self._secrets) or type(error).__name__, None
            else:
                if answer.is_success:
                    return answer
                said, asked_s = self._refused(path, answer), _retry_after_s(answer)
                self.throttled += answer.status_code == httpx.codes.TOO_MANY_REQUESTS
            if wait_s is not None:
                logger.debug("%s%s: %s; again in %s s", self.url, path, said, wait_s)
                self._sleep(min(asked_s or wait_s, _MOST_WAIT_S))
        raise SourceError(f"{self.url}{path} did not answer: {said}; try again later")

    def _sent(self, request: httpx.Request) -> httpx.Response:
        """Send a request and follow where it is sent on; to another origin go none of our own headers, for they hold keys."""
        for _ in range(_MOST_REDIRECTS):
            answer = self._client.send(request, stream=True)
            following = answer.next_request
            if following is None:
                return answer
            answer.close()
            if _origin(following.url) != _origin(request.url):
                for name in (*self._own_headers, "Authorization", "Cookie"):
                    following.headers.pop(name, None)
            request = following
        raise httpx.TooManyRedirects(f"sent on more than {_MOST_REDIRECTS} times")

    def _refused(self, path: str, answer: httpx.Response) -> str:
        """Return what a server said that may answer later; raises for what will not change."""
        try:
            body = answer.read()[:200].decode("utf-8", "replace").strip()
        finally:
            answer.close()
        said = without_secrets(f"HTTP {answer.status_code} {body}".strip(), self._secrets)
        if answer.status_code in (401, 403):
            raise CredentialsError(f"{self.url}{path} refused: {said}; check the key or token")
        if answer.status_code not in _RETRY_STATUS:
            raise SourceError(f"{self.url}{path}: {said}")
        return said


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _retry_after_s(answer: httpx.Response) -> float | None:
    """Return the seconds that a server asks to wait, where it says so in seconds."""
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else None
