"""Which server to read, how to be let in, and which window: the options that `collect` and `audit` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from trimtab.cli.moments import parse_window
from trimtab.errors import UsageError

if TYPE_CHECKING:
    from trimtab.sources.prometheus.client import Prometheus

Command = Callable[..., object]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_ANY = click.Path(exists=True, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What was said about the servers, the window, and what is read beside them."""

    urls: tuple[str, ...]
    cluster_label: str
    at_once: int
    start: str
    end: str
    bills: tuple[Path, ...]
    workloads: Path | None
    selector: str
    bearer_file: Path | None
    bearer: str | None
    user: str | None
    password: str | None
    headers: tuple[str, ...]
    tenant: str | None
    ca_file: Path | None
    insecure: bool

    @property
    def url(self) -> str | None:
        """Return the first server's address; None where no server was named."""
        return self.addresses()[0][1] if self.urls else None

    def addresses(self) -> list[tuple[str, str]]:
        """Return (cluster, address) of each server: NAME=URL names it, else its host does; raises UsageError."""
        found = [_address(text) for text in self.urls]
        names = [name for name, _ in found]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"two servers are named {twice[0]!r}; tell them apart with --prometheus NAME=URL")
        return found

    def window(self) -> tuple[datetime, datetime]:
        """Return the window as of now; raises UsageError."""
        return parse_window(self.start, self.end, datetime.now(UTC))

    @contextmanager
    def server(self) -> Iterator[Prometheus]:
        """Open the first server; raises UsageError."""
        with self.client(self.url or "", self.selector) as server:
            yield server

    def client(self, url: str, selector: str) -> Prometheus:
        """Return a client of a server, to be used as a context manager; raises UsageError."""
        from trimtab.sources.http import Access
        from trimtab.sources.prometheus.client import Prometheus

        access = Access(
            bearer=self.bearer_file.read_text(encoding="utf-8").strip() if self.bearer_file else self.bearer,
            user=self.user,
            password=self.password,
            headers=_headers(self.headers),
            tenant=self.tenant,
            ca_file=self.ca_file,
            insecure=self.insecure,
        )
        return Prometheus(url, access, selector=selector, at_once=self.at_once)


def _address(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if equals and "://" not in name:
        return name, url
    return urlsplit(text).hostname or text, text


def server_options(*, required: bool) -> Callable[[Command], Command]:
    """Add the options to a command, as one parameter `source`."""
    options = (
        click.option("-p", "--prometheus", "urls", envvar="TRIMTAB_PROMETHEUS", required=required, multiple=True,
                     metavar="[NAME=]URL",
                     help="Prometheus, Thanos, Mimir or VictoriaMetrics, with its path prefix; repeat for more clusters."),
        click.option("--cluster-label", default="", metavar="LABEL",
                     help="The label that tells clusters apart on a central server; each is collected for itself."),
        click.option("--at-once", type=click.IntRange(1, 16), default=2, show_default=True, metavar="N",
                     help="How many large queries a server gets at the same time."),
        click.option("--from", "start", default="14d", show_default=True,
                     help="Start of the window: 14d, now-14d, 2026-09-01."),
        click.option("--to", "end", default="now", show_default=True, help="End of the window."),
        click.option("--focus", "bills", multiple=True, type=_ANY,
                     help="A FOCUS or CUR 2.0 bill (CSV, Parquet, or a folder); repeat for several."),
        click.option("--workloads", type=_FILE, help="A workloads.yaml: what only people know."),
        click.option("-l", "--selector", default="", metavar='cluster="a"',
                     help="Label matchers for every query, for a central Prometheus."),
        click.option("--bearer-file", type=_FILE, help="A file with a bearer token (or set TRIMTAB_PROMETHEUS_TOKEN)."),
        click.option("--bearer", envvar="TRIMTAB_PROMETHEUS_TOKEN", hidden=True),
        click.option("--user", envvar="TRIMTAB_PROMETHEUS_USER", help="User of basic authentication."),
        click.option("--password", envvar="TRIMTAB_PROMETHEUS_PASSWORD", hidden=True),
        click.option("-H", "--header", "headers", multiple=True, metavar="NAME:VALUE", help="A header for every request."),
        click.option("--tenant", help="Tenant of Mimir or Thanos (X-Scope-OrgID)."),
        click.option("--ca-file", type=_FILE, help="Certificates to trust."),
        click.option("--insecure", is_flag=True, help="Do not check the server's certificate."),
    )  # fmt: skip

    def add(command: Command) -> Command:
        @wraps(command)
        def packed(**given: object) -> object:
            said = {field.name: given.pop(field.name) for field in fields(ServerOptions)}
            return command(source=cast("Callable[..., ServerOptions]", ServerOptions)(**said), **given)

        result: Command = packed
        for option in reversed(options):
            result = option(result)
        return result

    return add


def is_typed(parameter: str) -> bool:
    """Tell whether a parameter of the running command stands on the command line, and is no default and no environment's."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def _headers(pairs: tuple[str, ...]) -> dict[str, str]:
    headers = {}
    for pair in pairs:
        name, colon, value = pair.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header {name!r} has no value; write NAME:VALUE")
        headers[name.strip()] = value.strip()
    return headers
