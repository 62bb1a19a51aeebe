"""`trimtab collect`: write a fleet bundle from a Prometheus server and bills."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.moments import parse_window
from trimtab.errors import UsageError

if TYPE_CHECKING:
    from trimtab.sources.promql import Access


@click.command()
@click.option("-p", "--prometheus", "url", envvar="TRIMTAB_PROMETHEUS", required=True, metavar="URL",
              help="Prometheus, Thanos, Mimir or VictoriaMetrics, with its path prefix.")  # fmt: skip
@click.option(
    "--from", "start", default="14d", show_default=True, help="Start of the window: 14d, now-14d, 2026-09-01."
)
@click.option("--to", "end", default="now", show_default=True, help="End of the window.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("fleet"), show_default=True,
              help="The bundle's folder; a bundle that is there is replaced.")  # fmt: skip
@click.option("--focus", "bills", multiple=True, type=click.Path(exists=True, path_type=Path),
              help="A FOCUS or CUR 2.0 bill (CSV, Parquet, or a folder); repeat for several.")  # fmt: skip
@click.option("--workloads", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A workloads.yaml: what only people know.")  # fmt: skip
@click.option("-l", "--selector", default="", metavar='cluster="a"',
              help="Label matchers for every query, for a central Prometheus.")  # fmt: skip
@click.option("--bearer-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="A file with a bearer token (or set TRIMTAB_PROMETHEUS_TOKEN).")  # fmt: skip
@click.option("--bearer", envvar="TRIMTAB_PROMETHEUS_TOKEN", hidden=True)
@click.option("--user", envvar="TRIMTAB_PROMETHEUS_USER", help="User of basic authentication.")
@click.option("--password", envvar="TRIMTAB_PROMETHEUS_PASSWORD", hidden=True)
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME:VALUE", help="A header for every request.")
@click.option("--tenant", help="Tenant of Mimir or Thanos (X-Scope-OrgID).")
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Certificates to trust.")
@click.option("--insecure", is_flag=True, help="Do not check the server's certificate.")
@click.option("-q", "--quiet", is_flag=True, help="Only errors on stderr.")
@click.option("-v", "--verbose", is_flag=True, help="Also say each step on stderr.")
def command(
    url: str,
    start: str,
    end: str,
    out: Path,
    bills: tuple[Path, ...],
    workloads: Path | None,
    selector: str,
    bearer_file: Path | None,
    bearer: str | None,
    user: str | None,
    password: str | None,
    headers: tuple[str, ...],
    tenant: str | None,
    ca_file: Path | None,
    insecure: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Write a fleet bundle from a Prometheus server and bills.

    It holds what the GPUs did, who held them, what was asked of them and what they cost. Reads only. The window's whole
    hours are collected, aggregated on the server; set the password of --user in TRIMTAB_PROMETHEUS_PASSWORD.

    \b
    Examples:
      trimtab collect --prometheus http://localhost:9090
      trimtab collect -p https://mimir.example/prometheus --tenant prod --bearer-file token --from 30d --out fleet
      trimtab collect -p http://localhost:9090 --focus bills/ --workloads workloads.yaml
    """
    from trimtab.sources.promql import Access

    _set_up_logging(quiet=quiet, verbose=verbose)
    window = parse_window(start, end, datetime.now(UTC))
    access = Access(
        bearer=bearer_file.read_text(encoding="utf-8").strip() if bearer_file else bearer,
        user=user,
        password=password,
        headers=_headers(headers),
        tenant=tenant,
        ca_file=ca_file,
        insecure=insecure,
    )
    _collect(url, access, selector, window, out, bills, workloads, quiet=quiet)


def _collect(
    url: str,
    access: Access,
    selector: str,
    window: tuple[datetime, datetime],
    out: Path,
    bills: tuple[Path, ...],
    workloads: Path | None,
    *,
    quiet: bool,
) -> None:
    from trimtab.sources.collect import with_bills
    from trimtab.sources.coverage import bundle_coverage
    from trimtab.sources.prometheus import collect_prometheus
    from trimtab.sources.promql import Prometheus
    from trimtab.tables.bundle import write_bundle
    from trimtab.tables.workloads import read_workloads

    declared = read_workloads(workloads) if workloads is not None else None
    with _progress(quiet) as report, Prometheus(url, access, selector=selector) as server:
        collected = with_bills(collect_prometheus(server, *window, report=report), bills)
    bundle = write_bundle(out, collected.tables, collected.meta, declared)
    click.echo(f"{out}: {bundle_coverage(bundle)}")
    for name, table in collected.tables.items():
        click.echo(f"  {name:<12} {table.num_rows:>9,} rows")
    for line in (*collected.meta.sources, *collected.meta.notes):
        click.echo(f"  {line}", err=True)
    for reason, number in collected.meta.counts.items():
        click.echo(f"  {number:,} x {reason}", err=True)


def _headers(pairs: tuple[str, ...]) -> dict[str, str]:
    headers = {}
    for pair in pairs:
        name, colon, value = pair.partition(":")
        if not colon or not name.strip():
            raise UsageError(f"--header {name!r} has no value; write NAME:VALUE")
        headers[name.strip()] = value.strip()
    return headers


def _set_up_logging(*, quiet: bool, verbose: bool) -> None:
    level = logging.ERROR if quiet else logging.DEBUG if verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("httpcore").setLevel(logging.WARNING)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str, float], None]]:
    """Give a function that shows how far we are: a bar on a terminal, nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda stage, done_frac: None
        return
    columns = (TextColumn("{task.description:<16}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("connecting", total=1.0)

        def report(stage: str, done_frac: float) -> None:
            bar.update(task, description=stage, completed=done_frac)

        yield report
