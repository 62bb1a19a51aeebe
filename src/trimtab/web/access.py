"""Who may ask, and how an answer is to be treated: before any page is made, and on whatever goes out.

Read-only and closed by default. A host name that is not allowed is refused, since a page elsewhere could otherwise point its
own name at this address (DNS rebinding). So are methods other than GET and HEAD, but for what stops a computation of this
server or begins it again, which no page elsewhere may ask for. Where a token is set, or a proxy names the
reader, nothing is shown without one of them. The checklist is that of the OWASP ASVS 5.0, chapters 1, 3 and 13; each row has a
test.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.cookies import CookieError, SimpleCookie
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab.errors import UsageError

COOKIE = "__Host-trimtab"
LEAST_TOKEN = 32
"""Characters of a token at least: 128 bits as hexadecimal digits."""
MOST_TARGET = 28_672
"""Bytes of a path with its query. Two values of 400 characters take 9,600 as browsers write them, lists of actions more;
with 4 KiB of other headers it is what the server reads of a request before its body."""
MOST_FORM = 4096
MOST_FAILED = 20
"""Wrong tokens a minute; then no one can log in for the rest of it."""
_MINUTE_S = 60.0
LOGIN, STATIC = "/login", "/static/"
COMPUTATIONS = "/api/computations/"
"""Below it stand the computations that can be cancelled."""
_STEERED = {COMPUTATIONS: ("DELETE", "POST"), "/audits/": ("POST",)}
"""Where more than reading may be asked for: a page of an audit takes the form that cancels what it waits for."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
Network = IPv4Network | IPv6Network
LOOPBACK_NETWORKS: tuple[Network, ...] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))

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
    """Which names of this host are answered to, and what a reader must bring: a token, or a name that a proxy vouches for.

    Without both (on loopback only) everything is shown.
    """

    hosts: frozenset[str] = _LOOPBACK
    token: str | None = None
    user_header: str = ""
    """In lower case; empty: no proxy is believed."""
    proxies: tuple[Network, ...] = ()
    """Addresses from which requests with that header are believed."""
    users: tuple[str, ...] = ()
    """Patterns of names that may read; empty: every name."""

    @property
    def open(self) -> bool:
        """Return whether nothing is asked of a reader."""
        return self.token is None and not self.user_header

    def admits(self, user: str) -> bool:
        """Return whether a name may read."""
        return not self.users or any(fnmatchcase(user.lower(), pattern.lower()) for pattern in self.users)


def networks(addresses: Sequence[str]) -> tuple[Network, ...]:
    """Return addresses (`10.0.0.7`) and networks (`10.42.0.0/16`) as networks; raises UsageError."""
    try:
        return tuple(ip_network(address) for address in addresses)
    except ValueError as error:
        raise UsageError(f"--proxy takes an address or a network, as 10.0.0.7 or 10.42.0.0/16: {error}") from error


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address; a name other than localhost is taken for one that others can."""
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
            steering = next((methods for below, methods in _STEERED.items() if path.startswith(below)), ())
            if method not in steering:
                allowed = ", ".join(("GET", "HEAD", *steering))
                return PlainTextResponse("this server only reads\n", 405, {"Allow": allowed})
            if _from_elsewhere(headers):
                return PlainTextResponse("this was sent from another site\n", 403)
        if (
            self.rules.open
            or path.startswith(STATIC)
            or self._is_known(headers)
            or self._is_vouched_for(scope, headers)
        ):
            return None
        if self.rules.token is None:
            return PlainTextResponse("the proxy in front must name a reader who may see this\n", 403)
        if path == LOGIN:
            return None
        if path.startswith("/api/"):
            return PlainTextResponse("a token is needed\n", 401, {"WWW-Authenticate": "Bearer"})
        return RedirectResponse(f"{LOGIN}?next={quote(path, safe='/')}", 303)

    def _is_known(self, headers: Headers) -> bool:
        """Return whether a request brings the token, or the cookie that it was exchanged for."""
        if self.rules.token is None:
            return False
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(bearer.strip(), self.rules.token):
            return True
        return _same(_cookie(headers.get("cookie", "")), self._session)

    def _is_vouched_for(self, scope: Scope, headers: Headers) -> bool:
        """Return whether the proxy names a reader who may see this.

        The header counts only in a request from the proxy's own address, and only if it is there once: of two, one could be
        the reader's own.
        """
        names = headers.getlist(self.rules.user_header) if self.rules.user_header else []
        if len(names) != 1 or not scope.get("client"):
            return False
        name, peer = names[0].strip(), ip_address(scope["client"][0])
        from_proxy = any(peer in network for network in self.rules.proxies)
        return from_proxy and bool(name) and name.isprintable() and self.rules.admits(name)

    async def _logged_in(self, headers: Headers, receive: Receive) -> Response:
        """Answer the form of the login page: the cookie for the right token, the page again for a wrong one."""
        if _from_elsewhere(headers):
            return PlainTextResponse("the form was sent from another site\n", 403)
        now = time.monotonic()
        while self._failed and now - self._failed[0] > _MINUTE_S:
            self._failed.popleft()
        if len(self._failed) >= MOST_FAILED:
            return PlainTextResponse("too many wrong tokens; wait a minute\n", 429, {"Retry-After": "60"})
        body = await read_body(receive)
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


def _from_elsewhere(headers: Headers) -> bool:
    """Return whether a browser says that a page of another site sent this."""
    return headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


async def read_body(receive: Receive) -> bytes | None:
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
