"""Who may ask, and how an answer is to be treated: before any page is made, and on whatever goes out.

Read-only and closed by default: a host name that nobody allowed is refused (a page elsewhere could otherwise let its own name
lead to this address), so are methods other than GET and HEAD, and where a token is set nothing is shown without it.
The checklist is that of the OWASP ASVS 5.0, chapters 1, 3 and 13; a test stands for each row.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "__Host-trimtab"
LEAST_TOKEN = 32
"""Characters of a token at least: 128 bits as hexadecimal digits."""
MOST_TARGET = 4096
"""Bytes of a path with its query."""
MOST_FORM = 4096
MOST_FAILED = 20
"""Wrong tokens a minute; then nobody can log in for the rest of it."""
_MINUTE_S = 60.0
LOGIN, STATIC = "/login", "/static/"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """Which names of this host are answered to, and the token that is asked for (None: none, on loopback only)."""

    hosts: frozenset[str] = _LOOPBACK
    token: str | None = None


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address; a name other than localhost is taken for one that others can."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """Return the name in a Host header, in lower case and without its port; empty where it is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


@dataclass(slots=True, eq=False)
class AccessGate:
    """ASGI middleware that lets through what may be asked, and sets the headers of every answer."""

    app: ASGIApp
    rules: AccessRules
    _session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """What the cookie holds: of this start of the server, and not the token itself."""
    _failed: deque[float] = field(default_factory=deque)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        response = await self._refusal(scope, receive)
        await (response or self.app)(scope, receive, _with_headers(scope, send))

    async def _refusal(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the answer to a request that is not handed on, None where it is."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        if host_of(headers.get("host", "")) not in self.rules.hosts:
            return PlainTextResponse("this server does not answer to that host name\n", 400)
        if len(scope["raw_path"]) + len(scope["query_string"]) > MOST_TARGET:
            return PlainTextResponse("the address is too long\n", 414)
        if method == "POST" and path == LOGIN and self.rules.token is not None:
            return await self._logged_in(headers, receive)
        if method not in ("GET", "HEAD"):
            return PlainTextResponse("this server only reads\n", 405, {"Allow": "GET, HEAD"})
        if self._is_known(headers) or path == LOGIN or path.startswith(STATIC):
            return None
        if path.startswith("/api/"):
            return PlainTextResponse("a token is needed\n", 401, {"WWW-Authenticate": "Bearer"})
        return RedirectResponse(f"{LOGIN}?next={quote(path, safe='/')}", 303)

    def _is_known(self, headers: Headers) -> bool:
        """Tell whether a request brings the token or the cookie; always where no token is set."""
        if self.rules.token is None:
            return True
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(bearer.strip(), self.rules.token):
            return True
        return _same(_cookie(headers.get("cookie", "")), self._session)

    async def _logged_in(self, headers: Headers, receive: Receive) -> Response:
        """Answer the form of the login page: the cookie for the right token, the page again for a wrong one."""
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return PlainTextResponse("the form was sent from another site\n", 403)
        now = time.monotonic()
        while self._failed and now - self._failed[0] > _MINUTE_S:
            self._failed.popleft()
        if len(self._failed) >= MOST_FAILED:
            return PlainTextResponse("too many wrong tokens; wait a minute\n", 429, {"Retry-After": "60"})
        body = await _body(receive)
        if body is None:
            return PlainTextResponse("the form is too large\n", 413)
        try:
            form = parse_qs(body.decode("utf-8", "replace"), max_num_fields=4)
        except ValueError:
            return PlainTextResponse("the form has more fields than the login page sends\n", 400)
        if not _same(form.get("token", [""])[0].strip(), self.rules.token or ""):
            self._failed.append(now)
            return RedirectResponse(f"{LOGIN}?wrong=1", 303)
        answer = RedirectResponse(_local(form.get("next", ["/"])[0]), 303)
        answer.set_cookie(COOKIE, self._session, secure=True, httponly=True, samesite="strict", path="/")
        return answer


def _same(given: str, wanted: str) -> bool:
    """Compare in a time that tells nothing of where the two differ."""
    return bool(wanted) and secrets.compare_digest(given.encode(), wanted.encode())


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _local(target: str) -> str:
    """Return a path of this server, its front page where the target leads elsewhere."""
    plain = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if plain and "\\" not in target else "/"


async def _body(receive: Receive) -> bytes | None:
    """Return a request's body, None where it is too large."""
    parts, size = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > MOST_FORM:
            return None
        parts.append(part)
        if message["type"] != "http.request" or not message.get("more_body"):
            return b"".join(parts)


def _with_headers(scope: Scope, send: Send) -> Send:
    """Return what sends an answer with the headers that every answer has; only what is no secret may be cached."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            public = scope["path"].startswith(STATIC) and message["status"] == 200
            headers["Cache-Control"] = "public, max-age=31536000, immutable" if public else "no-store"
        await send(message)

    return sending
