"""Options shared by commands that read a Prometheus server: which server, authentication, and the time window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from trimtab.cli.options import FILE, FILE_OR_FOLDER, is_typed, option
from trimtab.errors import UsageError
from trimtab.units import as_utc, floor_hour, parse_span

if TYPE_CHECKING:
    from trimtab.sources.prometheus.client import Prometheus


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options for servers, the window, and further inputs."""

    urls: tuple[str, ...] = option(
        "-p", "--prometheus", envvar="TRIMTAB_PROMETHEUS", metavar="[NAME=]URL",
        help="Prometheus, Thanos, Mimir or VictoriaMetrics, with its path prefix; repeat for more clusters.",
    )  # fmt: skip
    cluster_label: str = option(
        "--cluster-label", default="", metavar="LABEL",
        help="The label that distinguishes clusters on a central server; each is collected separately.",
    )  # fmt: skip
    at_once: int = option(
        "--at-once", type=click.IntRange(1, 16), default=2, show_default=True, metavar="N",
        help="Maximum number of large queries that run on a server at the same time.",
    )  # fmt: skip
    start: str = option(
        "--from", default="14d", show_default=True, metavar="TIME",
        help="Start of the window: 14d, now-14d, 2026-09-01.",
    )  # fmt: skip
    end: str = option("--to", default="now", show_default=True, metavar="TIME", help="End of the window.")
    bills: tuple[Path, ...] = option(
        "--focus", type=FILE_OR_FOLDER, help="A FOCUS or CUR 2.0 bill (CSV, Parquet, or a folder); repeat for several."
    )
    workloads: Path | None = option(
        "--workloads", type=FILE, help="A workloads.yaml: declarations that no metric shows (owners, targets)."
    )
    cluster_file: Path | None = option(
        "--cluster", type=FILE, metavar="FILE",
        help="A cluster file (YAML): facts that no metric shows; here, metric names of serving engines that trimtab does "
        "not know.",
    )  # fmt: skip
    selector: str = option(
        "-l", "--selector", default="", metavar='cluster="a"',
        help="Label matchers for every query, for a central Prometheus.",
    )  # fmt: skip
    bearer_file: Path | None = option(
        "--bearer-file", type=FILE, help="A file with a bearer token (or set TRIMTAB_PROMETHEUS_TOKEN)."
    )
    bearer: str | None = option("--bearer", envvar="TRIMTAB_PROMETHEUS_TOKEN", hidden=True)
    user: str | None = option("--user", envvar="TRIMTAB_PROMETHEUS_USER", help="User of basic authentication.")
    password: str | None = option("--password", envvar="TRIMTAB_PROMETHEUS_PASSWORD", hidden=True)
    headers: tuple[str, ...] = option("-H", "--header", metavar="NAME:VALUE", help="A header for every request.")
    tenant: str | None = option("--tenant", help="Tenant of Mimir or Thanos (X-Scope-OrgID).")
    ca_file: Path | None = option("--ca-file", type=FILE, help="Certificates to trust.")
    insecure: bool = option("--insecure", help="Do not check the server's certificate.")

    @property
    def url(self) -> str | None:
        """Return the first server's address; None if no server was given."""
        return self.addresses()[0][1] if self.urls else None

    def addresses(self) -> list[tuple[str, str]]:
        """Return (cluster, address) of each server. The cluster is named by NAME=URL, else by the host. Raises UsageError."""
        found = [_address(text) for text in self.urls]
        names = [name for name, _ in found]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"two servers are named {twice[0]!r}; give each a name with --prometheus NAME=URL")
        return found

    @property
    def is_windowed(self) -> bool:
        """Return whether a window was asked for on the command line."""
        return is_typed("start") or is_typed("end")

    def window(self) -> tuple[datetime, datetime]:
        """Return the window as of now. Raises UsageError."""
        return parse_window(self.start, self.end, datetime.now(UTC))

    @contextmanager
    def server(self) -> Iterator[Prometheus]:
        """Open the first server. Raises UsageError."""
        with self.client(self.url or "", self.selector) as server:
            yield server

    def client(self, url: str, selector: str) -> Prometheus:
        """Return a client of a server, to be used as a context manager. Raises UsageError."""
        from trimtab.inputs.files import read_text
        from trimtab.sources.http import Access
        from trimtab.sources.prometheus.client import Prometheus

        access = Access(
            bearer=read_text(self.bearer_file).strip() if self.bearer_file else self.bearer,
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


def _headers(pairs: tuple[str, ...]) -> dict[str, str]:
    headers = {}
    for pair in pairs:
        name, colon, value = pair.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header {name!r} has no value; write NAME:VALUE")
        headers[name.strip()] = value.strip()
    return headers


def parse_moment(text: str, now: datetime) -> datetime:
    """Return the moment that a text describes. Raises UsageError with the accepted formats."""
    plain = text.strip()
    if plain == "now":
        return now
    try:
        return now - parse_span(plain.removeprefix("now-"))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a time; write 14d, now-14d, 2026-09-01 or 2026-09-01T12:00Z") from error
    return as_utc(moment)


def _is_length(start: str) -> bool:
    try:
        parse_span(start.strip().removeprefix("now-"))
    except ValueError:
        return False
    return True


def parse_window(start: str, end: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the window `[start, end)`. A start such as `14d` counts back from the end.

    Such a start is rounded down to a whole hour, because only whole hours are collected and 14 days of them are requested.
    """
    end_at = parse_moment(end, now)
    start_at = parse_moment(start, end_at if not start.startswith("now") else now)
    if _is_length(start):
        start_at = floor_hour(start_at)
    if start_at >= end_at:
        raise UsageError(f"--from {start} is not before --to {end}")
    return start_at, end_at
