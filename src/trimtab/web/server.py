"""How the application is served: where, to whom, with which certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from trimtab.catalog import Catalog
from trimtab.errors import UsageError
from trimtab.web.access import (
    LEAST_TOKEN,
    LOOPBACK_NETWORKS,
    AccessRules,
    host_of,
    is_loopback,
    networks,
)
from trimtab.web.app import web_app
from trimtab.web.library import Library

_MOST_HEADERS = 32_768
"""Bytes of a request's head."""
_KEEP_ALIVE_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """Where to listen, and who may ask."""

    host: str
    port: int
    token: str | None = None
    user_header: str = ""
    """The header in which a proxy in front names the reader; empty: none is believed."""
    proxies: Sequence[str] = ()
    """Addresses or networks of that proxy; empty: this machine's own."""
    users: Sequence[str] = ()
    """Who of them may read, as patterns (`*@example.com`); empty: everyone that the proxy lets through."""
    names: Sequence[str] = ()
    """Host names that are answered to besides those of this machine."""
    certificate: Path | None = None
    key: Path | None = None

    def rules(self) -> AccessRules:
        """Return the rules of access; raises UsageError where others could reach the server unchecked."""
        closed = self.token is not None or self.user_header
        if not closed and (not is_loopback(self.host) or self.names):
            raise UsageError(
                f"{self.host if not is_loopback(self.host) else ', '.join(self.names)} can be reached by others, and neither a "
                "token nor a proxy that names readers is set: give --token-file with a file of at least "
                f"{LEAST_TOKEN} characters (python3 -c 'import secrets; print(secrets.token_urlsafe(32))'), or "
                "--user-header, or leave out --host and --allow-host"
            )
        if self.user_header and not self.proxies and not is_loopback(self.host):
            raise UsageError(
                f"--user-header {self.user_header} on {self.host}: anybody who reaches that address could send the header; "
                "give --proxy with the proxy's address, or listen on 127.0.0.1 beside it"
            )
        if (self.proxies or self.users) and not self.user_header:
            raise UsageError("--proxy and --allow-user need --user-header: without it no proxy is believed")
        own = AccessRules().hosts if is_loopback(self.host) else frozenset({host_of(_bracketed(self.host))})
        return AccessRules(
            hosts=own | {host_of(name) or name.lower() for name in self.names},
            token=self.token,
            user_header=self.user_header.lower(),
            proxies=networks(self.proxies) if self.proxies else LOOPBACK_NETWORKS,
            users=tuple(self.users),
        )

    @property
    def address(self) -> str:
        """Return where a browser finds it."""
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://{_bracketed(self.host)}:{self.port}/"


def read_token(file: Path) -> str:
    """Return the token that a file holds; raises UsageError where it is too short to be one, or cannot be read."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the token in {file}: {error}") from error
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable():
        raise UsageError(f"{file} holds no token: at least {LEAST_TOKEN} plain characters are needed")
    return token


def run_server(
    library: Library, place: ServerPlace, *, catalog: Catalog | None = None, reviews: Path | None = None
) -> None:
    """Serve until interrupted; `catalog` and `reviews` as for `web_app`."""
    try:
        uvicorn.Server(configured(library, place, catalog=catalog, reviews=reviews)).run()
    finally:
        library.close()


def configured(
    library: Library, place: ServerPlace, *, catalog: Catalog | None = None, reviews: Path | None = None
) -> uvicorn.Config:
    """Return how the server runs; raises UsageError where others could reach it and no token is set."""
    return uvicorn.Config(
        web_app(library, place.rules(), catalog=catalog, reviews=reviews),
        host=place.host,
        port=place.port,
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_MOST_HEADERS,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=2,
        ssl_certfile=place.certificate,
        ssl_keyfile=place.key,
        lifespan="off",
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
